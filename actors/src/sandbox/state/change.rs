//! Changes of what a ready pod may take, and of what it is expected to. One at a time.
//!
//! After a change that was not answered nobody knows which limits are in force: those that are recorded are put back, again
//! and again until there is an answer (P4).

use std::mem::take;

use mainstay_messages::event::What;
use mainstay_messages::record::SandboxPhase;
use mainstay_messages::sandbox::SandboxChange;
use mainstay_messages::spec::{PodPlan, Resources};
use mainstay_messages::supervisor::Consult;
use mainstay_messages::{Error, Result, Timestamp};

use super::{Answer, Ask, Draft, Effect, Input, State, Wish};
use crate::call::CallId;
use crate::container::state::is_definite;
use crate::machine::{Now, Outcome, backoff_ms};

/// Time from a change that was not answered until the limits from before are put back, in milliseconds; doubled after each
/// attempt that is not answered either.
pub const LIMITS_RETRY_MS: u64 = 1_000;
/// The longest time between two such attempts, in milliseconds.
pub const LIMITS_RETRY_MAX_MS: u64 = 30_000;

/// A change that the supervisor is making.
#[derive(Clone, Debug)]
pub(super) struct Changing {
    pub(super) since: Timestamp,
    limits: Resources,
    plan: PodPlan,
    pub(super) callers: Vec<CallId>,
    /// How often it was not answered.
    failures: u32,
}

impl State {
    /// All limits are told to the supervisor: some are checked by the kernel against others.
    pub(super) fn update(&self, call: CallId, change: &SandboxChange, now: Now) -> Outcome<Self> {
        if self.wish == Wish::Remove {
            return Outcome::Deny { call, error: self.terminating() };
        }
        if !self.takes_changes() {
            return self.wrong_phase(call, "changing its limits");
        }
        let limits = self.record.limits().changed_by(&change.limits);
        if let Err(error) = limits.check() {
            return Outcome::Deny { call, error };
        }
        let plan = self.record.plan().changed_by(&change.plan);
        let mut draft = self.draft(now);
        if let Some(under_way) = &mut draft.next.change {
            if under_way.failures == 0 && under_way.limits == limits && under_way.plan == plan {
                under_way.callers.push(call);
                return draft.in_memory();
            }
            let error = Error::InProgress {
                id: self.id(),
                operation: "update".to_owned(),
                step: "wait for the supervisor".to_owned(),
                since: under_way.since,
            };
            return Outcome::Deny { call, error };
        }
        draft.commanded("update", "");
        draft.ask(Ask::Update(Box::new((limits.clone(), plan.clone())), Consult::Plugins));
        draft.next.change =
            Some(Changing { since: now.wall, limits, plan, callers: vec![call], failures: 0 });
        draft.go_on()
    }

    /// The supervisor has made the change, or could not.
    pub(super) fn updated(&self, result: Result<()>, now: Now) -> Outcome<Self> {
        let Some(change) = &self.change else {
            return Outcome::Ignore { call: None, why: "nothing of it is being changed" };
        };
        let mut draft = self.draft(now);
        draft.next.change = None;
        match result {
            Ok(()) if change.failures == 0 => {
                draft.fact(What::SandboxUpdated);
                let record = draft.record();
                record.limits = Some(change.limits.clone().in_force());
                record.plan = Some(change.plan.clone());
                draft.answer(change.callers.clone(), Ok(Answer::Done));
            }
            Ok(()) => {}
            Err(error) => {
                if !is_definite(&error) && self.takes_changes() {
                    draft.put_limits_back(change);
                }
                draft.answer(change.callers.clone(), Err(error));
            }
        }
        draft.go_on()
    }

    /// Time to put limits back whose change was not answered.
    pub(super) fn limits_again(&self, failures: u32, now: Now) -> Outcome<Self> {
        match &self.change {
            Some(change) if change.failures == failures => {
                let mut draft = self.draft(now);
                match self.takes_changes() {
                    true => {
                        let wanted = Box::new((change.limits.clone(), change.plan.clone()));
                        draft.ask(Ask::Update(wanted, Consult::Nobody));
                    }
                    // It is about to end, and its limits with it.
                    false => draft.next.change = None,
                }
                draft.in_memory()
            }
            _ => Outcome::Ignore { call: None, why: "its limits are known" },
        }
    }

    fn takes_changes(&self) -> bool {
        self.phase() == SandboxPhase::Ready && self.wish == Wish::Stay
    }
}

impl Draft {
    /// Nobody knows which limits are in force: those that are recorded are to be, and until they are none are changed.
    fn put_limits_back(&mut self, tried: &Changing) {
        let failures = tried.failures.saturating_add(1);
        self.next.change = Some(Changing {
            since: self.now.wall,
            limits: self.next.record.limits().restoring(&tried.limits),
            plan: self.next.record.plan().clone(),
            callers: Vec::new(),
            failures,
        });
        let after_ms = backoff_ms(LIMITS_RETRY_MS, LIMITS_RETRY_MAX_MS, failures - 1);
        self.effect(Effect::Wake { after_ms, input: Input::LimitsAgain(failures) });
    }

    /// It is gone: nothing of it is changed any more.
    pub(super) fn abandon_change(&mut self) {
        if let Some(mut change) = self.next.change.take() {
            let error = self.next.terminating();
            self.answer(take(&mut change.callers), Err(error));
        }
    }
}
