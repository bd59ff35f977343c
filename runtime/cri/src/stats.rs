//! What pods and containers use: `ContainerStats`, `PodSandboxStats`, their lists and streams.
//!
//! Owns: which pods and containers are asked for. What is measured is turned into messages by `convert`. Never: measures; a container without processes is told with who it is alone.

mod convert;

use std::collections::HashMap;
use std::sync::Arc;

use mainstay::{ContainerSnapshot, ContainerUsage, Depth, PodUsage, SandboxSnapshot};
use mainstay_cri_api::{
    ContainerStats, ContainerStatsFilter, ContainerStatsRequest, ContainerStatsResponse,
    ListContainerStatsRequest, ListContainerStatsResponse, ListPodSandboxStatsRequest,
    ListPodSandboxStatsResponse, PodSandboxStats, PodSandboxStatsFilter, PodSandboxStatsRequest,
    PodSandboxStatsResponse, StreamContainerStatsRequest, StreamContainerStatsResponse,
    StreamPodSandboxStatsRequest, StreamPodSandboxStatsResponse,
};

use crate::failure::Result;
use crate::filter;
use crate::node::Node;
use crate::service::{Answers, in_pieces};

/// `ContainerStats`
pub(crate) async fn container(
    node: Arc<Node>,
    request: ContainerStatsRequest,
) -> Result<ContainerStatsResponse> {
    let container = filter::container(&node.runtime, &request.container_id)?;
    Ok(ContainerStatsResponse { stats: of_containers(&node, &[container]).await?.pop() })
}

/// `ListContainerStats`
pub(crate) async fn containers(
    node: Arc<Node>,
    request: ListContainerStatsRequest,
) -> Result<ListContainerStatsResponse> {
    Ok(ListContainerStatsResponse {
        stats: of_containers(&node, &chosen_containers(&node, request.filter)).await?,
    })
}

/// `StreamContainerStats`
pub(crate) async fn stream_containers(
    node: Arc<Node>,
    request: StreamContainerStatsRequest,
) -> Result<Answers<StreamContainerStatsResponse>> {
    let stats = of_containers(&node, &chosen_containers(&node, request.filter)).await?;
    Ok(in_pieces(stats, |container_stats| StreamContainerStatsResponse { container_stats }))
}

/// `PodSandboxStats`
pub(crate) async fn pod(node: Arc<Node>, request: PodSandboxStatsRequest) -> Result<PodSandboxStatsResponse> {
    let pod = filter::pod(&node.runtime, &request.pod_sandbox_id)?;
    Ok(PodSandboxStatsResponse { stats: of_pods(&node, &[pod]).await?.pop() })
}

/// `ListPodSandboxStats`
pub(crate) async fn pods(
    node: Arc<Node>,
    request: ListPodSandboxStatsRequest,
) -> Result<ListPodSandboxStatsResponse> {
    Ok(ListPodSandboxStatsResponse { stats: of_pods(&node, &chosen_pods(&node, request.filter)).await? })
}

/// `StreamPodSandboxStats`
pub(crate) async fn stream_pods(
    node: Arc<Node>,
    request: StreamPodSandboxStatsRequest,
) -> Result<Answers<StreamPodSandboxStatsResponse>> {
    let stats = of_pods(&node, &chosen_pods(&node, request.filter)).await?;
    Ok(in_pieces(stats, |pod_sandbox_stats| StreamPodSandboxStatsResponse { pod_sandbox_stats }))
}

async fn of_containers(node: &Node, wanted: &[Arc<ContainerSnapshot>]) -> Result<Vec<ContainerStats>> {
    let ids: Vec<_> = wanted.iter().map(|container| container.record.id.clone()).collect();
    let found = node.runtime.containers_usage(&ids, Depth::Basic).await?;
    let layers = layers(node);
    let mut found: HashMap<_, ContainerUsage> =
        found.into_iter().map(|usage| (usage.id.clone(), usage)).collect();
    let stats = |container: &Arc<ContainerSnapshot>| {
        convert::container(container, found.remove(&container.record.id), layers.as_deref())
    };
    Ok(wanted.iter().map(stats).collect())
}

async fn of_pods(node: &Node, wanted: &[Arc<SandboxSnapshot>]) -> Result<Vec<PodSandboxStats>> {
    let ids: Vec<_> = wanted.iter().map(|pod| pod.record.id.clone()).collect();
    let found = node.runtime.sandboxes_usage(&ids, Depth::Basic).await?;
    let layers = layers(node);
    let mut found: HashMap<_, PodUsage> = found.into_iter().map(|usage| (usage.id.clone(), usage)).collect();
    let stats = |pod: &Arc<SandboxSnapshot>| {
        let usage = found.remove(&pod.record.id);
        let containers = node.runtime.containers_of(&pod.record.id);
        convert::pod(pod, usage, &containers, layers.as_deref())
    };
    Ok(wanted.iter().map(stats).collect())
}

/// Where the layers of containers are; nothing where it cannot be looked at, and then their usage is not told.
fn layers(node: &Node) -> Option<String> {
    let found = node.runtime.layers_file_system().ok()?;
    Some(found.path.to_string_lossy().into_owned())
}

fn chosen_containers(node: &Node, filter: Option<ContainerStatsFilter>) -> Vec<Arc<ContainerSnapshot>> {
    let filter = filter.unwrap_or_default();
    let mut all = filter::containers(&node.runtime);
    all.retain(|container| {
        let record = &container.record;
        record.id.as_str().starts_with(&filter.id)
            && record.sandbox.as_str().starts_with(&filter.pod_sandbox_id)
            && filter::selects(&filter.label_selector, &record.spec.labels)
    });
    all
}

fn chosen_pods(node: &Node, filter: Option<PodSandboxStatsFilter>) -> Vec<Arc<SandboxSnapshot>> {
    let filter = filter.unwrap_or_default();
    let mut all = filter::pods(&node.runtime);
    all.retain(|pod| {
        pod.record.id.as_str().starts_with(&filter.id)
            && filter::selects(&filter.label_selector, &pod.record.spec.labels)
    });
    all
}
