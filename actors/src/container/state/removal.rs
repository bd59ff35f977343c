//! Removal: end it, delete its task, delete its record. It can be asked for again and again; all who ask are
//! answered together.

use mainstay_messages::container::IfRunning;
use mainstay_messages::event::What;
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::ContainerPhase;
use mainstay_messages::supervisor::SignalScope;
use mainstay_messages::{Error, Exit, Result, Signal, Timestamp};

use super::stop::Caller;
use super::{Answer, Ask, Deletion, Draft, Effect, Flight, Input, Standing, StartLore, State, Wake};
use crate::call::CallId;
use crate::machine::{Now, Outcome, Plan, Write, backoff_ms};

/// Time from a deletion that failed to the next attempt, in milliseconds; doubled after each.
pub const DELETE_RETRY_MS: u64 = 250;
/// The longest time between two attempts to delete, in milliseconds.
pub const DELETE_RETRY_MAX_MS: u64 = 30_000;

/// A removal that is going on.
#[derive(Clone, Debug)]
pub(super) struct Removal {
    pub(super) since: Timestamp,
    pub(super) callers: Vec<Caller>,
    /// Why the last attempt to delete the task failed.
    trouble: Option<String>,
}

impl Removal {
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since, callers: Vec::new(), trouble: None }
    }
}

impl State {
    pub(super) fn remove(&self, call: CallId, running: IfRunning, now: Now) -> Outcome<Self> {
        if self.removal.is_some() {
            return self.join_removal(call, now);
        }
        let quiet = matches!(
            self.phase(),
            ContainerPhase::Created | ContainerPhase::Exited | ContainerPhase::Unknown
        );
        if !quiet && running == IfRunning::Refuse {
            return self.wrong_phase(call, "removing without force", "created or exited");
        }
        let mut draft = self.draft(now);
        draft.next.removal = Some(Removal::new(now.wall));
        draft.remove_caller(call);
        if self.standing == Standing::Recorded {
            draft.commanded("remove", if quiet { "" } else { "force" });
        }
        if matches!(self.phase(), ContainerPhase::Running | ContainerPhase::Stopping) {
            draft.force_stop("remove");
        }
        draft.effect(Effect::Again(Input::Dismantle));
        draft.go_on()
    }

    /// Waits for the removal that is going on; an attempt that is waiting for its time is made now.
    fn join_removal(&self, call: CallId, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        draft.remove_caller(call);
        if let Deletion::Waiting { failures } = self.deletion {
            draft.delete(failures);
        }
        draft.in_memory()
    }

    /// A stop that comes while the container is being removed has what it wants when it is gone.
    pub(super) fn wait_for_removal(&self, call: CallId, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        draft.remove_caller(call);
        draft.in_memory()
    }

    /// Goes on with the removal, if nothing stands against it: no call under way that could still make a
    /// process, no process that runs or whose end is not known, no exec whose exit is still awaited.
    pub(super) fn dismantle(&self, now: Now) -> Outcome<Self> {
        let quiet = matches!(
            self.phase(),
            ContainerPhase::Created
                | ContainerPhase::Exited
                | ContainerPhase::Unknown
                | ContainerPhase::Removing
        );
        if self.removal.is_none() || !quiet || self.flight != Flight::None {
            return Outcome::Ignore { call: None, why: "not to be removed, or not yet" };
        }
        let mut draft = self.draft(now);
        let execs_end = self.ended().is_some() && self.execs.live().next().is_some();
        if execs_end || !self.execs.is_searched() {
            draft.search_journal();
            if self.execs.live().next().is_some() {
                draft.patrol();
            }
            return draft.in_memory();
        }
        if self.phase() != ContainerPhase::Removing {
            draft.record().phase = ContainerPhase::Removing;
        }
        if self.ended().is_none() && self.may_have_run() {
            // With the task its end would be deleted (P1).
            draft.end_before_removal();
            return draft.go_on();
        }
        match self.deletion {
            Deletion::NotAsked => draft.delete(0),
            Deletion::Waiting { failures } => draft.delete(failures),
            Deletion::Asked { .. } => {}
            Deletion::Done => return draft.delete_record(),
        }
        draft.go_on()
    }

    /// Whether PID 1 was let run, or was told to and nobody knows what came of that.
    pub(super) fn may_have_run(&self) -> bool {
        self.record.started_at.is_some() || self.execs.start_lore() == StartLore::Told
    }

    /// The shim has deleted the task, or could not.
    pub(super) fn task_deleted(&self, result: Result<()>, now: Now) -> Outcome<Self> {
        let Deletion::Asked { failures } = self.deletion else {
            return Outcome::Ignore { call: None, why: "not being deleted" };
        };
        let mut draft = self.draft(now);
        let removing = self.phase() == ContainerPhase::Removing;
        match result {
            Ok(()) => {
                draft.next.deletion = Deletion::Done;
                if removing {
                    return draft.delete_record();
                }
                draft.undone("ok");
                draft.effect(Effect::Again(Input::Dismantle));
            }
            Err(error) => {
                if failures == 0 && !removing {
                    draft.undone(&error.to_string());
                }
                if let Some(removal) = &mut draft.next.removal {
                    removal.trouble = Some(error.to_string());
                }
                let callers = draft.next.take_removers();
                draft.answer(callers, Err(error));
                if let Some((makers, failure)) = draft.next.take_failed_makers() {
                    draft.answer(makers, Err(failure));
                }
                draft.next.deletion = Deletion::Waiting { failures: failures.saturating_add(1) };
                draft.wake(backoff_ms(DELETE_RETRY_MS, DELETE_RETRY_MAX_MS, failures), Wake::DeleteAgain);
            }
        }
        draft.in_memory()
    }

    pub(super) fn delete_again(&self, now: Now) -> Outcome<Self> {
        let Deletion::Waiting { failures } = self.deletion else {
            return Outcome::Ignore { call: None, why: "not waiting to be deleted" };
        };
        let mut draft = self.draft(now);
        draft.delete(failures);
        draft.in_memory()
    }

    /// The deletion of the record is durable at last.
    pub(super) fn retire(&self) -> Outcome<Self> {
        let mut next = self.clone();
        let (calls, failed) = (next.take_removers(), next.take_failed_makers());
        let effects = vec![Effect::Retire { calls, failed }];
        Outcome::Accept(Plan { next: Some(next), write: None, effects })
    }

    /// Those who wait for it to be undone, and what they are told then.
    fn take_failed_makers(&mut self) -> Option<(Vec<CallId>, Error)> {
        let failure = self.failure.clone()?;
        Some((std::mem::take(&mut self.makers), failure))
    }

    /// Those who wait for the removal, who wait no more.
    pub(super) fn take_removers(&mut self) -> Vec<CallId> {
        let callers = self.removal.as_mut().map(|removal| std::mem::take(&mut removal.callers));
        callers.unwrap_or_default().into_iter().map(|caller| caller.call).collect()
    }

    /// What a removal is at, in words.
    pub(super) fn removal_step(&self, removal: &Removal) -> String {
        match (&removal.trouble, &self.stop, self.deletion) {
            (Some(trouble), ..) => format!("delete the task, again and again: {trouble}"),
            (None, Some(stop), _) => stop.step(),
            (None, None, Deletion::NotAsked) => "wait for what is under way".to_owned(),
            (None, None, Deletion::Asked { .. } | Deletion::Waiting { .. }) => "delete the task".to_owned(),
            (None, None, Deletion::Done) => "delete the record".to_owned(),
        }
    }
}

impl Draft {
    /// Asks for the deletion of the task. One that may still run, because nobody could say so, is killed first.
    fn delete(&mut self, failures: u32) {
        self.next.deletion = Deletion::Asked { failures };
        if self.next.record.exit.is_none() {
            let (signal, scope) = (Signal::KILL, SignalScope::Cgroup);
            self.ask(Ask::Signal { exec: None, signal, scope, cause: "remove" });
        }
        self.ask(Ask::Delete);
    }

    /// The last commit: the record goes, and every process that ran has its terminal fact.
    fn delete_record(mut self) -> Outcome<State> {
        let at = self.now.wall;
        self.next.standing = Standing::Deleted;
        let unknown = || Exit::unknown(UnknownReason::NotKnownToShim, at);
        let open: Vec<_> = self.next.execs.live().map(|exec| exec.id.clone()).collect();
        for id in open {
            self.exec_fact(&id, What::ExecExited { exit: unknown() });
        }
        if self.next.record.exit.is_none() && self.next.may_have_run() {
            self.fact(What::ContainerExited { exit: unknown() });
        }
        self.fact(What::ContainerRemoved);
        let calls = self.next.take_removers();
        let stoppers = self.next.take_stop_callers();
        self.answer(stoppers, Ok(Answer::Done));
        self.abandon_change();
        let failed = self.next.take_failed_makers();
        self.effect(Effect::Retire { calls, failed });
        let facts = std::mem::take(&mut self.facts);
        let commit = Commit { changes: vec![Change::DeleteContainer(self.before.id.clone())], facts };
        self.plan(Some(Write::GoOn { commit }))
    }

    /// It could not be made, and nothing of it must be left.
    pub(super) fn give_up(&mut self, error: Error) {
        self.fact(What::Undone { step: "create".to_owned(), outcome: error.to_string() });
        self.next.failure = Some(error);
        self.resume_removal();
    }

    fn undone(&mut self, outcome: &str) {
        let what = What::Undone { step: "set up the process".to_owned(), outcome: outcome.to_owned() };
        self.effect(Effect::Note(what));
    }
}
