//! Messages to a container.

use actix::Message;

use crate::error::Result;
use crate::id::{ContainerId, ExecId};
use crate::process::Signal;
use crate::spec::{ExecSpec, Resources, WindowSize};
use crate::supervisor::{Consult, Stats};

/// Run PID 1 of a container that is Created.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct StartContainer {
    /// The container.
    pub container: ContainerId,
}

/// Ask PID 1 to end, and kill the container when the grace is over; answered when it has ended. One that
/// does not run, or is not there, counts as success. Of several stops the earliest deadline counts. A
/// caller that leaves changes nothing.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct StopContainer {
    /// The container.
    pub container: ContainerId,
    /// The signal; that of the spec, else TERM, when not given.
    pub signal: Option<Signal>,
    /// Time from the signal to SIGKILL, in milliseconds; that of the spec when not given; 0 kills at once.
    pub grace_ms: Option<u64>,
}

/// Stop a container because a plugin wants it to end: as [`StopContainer`], and it is remembered who wanted that, and why.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct EvictContainer {
    /// The container.
    pub container: ContainerId,
    /// Which plugin, with its index: `10-logger`.
    pub plugin: String,
    /// Why, for people; empty when it did not say.
    pub reason: String,
}

/// Send a signal to PID 1.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct KillContainer {
    /// The container.
    pub container: ContainerId,
    /// The signal.
    pub signal: Signal,
}

/// Remove the container, its files and its record. One that is not there counts as success. A caller hears when what runs
/// cannot be killed; the removal goes on.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct RemoveContainer {
    /// The container.
    pub container: ContainerId,
    /// What to do when it runs.
    pub running: IfRunning,
}

/// What removing does with a container that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfRunning {
    /// Refuse.
    Refuse,
    /// Kill it first.
    Kill,
}

/// Run another process in a running container; answered when it runs.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<ExecId>")]
pub struct StartExec {
    /// The container.
    pub container: ContainerId,
    /// What to run, already checked.
    pub spec: ExecSpec,
}

/// Send a signal to an exec. One that has ended counts as success.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct KillExec {
    /// The container.
    pub container: ContainerId,
    /// The exec.
    pub exec: ExecId,
    /// The signal.
    pub signal: Signal,
}

/// Freeze all processes of a running container. One that is paused already counts as success.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct PauseContainer {
    /// The container.
    pub container: ContainerId,
}

/// Let a paused container go on. One that is not paused counts as success.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct ResumeContainer {
    /// The container.
    pub container: ContainerId,
}

/// Change limits of a container that runs. What is not given stays as it is.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct UpdateContainer {
    /// The container.
    pub container: ContainerId,
    /// The limits that change, already checked; [`crate::spec::UNLIMITED`] lifts one.
    pub change: Resources,
    /// Whether plugins are asked about it.
    pub consult: Consult,
}

/// Change the size of a terminal.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct ResizeTerminal {
    /// The container.
    pub container: ContainerId,
    /// The exec; none for PID 1.
    pub exec: Option<ExecId>,
    /// The new size.
    pub size: WindowSize,
}

/// Close the log file and open it again under its name, after it was rotated away.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<()>")]
pub struct ReopenLog {
    /// The container.
    pub container: ContainerId,
}

/// What the container uses now.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Stats>")]
pub struct MeasureContainer {
    /// The container.
    pub container: ContainerId,
}
