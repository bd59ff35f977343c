//! Containers: made, started, stopped, removed, changed, shown.
//!
//! Owns: the calls. How one is made is in [`mod@create`], what it is made of in [`spec`], how it is shown in [`show`]. Lists and statuses
//! are of published snapshots, and wait for nothing (P6).

mod create;
mod mounts;
pub(crate) mod show;
mod signal;
mod spec;

use std::collections::HashMap;
use std::sync::Arc;

use mainstay::{ContainerSnapshot, Error, IfRunning, Kind, StopOptions};

use mainstay_cri_api::{
    ContainerFilter, ContainerStatusRequest, ContainerStatusResponse, ListContainersRequest,
    ListContainersResponse, RemoveContainerRequest, RemoveContainerResponse, ReopenContainerLogRequest,
    ReopenContainerLogResponse, StartContainerRequest, StartContainerResponse, StopContainerRequest,
    StopContainerResponse, StreamContainersRequest, StreamContainersResponse,
};

use crate::failure::Result;
use crate::filter::{self, present};
use crate::node::Node;
use crate::service::{Answers, in_pieces};
use crate::times;

pub(crate) use create::create;

/// `StartContainer`
pub(crate) async fn start(node: Arc<Node>, request: StartContainerRequest) -> Result<StartContainerResponse> {
    let container = filter::container(&node.runtime, &request.container_id)?;
    node.runtime.start_container(&container.record.id).await?;
    Ok(StartContainerResponse {})
}

/// `StopContainer`. With a time-out of 0 it is killed at once.
pub(crate) async fn stop(node: Arc<Node>, request: StopContainerRequest) -> Result<StopContainerResponse> {
    if let Some(container) = present(filter::container(&node.runtime, &request.container_id))? {
        let options = StopOptions { signal: None, grace: Some(times::seconds(request.timeout)) };
        node.runtime.stop_container(&container.record.id, options).await?;
    }
    Ok(StopContainerResponse {})
}

/// `RemoveContainer`. One that runs is killed.
pub(crate) async fn remove(
    node: Arc<Node>,
    request: RemoveContainerRequest,
) -> Result<RemoveContainerResponse> {
    if let Some(container) = present(filter::container(&node.runtime, &request.container_id))? {
        node.runtime.remove_container(&container.record.id, IfRunning::Kill).await?;
    }
    Ok(RemoveContainerResponse {})
}

/// `ListContainers`
pub(crate) async fn list(node: Arc<Node>, request: ListContainersRequest) -> Result<ListContainersResponse> {
    let containers = selected(&node, &request.filter.unwrap_or_default());
    let containers = containers.iter().map(|container| show::listed(&container.record)).collect();
    Ok(ListContainersResponse { containers })
}

/// `StreamContainers`
pub(crate) async fn stream(
    node: Arc<Node>,
    request: StreamContainersRequest,
) -> Result<Answers<StreamContainersResponse>> {
    let containers = selected(&node, &request.filter.unwrap_or_default());
    let containers = containers.iter().map(|container| show::listed(&container.record)).collect();
    Ok(in_pieces(containers, |containers| StreamContainersResponse { containers }))
}

fn selected(node: &Node, filter: &ContainerFilter) -> Vec<Arc<ContainerSnapshot>> {
    let mut containers = filter::containers(&node.runtime);
    containers.retain(|container| {
        let record = &container.record;
        let state = filter.state.as_ref().is_none_or(|wanted| wanted.state() == show::state(record));
        record.id.as_str().starts_with(&filter.id)
            && record.sandbox.as_str().starts_with(&filter.pod_sandbox_id)
            && state
            && filter::selects(&filter.label_selector, &record.spec.labels)
    });
    containers
}

/// `ContainerStatus`
pub(crate) async fn status(
    node: Arc<Node>,
    request: ContainerStatusRequest,
) -> Result<ContainerStatusResponse> {
    let container = filter::container(&node.runtime, &request.container_id)?;
    // As lists do not have it either; stop and remove take it.
    if !filter::shows_container(&container) {
        return Err(Error::not_found(Kind::Container, request.container_id).into());
    }
    let info = if request.verbose { show::info(&container) } else { HashMap::new() };
    Ok(ContainerStatusResponse { status: Some(show::status(&container)), info })
}

/// `ReopenContainerLog`
pub(crate) async fn reopen_log(
    node: Arc<Node>,
    request: ReopenContainerLogRequest,
) -> Result<ReopenContainerLogResponse> {
    let container = filter::container(&node.runtime, &request.container_id)?;
    node.runtime.reopen_log(&container.record.id).await?;
    Ok(ReopenContainerLogResponse {})
}
