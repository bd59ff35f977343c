//! What a caller asks for: pods, containers and execs. All of it is checked by [`SandboxSpec::check`],
//! [`ContainerSpec::check`] and [`ExecSpec::check`] before anything is done.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::{ContainerId, Handler, Name};
use crate::image::ImageId;
use crate::process::Signal;

mod cgroup_parent;
mod check;
mod device;
mod identity;
mod image;
mod mount;
mod names;
mod network;
mod resources;
mod security;
#[cfg(test)]
mod tests;
mod user_namespace;
mod volumes;

pub use cgroup_parent::{CGROUP_PARENT_DEPTH_MAX, CGROUP_PARENT_LENGTH_MAX, CgroupParent};
pub use device::{DEVICES_MAX, Device, DeviceKind, DeviceRule};
pub use identity::{ContainerIdentity, IDENTITY_LENGTH_MAX, PodIdentity};
pub use image::{ImageRoot, LayeredRoot};
pub use mount::{
    Access, ImageMount, LayeredMount, MissingSource, Mount, MountSource, Owners, Propagation, Relabel,
    Restriction, Submounts,
};
pub use names::{
    DNS_OPTIONS_MAX, DNS_SEARCHES_MAX, DNS_SERVERS_MAX, DNS_ZONE_LENGTH_MAX, HOST_ENTRIES_MAX, HostEntry,
    NameLookup, NameServer,
};
pub use network::{Mac, Network, POD_LINK, PORTS_MAX, PortMapping, Protocol};
pub use resources::{
    BLOCK_DEVICES_MAX, BlockDeviceLimit, BlockIo, CpuTime, HUGEPAGE_SIZES_MAX, HugepageLimit, PodPlan,
    Resources, UNIFIED_LENGTH_MAX, UNIFIED_MAX, UNLIMITED,
};
pub use security::{
    AppArmor, NewPrivileges, PROFILE_NAME_LENGTH_MAX, Privilege, Seccomp, Security, SelinuxLabel,
    SupplementaryGroups,
};
pub use volumes::VOLUMES_MAX;

pub use user_namespace::{ID_MAPPINGS_MAX, IdMapping, IdMappings, UserNamespace};

/// Time between the stop signal and SIGKILL when neither the caller nor the spec says, in milliseconds.
pub const STOP_GRACE_DEFAULT_MS: u64 = 10_000;
/// The most arguments of a command, and the most environment variables.
pub const ARGUMENTS_MAX: usize = 16_384;
/// The longest single argument or variable that the kernel takes (MAX_ARG_STRLEN), in bytes.
pub const ARGUMENT_LENGTH_MAX: usize = 131_072;
/// The most mounts of a container.
pub const MOUNTS_MAX: usize = 4_096;
/// The most labels, and the most annotations, of an object.
pub const LABELS_MAX: usize = 4_096;
/// The most bytes that all labels, or all annotations, of an object take together.
pub const LABELS_LENGTH_MAX: usize = 1_048_576;
/// The largest spec, in bytes as it is sent and kept.
pub const SPEC_LENGTH_MAX: usize = 3 * 1_048_576;
/// The longest path that is taken, in bytes; what the kernel takes, with its final NUL (PATH_MAX).
pub const PATH_LENGTH_MAX: usize = 4_096;
/// The smallest memory limit that is taken: less than this a process cannot even start in, in bytes.
pub const MEMORY_LIMIT_MIN: u64 = 4 * 1024 * 1024;
/// The shortest quota and period of CPU time that the kernel takes, in microseconds.
pub const CPU_TIME_MIN_US: u64 = 1_000;
/// The longest period of CPU time that the kernel takes, in microseconds.
pub const CPU_PERIOD_MAX_US: u64 = 1_000_000;
/// The most devices by their names in the Container Device Interface.
pub const CDI_DEVICES_MAX: usize = 256;
/// The largest system call profile, in bytes of JSON.
pub const SECCOMP_PROFILE_LENGTH_MAX: usize = 256 * 1024;
/// The most kernel parameters of a pod.
pub const SYSCTLS_MAX: usize = 256;
/// The longest host name that the kernel takes, in bytes.
pub const HOSTNAME_LENGTH_MAX: usize = 64;

/// A pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Its name, unique among sandboxes.
    pub name: Name,
    /// Host name of its UTS namespace; its name when not given.
    #[serde(default)]
    pub hostname: Option<String>,
    /// What runs its containers, by the name that the configuration has for it; [`crate::id::HANDLER_DEFAULT`] when not given.
    #[serde(default)]
    pub handler: Option<Handler>,
    /// Its network.
    #[serde(default)]
    pub network: Network,
    /// Whether its containers see one another's processes.
    #[serde(default)]
    pub pid: PidMode,
    /// Limits for all its containers together.
    #[serde(default)]
    pub resources: Resources,
    /// What it is expected to take, for plugins.
    #[serde(default)]
    pub plan: PodPlan,
    /// For whoever selects by them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// For whoever reads them; the runtime does not.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Kernel parameters of its network and IPC namespaces, as in `net.core.somaxconn`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// How its containers look up names of hosts.
    #[serde(default)]
    pub names: NameLookup,
    /// Whether ids in its containers are ids of the host.
    #[serde(default)]
    pub user_namespace: UserNamespace,
    /// Ports of the host that lead into it.
    #[serde(default)]
    pub ports: Vec<PortMapping>,
    /// Addresses that it is to have, one of a family at most; the others are chosen.
    #[serde(default)]
    pub ips: Vec<IpAddr>,
    /// The Ethernet address that it is to have.
    #[serde(default)]
    pub mac: Option<Mac>,
    /// Whether its containers share System V IPC, POSIX message queues and `/dev/shm` with the host.
    #[serde(default)]
    pub ipc: IpcMode,
    /// The cgroup that its own is made in; the runtime's when not given. It is somebody else's: made where it is missing, and
    /// never removed.
    #[serde(default)]
    pub cgroup_parent: Option<CgroupParent>,
    /// Who it is to the orchestrator that asked for it.
    #[serde(default)]
    pub identity: Option<PodIdentity>,
    /// What whoever asked for it wants to find again. Neither the runtime nor plugins read it.
    #[serde(default)]
    pub notes: BTreeMap<String, String>,
}

/// An IPC namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpcMode {
    /// One for all containers of the pod, with a `/dev/shm` of theirs.
    #[default]
    Pod,
    /// The host's.
    Host,
}

/// A pid namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PidMode {
    /// One for each container.
    #[default]
    Container,
    /// One for all containers of the pod.
    Pod,
    /// The host's.
    Host,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Its name, unique in its sandbox.
    pub name: Name,
    /// Its root file system.
    #[serde(default)]
    pub rootfs: Rootfs,
    /// What it runs: program and arguments.
    pub process: ProcessSpec,
    /// What is mounted into it, in this order.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Its limits.
    #[serde(default)]
    pub resources: Resources,
    /// What it may do.
    #[serde(default)]
    pub security: Security,
    /// Its standard input.
    #[serde(default)]
    pub stdin: Stdin,
    /// The signal that asks it to stop; TERM when not given.
    #[serde(default)]
    pub stop_signal: Option<Signal>,
    /// Time from the stop signal to SIGKILL; [`STOP_GRACE_DEFAULT_MS`] when not given.
    #[serde(default)]
    pub stop_grace_ms: Option<u64>,
    /// `oom_score_adj`, -1000 to 1000.
    #[serde(default)]
    pub oom_score_adj: Option<i32>,
    /// Resource limits (setrlimit).
    #[serde(default)]
    pub rlimits: Vec<Rlimit>,
    /// Where its output is logged, in CRI format; a file of the runtime's own when not given.
    #[serde(default)]
    pub log_path: Option<PathBuf>,
    /// For whoever selects by them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// For whoever reads them; the runtime does not.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// The annotations that the OCI runtime and hooks get, where these are not simply [`Self::annotations`]: programs obey them. What plugins change is changed in them, too.
    #[serde(default)]
    pub runtime_annotations: Option<BTreeMap<String, String>>,
    /// Devices of the host that it gets. A directory stands for all devices in it and below.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// Devices that it may use beside those.
    #[serde(default)]
    pub device_rules: Vec<DeviceRule>,
    /// Devices by their names in the Container Device Interface, as in `vendor.example/gpu=0`.
    #[serde(default)]
    pub cdi_devices: Vec<String>,
    /// Whose processes it sees.
    #[serde(default)]
    pub pid: ContainerPid,
    /// Who it is to the orchestrator that asked for it.
    #[serde(default)]
    pub identity: Option<ContainerIdentity>,
    /// What whoever asked for it wants to find again. Neither the runtime nor plugins read it.
    #[serde(default)]
    pub notes: BTreeMap<String, String>,
}

/// The pid namespace of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerPid {
    /// As its pod says ([`PidMode`]).
    #[default]
    Pod,
    /// One of its own, also where its pod shares one.
    Own,
    /// The host's, also where its pod has others. Not in a pod with a user namespace.
    Host,
    /// That of another container of the pod, which must be running, and with whose end it ends.
    Container {
        /// The other container.
        container: ContainerId,
    },
}

/// A root file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rootfs {
    /// The host's root, changes going to a layer of the container's own. Other mounts of the host below
    /// it are not seen.
    #[default]
    Host,
    /// A directory, used as it is: the container's changes stay in it, and so do the empty directories and files that are
    /// made as places for mounts (`proc`, `sys`, `dev`, …). They are not removed at the end: another container on the same
    /// directory may have its own mounts on them.
    Directory {
        /// Absolute path.
        path: PathBuf,
    },
    /// A directory, changes going to a layer of the container's own.
    CopyOnWrite {
        /// Absolute path.
        path: PathBuf,
    },
    /// An image, changes going to a layer of the container's own.
    Image(ImageRoot),
    /// What the runtime makes of [`Rootfs::Image`]. Never in a request.
    Layers(LayeredRoot),
}

/// A process to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// Program and arguments. A program without a slash is looked up in the container's PATH.
    pub command: Vec<String>,
    /// The environment; PATH, HOME and, with a terminal, TERM are added when missing.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory; `/` when not given. Made when it is missing.
    #[serde(default)]
    pub workdir: Option<PathBuf>,
    /// `USER`, `UID`, `USER:GROUP` or `UID:GID`; names are looked up in the container's own files; root
    /// when not given.
    #[serde(default)]
    pub user: Option<String>,
    /// Supplementary groups beside those that the container's files give.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// Whether it gets a terminal.
    #[serde(default)]
    pub terminal: Terminal,
}

/// A terminal for a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Terminal {
    /// Three pipes instead.
    #[default]
    None,
    /// A pseudo-terminal, of this size from the first instruction on.
    Tty(WindowSize),
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// Standard input of a container's PID 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// Open, for whoever attaches; stays open when they leave.
    Open,
    /// Open, and closed when the first one who attached leaves.
    Once,
}

/// A resource limit of setrlimit(2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Which, as in `NOFILE`.
    pub name: String,
    /// The limit that counts.
    pub soft: u64,
    /// The limit of the limit.
    pub hard: u64,
}

/// A process to run in a running container, beside its PID 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecSpec {
    /// What to run. Environment, working directory and user are the container's where not given.
    pub process: ProcessSpec,
    /// Its standard input.
    #[serde(default)]
    pub stdin: Stdin,
}

/// Names that setrlimit(2) knows, without the prefix.
pub const RLIMIT_NAMES: [&str; 16] = [
    "AS",
    "CORE",
    "CPU",
    "DATA",
    "FSIZE",
    "LOCKS",
    "MEMLOCK",
    "MSGQUEUE",
    "NICE",
    "NOFILE",
    "NPROC",
    "RSS",
    "RTPRIO",
    "RTTIME",
    "SIGPENDING",
    "STACK",
];

impl SandboxSpec {
    /// A pod with the network that is usual in its runtime, and no limits.
    pub fn new(name: Name) -> Self {
        Self {
            name,
            hostname: None,
            handler: None,
            network: Network::default(),
            pid: PidMode::default(),
            resources: Resources::default(),
            plan: PodPlan::default(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            sysctls: BTreeMap::new(),
            names: NameLookup::default(),
            user_namespace: UserNamespace::default(),
            ports: Vec::new(),
            ips: Vec::new(),
            mac: None,
            ipc: IpcMode::default(),
            cgroup_parent: None,
            identity: None,
            notes: BTreeMap::new(),
        }
    }

    /// The host name of its UTS namespace.
    pub fn hostname(&self) -> &str {
        let name = self.hostname.as_deref().unwrap_or(self.name.as_str());
        // Names are ASCII, and a host name that was given is checked against the same limit.
        &name[..name.len().min(HOSTNAME_LENGTH_MAX)]
    }
}

impl Rootfs {
    /// Whether the container's changes go to a layer of its own.
    pub fn has_layer(&self) -> bool {
        match self {
            Self::Host | Self::CopyOnWrite { .. } | Self::Image(_) | Self::Layers(_) => true,
            Self::Directory { .. } => false,
        }
    }

    /// The image that it stands on, once the runtime has found it.
    pub fn stands_on(&self) -> Option<&ImageId> {
        match self {
            Self::Layers(root) => Some(&root.image),
            Self::Image(_) | Self::Host | Self::Directory { .. } | Self::CopyOnWrite { .. } => None,
        }
    }
}

impl ContainerSpec {
    /// A container that runs `command` on a copy-on-write view of the host's root.
    pub fn new(name: Name, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            name,
            rootfs: Rootfs::default(),
            process: ProcessSpec {
                command: command.into_iter().map(Into::into).collect(),
                ..ProcessSpec::default()
            },
            mounts: Vec::new(),
            resources: Resources::default(),
            security: Security::default(),
            stdin: Stdin::default(),
            stop_signal: None,
            stop_grace_ms: None,
            oom_score_adj: None,
            rlimits: Vec::new(),
            log_path: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            runtime_annotations: None,
            devices: Vec::new(),
            device_rules: Vec::new(),
            cdi_devices: Vec::new(),
            pid: ContainerPid::default(),
            identity: None,
            notes: BTreeMap::new(),
        }
    }
}

impl ExecSpec {
    /// An exec of `command` as the container's user.
    pub fn new(command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            process: ProcessSpec {
                command: command.into_iter().map(Into::into).collect(),
                ..ProcessSpec::default()
            },
            stdin: Stdin::default(),
        }
    }
}
