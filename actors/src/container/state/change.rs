//! Changes of a container that runs: standing still and going on, and other limits. One at a time.

use mainstay_messages::error::Kind;
use mainstay_messages::event::What;
use mainstay_messages::record::{ContainerPhase, Paused};
use mainstay_messages::spec::Resources;
use mainstay_messages::{Error, Result, Timestamp};

use super::{Answer, Ask, Draft, State};
use crate::call::CallId;
use crate::machine::{Now, Outcome};

/// A change that the shim is making.
#[derive(Clone, Debug)]
pub(super) struct Changing {
    pub(super) since: Timestamp,
    kind: ChangeKind,
    callers: Vec<CallId>,
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
        self.begin_change(call, ChangeKind::Freeze(to), now)
    }

    /// Changes limits. All limits are told to the shim: some are checked by the kernel against others.
    pub(super) fn update(&self, call: CallId, change: &Resources, now: Now) -> Outcome<Self> {
        if let Some(refusal) = self.refuse_change(call, "changing its limits") {
            return refusal;
        }
        let limits = self.record.limits().changed_by(change);
        match limits.check() {
            Ok(()) => self.begin_change(call, ChangeKind::Limits(Box::new(limits)), now),
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

    fn begin_change(&self, call: CallId, kind: ChangeKind, now: Now) -> Outcome<Self> {
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
            ChangeKind::Limits(limits) => Ask::Update(limits.clone()),
        });
        let changing = Changing { since: now.wall, kind, callers: vec![call] };
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
        draft.end_change(&ChangeKind::Freeze(to), result);
        draft.go_on()
    }

    /// The shim has changed the limits, or could not.
    pub(super) fn updated(&self, limits: Resources, result: Result<()>, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        if result.is_ok() && self.ended().is_none() {
            draft.fact(What::ContainerUpdated);
            draft.record().limits = Some(limits.clone().in_force());
        }
        draft.end_change(&ChangeKind::Limits(Box::new(limits)), result);
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
            self.ask(Ask::Freeze(Paused::No));
        }
    }

    fn end_change(&mut self, kind: &ChangeKind, result: Result<()>) {
        if self.next.change.as_ref().is_some_and(|change| change.kind == *kind)
            && let Some(change) = self.next.change.take()
        {
            self.answer(change.callers, result.map(|()| Answer::Done));
        }
    }

    /// It has ended: there is nothing to change any more.
    pub(super) fn abandon_change(&mut self) {
        let Some(change) = self.next.change.take() else { return };
        let error = Error::WrongPhase {
            kind: Kind::Container,
            id: self.next.id(),
            phase: ContainerPhase::Exited.to_string(),
            operation: change.operation().to_owned(),
            needed: "running".to_owned(),
        };
        self.answer(change.callers, Err(error));
    }
}
