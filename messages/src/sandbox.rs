//! Messages to a sandbox.

use actix::Message;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::{ContainerId, SandboxId};
use crate::spec::{PodPlan, Resources};
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

/// Change what a ready pod may take, and what it is expected to.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct UpdateSandbox {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// What changes, already checked.
    pub change: SandboxChange,
}

/// A change of a pod. What is not given stays as it is; [`crate::spec::UNLIMITED`] lifts a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxChange {
    /// Limits for all its containers together.
    #[serde(default)]
    pub limits: Resources,
    /// What it is expected to take: plugins are told.
    #[serde(default)]
    pub plan: PodPlan,
}
