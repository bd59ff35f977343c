//! Containers: made, started, stopped, removed, changed, shown.

use std::sync::Arc;

use mainstay_cri_api::{
    ContainerStatusRequest, ContainerStatusResponse, CreateContainerRequest, CreateContainerResponse,
    ListContainersRequest, ListContainersResponse, RemoveContainerRequest, RemoveContainerResponse,
    ReopenContainerLogRequest, ReopenContainerLogResponse, StartContainerRequest, StartContainerResponse,
    StopContainerRequest, StopContainerResponse, StreamContainersRequest, StreamContainersResponse,
    UpdateContainerResourcesRequest, UpdateContainerResourcesResponse,
};

use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::service::Answers;

/// `CreateContainer`
pub(crate) async fn create(
    _node: Arc<Node>,
    _request: CreateContainerRequest,
) -> Result<CreateContainerResponse> {
    Err(Failure::unimplemented("CreateContainer", "not yet"))
}

/// `StartContainer`
pub(crate) async fn start(
    _node: Arc<Node>,
    _request: StartContainerRequest,
) -> Result<StartContainerResponse> {
    Err(Failure::unimplemented("StartContainer", "not yet"))
}

/// `StopContainer`
pub(crate) async fn stop(_node: Arc<Node>, _request: StopContainerRequest) -> Result<StopContainerResponse> {
    Err(Failure::unimplemented("StopContainer", "not yet"))
}

/// `RemoveContainer`
pub(crate) async fn remove(
    _node: Arc<Node>,
    _request: RemoveContainerRequest,
) -> Result<RemoveContainerResponse> {
    Err(Failure::unimplemented("RemoveContainer", "not yet"))
}

/// `ListContainers`
pub(crate) async fn list(
    _node: Arc<Node>,
    _request: ListContainersRequest,
) -> Result<ListContainersResponse> {
    Err(Failure::unimplemented("ListContainers", "not yet"))
}

/// `StreamContainers`
pub(crate) async fn stream(
    _node: Arc<Node>,
    _request: StreamContainersRequest,
) -> Result<Answers<StreamContainersResponse>> {
    Err(Failure::unimplemented("StreamContainers", "not yet"))
}

/// `ContainerStatus`
pub(crate) async fn status(
    _node: Arc<Node>,
    _request: ContainerStatusRequest,
) -> Result<ContainerStatusResponse> {
    Err(Failure::unimplemented("ContainerStatus", "not yet"))
}

/// `UpdateContainerResources`
pub(crate) async fn update_resources(
    _node: Arc<Node>,
    _request: UpdateContainerResourcesRequest,
) -> Result<UpdateContainerResourcesResponse> {
    Err(Failure::unimplemented("UpdateContainerResources", "not yet"))
}

/// `ReopenContainerLog`
pub(crate) async fn reopen_log(
    _node: Arc<Node>,
    _request: ReopenContainerLogRequest,
) -> Result<ReopenContainerLogResponse> {
    Err(Failure::unimplemented("ReopenContainerLog", "not yet"))
}
