//! Shims as operators see them.

use std::collections::BTreeMap;

use actix::Message;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::SandboxId;
use crate::time::Timestamp;

/// Describe the shims that run. One that does not answer soon is described without what it alone knows.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<BTreeMap<SandboxId, ShimDescription>>")]
pub struct DescribeShims;

/// The shim of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimStatus {
    /// The pod.
    pub sandbox: SandboxId,
    /// Its name.
    pub name: String,
    /// The handler that it was asked for with; none for the usual one.
    pub handler: Option<String>,
    /// Its shim.
    pub shim: ShimDescription,
}

/// A shim of ours, with what stands behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimDescription {
    /// Its process.
    pub process: ShimProcess,
    /// What it says of itself, or why it does not.
    pub said: Result<ShimSaid>,
}

/// What a shim of ours says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimSaid {
    /// Its version.
    pub version: String,
    /// The version of the protocol that is spoken with it.
    pub protocol: u32,
    /// How many containers it has, ended ones that were not removed among them.
    pub containers: u32,
    /// What makes its containers, where it does not do so itself.
    pub backend: Option<ShimBackend>,
}

/// What stands behind a shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimBackend {
    /// Its path.
    pub program: String,
    /// As the program says it; empty when it does not.
    pub version: String,
    /// What is spoken with it: `oci`, `task v2`, `task v3`.
    pub protocol: String,
    /// What runs of it beside the containers' own processes. A program that ends with its step has none.
    pub processes: Vec<ShimProcess>,
}

/// A process of a shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimProcess {
    /// Its number in the daemon's pid namespace.
    pub pid: u32,
    /// The memory that it shares with nobody; none where the kernel does not tell.
    pub private_bytes: Option<u64>,
    /// When it began; none when it is gone.
    pub since: Option<Timestamp>,
}
