//! What a runtime says, as calls of a plugin.
//!
//! Owns: both ways in which runtimes tell of an event (a call of its own, or a change of state), the parts of a
//! synchronisation, and a panic that is answered as an error. Never: decides anything.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use mainstay_nri_api::ttrpc::asynchronous::TtrpcContext;
use mainstay_nri_api::ttrpc::{self, Code, get_status};
use mainstay_nri_api::{
    ConfigureRequest, ConfigureResponse, Container, CreateContainerRequest, CreateContainerResponse, Empty,
    Event, MessageField, PluginService, PodSandbox, PostCreateContainerRequest, PostCreateContainerResponse,
    PostStartContainerRequest, PostStartContainerResponse, PostUpdateContainerRequest,
    PostUpdateContainerResponse, PostUpdatePodSandboxRequest, PostUpdatePodSandboxResponse,
    RemoveContainerRequest, RemoveContainerResponse, RemovePodSandboxRequest, RemovePodSandboxResponse,
    RunPodSandboxRequest, RunPodSandboxResponse, StartContainerRequest, StartContainerResponse,
    StateChangeEvent, StopContainerRequest, StopContainerResponse, StopPodSandboxRequest,
    StopPodSandboxResponse, SynchronizeRequest, SynchronizeResponse, UpdateContainerRequest,
    UpdateContainerResponse, UpdatePodSandboxRequest, UpdatePodSandboxResponse,
    ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};

use crate::plugin::{Configuration, Failure, Plugin, Result};

/// How many pods and containers a runtime may send in parts before it says that this was all.
const SYNCHRONIZED_MAX: usize = 1_000_000;

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

#[async_trait]
impl<P: Plugin> PluginService for Service<P> {
    async fn configure(
        &self,
        context: &TtrpcContext,
        request: ConfigureRequest,
    ) -> ttrpc::Result<ConfigureResponse> {
        #[cfg(feature = "faults")]
        self.faults.read_plan(&request.config)?;
        let configuration = Configuration {
            config: request.config,
            runtime_name: request.runtime_name,
            runtime_version: request.runtime_version,
            registration_timeout: time(request.registration_timeout),
            request_timeout: time(request.request_timeout),
            nri_version: request.nri_version,
        };
        let work = self.plugin.configure(configuration);
        let events = self.call(Asked::new(context, "Configure"), work).await?;
        let Some(events) = events.to_wire() else {
            let text = "the plugin wants to hear of nothing, which cannot be said";
            return Err(status(Code::INVALID_ARGUMENT, text.to_owned()));
        };
        Ok(ConfigureResponse { events, ..Default::default() })
    }

    async fn synchronize(
        &self,
        context: &TtrpcContext,
        request: SynchronizeRequest,
    ) -> ttrpc::Result<SynchronizeResponse> {
        let more = request.more;
        let work = async {
            let (pods, containers) = {
                let mut parts = self.parts();
                parts.0.extend(request.pods);
                parts.1.extend(request.containers);
                if parts.0.len() + parts.1.len() > SYNCHRONIZED_MAX {
                    *parts = Default::default();
                    return Err(format!("more than {SYNCHRONIZED_MAX} pods and containers were sent").into());
                }
                if more {
                    return Ok(Vec::new());
                }
                std::mem::take(&mut *parts)
            };
            self.plugin.synchronize(pods, containers).await
        };
        let update = self.call(Asked::new(context, "Synchronize"), work).await?;
        Ok(SynchronizeResponse { update, more, ..Default::default() })
    }

    async fn shutdown(&self, context: &TtrpcContext, _: Empty) -> ttrpc::Result<Empty> {
        let work = async {
            self.plugin.shutdown().await;
            Ok(())
        };
        self.call(Asked::new(context, "Shutdown"), work).await?;
        Ok(Empty::default())
    }

    async fn run_pod_sandbox(
        &self,
        context: &TtrpcContext,
        request: RunPodSandboxRequest,
    ) -> ttrpc::Result<RunPodSandboxResponse> {
        self.tell(
            own(context, Event::RUN_POD_SANDBOX),
            Event::RUN_POD_SANDBOX,
            request.pod,
            MessageField::none(),
        )
        .await?;
        Ok(RunPodSandboxResponse::default())
    }

    async fn post_update_pod_sandbox(
        &self,
        context: &TtrpcContext,
        request: PostUpdatePodSandboxRequest,
    ) -> ttrpc::Result<PostUpdatePodSandboxResponse> {
        self.tell(
            own(context, Event::POST_UPDATE_POD_SANDBOX),
            Event::POST_UPDATE_POD_SANDBOX,
            request.pod,
            MessageField::none(),
        )
        .await?;
        Ok(PostUpdatePodSandboxResponse::default())
    }

    async fn stop_pod_sandbox(
        &self,
        context: &TtrpcContext,
        request: StopPodSandboxRequest,
    ) -> ttrpc::Result<StopPodSandboxResponse> {
        self.tell(
            own(context, Event::STOP_POD_SANDBOX),
            Event::STOP_POD_SANDBOX,
            request.pod,
            MessageField::none(),
        )
        .await?;
        Ok(StopPodSandboxResponse::default())
    }

    async fn remove_pod_sandbox(
        &self,
        context: &TtrpcContext,
        request: RemovePodSandboxRequest,
    ) -> ttrpc::Result<RemovePodSandboxResponse> {
        self.tell(
            own(context, Event::REMOVE_POD_SANDBOX),
            Event::REMOVE_POD_SANDBOX,
            request.pod,
            MessageField::none(),
        )
        .await?;
        Ok(RemovePodSandboxResponse::default())
    }

    async fn post_create_container(
        &self,
        context: &TtrpcContext,
        request: PostCreateContainerRequest,
    ) -> ttrpc::Result<PostCreateContainerResponse> {
        self.tell(
            own(context, Event::POST_CREATE_CONTAINER),
            Event::POST_CREATE_CONTAINER,
            request.pod,
            request.container,
        )
        .await?;
        Ok(PostCreateContainerResponse::default())
    }

    async fn start_container(
        &self,
        context: &TtrpcContext,
        request: StartContainerRequest,
    ) -> ttrpc::Result<StartContainerResponse> {
        self.tell(
            own(context, Event::START_CONTAINER),
            Event::START_CONTAINER,
            request.pod,
            request.container,
        )
        .await?;
        Ok(StartContainerResponse::default())
    }

    async fn post_start_container(
        &self,
        context: &TtrpcContext,
        request: PostStartContainerRequest,
    ) -> ttrpc::Result<PostStartContainerResponse> {
        self.tell(
            own(context, Event::POST_START_CONTAINER),
            Event::POST_START_CONTAINER,
            request.pod,
            request.container,
        )
        .await?;
        Ok(PostStartContainerResponse::default())
    }

    async fn post_update_container(
        &self,
        context: &TtrpcContext,
        request: PostUpdateContainerRequest,
    ) -> ttrpc::Result<PostUpdateContainerResponse> {
        self.tell(
            own(context, Event::POST_UPDATE_CONTAINER),
            Event::POST_UPDATE_CONTAINER,
            request.pod,
            request.container,
        )
        .await?;
        Ok(PostUpdateContainerResponse::default())
    }

    async fn remove_container(
        &self,
        context: &TtrpcContext,
        request: RemoveContainerRequest,
    ) -> ttrpc::Result<RemoveContainerResponse> {
        self.tell(
            own(context, Event::REMOVE_CONTAINER),
            Event::REMOVE_CONTAINER,
            request.pod,
            request.container,
        )
        .await?;
        Ok(RemoveContainerResponse::default())
    }

    async fn update_pod_sandbox(
        &self,
        context: &TtrpcContext,
        request: UpdatePodSandboxRequest,
    ) -> ttrpc::Result<UpdatePodSandboxResponse> {
        let asked = own(context, Event::UPDATE_POD_SANDBOX).about(&request.pod, &MessageField::none());
        let pod = request.pod.unwrap_or_default();
        let overhead = request.overhead_linux_resources.unwrap_or_default();
        let resources = request.linux_resources.unwrap_or_default();
        let work = self.plugin.update_pod_sandbox(pod, overhead, resources);
        self.call(asked, work).await?;
        Ok(UpdatePodSandboxResponse::default())
    }

    async fn create_container(
        &self,
        context: &TtrpcContext,
        request: CreateContainerRequest,
    ) -> ttrpc::Result<CreateContainerResponse> {
        let CreateContainerRequest { pod, container, .. } = request;
        let asked = own(context, Event::CREATE_CONTAINER).about(&pod, &container);
        let work = self.plugin.create_container(pod.unwrap_or_default(), container.unwrap_or_default());
        let adjusted = self.call(asked, work).await?;
        Ok(CreateContainerResponse {
            adjust: MessageField::some(adjusted.adjust),
            update: adjusted.update,
            evict: adjusted.evict,
            ..Default::default()
        })
    }

    async fn update_container(
        &self,
        context: &TtrpcContext,
        request: UpdateContainerRequest,
    ) -> ttrpc::Result<UpdateContainerResponse> {
        let UpdateContainerRequest { pod, container, linux_resources, .. } = request;
        let asked = own(context, Event::UPDATE_CONTAINER).about(&pod, &container);
        let work = self.plugin.update_container(
            pod.unwrap_or_default(),
            container.unwrap_or_default(),
            linux_resources.unwrap_or_default(),
        );
        let updated = self.call(asked, work).await?;
        Ok(UpdateContainerResponse { update: updated.update, evict: updated.evict, ..Default::default() })
    }

    async fn stop_container(
        &self,
        context: &TtrpcContext,
        request: StopContainerRequest,
    ) -> ttrpc::Result<StopContainerResponse> {
        let StopContainerRequest { pod, container, .. } = request;
        let asked = own(context, Event::STOP_CONTAINER).about(&pod, &container);
        let work = self.plugin.stop_container(pod.unwrap_or_default(), container.unwrap_or_default());
        let update = self.call(asked, work).await?;
        Ok(StopContainerResponse { update, ..Default::default() })
    }

    async fn state_change(&self, context: &TtrpcContext, request: StateChangeEvent) -> ttrpc::Result<Empty> {
        let event = request.event.enum_value_or_default();
        let asked = Asked { way: Way::StateChange, ..own(context, event) };
        self.tell(asked, event, request.pod, request.container).await?;
        Ok(Empty::default())
    }

    async fn validate_container_adjustment(
        &self,
        context: &TtrpcContext,
        request: ValidateContainerAdjustmentRequest,
    ) -> ttrpc::Result<ValidateContainerAdjustmentResponse> {
        let event = Event::VALIDATE_CONTAINER_ADJUSTMENT;
        let asked = own(context, event).about(&request.pod, &request.container);
        let work = async {
            // A refusal is an answer, and not a failure of the plugin.
            Ok(self.plugin.validate_container_adjustment(request).await.err())
        };
        let refusal = self.call(asked, work).await?;
        Ok(ValidateContainerAdjustmentResponse {
            reject: refusal.is_some(),
            reason: refusal.map(|failure| chain(&failure)).unwrap_or_default(),
            ..Default::default()
        })
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
