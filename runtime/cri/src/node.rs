//! The node: what all calls share, and what is said of the runtime itself.
//!
//! Owns: `Version`, `Status`, `RuntimeConfig`, `UpdateRuntimeConfig`. Never: touches a pod, a container or an image.

use std::sync::Arc;

use mainstay::{CriSettings, Runtime};
use mainstay_cri_api::{
    API_VERSION, RuntimeConfigRequest, RuntimeConfigResponse, StatusRequest, StatusResponse,
    UpdateRuntimeConfigRequest, UpdateRuntimeConfigResponse, VersionRequest, VersionResponse,
};

use crate::events::Book;
use crate::failure::{Failure, Result};

/// What the runtime is called.
pub const RUNTIME_NAME: &str = "mainstay";
/// The version of kubelet's own interface, which nobody looks at any more.
const KUBELET_API_VERSION: &str = "0.1.0";

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Node {
    /// The runtime.
    pub(crate) runtime: Runtime,
    /// Who reads events.
    pub(crate) events: Book,
}

impl Node {
    /// A node over a runtime.
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self { runtime, events: Book::default() }
    }

    /// How the interface is set up.
    pub(crate) fn settings(&self) -> &CriSettings {
        &self.runtime.config().cri
    }
}

/// `Version`
pub(crate) async fn version(_node: Arc<Node>, _request: VersionRequest) -> Result<VersionResponse> {
    Ok(VersionResponse {
        version: KUBELET_API_VERSION.to_owned(),
        runtime_name: RUNTIME_NAME.to_owned(),
        runtime_version: mainstay::VERSION.to_owned(),
        runtime_api_version: API_VERSION.to_owned(),
    })
}

/// `Status`
pub(crate) async fn status(_node: Arc<Node>, _request: StatusRequest) -> Result<StatusResponse> {
    Err(Failure::unimplemented("Status", "not yet"))
}

/// `RuntimeConfig`
pub(crate) async fn runtime_config(
    _node: Arc<Node>,
    _request: RuntimeConfigRequest,
) -> Result<RuntimeConfigResponse> {
    Err(Failure::unimplemented("RuntimeConfig", "not yet"))
}

/// `UpdateRuntimeConfig`
pub(crate) async fn update_runtime_config(
    _node: Arc<Node>,
    _request: UpdateRuntimeConfigRequest,
) -> Result<UpdateRuntimeConfigResponse> {
    Err(Failure::unimplemented("UpdateRuntimeConfig", "not yet"))
}
