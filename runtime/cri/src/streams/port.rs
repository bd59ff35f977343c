//! The ports of a pod behind a stream.

use async_trait::async_trait;
use mainstay::{Runtime, SandboxId};
use mainstay_cri_streaming::backend::{Failure, OpenPort, PortConnection};
use mainstay_messages::error::chain;

/// The ports of one pod.
pub(super) struct PodPorts {
    pub(super) runtime: Runtime,
    pub(super) sandbox: SandboxId,
}

#[async_trait]
impl OpenPort for PodPorts {
    async fn connect(&self, port: u16) -> Result<Box<dyn PortConnection>, Failure> {
        match self.runtime.connect(&self.sandbox, port).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(Failure(chain(&error))),
        }
    }
}
