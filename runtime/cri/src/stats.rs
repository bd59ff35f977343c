//! What pods and containers use.

use std::sync::Arc;

use mainstay_cri_api::{
    ContainerStatsRequest, ContainerStatsResponse, ListContainerStatsRequest, ListContainerStatsResponse,
    ListPodSandboxStatsRequest, ListPodSandboxStatsResponse, PodSandboxStatsRequest, PodSandboxStatsResponse,
    StreamContainerStatsRequest, StreamContainerStatsResponse, StreamPodSandboxStatsRequest,
    StreamPodSandboxStatsResponse,
};

use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::service::Answers;

/// `ContainerStats`
pub(crate) async fn container(
    _node: Arc<Node>,
    _request: ContainerStatsRequest,
) -> Result<ContainerStatsResponse> {
    Err(Failure::unimplemented("ContainerStats", "not yet"))
}

/// `ListContainerStats`
pub(crate) async fn containers(
    _node: Arc<Node>,
    _request: ListContainerStatsRequest,
) -> Result<ListContainerStatsResponse> {
    Err(Failure::unimplemented("ListContainerStats", "not yet"))
}

/// `StreamContainerStats`
pub(crate) async fn stream_containers(
    _node: Arc<Node>,
    _request: StreamContainerStatsRequest,
) -> Result<Answers<StreamContainerStatsResponse>> {
    Err(Failure::unimplemented("StreamContainerStats", "not yet"))
}

/// `PodSandboxStats`
pub(crate) async fn pod(
    _node: Arc<Node>,
    _request: PodSandboxStatsRequest,
) -> Result<PodSandboxStatsResponse> {
    Err(Failure::unimplemented("PodSandboxStats", "not yet"))
}

/// `ListPodSandboxStats`
pub(crate) async fn pods(
    _node: Arc<Node>,
    _request: ListPodSandboxStatsRequest,
) -> Result<ListPodSandboxStatsResponse> {
    Err(Failure::unimplemented("ListPodSandboxStats", "not yet"))
}

/// `StreamPodSandboxStats`
pub(crate) async fn stream_pods(
    _node: Arc<Node>,
    _request: StreamPodSandboxStatsRequest,
) -> Result<Answers<StreamPodSandboxStatsResponse>> {
    Err(Failure::unimplemented("StreamPodSandboxStats", "not yet"))
}
