//! Messages to the supervisor, which owns the shim processes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use actix::Message;
use serde::{Deserialize, Serialize};

use crate::adjustment::Adjustment;
use crate::audit::{Inventory, Leak};
use crate::error::Result;
use crate::id::{ContainerId, ExecId, SandboxId};
use crate::network::PodNetwork;
use crate::process::{Exit, ProcessIdentity, ProcessUser, Signal};
use crate::record::{ContainerRecord, Paused, SandboxRecord, ShimRecord};
use crate::router::TaskKey;
use crate::spec::{ExecSpec, PodPlan, Resources, WindowSize};
use crate::time::Timestamp;

/// Start a shim for a pod, have it make the pod's namespaces and cgroup, and give the pod its network. When it fails, nothing is left.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Launched>")]
pub struct LaunchShim {
    /// The pod.
    pub record: SandboxRecord,
}

/// The answer to [`LaunchShim`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The shim.
    pub shim: ShimRecord,
    /// What the pod has of a network; none for one with the host's, or with a loopback alone.
    pub network: Option<PodNetwork>,
}

/// Find the shim of a pod again and ask it for its tasks. Exits that it has not been told to forget arrive as
/// [`crate::router::TaskExited`] from then on.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Adopted>")]
pub struct AdoptShim {
    /// The pod, with its shim.
    pub record: SandboxRecord,
    /// Its containers that have no exit in the store: those whose end is reported if the shim is gone.
    pub containers: Vec<ContainerId>,
    /// The PID 1 of each of them, as far as the store knows it: for the case that the shim cannot tell.
    pub processes: BTreeMap<ContainerId, ProcessIdentity>,
}

/// The answer to [`AdoptShim`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// It runs; these are its tasks.
    Running(Vec<TaskState>),
    /// It is gone. Its tasks were killed and are reported as exits.
    Gone,
}

/// A task as its shim knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    /// The container.
    pub container: ContainerId,
    /// Its PID 1.
    pub process: Option<ProcessIdentity>,
    /// Where it is.
    pub status: TaskStatus,
    /// What plugins have changed of it, where whoever asks does not know of its process yet.
    pub adjustment: Option<Box<Adjustment>>,
}

/// Where a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// Set up, not told to run.
    Created,
    /// Told to run.
    Running,
    /// Ended.
    Exited(Exit),
    /// Frozen while it ran.
    Paused,
}

/// Set up a container's PID 1.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<TaskMade>")]
pub struct CreateTask {
    /// The container.
    pub record: ContainerRecord,
    /// Its pod.
    pub sandbox: SandboxRecord,
}

/// The answer to [`CreateTask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMade {
    /// Its PID 1.
    pub process: ProcessIdentity,
    /// What plugins have changed of it, if anything.
    pub adjustment: Option<Box<Adjustment>>,
    /// As whom its PID 1 runs, as far as that could be found out.
    pub user: Option<ProcessUser>,
}

/// Let PID 1 run; answered with the time at which it did.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Timestamp>")]
pub struct StartTask {
    /// The pod.
    pub sandbox: SandboxId,
    /// The container.
    pub container: ContainerId,
}

/// Send a signal. A process that is gone counts as success.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct SignalTask {
    /// The process.
    pub task: TaskKey,
    /// The signal.
    pub signal: Signal,
    /// To whom.
    pub scope: SignalScope,
}

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalScope {
    /// The process alone.
    Process,
    /// Everything in the container's cgroup. The supervisor does it itself when the shim does not answer.
    Cgroup,
}

/// Remove a task that has ended or never ran, with its bundle, cgroup and writable layer. One that is not
/// there counts as success; one that is being made is removed after that.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct DeleteTask {
    /// The pod.
    pub sandbox: SandboxId,
    /// The container.
    pub container: ContainerId,
}

/// Set up and run another process in a container.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<ExecStarted>")]
pub struct StartExecTask {
    /// The pod.
    pub sandbox: SandboxId,
    /// The container.
    pub container: ContainerRecord,
    /// The exec.
    pub exec: ExecId,
    /// What to run.
    pub spec: ExecSpec,
}

/// The answer to [`StartExecTask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecStarted {
    /// Its process id in the daemon's pid namespace.
    pub pid: u32,
}

/// Freeze a task, or let it go on. What is as it is to be counts as success.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct FreezeTask {
    /// The pod.
    pub sandbox: SandboxId,
    /// The container.
    pub container: ContainerId,
    /// What it is to be.
    pub to: Paused,
}

/// Change the limits of a task. The answer is the limits that it has then where plugins have changed them.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Option<Box<Resources>>>")]
pub struct UpdateTask {
    /// The pod.
    pub sandbox: SandboxId,
    /// The container.
    pub container: ContainerId,
    /// All its limits as they are to be; what is not given stays as it is.
    pub limits: Resources,
    /// Its limits so far, which it has again when one is refused.
    pub before: Resources,
    /// Whether plugins are asked about it.
    pub consult: Consult,
}

/// Change the limits of a pod, and tell plugins what it is expected to take. One of them may say no.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct UpdatePod {
    /// The pod as it is so far: its limits are in force again when one of the new ones is refused.
    pub record: SandboxRecord,
    /// All its limits as they are to be; what is not given stays as it is.
    pub limits: Resources,
    /// What it is expected to take.
    pub plan: PodPlan,
    /// Whether plugins are asked about it.
    pub consult: Consult,
}

/// Whether plugins are asked about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consult {
    /// They are, and may change it.
    Plugins,
    /// It comes from one of them, or puts back what was before.
    Nobody,
}

/// Change the size of a terminal.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct ResizeTask {
    /// The process.
    pub task: TaskKey,
    /// The new size.
    pub size: WindowSize,
}

/// Close and open a container's log file.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct ReopenTaskLog {
    /// The pod.
    pub sandbox: SandboxId,
    /// The container.
    pub container: ContainerId,
}

/// What a container uses now.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Stats>")]
pub struct MeasureTask {
    /// The pod.
    pub sandbox: SandboxId,
    /// The container.
    pub container: ContainerId,
}

/// What a pod uses now.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<SandboxStats>")]
pub struct MeasureShim {
    /// The pod.
    pub sandbox: SandboxId,
}

/// What is known of a process (the active query of P2): for an exit that nobody claimed, and for an actor
/// that begins again. While it is being made or started the answer is that this is in progress.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<TaskKnowledge>")]
pub struct QueryTask {
    /// The process.
    pub task: TaskKey,
}

/// The answer to [`QueryTask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKnowledge {
    /// The shim knows it.
    Known(TaskState),
    /// The shim answers, and does not know it.
    NotKnown,
    /// There is no shim any more.
    ShimGone,
}

/// End the shim and everything in it, and remove the pod's directories and cgroup. One that is not there
/// counts as success.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct StopShim {
    /// The pod.
    pub sandbox: SandboxId,
    /// What comes after it.
    pub end: PodEnd,
}

/// How far a pod has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodEnd {
    /// It is stopped, and stays listed.
    Stopped,
    /// It is about to be gone, or never came to be.
    Removed,
}

/// What a container uses. What the machine's cgroups cannot tell is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// When it was measured.
    pub at: Timestamp,
    /// CPU time since the start, in nanoseconds.
    pub cpu_usage_ns: Option<u64>,
    /// Of it in user mode.
    pub cpu_user_ns: Option<u64>,
    /// Of it in the kernel.
    pub cpu_system_ns: Option<u64>,
    /// Memory in use, with the page cache, in bytes.
    pub memory_usage_bytes: Option<u64>,
    /// Memory in use without the page cache that could be dropped, in bytes.
    pub memory_working_set_bytes: Option<u64>,
    /// Anonymous memory, in bytes.
    pub memory_rss_bytes: Option<u64>,
    /// The limit, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Tasks.
    pub pids: Option<u64>,
    /// The limit of tasks.
    pub pids_limit: Option<u64>,
    /// Times that the kernel killed a process of it for want of memory.
    pub oom_kills: Option<u64>,
    /// Bytes of output that could not be written to the log.
    pub log_bytes_lost: u64,
}

/// What a container has on the disk beside what it is made of: what it changed, and the volumes of its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files and directories; several names of one file count once.
    pub inodes: u64,
}

/// What a pod uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStats {
    /// The pod's cgroup: all its containers.
    pub total: Stats,
    /// Private memory of the shim, in bytes.
    pub shim_private_bytes: Option<u64>,
    /// The shim's log of its own.
    pub shim_log: Option<PathBuf>,
}

/// Find out what the machine holds of this runtime, from the kernel and the directories alone.
#[derive(Clone, Debug, Default, Message)]
#[rtype(result = "Result<Inventory>")]
pub struct TakeInventory {
    /// The processes of which it is to be said whether they run.
    pub processes: Vec<ProcessIdentity>,
}

/// Give a pod that is ready again what it has lost of its network, and the namespace its name. What is as it is to be counts as
/// success.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct RestoreNetwork {
    /// The pod.
    pub record: SandboxRecord,
}

/// Remove something that no record accounts for, by the same steps by which it would have been removed with its
/// owner. What is not there counts as success. The caller has made sure that no record accounts for it.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct RemoveLeak {
    /// What.
    pub leak: Leak,
}
