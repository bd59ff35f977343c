//! Create, start, exit.

use std::mem::take;

use mainstay_messages::error::Kind;
use mainstay_messages::event::What;
use mainstay_messages::record::{ContainerPhase, Paused};
use mainstay_messages::router::ExitReceipt;
use mainstay_messages::spec::ContainerSpec;
use mainstay_messages::supervisor::TaskMade;
use mainstay_messages::{Error, Exit, ExitStatus, Result, Timestamp};

use super::{
    Adoption, Answer, Ask, Deletion, Draft, Effect, Flight, Input, Standing, State, is_definite, naming,
    never_ran,
};
use crate::call::CallId;
use crate::machine::{Durability, Now, Outcome, Plan};

/// The command that tells PID 1 to run, as the journal has it.
pub const START_COMMAND: &str = "start";

impl State {
    /// A first call asks the sandbox; later ones join, whether it is still being made or is made already.
    pub(super) fn create(&self, call: CallId, spec: &ContainerSpec, now: Now) -> Outcome<Self> {
        let making = self.phase() == ContainerPhase::Creating && self.ended().is_none();
        if self.record.spec != *spec {
            return Outcome::Deny { call, error: self.name_in_use(making) };
        }
        if self.removal.is_some() {
            return Outcome::Deny { call, error: self.terminating() };
        }
        let mut draft = self.draft(now);
        if making {
            draft.next.makers.push(call);
            if self.standing == Standing::Proposed && self.flight == Flight::None {
                draft.next.flight = Flight::Admit;
                draft.ask(Ask::Admit);
            }
            return draft.in_memory();
        }
        // A creation that failed fails for whoever repeats it, until its record is removed.
        match self.ended().filter(|exit| never_ran(exit) && self.record.process.is_none()) {
            Some(exit) => {
                let reason = format!("container {} {exit}; remove it first", self.record.id);
                Outcome::Deny { call, error: Error::StartFailed { reason } }
            }
            None => {
                draft.answer(vec![call], Ok(Answer::Created(self.record.id.clone())));
                draft.in_memory()
            }
        }
    }

    fn name_in_use(&self, making: bool) -> Error {
        match self.activity().filter(|_| making) {
            Some(activity) => Error::InProgress {
                id: self.id(),
                operation: activity.operation,
                step: activity.step,
                since: activity.since,
            },
            None => Error::NameTaken {
                kind: Kind::Container,
                name: self.record.name().to_string(),
                holder: self.id(),
            },
        }
    }

    /// Admitted: the record is written before anything is made (P3).
    pub(super) fn admitted(&self, result: Result<()>, now: Now) -> Outcome<Self> {
        if self.standing != Standing::Proposed || self.flight != Flight::Admit {
            return Outcome::Ignore { call: None, why: "not waiting for its sandbox" };
        }
        let mut draft = self.draft(now);
        // Whoever asked to stop or remove it has what they want when it does not come to be.
        let mut content = draft.next.take_stop_callers();
        content.extend(draft.next.take_removers());
        let error = match (result, &self.removal) {
            (Err(error), _) => Some(error),
            (Ok(()), Some(_)) => Some(self.terminating()),
            (Ok(()), None) => None,
        };
        if error.is_some() {
            draft.next.standing = Standing::Deleted;
            draft.answer(content, Ok(Answer::Done));
            let calls = take(&mut draft.next.makers);
            draft.effect(Effect::Abandon { calls, error });
            return draft.in_memory();
        }
        let mut refused = draft.next.clone();
        refused.standing = Standing::Deleted;
        let calls = take(&mut refused.makers);
        draft.next = self.clone();
        draft.next.standing = Standing::Recorded;
        draft.next.flight = Flight::Create;
        draft.commanded("create", format!("name {}", self.record.name()));
        draft.fact(What::ContainerCreated);
        draft.touch();
        draft.ask(Ask::Create);
        let refusal = vec![
            Effect::Answer { calls: content, answer: Ok(Answer::Done) },
            Effect::Abandon { calls, error: None },
        ];
        draft.or_instead(Some(refused), refusal)
    }

    /// The shim has set up PID 1, or could not.
    pub(super) fn task_created(&self, result: Result<TaskMade>, now: Now) -> Outcome<Self> {
        if self.flight != Flight::Create {
            return Outcome::Ignore { call: None, why: "not being created" };
        }
        let mut draft = self.draft(now);
        draft.next.flight = Flight::None;
        draft.effect(Effect::Again(Input::Dismantle));
        if self.ended().is_some() {
            // The exit overtook the answer; nothing is left to say.
            return draft.in_memory();
        }
        match result {
            Ok(TaskMade { process, adjustment, user }) => {
                let makers = take(&mut draft.next.makers);
                draft.fact(What::ContainerPrepared { pid: process.pid });
                let record = draft.record();
                if let Some(adjustment) = adjustment {
                    *record = record.clone().adjusted(*adjustment);
                }
                record.phase = ContainerPhase::Created;
                record.process = Some(process);
                record.user = user;
                let made = match self.removal {
                    Some(_) => Err(self.terminating()),
                    None => Ok(Answer::Created(self.record.id.clone())),
                };
                draft.answer(makers, made);
                draft.begin_waiting_stop();
            }
            // Not its fault: once it is undone, the same request can be made again (P4).
            Err(error) if !matches!(error, Error::StartFailed { .. }) => draft.give_up(error),
            Err(error) => {
                // What it asks for cannot be run. It stays listed with its reason until it is removed. What the shim may
                // have made is deleted at once (P4); that is idempotent, so it does not matter how far it had come.
                let makers = take(&mut draft.next.makers);
                let exit = Exit::start_error(error.to_string(), now.wall);
                draft.answer(makers, Err(naming(&self.record.id, error)));
                draft.latch(exit);
                draft.undo_task();
            }
        }
        draft.go_on()
    }

    pub(super) fn start(&self, call: CallId, now: Now) -> Outcome<Self> {
        if self.removal.is_some() {
            return Outcome::Deny { call, error: self.terminating() };
        }
        let mut draft = self.draft(now);
        match self.phase() {
            ContainerPhase::Starting => {
                draft.next.starters.push(call);
                draft.in_memory()
            }
            ContainerPhase::Created => {
                draft.next.starters.push(call);
                draft.next.flight = Flight::Start;
                draft.next.starting_since = now.wall;
                draft.record().phase = ContainerPhase::Starting;
                draft.commanded(START_COMMAND, "");
                draft.ask(Ask::Start);
                draft.or_refuse(vec![Effect::Confirm { calls: vec![call] }])
            }
            _ => self.wrong_phase(call, "starting", "created"),
        }
    }

    /// The shim has let PID 1 run, or could not.
    pub(super) fn task_started(&self, result: Result<Timestamp>, now: Now) -> Outcome<Self> {
        if self.flight != Flight::Start {
            return Outcome::Ignore { call: None, why: "not being started" };
        }
        let mut draft = self.draft(now);
        draft.next.flight = Flight::None;
        draft.effect(Effect::Again(Input::Dismantle));
        let starters = take(&mut draft.next.starters);
        match (result, self.ended()) {
            (Ok(at), None) => {
                draft.started(at);
                draft.answer(starters, Ok(Answer::Done));
                match self.removal {
                    Some(_) => draft.force_stop("remove"),
                    None => draft.begin_waiting_stop(),
                }
            }
            (Err(error @ Error::HookFailed { .. }), None) => {
                // A plugin said no before anything was done: it waits on, and may be started another time.
                if self.phase() == ContainerPhase::Starting {
                    draft.record().phase = ContainerPhase::Created;
                }
                draft.answer(starters, Err(error));
                draft.begin_waiting_stop();
            }
            (Err(error), None) if is_definite(&error) => {
                let exit = Exit::start_error(error.to_string(), now.wall);
                draft.answer(starters, Err(naming(&self.record.id, error)));
                draft.latch(exit);
                // The process that was set up may still wait to be told to run.
                draft.undo_task();
            }
            (Err(error), None) => {
                // It may run or not. Its true end is the only sound answer, so it is ended.
                draft.answer(starters, Err(error));
                draft.force_stop("the start was not answered");
            }
            // The exit overtook the answer.
            (Ok(at), Some(exit)) => {
                draft.record().started_at = Some(at);
                let answer = match never_ran(exit) {
                    true => Err(self.start_failed(exit)),
                    false => Ok(Answer::Done),
                };
                draft.answer(starters, answer);
            }
            (Err(error), Some(_)) if is_definite(&error) => {
                draft.answer(starters, Err(naming(&self.record.id, error)));
            }
            (Err(error), Some(exit)) => draft.answer(starters, self.ran(exit, error)),
        }
        draft.go_on()
    }

    /// What an exit says about the start before it that was not answered.
    fn ran(&self, exit: &Exit, error: Error) -> Result<Answer> {
        match exit.status {
            ExitStatus::Unknown { .. } => Err(error),
            ExitStatus::StartError { .. } => Err(self.start_failed(exit)),
            ExitStatus::Exited { .. } | ExitStatus::Signaled { .. } => Ok(Answer::Done),
        }
    }

    fn start_failed(&self, exit: &Exit) -> Error {
        Error::StartFailed { reason: format!("container {} {exit}", self.record.id) }
    }

    /// PID 1 ended. The first report counts.
    pub(super) fn exit_seen(&self, call: CallId, exit: Exit, now: Now) -> Outcome<Self> {
        if self.standing == Standing::Proposed {
            return self.still_pending(call);
        }
        // Nobody saw it end, and whether there was anything to end, the answer to its creation will tell.
        let unseen = matches!(exit.status, ExitStatus::Unknown { .. });
        if unseen && self.ended().is_none() && self.flight == Flight::Create {
            return self.still_pending(call);
        }
        match (self.ended(), self.durability) {
            (Some(_), Durability::Behind) => self.still_pending(call),
            (Some(_), Durability::Written) => Outcome::Ignore { call: Some(call), why: "duplicate" },
            (None, _) => {
                let unmade = self.never_made() && self.flight == Flight::None;
                let mut draft = self.draft(now);
                match exit.status {
                    // Nobody knows of it, and nobody has let it run: there is no process whose end this could be.
                    ExitStatus::Unknown { .. } if self.removal.is_some() && !self.may_have_run() => {
                        return Outcome::Ignore { call: Some(call), why: "it never came to be" };
                    }
                    ExitStatus::Unknown { reason } if unmade => draft.lost(reason),
                    _ => draft.latch(exit),
                }
                draft.effect(Effect::Receipt { call });
                draft.go_on()
            }
        }
    }

    /// The report has to be repeated.
    pub(super) fn still_pending(&self, call: CallId) -> Outcome<Self> {
        let answer = Ok(Answer::Receipt(ExitReceipt::Pending));
        let effects = vec![Effect::Answer { calls: vec![call], answer }];
        Outcome::Accept(Plan { next: None, write: None, effects })
    }
}

impl Draft {
    /// PID 1 runs.
    pub(super) fn started(&mut self, at: Timestamp) {
        self.started_fact();
        let record = self.record();
        record.phase = ContainerPhase::Running;
        record.started_at = Some(at);
    }

    fn started_fact(&mut self) {
        let pid = self.next.record.process.as_ref().map_or(0, |process| process.pid);
        self.fact(What::ContainerStarted { pid });
    }

    /// What the shim has made is deleted at once.
    pub(super) fn undo_task(&mut self) {
        if self.next.deletion == Deletion::NotAsked {
            self.next.deletion = Deletion::Asked { failures: 0 };
            self.ask(Ask::Delete);
        }
    }

    /// PID 1 has ended: the one terminal fact of this container.
    pub(super) fn latch(&mut self, exit: Exit) {
        debug_assert!(self.next.record.exit.is_none(), "an exit is latched once");
        let ran = matches!(exit.status, ExitStatus::Exited { .. } | ExitStatus::Signaled { .. });
        if self.next.phase() == ContainerPhase::Starting && ran {
            // The exit overtook the answer to the start; in the journal the start comes first.
            self.started_fact();
        }
        self.fact(What::ContainerExited { exit: exit.clone() });
        let reason = format!("container {} {exit} before it was ready", self.before.id);
        self.abandon_change();
        let record = self.record();
        record.exit = Some(exit);
        record.stop_by = None;
        record.paused = Paused::No;
        if record.phase != ContainerPhase::Removing {
            record.phase = ContainerPhase::Exited;
        }
        self.next.adoption = Adoption::Settled;
        if self.next.phase() == ContainerPhase::Removing && self.next.removal.is_none() {
            // An earlier actor was at it, and the exit came before whoever would have said so.
            self.resume_removal();
        }
        let stoppers = self.next.take_stop_callers();
        self.next.stop = None;
        self.answer(stoppers, Ok(Answer::Done));
        let makers = take(&mut self.next.makers);
        self.answer(makers, Err(Error::StartFailed { reason }));
        self.search_journal();
        if self.next.execs.live().next().is_some() {
            self.patrol();
        }
        self.effect(Effect::Again(Input::Dismantle));
    }
}
