//! A plan in the making: the next state, its facts and effects, and how they are written.

use std::sync::Arc;

use mainstay_messages::event::{Fact, Subject, What};
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::record::ContainerRecord;
use mainstay_messages::{ExecId, Result};

use super::State;
use super::vocabulary::{Answer, Ask, Effect, Wake};
use crate::call::CallId;
use crate::machine::{Now, Outcome, Plan, Write};

/// The longest time that one timer waits, in milliseconds; longer ones are set again when it is over.
const WAKE_AFTER_MAX_MS: u64 = 3_600_000;

/// A plan in the making.
pub(super) struct Draft {
    pub(super) before: Arc<ContainerRecord>,
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
    pub(super) fn record(&mut self) -> &mut ContainerRecord {
        Arc::make_mut(&mut self.next.record)
    }

    /// Writes the record even where it is the same: the store may not have it.
    pub(super) fn touch(&mut self) {
        self.record();
    }

    pub(super) fn subject(&self) -> Subject {
        Subject::container(&self.before.sandbox, &self.before.id)
    }

    pub(super) fn fact(&mut self, what: What) {
        let subject = self.subject();
        self.facts.push(Fact { at: self.now.wall, subject, what });
    }

    pub(super) fn commanded(&mut self, command: &str, detail: impl Into<String>) {
        self.fact(What::Commanded { command: command.to_owned(), detail: detail.into() });
    }

    pub(super) fn exec_fact(&mut self, id: &ExecId, what: What) {
        let subject = Subject::exec(&self.before.sandbox, &self.before.id, id);
        self.facts.push(Fact { at: self.now.wall, subject, what });
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        self.effects.push(Effect::Ask(ask));
    }

    pub(super) fn wake(&mut self, after_ms: u64, wake: Wake) {
        self.effects.push(Effect::Wake { after_ms: after_ms.min(WAKE_AFTER_MAX_MS), wake });
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
            false => vec![Change::PutContainer(Box::new(ContainerRecord::clone(&self.next.record)))],
        };
        Commit { changes, facts: std::mem::take(&mut self.facts) }
    }

    /// Changes nothing when the write fails.
    pub(super) fn or_refuse(self, refusal: Vec<Effect>) -> Outcome<State> {
        self.or_instead(None, refusal)
    }

    /// When the write fails, this is the state.
    pub(super) fn or_instead(mut self, refused: Option<State>, refusal: Vec<Effect>) -> Outcome<State> {
        let commit = self.commit();
        self.plan(Some(Write::Refuse { commit, refused, refusal }))
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
