//! Metrics of pods and containers, with the names and labels of cAdvisor, so that dashboards made for it go on.
//!
//! Owns: `ListMetricDescriptors`, `ListPodSandboxMetrics` and its stream, and the labels. Which metrics there are is in `names`, their
//! values in `values`. Never: measures.
//!
//! A pod's own metrics have an empty `container`, as cAdvisor's have: sums over containers leave them out.

mod names;
mod values;

use std::sync::Arc;

use mainstay::{Depth, FileSystem, PodUsage};
use mainstay_cri_api::{
    ContainerMetrics, ListMetricDescriptorsRequest, ListMetricDescriptorsResponse,
    ListPodSandboxMetricsRequest, ListPodSandboxMetricsResponse, MetricDescriptor, PodSandboxMetrics,
    StreamPodSandboxMetricsRequest, StreamPodSandboxMetricsResponse,
};

use crate::failure::Result;
use crate::node::Node;
use crate::service::{Answers, in_pieces};
use crate::{containers, filter, pods};
use names::{LABELS, NAMES};
use values::{Labels, Sink};

/// `ListMetricDescriptors`
pub(crate) async fn descriptors(
    _node: Arc<Node>,
    _request: ListMetricDescriptorsRequest,
) -> Result<ListMetricDescriptorsResponse> {
    let descriptor = |name: &&names::Name| MetricDescriptor {
        name: name.name.to_owned(),
        help: name.help.to_owned(),
        label_keys: LABELS.iter().chain(name.labels).map(|label| (*label).to_owned()).collect(),
    };
    Ok(ListMetricDescriptorsResponse { descriptors: NAMES.iter().map(descriptor).collect() })
}

/// `ListPodSandboxMetrics`
pub(crate) async fn list(
    node: Arc<Node>,
    _request: ListPodSandboxMetricsRequest,
) -> Result<ListPodSandboxMetricsResponse> {
    Ok(ListPodSandboxMetricsResponse { pod_metrics: all(&node).await? })
}

/// `StreamPodSandboxMetrics`
pub(crate) async fn stream(
    node: Arc<Node>,
    _request: StreamPodSandboxMetricsRequest,
) -> Result<Answers<StreamPodSandboxMetricsResponse>> {
    let metrics = all(&node).await?;
    Ok(in_pieces(metrics, |pod_sandbox_metrics| StreamPodSandboxMetricsResponse { pod_sandbox_metrics }))
}

async fn all(node: &Node) -> Result<Vec<PodSandboxMetrics>> {
    let ids: Vec<_> = filter::pods(&node.runtime).iter().map(|pod| pod.record.id.clone()).collect();
    let found = node.runtime.sandboxes_usage(&ids, Depth::Full).await?;
    let layers = node.runtime.layers_file_system().ok();
    Ok(found.into_iter().filter_map(|usage| of_pod(node, usage, layers.as_ref())).collect())
}

/// The metrics of a pod; none when it is gone meanwhile.
fn of_pod(node: &Node, usage: PodUsage, layers: Option<&FileSystem>) -> Option<PodSandboxMetrics> {
    let pod = node.runtime.sandbox(&usage.id).ok()?;
    let who = pods::show::metadata(&pod.record);
    let cgroup = pod.record.cgroup(&node.runtime.config().cgroup_parent);
    let labels = Labels {
        container: String::new(),
        id: cgroup.clone(),
        image: String::new(),
        name: usage.id.to_string(),
        namespace: who.namespace,
        pod: who.name,
    };
    let mut sink = Sink::new(labels.clone());
    sink.group(usage.group.as_ref());
    usage.interfaces.iter().for_each(|interface| sink.interface(interface));
    let containers = usage.containers.iter().filter_map(|usage| {
        let container = node.runtime.container(&usage.id).ok()?;
        let mut sink = Sink::new(Labels {
            container: containers::show::metadata(&container.record).name,
            id: format!("{cgroup}/{}", usage.id),
            image: containers::show::listed(&container.record)
                .image
                .map(|image| image.image)
                .unwrap_or_default(),
            name: usage.id.to_string(),
            ..labels.clone()
        });
        sink.group(Some(&usage.group));
        sink.container(&container.record, usage, layers);
        Some(ContainerMetrics { container_id: usage.id.to_string(), metrics: sink.metrics() })
    });
    Some(PodSandboxMetrics {
        pod_sandbox_id: usage.id.to_string(),
        container_metrics: containers.collect(),
        metrics: sink.metrics(),
    })
}
