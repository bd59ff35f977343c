//! Entries of the journal: the numbered, durable log of all that happened.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::audit::{Deviation, ThingKind};
use crate::id::{ContainerId, ExecId, SandboxId};
use crate::process::{Exit, Signal};
use crate::time::Timestamp;

/// The number of a journal entry. Numbers begin at 1, rise by one, and are never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The number that follows.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The pod; none for a fact about a process whose pod is not known.
    pub sandbox: Option<SandboxId>,
    /// The container, if it is about one.
    pub container: Option<ContainerId>,
    /// The exec, if it is about one.
    pub exec: Option<ExecId>,
}

/// A journal entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number.
    pub seq: Seq,
    /// When it happened.
    pub at: Timestamp,
    /// To whom.
    pub subject: Subject,
    /// What.
    pub what: What,
}

/// Who has or had a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bearer {
    /// The pod or container.
    pub subject: Subject,
    /// When its record was first written.
    pub created_at: Timestamp,
}

/// What happened, to whom and when; it gets its number when it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// When it happened.
    pub at: Timestamp,
    /// To whom.
    pub subject: Subject,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A command arrived.
    Commanded {
        /// Which: `run`, `create`, `start`, `stop`, `kill`, `remove`, `exec`.
        command: String,
        /// Its arguments, in words.
        detail: String,
    },
    /// A pod's record was written.
    SandboxCreated,
    /// A pod takes containers.
    SandboxReady,
    /// A pod takes no containers any more.
    SandboxNotReady {
        /// Why.
        reason: String,
    },
    /// A pod's containers and shim are stopped.
    SandboxStopped,
    /// A pod is gone.
    SandboxRemoved,
    /// A shim runs.
    ShimStarted {
        /// Its process id.
        pid: u32,
    },
    /// A shim was found again after a restart of the runtime.
    ShimAdopted {
        /// Its process id.
        pid: u32,
    },
    /// A shim died that should not have.
    ShimDied {
        /// How, as far as it is known.
        reason: String,
    },
    /// A container's record was written.
    ContainerCreated,
    /// A container's PID 1 is set up.
    ContainerPrepared {
        /// Its process id.
        pid: u32,
    },
    /// A container's PID 1 runs.
    ContainerStarted {
        /// Its process id.
        pid: u32,
    },
    /// A signal was sent.
    Signalled {
        /// Which.
        signal: Signal,
        /// Why: `stop`, `grace elapsed`, `kill`.
        cause: String,
    },
    /// The terminal fact of a container.
    ContainerExited {
        /// How it ended.
        exit: Exit,
    },
    /// A container is gone.
    ContainerRemoved,
    /// What became of a container cannot be found out.
    ContainerUnknown {
        /// Why.
        reason: String,
    },
    /// An exec runs.
    ExecStarted {
        /// Its process id.
        pid: u32,
    },
    /// The terminal fact of an exec.
    ExecExited {
        /// How it ended.
        exit: Exit,
    },
    /// An exit arrived for somebody who is not there yet, and waits for them.
    ExitParked,
    /// A parked exit reached its container.
    ExitDelivered,
    /// An exit arrived that changes nothing.
    ExitAbsorbed {
        /// Why: `duplicate`, `already torn down`.
        reason: String,
    },
    /// An exit arrived that nobody claimed by its deadline, and the supervisor does not know the process.
    ExitUnclaimed {
        /// How it ended.
        exit: Exit,
    },
    /// An actor panicked and was started again from the store.
    ActorRestarted {
        /// Which kind.
        actor: String,
        /// How many times so far.
        count: u32,
    },
    /// A step of an operation was undone.
    Undone {
        /// The step.
        step: String,
        /// `ok`, or what went wrong.
        outcome: String,
    },
    /// A saga was run, or undone.
    StepsTaken {
        /// Which: `run-pod`, `create-container`.
        saga: String,
        /// Its steps, in the order in which they were taken.
        steps: Vec<StepTaken>,
    },
    /// All processes of a container are frozen.
    ContainerPaused,
    /// A container goes on.
    ContainerResumed,
    /// The limits of a container were changed.
    ContainerUpdated,
    /// The store could not be read. It began empty: what was in it alone (pods that did not run, the journal) is in the
    /// file that was set aside.
    StoreReplaced {
        /// The file that was set aside.
        moved_to: String,
    },
    /// The store did not have a record of something that is there; it was taken from the pod's directory.
    RecordRebuilt,
    /// An audit has found something that the one before it had not.
    AuditFound {
        /// In which direction machine and records differ.
        deviation: Deviation,
        /// What it is.
        kind: ThingKind,
        /// Where it is, or should be.
        place: String,
        /// What is wrong, in one sentence.
        reason: String,
    },
    /// A container has ended, and its log lacks some of its output: the disk did not take it.
    OutputLost {
        /// How much, in bytes of output.
        bytes: u64,
    },
    /// An image was pulled: all of it is here, and durable.
    ImagePulled {
        /// Its name, whole.
        image: String,
        /// The digest of its manifest.
        digest: String,
        /// How long it took, in milliseconds.
        took_ms: u64,
    },
    /// The pull of an image ended without it.
    ImagePullFailed {
        /// In which of the ways in which a pull can fail.
        #[serde(default)]
        ending: PullEnding,
        /// How long it was tried, in milliseconds.
        #[serde(default)]
        took_ms: u64,
        /// Its name, whole.
        image: String,
        /// Why.
        reason: String,
    },
    /// Plugins were told of an event of a pod or container, one after the other.
    HookCalled {
        /// Which: `RunPodSandbox`.
        hook: String,
        /// Those that were asked.
        calls: Vec<HookCall>,
    },
    /// A plugin knows of all there is, and is called from now on.
    PluginReady {
        /// Which, with its index: `10-logger`.
        plugin: String,
    },
    /// A plugin is not called any more.
    PluginGone {
        /// Which.
        plugin: String,
        /// Why.
        reason: String,
    },
    /// The limits of a pod were changed, or what it is expected to take.
    SandboxUpdated,
}

/// What one plugin made of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCall {
    /// Which plugin, with its index: `10-logger`.
    pub plugin: String,
    /// What came of it.
    pub outcome: HookOutcome,
    /// How long it took from the time at which it was the plugin's turn, in microseconds.
    pub took_us: u64,
    /// What went wrong; none when it answered.
    pub trouble: Option<String>,
}

/// What came of a call of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    /// It answered.
    Answered,
    /// It said no.
    Refused,
    /// It was not heard, and the request went on without it, or failed, as is set for it.
    Missed,
}

/// One way of one step of a saga.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTaken {
    /// The step.
    pub step: String,
    /// Which way.
    pub way: Way,
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// What went wrong; none when it worked.
    pub trouble: Option<String>,
}

/// A way of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// It was done.
    Act,
    /// It was undone.
    Undo,
}

/// How the pull of an image ended without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullEnding {
    /// It failed.
    #[default]
    Failed,
    /// Nothing moved for too long.
    TimedOut,
    /// Nobody waited for it any more.
    Cancelled,
}

impl Fact {
    /// The journal entry of this fact.
    pub fn numbered(self, seq: Seq) -> Event {
        Event { seq, at: self.at, subject: self.subject, what: self.what }
    }
}

impl Subject {
    /// About a pod.
    pub fn sandbox(id: &SandboxId) -> Self {
        Self { sandbox: Some(id.clone()), container: None, exec: None }
    }

    /// About a container.
    pub fn container(sandbox: &SandboxId, id: &ContainerId) -> Self {
        Self { sandbox: Some(sandbox.clone()), container: Some(id.clone()), exec: None }
    }

    /// About an exec.
    pub fn exec(sandbox: &SandboxId, container: &ContainerId, id: &ExecId) -> Self {
        Self { sandbox: Some(sandbox.clone()), container: Some(container.clone()), exec: Some(id.clone()) }
    }
}

impl fmt::Display for StepTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, way, took_us, trouble } = self;
        let undo = match way {
            Way::Act => "",
            Way::Undo => "undo ",
        };
        write!(f, "{undo}{step} {}.{:03} ms", took_us / 1_000, took_us % 1_000)?;
        trouble.iter().try_for_each(|trouble| write!(f, " failed ({trouble})"))
    }
}

impl fmt::Display for HookCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plugin, outcome, took_us, trouble } = self;
        write!(f, "{plugin} {}.{:03} ms", took_us / 1_000, took_us % 1_000)?;
        let word = match outcome {
            HookOutcome::Answered => "answered",
            HookOutcome::Refused => "refused",
            HookOutcome::Missed => "missed",
        };
        trouble.iter().try_for_each(|trouble| write!(f, " {word} ({trouble})"))
    }
}

impl fmt::Display for What {
    /// One line for people, as `explain` and `events` show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commanded { command, detail } if detail.is_empty() => write!(f, "command: {command}"),
            Self::Commanded { command, detail } => write!(f, "command: {command} ({detail})"),
            Self::SandboxCreated => f.write_str("pod recorded"),
            Self::SandboxReady => f.write_str("pod ready"),
            Self::SandboxNotReady { reason } => write!(f, "pod not ready: {reason}"),
            Self::SandboxStopped => f.write_str("pod stopped"),
            Self::SandboxRemoved => f.write_str("pod removed"),
            Self::ShimStarted { pid } => write!(f, "shim started, pid {pid}"),
            Self::ShimAdopted { pid } => write!(f, "shim adopted, pid {pid}"),
            Self::ShimDied { reason } => write!(f, "shim died: {reason}"),
            Self::ContainerCreated => f.write_str("container recorded"),
            Self::ContainerPrepared { pid } => write!(f, "container prepared, pid {pid}"),
            Self::ContainerStarted { pid } => write!(f, "container started, pid {pid}"),
            Self::Signalled { signal, cause } => write!(f, "{signal} sent: {cause}"),
            Self::ContainerExited { exit } => write!(f, "container {exit}"),
            Self::ContainerRemoved => f.write_str("container removed"),
            Self::ContainerUnknown { reason } => write!(f, "container lost: {reason}"),
            Self::ExecStarted { pid } => write!(f, "exec started, pid {pid}"),
            Self::ExecExited { exit } => write!(f, "exec {exit}"),
            Self::ExitParked => f.write_str("exit parked: nobody of that id is registered yet"),
            Self::ExitDelivered => f.write_str("parked exit delivered"),
            Self::ExitAbsorbed { reason } => write!(f, "exit absorbed: {reason}"),
            Self::ExitUnclaimed { exit } => write!(f, "exit unclaimed: process {exit}"),
            Self::ActorRestarted { actor, count } => {
                write!(f, "{actor} actor panicked and was restarted (restart {count})")
            }
            Self::ContainerPaused => f.write_str("container paused"),
            Self::ContainerResumed => f.write_str("container resumed"),
            Self::ContainerUpdated => f.write_str("container limits changed"),
            Self::SandboxUpdated => f.write_str("pod limits changed"),
            Self::StoreReplaced { moved_to } => write!(
                f,
                "store unreadable and set aside as {moved_to}: what did not run, and the journal until here, are in it alone"
            ),
            Self::RecordRebuilt => {
                f.write_str("record rebuilt from the pod's directory: the store had lost it")
            }
            Self::AuditFound { deviation, kind, place, reason } => {
                write!(f, "audit found a {deviation}: {kind} {place}: {reason}")
            }
            Self::OutputLost { bytes } => {
                write!(f, "{bytes} bytes of output are not in the log: its disk did not take them")
            }
            Self::ImagePulled { image, digest, took_ms } => {
                write!(f, "image {image} pulled in {}.{:03} s: {digest}", took_ms / 1_000, took_ms % 1_000)
            }
            Self::ImagePullFailed { image, reason, .. } => write!(f, "image {image} not pulled: {reason}"),
            Self::Undone { step, outcome } => write!(f, "step undone: {step}: {outcome}"),
            Self::StepsTaken { saga, steps } => list(f, saga, steps),
            Self::HookCalled { hook, calls } => list(f, &format!("hook {hook}"), calls),
            Self::PluginReady { plugin } => write!(f, "plugin {plugin} knows of all there is"),
            Self::PluginGone { plugin, reason } => write!(f, "plugin {plugin} is gone: {reason}"),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, title: &str, items: &[impl fmt::Display]) -> fmt::Result {
    write!(f, "{title}:")?;
    let separators = std::iter::once(" ").chain(std::iter::repeat(", "));
    items.iter().zip(separators).try_for_each(|(item, separator)| write!(f, "{separator}{item}"))
}
