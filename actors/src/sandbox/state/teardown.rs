//! Stop, remove, and the undoing of a start that failed: steps that follow one another and are repeated until
//! they worked (P4).
//!
//! ```text
//!  stop:    stop the containers ─► end the shim ─► Stopped
//!  remove:  … grace 0 …         ─► end the shim ─► remove the containers ─► end the shim again ─► (nothing)
//!           of one that is Stopped and has no containers:                   end the shim again ─► (nothing)
//!  undo:                           end the shim ─────────────────────────────────────────────► (nothing)
//! ```

use std::mem::take;
use std::sync::Arc;

use mainstay_messages::event::What;
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::record::SandboxPhase;
use mainstay_messages::supervisor::PodEnd;
use mainstay_messages::{ContainerId, Error, Result};

use super::{Adoption, Answer, Ask, Draft, Effect, Input, Standing, State, Wish, Work};
use crate::call::CallId;
use crate::machine::{Now, Outcome, Write, backoff_ms};

/// Time from a step that failed to its next attempt, in milliseconds; doubled after each.
pub const TEARDOWN_RETRY_MS: u64 = 250;
/// The longest time between two attempts of a step, in milliseconds.
pub const TEARDOWN_RETRY_MAX_MS: u64 = 30_000;

/// Whether the work is under way or waits for its next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    UnderWay,
    Waiting,
}

impl State {
    pub(super) fn stop(&self, call: CallId, grace_ms: Option<u64>, now: Now) -> Outcome<Self> {
        if self.wish == Wish::Stay && self.phase() == SandboxPhase::Stopped {
            return Outcome::Ignore { call: Some(call), why: "it is stopped" };
        }
        let mut draft = self.draft(now);
        if self.wish == Wish::Remove {
            draft.next.removers.push(call);
        } else {
            draft.next.stoppers.push(call);
        }
        match self.wish {
            Wish::Stay => {
                draft.next.wish = Wish::Stop { grace_ms };
                draft.next.since = now.wall;
                let grace =
                    grace_ms.map_or("each container's own grace".to_owned(), |ms| format!("grace {ms} ms"));
                draft.commanded("stop", grace);
                draft.effect(Effect::Again(Input::Proceed));
            }
            // The containers settle among all who ask which deadline counts.
            Wish::Stop { .. } if self.work == Work::StopContainers => {
                draft.ask(Ask::StopContainers { grace_ms })
            }
            Wish::Stop { .. } | Wish::Remove => draft.hurry(),
        }
        draft.go_on()
    }

    pub(super) fn remove(&self, call: CallId, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        draft.next.removers.push(call);
        if self.wish == Wish::Remove {
            draft.hurry();
            return draft.in_memory();
        }
        draft.next.wish = Wish::Remove;
        draft.next.since = now.wall;
        draft.commanded("remove", "");
        if !matches!(self.work, Work::Launch | Work::Undo) {
            draft.record().phase = SandboxPhase::Removing;
        }
        match self.work {
            Work::StopContainers => draft.ask(Ask::StopContainers { grace_ms: Some(0) }),
            // Its end has been seen: what is left to do is to look once more, and to say that it is gone.
            Work::None if self.phase() == SandboxPhase::Stopped && self.containers.is_empty() => {
                draft.work(Work::ClearUp, Ask::StopShim);
            }
            Work::None => draft.effect(Effect::Again(Input::Proceed)),
            _ => draft.hurry(),
        }
        draft.go_on()
    }

    /// Begins the next step towards what is wished for.
    pub(super) fn proceed(&self, now: Now) -> Outcome<Self> {
        if self.work != Work::None {
            return Outcome::Ignore { call: None, why: "work is under way" };
        }
        let mut draft = self.draft(now);
        draft.next.adoption = Adoption::Settled;
        let grace_ms = match self.wish {
            Wish::Stay => return Outcome::Ignore { call: None, why: "nothing is wished for" },
            Wish::Stop { grace_ms } => {
                draft.record().phase = SandboxPhase::Stopping;
                grace_ms
            }
            Wish::Remove => {
                if self.phase() != SandboxPhase::Removing {
                    draft.record().phase = SandboxPhase::Removing;
                }
                Some(0)
            }
        };
        match self.containers.is_empty() {
            true => draft.work(Work::StopShim, Ask::StopShim),
            false => draft.work(Work::StopContainers, Ask::StopContainers { grace_ms }),
        }
        draft.go_on()
    }

    /// The containers have ended, or did not in time: ending the shim ends them for certain.
    pub(super) fn containers_stopped(&self, now: Now) -> Outcome<Self> {
        if self.work != Work::StopContainers {
            return Outcome::Ignore { call: None, why: "the containers are not being stopped" };
        }
        let mut draft = self.draft(now);
        draft.work(Work::StopShim, Ask::StopShim);
        draft.in_memory()
    }

    /// How far it has come when its shim is ended.
    pub fn pod_end(&self) -> PodEnd {
        match self.work {
            Work::StopShim => PodEnd::Stopped,
            _ => PodEnd::Removed,
        }
    }

    pub(super) fn shim_stopped(&self, result: Result<()>, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        match (self.work, result) {
            (Work::Undo | Work::StopShim | Work::ClearUp, _) if self.pace == Pace::Waiting => {
                return Outcome::Ignore { call: None, why: "an earlier attempt" };
            }
            (Work::Undo | Work::StopShim | Work::ClearUp, Err(error)) => draft.failed(error),
            (Work::Undo, Ok(())) => {
                draft.undone("ok");
                if self.containers.is_empty() {
                    return draft.delete_record();
                }
                // It had come further than the store knew when an earlier actor ended.
                draft.next.wish = Wish::Remove;
                draft.record().phase = SandboxPhase::Removing;
                draft.remove_containers();
            }
            (Work::StopShim, Ok(())) => {
                draft.fact(What::SandboxStopped);
                draft.record().shim = None;
                draft.record().network = None;
                if self.wish == Wish::Remove {
                    draft.remove_containers();
                } else {
                    draft.record().phase = SandboxPhase::Stopped;
                    draft.next.wish = Wish::Stay;
                    draft.next.work = Work::None;
                }
                let stoppers = take(&mut draft.next.stoppers);
                draft.answer(stoppers, Ok(Answer::Done));
            }
            (Work::ClearUp, Ok(())) if self.containers.is_empty() => return draft.delete_record(),
            (Work::ClearUp, Ok(())) => draft.remove_containers(),
            _ => return Outcome::Ignore { call: None, why: "the shim is not being ended" },
        }
        draft.go_on()
    }

    pub(super) fn containers_removed(&self, result: Result<()>, now: Now) -> Outcome<Self> {
        if self.work != Work::RemoveContainers || self.pace == Pace::Waiting {
            return Outcome::Ignore { call: None, why: "the containers are not being removed" };
        }
        let mut draft = self.draft(now);
        match result {
            Ok(()) => {
                // All have said that they are gone; whoever was registered for one never came to be.
                draft.next.containers = Arc::default();
                draft.work(Work::ClearUp, Ask::StopShim);
            }
            Err(error) => draft.failed(error),
        }
        draft.in_memory()
    }

    pub(super) fn container_gone(&self, container: &ContainerId, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        if !Arc::make_mut(&mut draft.next.containers).remove(container) {
            return Outcome::Ignore { call: None, why: "not one of its containers" };
        }
        if self.work == Work::RemoveContainers && draft.next.containers.is_empty() {
            // What stood in the way of an earlier attempt, a record that could not be deleted say, does so no more.
            draft.hurry();
        }
        draft.in_memory()
    }

    pub(super) fn work_again(&self, failures: u32, now: Now) -> Outcome<Self> {
        if self.pace != Pace::Waiting || failures != self.failures {
            return Outcome::Ignore { call: None, why: "the work was taken up already" };
        }
        let mut draft = self.draft(now);
        draft.hurry();
        draft.in_memory()
    }
}

impl Draft {
    fn work(&mut self, work: Work, ask: Ask) {
        self.next.work = work;
        self.next.pace = Pace::UnderWay;
        self.next.failures = 0;
        self.next.trouble = None;
        self.ask(ask);
    }

    fn remove_containers(&mut self) {
        match self.next.containers.is_empty() {
            true => self.work(Work::ClearUp, Ask::StopShim),
            false => self.work(Work::RemoveContainers, Ask::RemoveContainers),
        }
    }

    /// A step failed: whoever waits hears why, and it is tried again until it works.
    fn failed(&mut self, error: Error) {
        let (work, failures) = (self.next.work, self.next.failures);
        if work == Work::Undo && failures == 0 {
            self.undone(&error.to_string());
        }
        self.next.trouble = Some(error.to_string());
        self.next.pace = Pace::Waiting;
        self.next.failures = failures.saturating_add(1);
        let after_ms = backoff_ms(TEARDOWN_RETRY_MS, TEARDOWN_RETRY_MAX_MS, failures);
        let input = Input::WorkAgain(self.next.failures);
        self.effect(Effect::Wake { after_ms, input });
        let runners = take(&mut self.next.runners);
        let failure = self.next.failure.clone().unwrap_or_else(|| error.clone());
        self.answer(runners, Err(failure));
        let mut waiting = take(&mut self.next.stoppers);
        waiting.append(&mut self.next.removers);
        self.answer(waiting, Err(error));
    }

    /// Makes the attempt now that waits for its time.
    fn hurry(&mut self) {
        if self.next.pace != Pace::Waiting {
            return;
        }
        self.next.pace = Pace::UnderWay;
        match self.next.work {
            Work::Undo | Work::StopShim | Work::ClearUp => self.ask(Ask::StopShim),
            Work::RemoveContainers => self.ask(Ask::RemoveContainers),
            Work::None | Work::Launch | Work::StopContainers => {}
        }
    }

    /// Nothing must be left of a start that failed.
    pub(super) fn undo(&mut self, reason: String) {
        self.not_ready(reason);
        // Without one in its record, another actor goes on with the undoing. The shim is found by its pod.
        self.record().shim = None;
        self.record().network = None;
        self.next.adoption = Adoption::Settled;
        self.work(Work::Undo, Ask::StopShim);
    }

    fn undone(&mut self, outcome: &str) {
        self.fact(What::Undone { step: "start the shim".to_owned(), outcome: outcome.to_owned() });
    }

    /// The last commit.
    fn delete_record(mut self) -> Outcome<State> {
        self.next.standing = Standing::Deleted;
        self.next.work = Work::None;
        self.fact(What::SandboxRemoved);
        self.retire();
        let facts = take(&mut self.facts);
        let commit = Commit { changes: vec![Change::DeleteSandbox(self.before.id.clone())], facts };
        self.plan(Some(Write::GoOn { commit }))
    }

    pub(super) fn retire(&mut self) {
        self.abandon_change();
        let runners = take(&mut self.next.runners);
        let mut content = take(&mut self.next.stoppers);
        content.append(&mut self.next.removers);
        let failure = self.next.failure.clone();
        self.effect(Effect::Retire { runners, failure, content });
    }
}
