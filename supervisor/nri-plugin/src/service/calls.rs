//! The service itself: one method for each call of the runtime.
//!
//! Owns: what of a message is whose argument. Never: knows what comes of it.

use async_trait::async_trait;
use mainstay_nri_api::ttrpc::asynchronous::TtrpcContext;
use mainstay_nri_api::ttrpc::{self, Code};
use mainstay_nri_api::{
    ConfigureRequest, ConfigureResponse, CreateContainerRequest, CreateContainerResponse, Empty, Event,
    MessageField, PluginService, PostCreateContainerRequest, PostCreateContainerResponse,
    PostStartContainerRequest, PostStartContainerResponse, PostUpdateContainerRequest,
    PostUpdateContainerResponse, PostUpdatePodSandboxRequest, PostUpdatePodSandboxResponse,
    RemoveContainerRequest, RemoveContainerResponse, RemovePodSandboxRequest, RemovePodSandboxResponse,
    RunPodSandboxRequest, RunPodSandboxResponse, StartContainerRequest, StartContainerResponse,
    StateChangeEvent, StopContainerRequest, StopContainerResponse, StopPodSandboxRequest,
    StopPodSandboxResponse, SynchronizeRequest, SynchronizeResponse, UpdateContainerRequest,
    UpdateContainerResponse, UpdatePodSandboxRequest, UpdatePodSandboxResponse,
    ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};

use super::{Asked, Service, Way, chain, own, status, time};
use crate::plugin::{Configuration, Plugin};

/// How many pods and containers a runtime may send in parts before it says that this was all.
const SYNCHRONIZED_MAX: usize = 1_000_000;

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
        self.told(context, Event::RUN_POD_SANDBOX, (request.pod, MessageField::none())).await
    }

    async fn post_update_pod_sandbox(
        &self,
        context: &TtrpcContext,
        request: PostUpdatePodSandboxRequest,
    ) -> ttrpc::Result<PostUpdatePodSandboxResponse> {
        self.told(context, Event::POST_UPDATE_POD_SANDBOX, (request.pod, MessageField::none())).await
    }

    async fn stop_pod_sandbox(
        &self,
        context: &TtrpcContext,
        request: StopPodSandboxRequest,
    ) -> ttrpc::Result<StopPodSandboxResponse> {
        self.told(context, Event::STOP_POD_SANDBOX, (request.pod, MessageField::none())).await
    }

    async fn remove_pod_sandbox(
        &self,
        context: &TtrpcContext,
        request: RemovePodSandboxRequest,
    ) -> ttrpc::Result<RemovePodSandboxResponse> {
        self.told(context, Event::REMOVE_POD_SANDBOX, (request.pod, MessageField::none())).await
    }

    async fn post_create_container(
        &self,
        context: &TtrpcContext,
        request: PostCreateContainerRequest,
    ) -> ttrpc::Result<PostCreateContainerResponse> {
        self.told(context, Event::POST_CREATE_CONTAINER, (request.pod, request.container)).await
    }

    async fn start_container(
        &self,
        context: &TtrpcContext,
        request: StartContainerRequest,
    ) -> ttrpc::Result<StartContainerResponse> {
        self.told(context, Event::START_CONTAINER, (request.pod, request.container)).await
    }

    async fn post_start_container(
        &self,
        context: &TtrpcContext,
        request: PostStartContainerRequest,
    ) -> ttrpc::Result<PostStartContainerResponse> {
        self.told(context, Event::POST_START_CONTAINER, (request.pod, request.container)).await
    }

    async fn post_update_container(
        &self,
        context: &TtrpcContext,
        request: PostUpdateContainerRequest,
    ) -> ttrpc::Result<PostUpdateContainerResponse> {
        self.told(context, Event::POST_UPDATE_CONTAINER, (request.pod, request.container)).await
    }

    async fn remove_container(
        &self,
        context: &TtrpcContext,
        request: RemoveContainerRequest,
    ) -> ttrpc::Result<RemoveContainerResponse> {
        self.told(context, Event::REMOVE_CONTAINER, (request.pod, request.container)).await
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
