//! Metrics of pods, with the names of cAdvisor.

use std::sync::Arc;

use mainstay_cri_api::{
    ListMetricDescriptorsRequest, ListMetricDescriptorsResponse, ListPodSandboxMetricsRequest,
    ListPodSandboxMetricsResponse, StreamPodSandboxMetricsRequest, StreamPodSandboxMetricsResponse,
};

use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::service::Answers;

/// `ListMetricDescriptors`
pub(crate) async fn descriptors(
    _node: Arc<Node>,
    _request: ListMetricDescriptorsRequest,
) -> Result<ListMetricDescriptorsResponse> {
    Err(Failure::unimplemented("ListMetricDescriptors", "not yet"))
}

/// `ListPodSandboxMetrics`
pub(crate) async fn list(
    _node: Arc<Node>,
    _request: ListPodSandboxMetricsRequest,
) -> Result<ListPodSandboxMetricsResponse> {
    Err(Failure::unimplemented("ListPodSandboxMetrics", "not yet"))
}

/// `StreamPodSandboxMetrics`
pub(crate) async fn stream(
    _node: Arc<Node>,
    _request: StreamPodSandboxMetricsRequest,
) -> Result<Answers<StreamPodSandboxMetricsResponse>> {
    Err(Failure::unimplemented("StreamPodSandboxMetrics", "not yet"))
}
