//! A sandbox that was found in the store: its shim is looked for, and its containers are told what it says.
//!
//! | record | shim runs | shim is gone | nobody answers |
//! |---|---|---|---|
//! | Starting | undone in any case: nobody waits for it any more | | |
//! | Ready | Ready | NotReady | Unknown, and looked for again |
//! | NotReady, never Ready | undone: an earlier actor was at it | | |
//! | NotReady, Unknown | as it was | as it was | as it was, and looked for again |
//! | Stopping, Removing | goes on | goes on | goes on |
//! | Stopped | not looked for | | |

use mainstay_messages::event::What;
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::SandboxPhase;
use mainstay_messages::supervisor::{Adopted, TaskState};
use mainstay_messages::{Error, Result};

use super::{Ask, Draft, Effect, Input, State, Wish};
use crate::container::state::Knowledge;
use crate::machine::{Now, Outcome, backoff_ms};

/// Time from an attempt to find a shim that nobody answered to the next one, in milliseconds; doubled after each.
pub const ADOPT_RETRY_MS: u64 = 1_000;
/// The longest time between two attempts to find a shim, in milliseconds.
pub const ADOPT_RETRY_MAX_MS: u64 = 30_000;

/// Why the runtime was down before it found the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowDown {
    /// It ended, or was killed. Shims may run.
    Restarted,
    /// The machine was booted since. Nothing of before runs.
    Rebooted,
    /// It was not: only the sandbox's actor was.
    ActorLost,
}

/// Whether it is known what became of the shim since the actor began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adoption {
    /// It is, or the shim was started by this actor, or it is to end in any case.
    Settled,
    /// The first answer is awaited; commands wait with it.
    Waiting { how: HowDown, phase: SandboxPhase },
    /// Nobody answered so far.
    Late { how: HowDown, phase: SandboxPhase, attempts: u32 },
}

impl HowDown {
    /// What to say of a task that its shim does not know, or that has none.
    pub fn reason(self) -> UnknownReason {
        match self {
            Self::Restarted => UnknownReason::LostWhileDown,
            Self::Rebooted => UnknownReason::HostRebooted,
            Self::ActorLost => UnknownReason::NotKnownToShim,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Restarted => "its shim was gone when the runtime came back",
            Self::Rebooted => "the host was rebooted",
            Self::ActorLost => "its shim is gone",
        }
    }
}

impl State {
    /// The first input of a sandbox that was found in the store.
    pub(super) fn recover(&self, now: Now) -> Outcome<Self> {
        let Adoption::Waiting { how, .. } = self.adoption else {
            return Outcome::Ignore { call: None, why: "it was not found in the store" };
        };
        let mut draft = self.draft(now);
        match (self.phase(), &self.record.shim) {
            (SandboxPhase::Starting, _) => {
                draft.tell_all(&Knowledge::NotKnown(how.reason()));
                draft.undo("the runtime ended while it was being made".to_owned());
            }
            // Without a shim in its record it never was Ready: its start was being undone.
            (SandboxPhase::NotReady, None) => {
                let reason = self.record.reason.clone();
                draft.tell_all(&Knowledge::NotKnown(how.reason()));
                draft.undo(reason.unwrap_or_else(|| "its start failed".to_owned()));
            }
            (SandboxPhase::Stopped, _) => {
                draft.next.adoption = Adoption::Settled;
                draft.tell_all(&Knowledge::ShimGone(how.reason()));
            }
            (_, Some(_)) => draft.ask(Ask::Adopt),
            (_, None) => draft.effect(Effect::Again(Input::Adopted(Ok(Adopted::Gone)))),
        }
        draft.go_on()
    }

    pub(super) fn adopted(&self, result: Result<Adopted>, now: Now) -> Outcome<Self> {
        let (how, phase, attempts) = match self.adoption {
            Adoption::Settled => return Outcome::Ignore { call: None, why: "its shim is known" },
            Adoption::Waiting { how, phase } => (how, phase, 0),
            Adoption::Late { how, phase, attempts } => (how, phase, attempts),
        };
        let mut draft = self.draft(now);
        let answered = result.is_ok();
        match result {
            Ok(Adopted::Running(tasks)) => {
                let pid = self.record.shim.as_ref().map_or(0, |shim| shim.process.pid);
                draft.fact(What::ShimAdopted { pid });
                draft.settle_in(phase);
                draft.tell_each(tasks, how);
            }
            Ok(Adopted::Gone) => {
                draft.settle_in(phase);
                if phase == SandboxPhase::Ready {
                    draft.not_ready(how.in_words().to_owned());
                }
                if how == HowDown::Rebooted && self.record.network.is_some() {
                    // The supervisor has given it back: another pod may have the addresses by now.
                    draft.record().network = None;
                }
                draft.tell_all(&Knowledge::ShimGone(how.reason()));
            }
            Err(error) => draft.late(how, phase, attempts, &error),
        }
        match phase {
            SandboxPhase::Stopping => draft.wish(Wish::Stop { grace_ms: None }),
            SandboxPhase::Removing => draft.wish(Wish::Remove),
            _ => {}
        }
        match answered {
            true => draft.go_on(),
            // The store keeps what was last known.
            false => draft.in_memory(),
        }
    }

    pub(super) fn adopt_again(&self, now: Now) -> Outcome<Self> {
        if !matches!(self.adoption, Adoption::Late { .. }) {
            return Outcome::Ignore { call: None, why: "its shim is known" };
        }
        let mut draft = self.draft(now);
        draft.ask(Ask::Adopt);
        draft.in_memory()
    }
}

impl Draft {
    fn settle_in(&mut self, phase: SandboxPhase) {
        self.next.adoption = Adoption::Settled;
        if self.next.phase() != phase {
            let record = self.record();
            record.phase = phase;
            record.reason = None;
        }
    }

    /// Readers see that nobody answers.
    fn late(&mut self, how: HowDown, phase: SandboxPhase, attempts: u32, error: &Error) {
        self.next.adoption = Adoption::Late { how, phase, attempts: attempts.saturating_add(1) };
        let after_ms = backoff_ms(ADOPT_RETRY_MS, ADOPT_RETRY_MAX_MS, attempts);
        self.effect(Effect::Wake { after_ms, input: Input::AdoptAgain });
        if attempts > 0 {
            return;
        }
        let reason = error.to_string();
        self.tell_all(&Knowledge::Unreachable(reason.clone()));
        if phase == SandboxPhase::Ready {
            let record = self.record();
            record.phase = SandboxPhase::Unknown;
            record.reason = Some(reason.clone());
            self.effect(Effect::Note(What::SandboxNotReady { reason }));
        }
    }

    fn wish(&mut self, wish: Wish) {
        self.next.wish = wish;
        self.next.since = self.now.wall;
        self.effect(Effect::Again(Input::Proceed));
    }

    fn tell_all(&mut self, knowledge: &Knowledge) {
        let told = self.next.containers.iter().map(|id| (id.clone(), knowledge.clone())).collect();
        self.effect(Effect::Tell(told));
    }

    fn tell_each(&mut self, tasks: Vec<TaskState>, how: HowDown) {
        let mut told = Vec::new();
        for id in self.next.containers.iter() {
            let knowledge = match tasks.iter().find(|task| task.container == *id) {
                Some(task) => Knowledge::Task(task.clone()),
                None => Knowledge::NotKnown(how.reason()),
            };
            told.push((id.clone(), knowledge));
        }
        self.effect(Effect::Tell(told));
    }
}
