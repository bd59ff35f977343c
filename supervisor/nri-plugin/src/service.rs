//! What a runtime says, as calls of a plugin.
//!
//! Owns: both ways in which runtimes tell of an event (a call of its own, or a change of state), the parts of a
//! synchronisation, and a panic that is answered as an error. Never: decides anything.

mod calls;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use mainstay_nri_api::ttrpc::asynchronous::TtrpcContext;
use mainstay_nri_api::ttrpc::{self, Code, get_status};
use mainstay_nri_api::{Container, Event, MessageField, PodSandbox};

use crate::plugin::{Failure, Plugin, Result};

/// The service `Plugin`, for one connection.
pub(crate) struct Service<P> {
    plugin: Arc<P>,
    /// What came of a synchronisation that is not complete.
    parts: Mutex<(Vec<PodSandbox>, Vec<Container>)>,
    #[cfg(feature = "faults")]
    faults: crate::faults::Faults,
}

/// One call of the runtime.
#[derive(Debug)]
#[cfg_attr(not(feature = "faults"), expect(dead_code, reason = "without faults it is only shown in traces"))]
pub(crate) struct Asked {
    /// What the answer is recognised by.
    pub stream: u32,
    /// `RunPodSandbox` and the like.
    pub call: &'static str,
    /// The id of the pod; empty where there is none.
    pub pod: String,
    /// The id of the container; empty where there is none.
    pub container: String,
    /// How the runtime says it.
    pub way: Way,
}

/// How a runtime tells of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a call of its own.
    OwnCall,
    /// As a change of state.
    StateChange,
}

impl Asked {
    fn new(context: &TtrpcContext, call: &'static str) -> Self {
        let (pod, container) = (String::new(), String::new());
        Self { stream: context.mh.stream_id, call, pod, container, way: Way::OwnCall }
    }

    fn about(mut self, pod: &MessageField<PodSandbox>, container: &MessageField<Container>) -> Self {
        self.pod = pod.as_ref().map(|pod| pod.id.clone()).unwrap_or_default();
        self.container = container.as_ref().map(|container| container.id.clone()).unwrap_or_default();
        self
    }
}

impl<P: Plugin> Service<P> {
    pub fn new(plugin: Arc<P>, #[cfg(feature = "faults")] faults: crate::faults::Faults) -> Self {
        Self {
            plugin,
            parts: Mutex::default(),
            #[cfg(feature = "faults")]
            faults,
        }
    }

    /// Calls the plugin, whose panics are errors of that call alone.
    async fn call<T>(&self, asked: Asked, work: impl Future<Output = Result<T>>) -> ttrpc::Result<T> {
        tracing::trace!(?asked, "the runtime calls");
        let work = async {
            #[cfg(feature = "faults")]
            self.faults.strike(&asked).await?;
            work.await.map_err(|failure| refused(&failure))
        };
        let panicked = |_| Err(status(Code::INTERNAL, "the plugin panicked".to_owned()));
        AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(panicked)
    }

    /// Tells the plugin something to which it only says yes or no.
    async fn tell(
        &self,
        asked: Asked,
        event: Event,
        pod: MessageField<PodSandbox>,
        container: MessageField<Container>,
    ) -> ttrpc::Result<()> {
        let asked = asked.about(&pod, &container);
        let work = self.notice(event, pod.unwrap_or_default(), container.unwrap_or_default());
        self.call(asked, work).await
    }

    /// The same of an event that has a call of its own.
    async fn told<T: Default>(
        &self,
        context: &TtrpcContext,
        event: Event,
        (pod, container): (MessageField<PodSandbox>, MessageField<Container>),
    ) -> ttrpc::Result<T> {
        self.tell(own(context, event), event, pod, container).await?;
        Ok(T::default())
    }

    async fn notice(&self, event: Event, pod: PodSandbox, container: Container) -> Result<()> {
        let plugin = &self.plugin;
        match event {
            Event::RUN_POD_SANDBOX => plugin.run_pod_sandbox(pod).await,
            Event::POST_UPDATE_POD_SANDBOX => plugin.post_update_pod_sandbox(pod).await,
            Event::STOP_POD_SANDBOX => plugin.stop_pod_sandbox(pod).await,
            Event::REMOVE_POD_SANDBOX => plugin.remove_pod_sandbox(pod).await,
            Event::POST_CREATE_CONTAINER => plugin.post_create_container(pod, container).await,
            Event::START_CONTAINER => plugin.start_container(pod, container).await,
            Event::POST_START_CONTAINER => plugin.post_start_container(pod, container).await,
            Event::POST_UPDATE_CONTAINER => plugin.post_update_container(pod, container).await,
            Event::REMOVE_CONTAINER => plugin.remove_container(pod, container).await,
            // Nothing else is told in this way; a newer runtime may, and means no harm.
            _ => Ok(()),
        }
    }

    fn parts(&self) -> MutexGuard<'_, (Vec<PodSandbox>, Vec<Container>)> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn own(context: &TtrpcContext, event: Event) -> Asked {
    Asked::new(context, event.name())
}

fn time(milliseconds: i64) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

fn refused(failure: &Failure) -> ttrpc::Error {
    status(Code::UNKNOWN, chain(failure))
}

fn status(code: Code, text: String) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(get_status(code, text))
}

/// A failure with its causes, in one sentence.
fn chain(failure: &Failure) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(failure) = cause {
        text.push_str(": ");
        text.push_str(&failure.to_string());
        cause = failure.source();
    }
    text
}
