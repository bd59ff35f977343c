//! GetContainerEvents: what happens to containers, as a stream.

use std::sync::Arc;

use mainstay_cri_api::{ContainerEventResponse, GetEventsRequest};

use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::service::Answers;

/// `GetContainerEvents`
pub(crate) async fn events(
    _node: Arc<Node>,
    _request: GetEventsRequest,
) -> Result<Answers<ContainerEventResponse>> {
    Err(Failure::unimplemented("GetContainerEvents", "not yet"))
}
