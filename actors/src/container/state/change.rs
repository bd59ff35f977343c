//! Changes of a container that runs: standing still and going on, and other limits. One at a time.
//!
//! After a change that was not answered nobody knows whether it was made. Then the shim is asked whether the container
//! stands still, and limits are put back as they were, again and again until there is an answer (P4).

use mainstay_messages::error::Kind;
use mainstay_messages::event::What;
use mainstay_messages::record::{ContainerPhase, Paused};
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{Consult, TaskKnowledge, TaskStatus};
use mainstay_messages::{Error, Result, Timestamp};

use super::stop::Stop;
use super::{Answer, Ask, Draft, Standing, State, Wake, is_definite};
use crate::call::CallId;
use crate::machine::{Now, Outcome, backoff_ms};

/// Time from a change that was not answered until the shim is asked what came of it, in milliseconds; doubled after each
/// question that is not answered either.
pub const CHANGE_RETRY_MS: u64 = 1_000;
/// The longest time between two such questions, in milliseconds.
pub const CHANGE_RETRY_MAX_MS: u64 = 30_000;

/// A change that the shim is making.
#[derive(Clone, Debug)]
pub(super) struct Changing {
    pub(super) since: Timestamp,
    kind: ChangeKind,
    callers: Vec<CallId>,
    /// How often it was not answered.
    failures: u32,
}

/// Whether the shim is asked if the container stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It is known.
    None,
    /// It is to be asked when a timer fires.
    Waiting { failures: u32 },
    /// Its answer is awaited.
    UnderWay { failures: u32, worth: Worth },
}

/// What the answer to a look is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    Counts,
    /// It may tell of a time before a later change.
    Outdated,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ChangeKind {
    Freeze(Paused),
    Limits(Box<Resources>),
}

impl Changing {
    /// What it is, in one word.
    pub(super) fn operation(&self) -> &'static str {
        match self.kind {
            ChangeKind::Freeze(Paused::Yes) => "pause",
            ChangeKind::Freeze(Paused::No) => "resume",
            ChangeKind::Limits(_) => "update",
        }
    }
}

impl State {
    /// Freezes it or lets it go on. The shim is asked even where memory says that nothing is to be done: after a call that
    /// was not answered, only the shim knows.
    pub(super) fn freeze(&self, call: CallId, to: Paused, now: Now) -> Outcome<Self> {
        let operation = match to {
            Paused::Yes => "pausing",
            Paused::No => "resuming",
        };
        if let Some(refusal) = self.refuse_change(call, operation) {
            return refusal;
        }
        if to == Paused::Yes && self.stop.is_some() {
            return self.wrong_phase(call, operation, "running, and not asked to stop");
        }
        self.begin_change(call, ChangeKind::Freeze(to), Consult::Nobody, now)
    }

    /// Changes limits. All limits are told to the shim: some are checked by the kernel against others.
    pub(super) fn update(
        &self,
        call: CallId,
        change: &Resources,
        consult: Consult,
        now: Now,
    ) -> Outcome<Self> {
        // One that waits to be started has a cgroup already.
        if (self.phase() != ContainerPhase::Created || self.removal.is_some())
            && let Some(refusal) = self.refuse_change(call, "changing its limits")
        {
            return refusal;
        }
        let limits = self.record.limits().changed_by(change);
        match limits.check() {
            Ok(()) => self.begin_change(call, ChangeKind::Limits(Box::new(limits)), consult, now),
            Err(error) => Outcome::Deny { call, error },
        }
    }

    fn refuse_change(&self, call: CallId, operation: &str) -> Option<Outcome<Self>> {
        if self.removal.is_some() {
            return Some(Outcome::Deny { call, error: self.terminating() });
        }
        match self.phase() {
            ContainerPhase::Running | ContainerPhase::Stopping => None,
            _ => Some(self.wrong_phase(call, operation, "running")),
        }
    }

    fn begin_change(&self, call: CallId, kind: ChangeKind, consult: Consult, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        if let Some(change) = &mut draft.next.change {
            if change.kind == kind {
                change.callers.push(call);
                return draft.in_memory();
            }
            let error = Error::InProgress {
                id: self.id(),
                operation: change.operation().to_owned(),
                step: "wait for the shim".to_owned(),
                since: change.since,
            };
            return Outcome::Deny { call, error };
        }
        draft.ask(match &kind {
            ChangeKind::Freeze(to) => Ask::Freeze(*to),
            ChangeKind::Limits(limits) => Ask::Update(limits.clone(), consult),
        });
        if matches!(kind, ChangeKind::Freeze(_)) {
            draft.outdate_look();
        }
        let changing = Changing { since: now.wall, kind, callers: vec![call], failures: 0 };
        draft.commanded(changing.operation(), "");
        draft.next.change = Some(changing);
        draft.go_on()
    }

    /// The shim has frozen it, or has let it go on, or could not.
    pub(super) fn frozen(&self, to: Paused, result: Result<()>, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        if result.is_ok() && self.ended().is_none() {
            draft.now_is(to);
            if to == Paused::Yes && self.stop.is_some() {
                // What is to end must be able to.
                draft.ask(Ask::Freeze(Paused::No));
            }
        }
        let doubtful = result.as_ref().is_err_and(|error| !is_definite(error));
        draft.end_change(&ChangeKind::Freeze(to), result);
        if doubtful && self.ended().is_none() {
            draft.look();
        }
        draft.go_on()
    }

    /// A SIGKILL for an exec lets all of a container that stands still go on, or else the exec could not die.
    pub(super) fn exec_killed(&self, now: Now) -> Outcome<Self> {
        if self.record.paused == Paused::No {
            return Outcome::Ignore { call: None, why: "it does not stand still" };
        }
        let mut draft = self.draft(now);
        draft.look();
        draft.in_memory()
    }

    /// Time to ask the shim whether it stands still.
    pub(super) fn look_now(&self, now: Now) -> Outcome<Self> {
        let Look::Waiting { failures } = self.look else {
            return Outcome::Ignore { call: None, why: "it is known whether it stands still" };
        };
        let mut draft = self.draft(now);
        draft.next.look = Look::UnderWay { failures, worth: Worth::Counts };
        draft.ask(Ask::Look);
        draft.in_memory()
    }

    /// The shim's answer whether it stands still.
    pub(super) fn looked(&self, result: Result<TaskKnowledge>, now: Now) -> Outcome<Self> {
        let Look::UnderWay { failures, worth } = self.look else {
            return Outcome::Ignore { call: None, why: "it is known whether it stands still" };
        };
        let mut draft = self.draft(now);
        draft.next.look = Look::None;
        match (result, worth) {
            (Err(_), _) => draft.look_later(failures.saturating_add(1)),
            (Ok(_), Worth::Outdated) => draft.look_later(0),
            (Ok(TaskKnowledge::Known(task)), Worth::Counts) => match task.status {
                TaskStatus::Running => draft.now_is(Paused::No),
                TaskStatus::Paused => {
                    draft.now_is(Paused::Yes);
                    if self.stop.as_ref().is_some_and(Stop::is_asked) {
                        // What is to end must be able to.
                        draft.let_go_on();
                    }
                }
                TaskStatus::Created | TaskStatus::Exited(_) => {}
            },
            // Its end is on the way.
            (Ok(TaskKnowledge::NotKnown | TaskKnowledge::ShimGone), Worth::Counts) => {}
        }
        draft.go_on()
    }

    /// Time to put limits back whose change was not answered.
    pub(super) fn limits_again(&self, failures: u32, now: Now) -> Outcome<Self> {
        match &self.change {
            Some(Changing { kind: ChangeKind::Limits(limits), failures: counted, .. })
                if *counted == failures =>
            {
                let mut draft = self.draft(now);
                draft.ask(Ask::Update(limits.clone(), Consult::Nobody));
                draft.in_memory()
            }
            _ => Outcome::Ignore { call: None, why: "its limits are known" },
        }
    }

    /// The shim has changed the limits, or could not.
    pub(super) fn updated(
        &self,
        limits: Resources,
        result: Result<Option<Box<Resources>>>,
        now: Now,
    ) -> Outcome<Self> {
        let mut draft = self.draft(now);
        let failures = self.change.as_ref().map_or(0, |change| change.failures);
        if result.is_ok() && self.ended().is_none() && failures == 0 {
            draft.fact(What::ContainerUpdated);
            let changed = result.as_ref().ok().and_then(Option::as_deref);
            draft.record().limits = Some(changed.unwrap_or(&limits).clone().in_force());
        }
        let doubtful = result.as_ref().is_err_and(|error| !is_definite(error));
        draft.end_change(&ChangeKind::Limits(Box::new(limits.clone())), result.map(drop));
        if doubtful && self.ended().is_none() {
            draft.put_limits_back(&limits, failures);
        }
        draft.go_on()
    }
}

impl Draft {
    /// Notes that it stands still, or goes on.
    pub(super) fn now_is(&mut self, to: Paused) {
        if self.next.record.paused == to {
            return;
        }
        self.fact(match to {
            Paused::Yes => What::ContainerPaused,
            Paused::No => What::ContainerResumed,
        });
        self.record().paused = to;
    }

    /// Lets it go on if it stands still, or is about to: a signal that asks it to stop must reach it.
    pub(super) fn let_go_on(&mut self) {
        let freezing = self.next.change.as_ref().is_some_and(|c| c.kind == ChangeKind::Freeze(Paused::Yes));
        if freezing || self.next.record.paused == Paused::Yes {
            self.outdate_look();
            self.ask(Ask::Freeze(Paused::No));
        }
    }

    /// Nobody knows whether it stands still: the shim is asked.
    fn look(&mut self) {
        match self.next.look {
            Look::None => self.look_later(0),
            Look::Waiting { .. } => {}
            Look::UnderWay { .. } => self.outdate_look(),
        }
    }

    fn look_later(&mut self, failures: u32) {
        self.next.look = Look::Waiting { failures };
        self.wake(backoff_ms(CHANGE_RETRY_MS, CHANGE_RETRY_MAX_MS, failures), Wake::Look);
    }

    /// A look that is under way may miss what begins now.
    fn outdate_look(&mut self) {
        if let Look::UnderWay { worth, .. } = &mut self.next.look {
            *worth = Worth::Outdated;
        }
    }

    /// Nobody knows which limits are in force: those that are recorded are to be, and until they are none are changed.
    fn put_limits_back(&mut self, tried: &Resources, failures: u32) {
        let limits = Box::new(self.next.record.limits().restoring(tried));
        let (since, failures) = (self.now.wall, failures.saturating_add(1));
        self.next.change =
            Some(Changing { since, kind: ChangeKind::Limits(limits), callers: Vec::new(), failures });
        let after_ms = backoff_ms(CHANGE_RETRY_MS, CHANGE_RETRY_MAX_MS, failures - 1);
        self.wake(after_ms, Wake::LimitsAgain { failures });
    }

    fn end_change(&mut self, kind: &ChangeKind, result: Result<()>) {
        if self.next.change.as_ref().is_some_and(|change| change.kind == *kind)
            && let Some(change) = self.next.change.take()
        {
            self.answer(change.callers, result.map(|()| Answer::Done));
        }
    }

    /// It has ended, or is gone without ever having begun: there is nothing to change any more.
    pub(super) fn abandon_change(&mut self) {
        self.next.look = Look::None;
        let Some(change) = self.next.change.take() else { return };
        let error = match self.next.standing {
            Standing::Deleted => self.next.terminating(),
            Standing::Proposed | Standing::Recorded => Error::WrongPhase {
                kind: Kind::Container,
                id: self.next.id(),
                phase: ContainerPhase::Exited.to_string(),
                operation: change.operation().to_owned(),
                needed: "running".to_owned(),
            },
        };
        self.answer(change.callers, Err(error));
    }
}
