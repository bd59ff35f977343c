//! The audit: what a machine holds of one runtime, and where that differs from what the runtime believes.
//!
//! An [`Inventory`] is taken from the kernel and the directories alone, without a look at any record. A [`Finding`]
//! is one difference: a leak is something on the machine that no record accounts for, a ghost is something that a record
//! counts on and the machine does not have.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::{ContainerId, SandboxId};
use crate::process::ProcessIdentity;
use crate::spec::Network;
use crate::time::Timestamp;

/// What a machine holds of one runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Everything that was found.
    pub things: Vec<Thing>,
    /// Of the processes that were asked about, those that do not run (any more): gone, or not yet reaped.
    pub ended: Vec<ProcessIdentity>,
    /// The networks that could not be looked at: that nothing of them was found says nothing.
    pub unseen_networks: Vec<Network>,
}

/// One thing that was found below a runtime's own directories or cgroup, or that says it belongs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thing {
    /// What it is.
    pub kind: ThingKind,
    /// Where it is: a path, or that of a cgroup.
    pub place: String,
    /// The process, if it is one.
    pub process: Option<ProcessIdentity>,
    /// Whose it is, as its place says.
    pub owner: Owner,
    /// Since when it is there, as far as the machine knows.
    pub since: Option<Timestamp>,
}

/// The pod and container that something belongs to, as far as its place says. Both none: nobody's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The pod.
    pub sandbox: Option<SandboxId>,
    /// The container.
    pub container: Option<ContainerId>,
}

/// What something is. In this order it is repaired: what holds others or makes new things goes first, and a directory
/// after what is in it where only an empty one is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThingKind {
    /// The shim of a pod.
    Shim,
    /// A process in a cgroup.
    Process,
    /// A cgroup.
    Cgroup,
    /// A mount that the whole machine sees.
    Mount,
    /// A rule of the firewall that leads to a pod.
    FirewallRule,
    /// The host's end of a pod's link.
    NetworkLink,
    /// That end, as a port of the bridge.
    BridgePort,
    /// The name of a pod's network namespace.
    NetworkNamespace,
    /// The record of which addresses and ports a pod has.
    AddressLease,
    /// The record of what CNI plugins were asked for.
    CniRecord,
    /// What other programs are told of what CNI plugins gave a pod.
    CniCache,
    /// The directory of a pod.
    PodDirectory,
    /// A unix socket.
    Socket,
    /// The bundle of a container.
    Bundle,
    /// The record of an exit, as a shim wrote it.
    ExitRecord,
    /// The writable layer of a container.
    Layer,
    /// The log of a container.
    Log,
    /// The directory of a pod's logs.
    LogDirectory,
    /// A name that more than one has.
    Name,
    /// The record of a pod.
    Record,
    /// Something that the runtime does not make.
    Stranger,
}

/// In which direction machine and record differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deviation {
    /// It is there, and no record accounts for it.
    Leak,
    /// A record counts on it, and it is not there.
    Ghost,
}

/// A difference between the machine and the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// In which direction.
    pub deviation: Deviation,
    /// What it is.
    pub kind: ThingKind,
    /// Where it is, or should be.
    pub place: String,
    /// Its process id, if it is a process.
    pub pid: Option<u32>,
    /// Whose it is.
    pub owner: Owner,
    /// Since when it is there, as far as that is known.
    pub since: Option<Timestamp>,
    /// What is wrong, in one sentence.
    pub reason: String,
    /// What repairing does about it.
    pub remedy: Remedy,
    /// What came of that; none when it was not tried.
    pub outcome: Option<Result<()>>,
}

/// Whether an audit ends with a repair of what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// It only says what there is.
    No,
    /// Everything that can be repaired without somebody who decides is repaired.
    Yes,
}

/// What repairing does about a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// It is ended and removed.
    Remove(Leak),
    /// Its shim is asked how it ended, or the kernel where the shim does not answer, and that is written down.
    SettleExit {
        /// The pod.
        sandbox: SandboxId,
        /// The container.
        container: ContainerId,
    },
    /// The death of its shim is written down.
    SettleShimDeath {
        /// The pod.
        sandbox: SandboxId,
    },
    /// Nothing: it takes somebody who knows what it is.
    ByHand {
        /// What they could do.
        how: String,
    },
    /// It is made anew, as its pod has had it.
    RestoreNetwork {
        /// The pod.
        sandbox: SandboxId,
    },
}

/// What there is to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leak {
    /// All that there is of a pod but its containers' layers and logs.
    Pod {
        /// The pod.
        sandbox: SandboxId,
    },
    /// All that there is of a container.
    Container {
        /// The pod that it is, or was, in.
        sandbox: SandboxId,
        /// The container.
        container: ContainerId,
    },
    /// A shim, and nothing of what it has made.
    Shim {
        /// The pod that it says it is for.
        sandbox: SandboxId,
        /// The shim.
        process: ProcessIdentity,
    },
    /// The processes of a pod.
    PodProcesses {
        /// The pod.
        sandbox: SandboxId,
    },
    /// The processes of a container.
    ContainerProcesses {
        /// The pod.
        sandbox: SandboxId,
        /// The container.
        container: ContainerId,
    },
    /// A layer, whose pod nobody knows.
    Layer {
        /// The container.
        container: ContainerId,
    },
    /// An empty directory for a pod's logs.
    LogDirectory {
        /// The pod.
        sandbox: SandboxId,
    },
    /// All that a pod has of networks.
    Network {
        /// The pod.
        sandbox: SandboxId,
    },
}

impl Owner {
    /// A pod's.
    pub fn pod(sandbox: &SandboxId) -> Self {
        Self { sandbox: Some(sandbox.clone()), container: None }
    }

    /// A container's.
    pub fn container(sandbox: &SandboxId, container: &ContainerId) -> Self {
        Self { sandbox: Some(sandbox.clone()), container: Some(container.clone()) }
    }

    /// A container's, of a pod that is not known.
    pub fn container_alone(container: &ContainerId) -> Self {
        Self { sandbox: None, container: Some(container.clone()) }
    }
}

impl fmt::Display for ThingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shim => "shim",
            Self::Process => "process",
            Self::Cgroup => "cgroup",
            Self::Mount => "mount",
            Self::FirewallRule => "firewall rule",
            Self::NetworkLink => "network link",
            Self::BridgePort => "bridge port",
            Self::NetworkNamespace => "network namespace",
            Self::AddressLease => "address lease",
            Self::CniRecord => "CNI record",
            Self::CniCache => "CNI cache file",
            Self::PodDirectory => "pod directory",
            Self::Socket => "socket",
            Self::Bundle => "bundle",
            Self::ExitRecord => "exit record",
            Self::Layer => "layer",
            Self::LogDirectory => "log directory",
            Self::Log => "log",
            Self::Name => "name",
            Self::Record => "record",
            Self::Stranger => "stranger",
        })
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leak => "leak",
            Self::Ghost => "ghost",
        })
    }
}

impl fmt::Display for Remedy {
    /// What repairing would do, as the second half of a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remove(Leak::Pod { .. }) => f.write_str("end and remove all of the pod"),
            Self::Remove(Leak::Container { .. }) => f.write_str("end and remove all of the container"),
            Self::Remove(Leak::Shim { .. }) => f.write_str("kill the shim"),
            Self::Remove(Leak::PodProcesses { .. }) => f.write_str("kill what runs in the pod"),
            Self::Remove(Leak::ContainerProcesses { .. }) => f.write_str("kill what runs in the container"),
            Self::Remove(Leak::Layer { .. }) => f.write_str("remove the layer"),
            Self::Remove(Leak::LogDirectory { .. }) => f.write_str("remove the directory"),
            Self::Remove(Leak::Network { .. }) => f.write_str("take back all that the pod has of networks"),
            Self::SettleExit { .. } => f.write_str("ask the shim, and write the exit down"),
            Self::SettleShimDeath { .. } => f.write_str("write the death of the shim down"),
            Self::RestoreNetwork { .. } => f.write_str("give the pod its network again"),
            Self::ByHand { how } => write!(f, "by hand: {how}"),
        }
    }
}
