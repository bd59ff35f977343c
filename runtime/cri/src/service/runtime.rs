//! `RuntimeService`: each call to its place.

use mainstay_cri_api::runtime_service_server::RuntimeService;
use mainstay_cri_api::{
    AttachRequest, AttachResponse, CheckpointContainerRequest, CheckpointContainerResponse,
    CheckpointPodRequest, CheckpointPodResponse, ContainerEventResponse, ContainerStatsRequest,
    ContainerStatsResponse, ContainerStatusRequest, ContainerStatusResponse, CreateContainerRequest,
    CreateContainerResponse, ExecRequest, ExecResponse, ExecSyncRequest, ExecSyncResponse, GetEventsRequest,
    ListContainerStatsRequest, ListContainerStatsResponse, ListContainersRequest, ListContainersResponse,
    ListMetricDescriptorsRequest, ListMetricDescriptorsResponse, ListPodSandboxMetricsRequest,
    ListPodSandboxMetricsResponse, ListPodSandboxRequest, ListPodSandboxResponse, ListPodSandboxStatsRequest,
    ListPodSandboxStatsResponse, PodSandboxStatsRequest, PodSandboxStatsResponse, PodSandboxStatusRequest,
    PodSandboxStatusResponse, PortForwardRequest, PortForwardResponse, RemoveContainerRequest,
    RemoveContainerResponse, RemovePodSandboxRequest, RemovePodSandboxResponse, ReopenContainerLogRequest,
    ReopenContainerLogResponse, RestorePodRequest, RestorePodResponse, RunPodSandboxRequest,
    RunPodSandboxResponse, RuntimeConfigRequest, RuntimeConfigResponse, StartContainerRequest,
    StartContainerResponse, StatusRequest, StatusResponse, StopContainerRequest, StopContainerResponse,
    StopPodSandboxRequest, StopPodSandboxResponse, StreamContainerStatsRequest, StreamContainerStatsResponse,
    StreamContainersRequest, StreamContainersResponse, StreamPodSandboxMetricsRequest,
    StreamPodSandboxMetricsResponse, StreamPodSandboxStatsRequest, StreamPodSandboxStatsResponse,
    StreamPodSandboxesRequest, StreamPodSandboxesResponse, UpdateContainerResourcesRequest,
    UpdateContainerResourcesResponse, UpdatePodSandboxResourcesRequest, UpdatePodSandboxResourcesResponse,
    UpdateRuntimeConfigRequest, UpdateRuntimeConfigResponse, VersionRequest, VersionResponse,
};
use tonic::{Request, async_trait};

use super::{Answer, Calls, StreamAnswer, Streaming};
use crate::{checkpoint, containers, events, exec, node, pod_metrics, pods, stats, streams, updates};

#[async_trait]
impl RuntimeService for Calls {
    async fn version(&self, request: Request<VersionRequest>) -> Answer<VersionResponse> {
        self.look("Version", node::version, request).await
    }

    async fn run_pod_sandbox(&self, request: Request<RunPodSandboxRequest>) -> Answer<RunPodSandboxResponse> {
        self.work("RunPodSandbox", pods::run, request).await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        self.work("StopPodSandbox", pods::stop, request).await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        self.work("RemovePodSandbox", pods::remove, request).await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        self.look("PodSandboxStatus", pods::status, request).await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        self.look("ListPodSandbox", pods::list, request).await
    }

    type StreamPodSandboxesStream = Streaming<StreamPodSandboxesResponse>;

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> StreamAnswer<StreamPodSandboxesResponse> {
        self.open("StreamPodSandboxes", pods::stream, request).await
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        self.work("CreateContainer", containers::create, request).await
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        self.work("StartContainer", containers::start, request).await
    }

    async fn stop_container(&self, request: Request<StopContainerRequest>) -> Answer<StopContainerResponse> {
        self.work("StopContainer", containers::stop, request).await
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        self.work("RemoveContainer", containers::remove, request).await
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        self.look("ListContainers", containers::list, request).await
    }

    type StreamContainersStream = Streaming<StreamContainersResponse>;

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> StreamAnswer<StreamContainersResponse> {
        self.open("StreamContainers", containers::stream, request).await
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        self.look("ContainerStatus", containers::status, request).await
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        self.work("UpdateContainerResources", updates::container, request).await
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        self.work("ReopenContainerLog", containers::reopen_log, request).await
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        self.work("ExecSync", exec::sync, request).await
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        self.look("Exec", streams::exec, request).await
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<AttachResponse> {
        self.look("Attach", streams::attach, request).await
    }

    async fn port_forward(&self, request: Request<PortForwardRequest>) -> Answer<PortForwardResponse> {
        self.look("PortForward", streams::port_forward, request).await
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        self.look("ContainerStats", stats::container, request).await
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        self.look("ListContainerStats", stats::containers, request).await
    }

    type StreamContainerStatsStream = Streaming<StreamContainerStatsResponse>;

    async fn stream_container_stats(
        &self,
        request: Request<StreamContainerStatsRequest>,
    ) -> StreamAnswer<StreamContainerStatsResponse> {
        self.open("StreamContainerStats", stats::stream_containers, request).await
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> Answer<PodSandboxStatsResponse> {
        self.look("PodSandboxStats", stats::pod, request).await
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> Answer<ListPodSandboxStatsResponse> {
        self.look("ListPodSandboxStats", stats::pods, request).await
    }

    type StreamPodSandboxStatsStream = Streaming<StreamPodSandboxStatsResponse>;

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<StreamPodSandboxStatsRequest>,
    ) -> StreamAnswer<StreamPodSandboxStatsResponse> {
        self.open("StreamPodSandboxStats", stats::stream_pods, request).await
    }

    async fn update_runtime_config(
        &self,
        request: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        self.work("UpdateRuntimeConfig", node::update_runtime_config, request).await
    }

    async fn status(&self, request: Request<StatusRequest>) -> Answer<StatusResponse> {
        self.look("Status", node::status, request).await
    }

    async fn checkpoint_container(
        &self,
        request: Request<CheckpointContainerRequest>,
    ) -> Answer<CheckpointContainerResponse> {
        self.work("CheckpointContainer", checkpoint::container, request).await
    }

    async fn checkpoint_pod(&self, request: Request<CheckpointPodRequest>) -> Answer<CheckpointPodResponse> {
        self.work("CheckpointPod", checkpoint::pod, request).await
    }

    async fn restore_pod(&self, request: Request<RestorePodRequest>) -> Answer<RestorePodResponse> {
        self.work("RestorePod", checkpoint::restore, request).await
    }

    type GetContainerEventsStream = Streaming<ContainerEventResponse>;

    async fn get_container_events(
        &self,
        request: Request<GetEventsRequest>,
    ) -> StreamAnswer<ContainerEventResponse> {
        let client = events::Client::of(&request);
        self.open("GetContainerEvents", |node, asked| events::events(node, client, asked), request).await
    }

    async fn list_metric_descriptors(
        &self,
        request: Request<ListMetricDescriptorsRequest>,
    ) -> Answer<ListMetricDescriptorsResponse> {
        self.look("ListMetricDescriptors", pod_metrics::descriptors, request).await
    }

    async fn list_pod_sandbox_metrics(
        &self,
        request: Request<ListPodSandboxMetricsRequest>,
    ) -> Answer<ListPodSandboxMetricsResponse> {
        self.look("ListPodSandboxMetrics", pod_metrics::list, request).await
    }

    type StreamPodSandboxMetricsStream = Streaming<StreamPodSandboxMetricsResponse>;

    async fn stream_pod_sandbox_metrics(
        &self,
        request: Request<StreamPodSandboxMetricsRequest>,
    ) -> StreamAnswer<StreamPodSandboxMetricsResponse> {
        self.open("StreamPodSandboxMetrics", pod_metrics::stream, request).await
    }

    async fn runtime_config(&self, request: Request<RuntimeConfigRequest>) -> Answer<RuntimeConfigResponse> {
        self.look("RuntimeConfig", node::runtime_config, request).await
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Answer<UpdatePodSandboxResourcesResponse> {
        self.work("UpdatePodSandboxResources", updates::pod, request).await
    }
}
