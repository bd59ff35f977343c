//! Changes of what runs: `UpdateContainerResources`, `UpdatePodSandboxResources`.
//!
//! `oom_score_adj` stays as it was: processes have it from their start, and what is in force is what `ContainerStatus` says.

use std::sync::Arc;

use mainstay::{PodPlan, SandboxChange};
use mainstay_cri_api::{
    UpdateContainerResourcesRequest, UpdateContainerResourcesResponse, UpdatePodSandboxResourcesRequest,
    UpdatePodSandboxResourcesResponse,
};

use crate::failure::Result;
use crate::node::Node;
use crate::{filter, resources};

/// `UpdateContainerResources`
pub(crate) async fn container(
    node: Arc<Node>,
    request: UpdateContainerResourcesRequest,
) -> Result<UpdateContainerResourcesResponse> {
    let container = filter::container(&node.runtime, &request.container_id)?;
    let change = resources::change(&request.linux.unwrap_or_default(), container.record.limits());
    node.runtime.update_container(&container.record.id, change).await?;
    Ok(UpdateContainerResourcesResponse {})
}

/// `UpdatePodSandboxResources`. Plugins are told; the limits of the pod's cgroup are kubelet's affair, which has one above it.
pub(crate) async fn pod(
    node: Arc<Node>,
    request: UpdatePodSandboxResourcesRequest,
) -> Result<UpdatePodSandboxResourcesResponse> {
    let pod = filter::pod(&node.runtime, &request.pod_sandbox_id)?;
    let plan = PodPlan {
        overhead: resources::limits(&request.overhead.unwrap_or_default()),
        containers: resources::limits(&request.resources.unwrap_or_default()),
    };
    let change = SandboxChange { plan, ..SandboxChange::default() };
    node.runtime.update_sandbox(&pod.record.id, change).await?;
    Ok(UpdatePodSandboxResourcesResponse {})
}
