//! Pods: made, stopped, removed, shown.
//!
//! Owns: the calls. What a pod is asked for is in [`spec`], how it is shown in [`show`]. Lists and statuses are of published snapshots,
//! and wait for nothing (P6).

pub(crate) mod show;
pub(crate) mod spec;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay::SandboxSnapshot;

use mainstay_cri_api::{
    ListPodSandboxRequest, ListPodSandboxResponse, PodSandboxFilter, PodSandboxStatusRequest,
    PodSandboxStatusResponse, RemovePodSandboxRequest, RemovePodSandboxResponse, RunPodSandboxRequest,
    RunPodSandboxResponse, StopPodSandboxRequest, StopPodSandboxResponse, StreamPodSandboxesRequest,
    StreamPodSandboxesResponse,
};

use crate::failure::{Failure, Result};
use crate::filter::{self, present};
use crate::node::Node;
use crate::service::{Answers, in_pieces};
use crate::{containers, times};

/// `RunPodSandbox`. The same request again joins the first, or is answered with its pod.
pub(crate) async fn run(node: Arc<Node>, request: RunPodSandboxRequest) -> Result<RunPodSandboxResponse> {
    let RunPodSandboxRequest { config, runtime_handler } = request;
    let Some(config) = config else {
        return Err(Failure::invalid("config", "nothing", "what the pod is to be"));
    };
    if node.runtime.config().handler.settings(&runtime_handler).is_none() {
        let expected = "a handler that the configuration has a section [handler.NAME] for, or none";
        return Err(Failure::invalid("runtime_handler", format!("{runtime_handler:?}"), expected));
    }
    let spec = spec::spec(&config, &runtime_handler)?;
    let what = || match &config.metadata {
        Some(pod) => format!("pod {}/{}, uid {}, attempt {},", pod.namespace, pod.name, pod.uid, pod.attempt),
        None => "the pod".to_owned(),
    };
    let run = node.runtime.run_sandbox(spec).await;
    let pod = run.map_err(|error| Failure::to_make(what, error))?;
    Ok(RunPodSandboxResponse { pod_sandbox_id: pod.to_string() })
}

/// `StopPodSandbox`. kubelet has stopped the containers that are to have time: those that run are killed.
pub(crate) async fn stop(node: Arc<Node>, request: StopPodSandboxRequest) -> Result<StopPodSandboxResponse> {
    if let Some(pod) = present(filter::pod(&node.runtime, &request.pod_sandbox_id))? {
        node.runtime.stop_sandbox(&pod.record.id, Some(Duration::ZERO)).await?;
    }
    Ok(StopPodSandboxResponse {})
}

/// `RemovePodSandbox`
pub(crate) async fn remove(
    node: Arc<Node>,
    request: RemovePodSandboxRequest,
) -> Result<RemovePodSandboxResponse> {
    if let Some(pod) = present(filter::pod(&node.runtime, &request.pod_sandbox_id))? {
        // Removing alone would give each container the grace of its own.
        node.runtime.stop_sandbox(&pod.record.id, Some(Duration::ZERO)).await?;
        node.runtime.remove_sandbox(&pod.record.id).await?;
    }
    Ok(RemovePodSandboxResponse {})
}

/// `PodSandboxStatus`
pub(crate) async fn status(
    node: Arc<Node>,
    request: PodSandboxStatusRequest,
) -> Result<PodSandboxStatusResponse> {
    let timestamp = times::now();
    let pod = filter::pod(&node.runtime, &request.pod_sandbox_id)?;
    let mut containers = node.runtime.containers_of(&pod.record.id);
    containers.retain(|container| filter::shows_container(container));
    let info = match request.verbose {
        true => show::info(&pod, &node.runtime.config().cgroup_parent),
        false => HashMap::new(),
    };
    Ok(PodSandboxStatusResponse {
        status: Some(show::status(&pod.record)),
        info,
        containers_statuses: containers.iter().map(|container| containers::show::status(container)).collect(),
        timestamp,
    })
}

/// `ListPodSandbox`
pub(crate) async fn list(node: Arc<Node>, request: ListPodSandboxRequest) -> Result<ListPodSandboxResponse> {
    let pods = selected(&node, &request.filter.unwrap_or_default());
    Ok(ListPodSandboxResponse { items: pods.iter().map(|pod| show::listed(&pod.record)).collect() })
}

/// `StreamPodSandboxes`
pub(crate) async fn stream(
    node: Arc<Node>,
    request: StreamPodSandboxesRequest,
) -> Result<Answers<StreamPodSandboxesResponse>> {
    let pods = selected(&node, &request.filter.unwrap_or_default());
    let pods = pods.iter().map(|pod| show::listed(&pod.record)).collect();
    Ok(in_pieces(pods, |pod_sandboxes| StreamPodSandboxesResponse { pod_sandboxes }))
}

fn selected(node: &Node, filter: &PodSandboxFilter) -> Vec<Arc<SandboxSnapshot>> {
    let mut pods = filter::pods(&node.runtime);
    pods.retain(|pod| {
        let record = &pod.record;
        let state = filter.state.as_ref().is_none_or(|wanted| wanted.state() == show::state(record));
        record.id.as_str().starts_with(&filter.id)
            && state
            && filter::selects(&filter.label_selector, &record.spec.labels)
    });
    pods
}
