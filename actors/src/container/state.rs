//! The pure state of a container: every decision about it, with no clock and no IO. `lifecycle`, `stop`,
//! `removal`, `execs` and `adoption` hold the decisions of one kind each.

mod adoption;
mod change;
mod draft;
mod execs;
mod lifecycle;
mod removal;
mod stop;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::sync::Arc;

use mainstay_messages::error::Kind;
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::{Activity, ContainerPhase, ContainerRecord, ContainerSnapshot};
use mainstay_messages::spec::WindowSize;
use mainstay_messages::{ContainerId, Error, ExecId, Exit, ExitStatus, Signal, Timestamp};

use crate::call::CallId;
use crate::machine::{Durability, Machine, Now, Outcome, Plan, Write};

pub use adoption::ADOPTED_GONE_WAIT_MS;
pub use change::{CHANGE_RETRY_MAX_MS, CHANGE_RETRY_MS};
pub use execs::{
    EXEC_ENDED_REMEMBERED_MAX, EXEC_HISTORY_MAX, EXEC_ORPHAN_MS, EXEC_QUERIES_MAX, EXECS_MAX, Execs,
};
pub use lifecycle::START_COMMAND;
pub use removal::{DELETE_RETRY_MAX_MS, DELETE_RETRY_MS};
pub use stop::{KILL_RETRY_MAX_MS, KILL_RETRY_MS, STOP_ANSWER_AFTER_KILL_MS};

pub use vocabulary::{Answer, Ask, Effect, ExecLore, Forward, Input, Knowledge, StartLore, Wake};

use change::{Changing, Look};
use draft::Draft;
use removal::Removal;
use stop::Stop;

/// A container. The diagram of its phases is in [`super`].
///
/// Invariants:
/// 1. An exit, once latched, never changes.
/// 2. With an exit the phase is Exited or Removing; never Running again.
/// 3. Without an exit the phase is never Exited.
/// 4. Whoever asked to stop waits in `stop` or `removal`, and only while there is no exit or a removal is going on.
/// 5. A stop that has begun has a time at which it kills, and one that kills has a next attempt.
/// 6. At most one deletion of the task is under way.
/// 7. Live execs never exceed [`EXECS_MAX`], ended ones that are shown never [`EXEC_HISTORY_MAX`].
#[derive(Clone, Debug)]
pub struct State {
    record: Arc<ContainerRecord>,
    standing: Standing,
    durability: Durability,
    flight: Flight,
    adoption: Adoption,
    /// Who waits for it to be created.
    makers: Vec<CallId>,
    /// Why it could not be made. Then it is being undone, and its makers wait for that.
    failure: Option<Error>,
    /// Who waits for it to be started.
    starters: Vec<CallId>,
    starting_since: Timestamp,
    stop: Option<Stop>,
    removal: Option<Removal>,
    deletion: Deletion,
    change: Option<Changing>,
    look: Look,
    execs: Arc<Execs>,
}

/// What the store knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing yet: its sandbox has not admitted it, or its record is being written.
    Proposed,
    /// Its record.
    Recorded,
    /// Nothing any more, or it is about to.
    Deleted,
}

/// The call under way that makes or starts PID 1. There is at most one of each in the life of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    None,
    Admit,
    Create,
    Start,
}

/// Whether it is known what became of the task since the actor began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Adoption {
    /// It is, or the task was made by this actor.
    Settled,
    /// The answer is awaited; commands wait with it.
    Waiting,
    /// The task is gone; its exit may still be reported. If it is not, this is the reason.
    Gone(UnknownReason),
}

/// Where the removal of the task from its shim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletion {
    NotAsked,
    Asked { failures: u32 },
    Waiting { failures: u32 },
    Done,
}

impl State {
    /// A container that is to be made.
    pub fn proposed(record: ContainerRecord) -> Self {
        Self::new(record, Standing::Proposed, Adoption::Settled, Execs::default())
    }

    /// A container whose record was found in the store: what became of its task is asked first.
    pub fn recovered(record: ContainerRecord) -> Self {
        Self::new(record, Standing::Recorded, Adoption::Waiting, Execs::of_an_earlier_actor())
    }

    /// A container whose row in the store cannot be read: it is Unknown until it is removed.
    pub fn damaged(record: ContainerRecord) -> Self {
        Self::new(record, Standing::Recorded, Adoption::Settled, Execs::of_an_earlier_actor())
    }

    fn new(record: ContainerRecord, standing: Standing, adoption: Adoption, execs: Execs) -> Self {
        Self {
            starting_since: record.created_at,
            record: Arc::new(record),
            standing,
            durability: Durability::Written,
            flight: Flight::None,
            adoption,
            makers: Vec::new(),
            failure: None,
            starters: Vec::new(),
            stop: None,
            removal: None,
            deletion: Deletion::NotAsked,
            change: None,
            look: Look::None,
            execs: Arc::new(execs),
        }
    }

    /// Its record, as memory has it.
    pub fn record(&self) -> &ContainerRecord {
        &self.record
    }

    /// What the store knows of it.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Its execs.
    pub fn execs(&self) -> &Arc<Execs> {
        &self.execs
    }

    /// What readers see.
    pub fn snapshot(&self) -> ContainerSnapshot {
        ContainerSnapshot { record: ContainerRecord::clone(&self.record), activity: self.activity() }
    }

    /// Whether readers see any difference.
    pub fn looks_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.record, &other.record) && self.activity() == other.activity()
    }

    /// What is going on with it.
    pub fn activity(&self) -> Option<Activity> {
        let activity = |operation: &str, step: String, since| {
            Some(Activity { operation: operation.to_owned(), step, since })
        };
        let behind = match self.durability {
            Durability::Written => "",
            Durability::Behind => "; the store does not take the change, which is written again and again",
        };
        if let Some(removal) = &self.removal {
            return activity("remove", format!("{}{behind}", self.removal_step(removal)), removal.since);
        }
        if let Some(stop) = &self.stop {
            return activity("stop", format!("{}{behind}", stop.step()), stop.since);
        }
        if let Some(change) = &self.change {
            return activity(change.operation(), format!("wait for the shim{behind}"), change.since);
        }
        match (self.record.phase, self.flight) {
            (ContainerPhase::Creating, Flight::Admit) => {
                activity("create", "ask the pod".to_owned(), self.record.created_at)
            }
            (ContainerPhase::Creating, _) => {
                activity("create", "set up the process".to_owned(), self.record.created_at)
            }
            (ContainerPhase::Starting, _) => {
                activity("start", format!("let the process run{behind}"), self.starting_since)
            }
            _ if self.durability == Durability::Behind => {
                activity("write", behind.trim_start_matches("; ").to_owned(), self.record.created_at)
            }
            _ => None,
        }
    }

    fn id(&self) -> String {
        self.record.id.to_string()
    }

    fn phase(&self) -> ContainerPhase {
        self.record.phase
    }

    fn ended(&self) -> Option<&Exit> {
        self.record.exit.as_ref()
    }

    fn wrong_phase(&self, call: CallId, operation: &str, needed: &str) -> Outcome<Self> {
        let error = Error::WrongPhase {
            kind: Kind::Container,
            id: self.id(),
            phase: self.phase().to_string(),
            operation: operation.to_owned(),
            needed: needed.to_owned(),
        };
        Outcome::Deny { call, error }
    }

    fn terminating(&self) -> Error {
        Error::Terminating { kind: Kind::Container, id: self.id() }
    }

    /// The decision about an input while nothing of the container is left but its actor.
    fn decide_deleted(&self, input: Input) -> Outcome<Self> {
        match input {
            Input::Remove { call, .. } if self.durability == Durability::Behind => {
                // Written now, and answered with what comes of that: there may be room again.
                let effects = vec![Effect::Retire { calls: vec![call], failed: None }];
                Outcome::Accept(Plan {
                    next: None,
                    write: Some(Write::GoOn { commit: Commit::default() }),
                    effects,
                })
            }
            Input::Stop { call, .. }
            | Input::Remove { call, .. }
            | Input::Kill { call, .. }
            | Input::KillExec { call, .. } => Outcome::Ignore { call: Some(call), why: "already gone" },
            // Its fact is in the commit that is still to be written.
            Input::Exit { call, .. } if self.durability == Durability::Behind => self.still_pending(call),
            Input::Exit { call, .. } => Outcome::Ignore { call: Some(call), why: "already torn down" },
            Input::Create { call, .. }
            | Input::Start { call }
            | Input::Exec { call, .. }
            | Input::Resize { call, .. }
            | Input::ReopenLog { call }
            | Input::Measure { call }
            | Input::Freeze { call, .. }
            | Input::Update { call, .. } => Outcome::Deny { call, error: self.terminating() },
            Input::Written => self.retire(),
            _ => Outcome::Ignore { call: None, why: "already gone" },
        }
    }
}

impl Machine for State {
    type Input = Input;
    type Effect = Effect;

    fn decide(&self, input: Input, now: Now) -> Outcome<Self> {
        if self.standing == Standing::Deleted {
            return self.decide_deleted(input);
        }
        match input {
            Input::Create { call, spec } => self.create(call, &spec, now),
            Input::Admitted(result) => self.admitted(result, now),
            Input::TaskCreated(result) => self.task_created(result, now),
            Input::Start { call } => self.start(call, now),
            Input::TaskStarted(result) => self.task_started(result, now),
            Input::Exit { call, exec: None, exit } => self.exit_seen(call, exit, now),
            Input::Exit { call, exec: Some(id), exit } => self.exec_exit_seen(call, &id, exit, now),
            Input::Stop { call, signal, grace_ms } => self.stop(call, signal, grace_ms, now),
            Input::Kill { call, signal } => self.kill(call, signal),
            Input::Remove { call, running } => self.remove(call, running, now),
            Input::TaskDeleted(result) => self.task_deleted(result, now),
            Input::Dismantle => self.dismantle(now),
            Input::Exec { call, id, spec } => self.exec(call, id, spec, now),
            Input::ExecStarted(id, result) => self.exec_started(&id, result, now),
            Input::KillExec { call, id, signal } => self.kill_exec(call, &id, signal),
            Input::Resize { call, exec, size } => self.resize(call, exec, size),
            Input::ReopenLog { call } => {
                self.forward_while_running(call, "reopening the log", Forward::ReopenLog)
            }
            Input::Measure { call } => self.forward_while_running(call, "measuring", Forward::Measure),
            Input::Freeze { call, to } => self.freeze(call, to, now),
            Input::Frozen(to, result) => self.frozen(to, result, now),
            Input::Update { call, change, consult } => self.update(call, &change, consult, now),
            Input::Updated(limits, result) => self.updated(*limits, result, now),
            Input::Looked(result) => self.looked(result, now),
            Input::ExecKilled => self.exec_killed(now),
            Input::Adopt(knowledge) => self.adopt(knowledge, now),
            Input::Queried(None, result) => self.queried(result, now),
            Input::Queried(Some(id), result) => self.exec_queried(&id, result, now),
            Input::JournalSearched(result) => self.journal_searched(result, now),
            Input::Woke(wake) => self.woke(wake, now),
            Input::Written => Outcome::Ignore { call: None, why: "the store has caught up" },
        }
    }

    fn holds(&self, input: &Input) -> bool {
        let command = matches!(
            input,
            Input::Create { .. }
                | Input::Start { .. }
                | Input::Stop { .. }
                | Input::Kill { .. }
                | Input::Remove { .. }
                | Input::Exec { .. }
                | Input::KillExec { .. }
                | Input::Resize { .. }
                | Input::ReopenLog { .. }
                | Input::Measure { .. }
                | Input::Freeze { .. }
                | Input::Update { .. }
        );
        command && self.adoption != Adoption::Settled && self.standing != Standing::Deleted
    }

    fn written() -> Input {
        Input::Written
    }

    fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    fn truth(&self) -> Change {
        match self.standing {
            Standing::Recorded => Change::PutContainer(Box::new(ContainerRecord::clone(&self.record))),
            Standing::Proposed | Standing::Deleted => Change::DeleteContainer(self.record.id.clone()),
        }
    }
}

impl State {
    fn woke(&self, wake: Wake, now: Now) -> Outcome<Self> {
        match wake {
            Wake::StopDeadline { deadline_ms } => self.stop_deadline(deadline_ms, now),
            Wake::KillAgain { attempt } => self.kill_again(attempt, now),
            Wake::AnswerStops => self.answer_stops(now),
            Wake::DeleteAgain => self.delete_again(now),
            Wake::Orphans => self.look_after_orphans(now),
            Wake::Look => self.look_now(now),
            Wake::LimitsAgain { failures } => self.limits_again(failures, now),
            Wake::GoneUnreported => self.gone_unreported(now),
        }
    }

    /// Passes a call on that makes sense only while there is a PID 1.
    fn forward_while_running(&self, call: CallId, operation: &str, what: Forward) -> Outcome<Self> {
        match self.phase() {
            ContainerPhase::Created
            | ContainerPhase::Starting
            | ContainerPhase::Running
            | ContainerPhase::Stopping
            | ContainerPhase::Unknown => forward(call, what),
            _ => self.wrong_phase(call, operation, "created or running"),
        }
    }

    fn kill(&self, call: CallId, signal: Signal) -> Outcome<Self> {
        if self.ended().is_some() {
            return Outcome::Ignore { call: Some(call), why: "its process has ended" };
        }
        match self.phase() {
            ContainerPhase::Creating => self.wrong_phase(call, "sending a signal", "created or running"),
            _ => forward(call, Forward::Signal { exec: None, signal }),
        }
    }

    fn resize(&self, call: CallId, exec: Option<ExecId>, size: WindowSize) -> Outcome<Self> {
        if let Some(id) = &exec
            && let Some(refusal) = self.refuse_exec_unless_live(call, id, "resizing its terminal")
        {
            return refusal;
        }
        self.forward_while_running(call, "resizing its terminal", Forward::Resize { exec, size })
    }
}

/// Nothing changes; the supervisor's answer goes to the caller.
fn forward(call: CallId, what: Forward) -> Outcome<State> {
    Outcome::Accept(Plan { next: None, write: None, effects: vec![Effect::Forward { call, what }] })
}

/// Whether an error says for certain that nothing was done. After any other the work may have been done.
pub(crate) fn is_definite(error: &Error) -> bool {
    !matches!(
        error,
        Error::DeadlineExceeded { .. }
            | Error::Unavailable { .. }
            | Error::Internal { .. }
            | Error::InProgress { .. }
    )
}

/// An error of the shim, naming the container where it does not yet.
fn naming(id: &ContainerId, error: Error) -> Error {
    match error {
        Error::StartFailed { reason } => Error::StartFailed { reason: format!("container {id}: {reason}") },
        other => other,
    }
}

/// Whether an exit says that the process never ran.
fn never_ran(exit: &Exit) -> bool {
    matches!(exit.status, ExitStatus::StartError { .. })
}
