//! Checkpoints, which there are none of.

use std::sync::Arc;

use mainstay_cri_api::{
    CheckpointContainerRequest, CheckpointContainerResponse, CheckpointPodRequest, CheckpointPodResponse,
    RestorePodRequest, RestorePodResponse,
};

use crate::failure::{Failure, Result};
use crate::node::Node;

/// Why there are none.
const NO_CRIU: &str = "Mainstay makes no checkpoints: it has no CRIU";

/// `CheckpointContainer`
pub(crate) async fn container(
    _node: Arc<Node>,
    _request: CheckpointContainerRequest,
) -> Result<CheckpointContainerResponse> {
    Err(Failure::unimplemented("CheckpointContainer", NO_CRIU))
}

/// `CheckpointPod`
pub(crate) async fn pod(_node: Arc<Node>, _request: CheckpointPodRequest) -> Result<CheckpointPodResponse> {
    Err(Failure::unimplemented("CheckpointPod", NO_CRIU))
}

/// `RestorePod`
pub(crate) async fn restore(_node: Arc<Node>, _request: RestorePodRequest) -> Result<RestorePodResponse> {
    Err(Failure::unimplemented("RestorePod", NO_CRIU))
}
