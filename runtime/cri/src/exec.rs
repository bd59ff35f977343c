//! ExecSync: a command in a container, run to its end.

use std::sync::Arc;

use mainstay_cri_api::{ExecSyncRequest, ExecSyncResponse};

use crate::failure::{Failure, Result};
use crate::node::Node;

/// `ExecSync`
pub(crate) async fn sync(_node: Arc<Node>, _request: ExecSyncRequest) -> Result<ExecSyncResponse> {
    Err(Failure::unimplemented("ExecSync", "not yet"))
}
