//! The life of one process, as decisions alone: no clock, no IO.
//!
//! ```text
//!  init:  Preparing ──Prepared──▶ Created ──StartAsked──▶ Starting ──Executed──▶ Running
//!             │                      │                       │                      │
//!             └──────────────────────┴────────Reaped─────────┴──────────────────────┴──▶ Exited
//!  exec:  begins as Created; its process is made after StartAsked
//! ```
//!
//! Owns: which request is allowed when, and what an exit means. Never: knows processes, pipes or cgroups.
//!
//! Invariants:
//! 1. A process has one exit, and it never changes.
//! 2. An exit may come in any phase (P2); what was reported of a failed start becomes its reason.
//! 3. `OOMKilled` is said of a PID 1 alone, which died of SIGKILL that nobody asked us for, and whose cgroup's
//!    kill count had risen.

use mainstay_messages::process::{Exit, ExitStatus, OomVerdict, UnknownReason};
use mainstay_messages::{Signal, Timestamp};
use thiserror::Error;

/// The longest reason that is kept of a failed start, in bytes, so that it fits an exit record.
const REASON_MAX_BYTES: usize = 4 * 1024;

/// What a process is to its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its PID 1.
    Init,
    /// Another one.
    Exec,
}

/// Where a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Being set up.
    Preparing,
    /// Set up, or for an exec registered; not told to run.
    Created,
    /// Told to run.
    Starting,
    /// Its program has been executed.
    Running,
    /// Ended.
    Exited(Exit),
}

/// What happens to a process.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Its set-up is done.
    Prepared,
    /// Somebody asked to let it run.
    StartAsked,
    /// Its program has been executed.
    Executed,
    /// It could not be set up or executed.
    Failed {
        /// Why, in one sentence.
        reason: String,
    },
    /// Somebody asked us to kill it.
    KillAsked,
    /// It is gone.
    Ended {
        /// How.
        how: Ending,
        /// When.
        at: Timestamp,
        /// What the kernel's out-of-memory killer did in its cgroup meanwhile.
        oom_kills: OomKills,
    },
}

/// How a process ended, as the kernel says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It called exit.
    Exited {
        /// With this code.
        code: u8,
    },
    /// A signal ended it.
    Signaled {
        /// This one.
        signal: u8,
    },
    /// There never was a process.
    NeverBegan,
    /// Nobody can say.
    Unknown {
        /// Why not.
        reason: UnknownReason,
    },
}

/// The out-of-memory kill count of a cgroup since the process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OomKills {
    /// It has risen.
    Risen,
    /// It has not, or cannot be told.
    Same,
}

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It changed something.
    Accepted,
    /// It came late or twice.
    Ignored,
}

/// Why a request is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    /// It is still being set up.
    #[error("is still being set up; ask again when its creation has been answered")]
    NotReady,
    /// It was told to run before.
    #[error("has been started already")]
    AlreadyStarted,
    /// It has not been started, or not wholly.
    #[error("is not running yet; start it first")]
    NotRunning,
    /// It is frozen, and so would be whatever is started in it.
    #[error("is paused; resume it first")]
    Paused,
    /// It has ended.
    #[error("has exited")]
    HasExited,
}

/// The life of one process.
#[derive(Debug)]
pub(crate) struct Life {
    role: Role,
    phase: Phase,
    failure: Option<String>,
    kill: KillAsked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillAsked {
    Yes,
    No,
}

impl Life {
    /// The life of a new process.
    pub(crate) fn new(role: Role) -> Self {
        let phase = match role {
            Role::Init => Phase::Preparing,
            Role::Exec => Phase::Created,
        };
        Self { role, phase, failure: None, kill: KillAsked::No }
    }

    /// Where it is.
    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Its exit, once it has one.
    pub(crate) fn exit(&self) -> Option<&Exit> {
        match &self.phase {
            Phase::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// Takes an input.
    pub(crate) fn apply(&mut self, input: Input) -> Result<Outcome, Refusal> {
        use Outcome::{Accepted, Ignored};
        if let Phase::Exited(_) = self.phase {
            return match input {
                Input::StartAsked => Err(Refusal::HasExited),
                _ => Ok(Ignored),
            };
        }
        match (input, &self.phase) {
            (Input::Prepared, Phase::Preparing) => self.phase = Phase::Created,
            (Input::StartAsked, Phase::Created) => self.phase = Phase::Starting,
            (Input::StartAsked, Phase::Preparing) => return Err(Refusal::NotReady),
            (Input::StartAsked, _) => return Err(Refusal::AlreadyStarted),
            (Input::Executed, Phase::Starting) => self.phase = Phase::Running,
            (Input::Failed { reason }, Phase::Preparing | Phase::Created | Phase::Starting) => {
                self.failure.get_or_insert(reason);
            }
            (Input::KillAsked, _) => self.kill = KillAsked::Yes,
            (Input::Ended { how, at, oom_kills }, _) => {
                self.phase = Phase::Exited(self.judge(how, at, oom_kills));
            }
            (Input::Prepared | Input::Executed | Input::Failed { .. }, _) => return Ok(Ignored),
        }
        Ok(Accepted)
    }

    fn judge(&mut self, how: Ending, at: Timestamp, oom_kills: OomKills) -> Exit {
        if let Some(mut reason) = self.failure.take() {
            crate::logger::cut(&mut reason, REASON_MAX_BYTES);
            return Exit::start_error(reason, at);
        }
        let status = match how {
            Ending::Exited { code } => ExitStatus::Exited { code },
            Ending::Signaled { signal } => ExitStatus::Signaled { signal },
            Ending::NeverBegan => ExitStatus::StartError { reason: "it was never started".to_owned() },
            Ending::Unknown { reason } => ExitStatus::Unknown { reason },
        };
        let killed = how == Ending::Signaled { signal: Signal::KILL.0 };
        let ours = self.kill == KillAsked::Yes;
        let oom = match (self.role, oom_kills) {
            (Role::Init, OomKills::Risen) if killed && !ours => OomVerdict::Killed,
            _ => OomVerdict::NotKilled,
        };
        Exit { status, at, oom }
    }
}

#[cfg(test)]
mod tests;
