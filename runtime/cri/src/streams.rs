//! Exec, Attach and PortForward: the URLs of their streams.

use std::sync::Arc;

use mainstay_cri_api::{
    AttachRequest, AttachResponse, ExecRequest, ExecResponse, PortForwardRequest, PortForwardResponse,
};

use crate::failure::{Failure, Result};
use crate::node::Node;

/// `Exec`
pub(crate) async fn exec(_node: Arc<Node>, _request: ExecRequest) -> Result<ExecResponse> {
    Err(Failure::unimplemented("Exec", "not yet"))
}

/// `Attach`
pub(crate) async fn attach(_node: Arc<Node>, _request: AttachRequest) -> Result<AttachResponse> {
    Err(Failure::unimplemented("Attach", "not yet"))
}

/// `PortForward`
pub(crate) async fn port_forward(
    _node: Arc<Node>,
    _request: PortForwardRequest,
) -> Result<PortForwardResponse> {
    Err(Failure::unimplemented("PortForward", "not yet"))
}
