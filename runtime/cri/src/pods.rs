//! Pods: made, stopped, removed, shown.

use std::sync::Arc;

use mainstay_cri_api::{
    ListPodSandboxRequest, ListPodSandboxResponse, PodSandboxStatusRequest, PodSandboxStatusResponse,
    RemovePodSandboxRequest, RemovePodSandboxResponse, RunPodSandboxRequest, RunPodSandboxResponse,
    StopPodSandboxRequest, StopPodSandboxResponse, StreamPodSandboxesRequest, StreamPodSandboxesResponse,
    UpdatePodSandboxResourcesRequest, UpdatePodSandboxResourcesResponse,
};

use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::service::Answers;

/// `RunPodSandbox`
pub(crate) async fn run(_node: Arc<Node>, _request: RunPodSandboxRequest) -> Result<RunPodSandboxResponse> {
    Err(Failure::unimplemented("RunPodSandbox", "not yet"))
}

/// `StopPodSandbox`
pub(crate) async fn stop(
    _node: Arc<Node>,
    _request: StopPodSandboxRequest,
) -> Result<StopPodSandboxResponse> {
    Err(Failure::unimplemented("StopPodSandbox", "not yet"))
}

/// `RemovePodSandbox`
pub(crate) async fn remove(
    _node: Arc<Node>,
    _request: RemovePodSandboxRequest,
) -> Result<RemovePodSandboxResponse> {
    Err(Failure::unimplemented("RemovePodSandbox", "not yet"))
}

/// `PodSandboxStatus`
pub(crate) async fn status(
    _node: Arc<Node>,
    _request: PodSandboxStatusRequest,
) -> Result<PodSandboxStatusResponse> {
    Err(Failure::unimplemented("PodSandboxStatus", "not yet"))
}

/// `ListPodSandbox`
pub(crate) async fn list(
    _node: Arc<Node>,
    _request: ListPodSandboxRequest,
) -> Result<ListPodSandboxResponse> {
    Err(Failure::unimplemented("ListPodSandbox", "not yet"))
}

/// `StreamPodSandboxes`
pub(crate) async fn stream(
    _node: Arc<Node>,
    _request: StreamPodSandboxesRequest,
) -> Result<Answers<StreamPodSandboxesResponse>> {
    Err(Failure::unimplemented("StreamPodSandboxes", "not yet"))
}

/// `UpdatePodSandboxResources`
pub(crate) async fn update_resources(
    _node: Arc<Node>,
    _request: UpdatePodSandboxResourcesRequest,
) -> Result<UpdatePodSandboxResourcesResponse> {
    Err(Failure::unimplemented("UpdatePodSandboxResources", "not yet"))
}
