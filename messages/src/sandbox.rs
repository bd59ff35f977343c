//! Messages to a sandbox.

use actix::Message;

use crate::error::Result;
use crate::id::{ContainerId, SandboxId};
use crate::supervisor::SandboxStats;

/// Stop all containers and the shim. A sandbox that is stopped, or is not there, counts as success.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct StopSandbox {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Time from the stop signal to SIGKILL, in milliseconds; that of each container's spec when not given.
    pub grace_ms: Option<u64>,
}

/// Stop it, then remove its containers, its directories and its record. One that is not there counts as success.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct RemoveSandbox {
    /// The sandbox.
    pub sandbox: SandboxId,
}

/// May this container come into being? Answered by the sandbox, which from then on counts it as its own.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct AdmitContainer {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The container.
    pub container: ContainerId,
}

/// What the whole pod uses now.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<SandboxStats>")]
pub struct MeasureSandbox {
    /// The sandbox.
    pub sandbox: SandboxId,
}
