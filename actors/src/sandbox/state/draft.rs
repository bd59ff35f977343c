//! A plan in the making: the next state, its facts and effects, and how they are written.

use std::mem::take;
use std::sync::Arc;

use mainstay_messages::Result;
use mainstay_messages::event::{Fact, Subject, What};
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::record::{SandboxPhase, SandboxRecord};

use super::State;
use super::vocabulary::{Answer, Ask, Effect};
use crate::call::CallId;
use crate::machine::{Now, Outcome, Plan, Write};

/// A plan in the making.
pub(super) struct Draft {
    pub(super) before: Arc<SandboxRecord>,
    pub(super) next: State,
    pub(super) now: Now,
    pub(super) facts: Vec<Fact>,
    pub(super) effects: Vec<Effect>,
}

impl State {
    pub(super) fn draft(&self, now: Now) -> Draft {
        Draft {
            before: Arc::clone(&self.record),
            next: self.clone(),
            now,
            facts: Vec::new(),
            effects: Vec::new(),
        }
    }
}

impl Draft {
    pub(super) fn record(&mut self) -> &mut SandboxRecord {
        Arc::make_mut(&mut self.next.record)
    }

    pub(super) fn fact(&mut self, what: What) {
        self.facts.push(Fact { at: self.now.wall, subject: Subject::sandbox(&self.before.id), what });
    }

    pub(super) fn commanded(&mut self, command: &str, detail: impl Into<String>) {
        self.fact(What::Commanded { command: command.to_owned(), detail: detail.into() });
    }

    pub(super) fn not_ready(&mut self, reason: String) {
        self.fact(What::SandboxNotReady { reason: reason.clone() });
        let record = self.record();
        record.phase = SandboxPhase::NotReady;
        record.reason = Some(reason);
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        self.effects.push(Effect::Ask(ask));
    }

    /// Answers, unless nobody waits.
    pub(super) fn answer(&mut self, calls: Vec<CallId>, answer: Result<Answer>) {
        if !calls.is_empty() {
            self.effects.push(Effect::Answer { calls, answer });
        }
    }

    pub(super) fn commit(&mut self) -> Commit {
        let changes = match Arc::ptr_eq(&self.before, &self.next.record) {
            true => Vec::new(),
            false => vec![Change::PutSandbox(Box::new(SandboxRecord::clone(&self.next.record)))],
        };
        Commit { changes, facts: take(&mut self.facts) }
    }

    /// When the write fails, this is the state.
    pub(super) fn or_instead(mut self, refused: State, refusal: Vec<Effect>) -> Outcome<State> {
        let commit = self.commit();
        self.plan(Some(Write::Refuse { commit, refused: Some(refused), refusal }))
    }

    /// Changes memory even when the write fails. Without anything to write it is done at once.
    pub(super) fn go_on(mut self) -> Outcome<State> {
        let commit = self.commit();
        let write = (commit != Commit::default()).then_some(Write::GoOn { commit });
        self.plan(write)
    }

    /// Changes only what the store does not know of.
    pub(super) fn in_memory(self) -> Outcome<State> {
        self.plan(None)
    }

    pub(super) fn plan(self, write: Option<Write<State>>) -> Outcome<State> {
        Outcome::Accept(Plan { next: Some(self.next), write, effects: self.effects })
    }
}
