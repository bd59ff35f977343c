//! Everything that a plugin is told, as typed calls.
//!
//! Owns: the shape of each call, and what older plugins are told instead. Never: knows in which order plugins are
//! called.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mainstay_nri_api::ttrpc;
use mainstay_nri_api::ttrpc::context::Context;
use mainstay_nri_api::{
    Container, CreateContainerRequest, CreateContainerResponse, Empty, Event, LinuxResources, Message,
    MessageField, PluginClient, PodSandbox, PostCreateContainerRequest, PostStartContainerRequest,
    PostUpdateContainerRequest, PostUpdatePodSandboxRequest, RemoveContainerRequest, RemovePodSandboxRequest,
    RunPodSandboxRequest, StartContainerRequest, StateChangeEvent, StopContainerRequest,
    StopContainerResponse, StopPodSandboxRequest, UpdateContainerRequest, UpdateContainerResponse,
    UpdatePodSandboxRequest, ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};

use super::Link;
use super::answer::{CallError, call};

/// What a plugin is told of a pod, to which it answers only yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodNotice {
    /// It is being started.
    Run,
    /// Its resources were changed.
    PostUpdate,
    /// It was stopped.
    Stop,
    /// It is being removed.
    Remove,
}

/// What a plugin is told of a container, to which it answers only yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerNotice {
    /// It was created.
    PostCreate,
    /// It is being started.
    Start,
    /// It was started.
    PostStart,
    /// Its resources were changed.
    PostUpdate,
    /// It is being removed.
    Remove,
}

impl PodNotice {
    /// The event that a plugin asks for to hear it.
    pub fn event(self) -> Event {
        match self {
            Self::Run => Event::RUN_POD_SANDBOX,
            Self::PostUpdate => Event::POST_UPDATE_POD_SANDBOX,
            Self::Stop => Event::STOP_POD_SANDBOX,
            Self::Remove => Event::REMOVE_POD_SANDBOX,
        }
    }
}

impl ContainerNotice {
    /// The event that a plugin asks for to hear it.
    pub fn event(self) -> Event {
        match self {
            Self::PostCreate => Event::POST_CREATE_CONTAINER,
            Self::Start => Event::START_CONTAINER,
            Self::PostStart => Event::POST_START_CONTAINER,
            Self::PostUpdate => Event::POST_UPDATE_CONTAINER,
            Self::Remove => Event::REMOVE_CONTAINER,
        }
    }
}

/// Makes one call with a request, and drops what an answer would say.
macro_rules! tell {
    ($link:ident, $event:ident, $limit:ident, $method:ident, $request:expr) => {{
        let request = &$request;
        $link
            .ask($event.name(), $limit, request, |client, context| async move {
                client.$method(context, request).await.map(drop)
            })
            .await
    }};
}

/// A request about a pod, or a container of it.
macro_rules! about {
    ($request:ident, $($field:ident),+) => {
        $request { $($field: MessageField::some($field.clone()),)+ ..Default::default() }
    };
}

impl Link {
    /// Tells it of a pod.
    pub async fn pod_notice(
        &self,
        notice: PodNotice,
        pod: PodSandbox,
        limit: Duration,
    ) -> Result<(), CallError> {
        let (event, started) = (notice.event(), Instant::now());
        if !self.wants(event) {
            return Ok(());
        }
        if !self.hears_state_changes() {
            let told = match notice {
                PodNotice::Run => {
                    tell!(self, event, limit, run_pod_sandbox, about!(RunPodSandboxRequest, pod))
                }
                PodNotice::PostUpdate => {
                    tell!(
                        self,
                        event,
                        limit,
                        post_update_pod_sandbox,
                        about!(PostUpdatePodSandboxRequest, pod)
                    )
                }
                PodNotice::Stop => {
                    tell!(self, event, limit, stop_pod_sandbox, about!(StopPodSandboxRequest, pod))
                }
                PodNotice::Remove => {
                    tell!(self, event, limit, remove_pod_sandbox, about!(RemovePodSandboxRequest, pod))
                }
            };
            if !is_unknown(&told, &self.0.unknown.notices) {
                return told;
            }
        }
        self.state_change(event, pod, None, limit.saturating_sub(started.elapsed())).await
    }

    /// Tells it of a container.
    pub async fn container_notice(
        &self,
        notice: ContainerNotice,
        pod: PodSandbox,
        container: Container,
        limit: Duration,
    ) -> Result<(), CallError> {
        use ContainerNotice::{PostCreate, PostStart, PostUpdate, Remove, Start};
        let (event, started) = (notice.event(), Instant::now());
        if !self.wants(event) {
            return Ok(());
        }
        if !self.hears_state_changes() {
            let told = match notice {
                PostCreate => {
                    let request = about!(PostCreateContainerRequest, pod, container);
                    tell!(self, event, limit, post_create_container, request)
                }
                Start => {
                    let request = about!(StartContainerRequest, pod, container);
                    tell!(self, event, limit, start_container, request)
                }
                PostStart => {
                    let request = about!(PostStartContainerRequest, pod, container);
                    tell!(self, event, limit, post_start_container, request)
                }
                PostUpdate => {
                    let request = about!(PostUpdateContainerRequest, pod, container);
                    tell!(self, event, limit, post_update_container, request)
                }
                Remove => {
                    let request = about!(RemoveContainerRequest, pod, container);
                    tell!(self, event, limit, remove_container, request)
                }
            };
            if !is_unknown(&told, &self.0.unknown.notices) {
                return told;
            }
        }
        self.state_change(event, pod, Some(container), limit.saturating_sub(started.elapsed())).await
    }

    /// Asks what it changes about a container that is being created.
    pub async fn create_container(
        &self,
        request: &CreateContainerRequest,
        limit: Duration,
    ) -> Result<CreateContainerResponse, CallError> {
        if !self.wants(Event::CREATE_CONTAINER) {
            return Ok(CreateContainerResponse::default());
        }
        self.ask("CreateContainer", limit, request, |client, context| async move {
            client.create_container(context, request).await
        })
        .await
    }

    /// Asks what it changes about an update of a container.
    pub async fn update_container(
        &self,
        request: &UpdateContainerRequest,
        limit: Duration,
    ) -> Result<UpdateContainerResponse, CallError> {
        if !self.wants(Event::UPDATE_CONTAINER) {
            return Ok(UpdateContainerResponse::default());
        }
        self.ask("UpdateContainer", limit, request, |client, context| async move {
            client.update_container(context, request).await
        })
        .await
    }

    /// Tells it that a container was stopped, and asks what it changes about others.
    pub async fn stop_container(
        &self,
        request: &StopContainerRequest,
        limit: Duration,
    ) -> Result<StopContainerResponse, CallError> {
        if !self.wants(Event::STOP_CONTAINER) {
            return Ok(StopContainerResponse::default());
        }
        self.ask("StopContainer", limit, request, |client, context| async move {
            client.stop_container(context, request).await
        })
        .await
    }

    /// Tells it that the resources of a pod are being changed. A plugin that is older than the call is not told.
    pub async fn update_pod_sandbox(
        &self,
        pod: PodSandbox,
        overhead: LinuxResources,
        resources: LinuxResources,
        limit: Duration,
    ) -> Result<(), CallError> {
        let event = Event::UPDATE_POD_SANDBOX;
        if !self.wants(event) {
            return Ok(());
        }
        let request = UpdatePodSandboxRequest {
            pod: MessageField::some(pod),
            overhead_linux_resources: MessageField::some(overhead),
            linux_resources: MessageField::some(resources),
            ..Default::default()
        };
        let told = tell!(self, event, limit, update_pod_sandbox, request);
        if is_unknown(&told, &self.0.unknown.update_pod_sandbox) { Ok(()) } else { told }
    }

    /// Asks whether it agrees with what all plugins together changed. A plugin that is older than the call agrees.
    pub async fn validate_container_adjustment(
        &self,
        request: &ValidateContainerAdjustmentRequest,
        limit: Duration,
    ) -> Result<ValidateContainerAdjustmentResponse, CallError> {
        let event = Event::VALIDATE_CONTAINER_ADJUSTMENT;
        if !self.wants(event) {
            return Ok(ValidateContainerAdjustmentResponse::default());
        }
        let answer = self
            .ask(event.name(), limit, request, |client, context| async move {
                client.validate_container_adjustment(context, request).await
            })
            .await;
        if is_unknown(&answer, &self.0.unknown.validate_container_adjustment) {
            return Ok(ValidateContainerAdjustmentResponse::default());
        }
        answer
    }

    /// Tells it that the runtime is going down. Nothing depends on the answer.
    pub async fn shutdown(&self, limit: Duration) -> Result<(), CallError> {
        let request = &Empty::default();
        self.ask("Shutdown", limit, request, |client, context| async move {
            client.shutdown(context, request).await.map(drop)
        })
        .await
    }

    async fn state_change(
        &self,
        event: Event,
        pod: PodSandbox,
        container: Option<Container>,
        limit: Duration,
    ) -> Result<(), CallError> {
        let request = &StateChangeEvent {
            event: event.into(),
            pod: MessageField::some(pod),
            container: container.into(),
            ..Default::default()
        };
        // Named by its event: that it was told in another way is nothing to whoever reads of its failure.
        self.ask(event.name(), limit, request, |client, context| async move {
            client.state_change(context, request).await.map(drop)
        })
        .await
    }

    pub(super) async fn ask<Request, Answer, Rpc>(
        &self,
        what: &'static str,
        limit: Duration,
        request: &Request,
        rpc: impl FnOnce(PluginClient, Context) -> Rpc,
    ) -> Result<Answer, CallError>
    where
        Request: Message,
        Rpc: Future<Output = ttrpc::Result<Answer>>,
    {
        call(&self.0.client, &self.0.closing, what, limit, request, rpc).await
    }
}

/// Whether the plugin does not know the call; remembers it if so.
fn is_unknown<T>(answer: &Result<T, CallError>, memory: &AtomicBool) -> bool {
    let unknown = matches!(answer, Err(CallError::Unknown { .. }));
    if unknown {
        memory.store(true, Ordering::Relaxed);
    }
    unknown
}
