//! The driver without actors, for tests of the pure states: one input at a time, a store that works or fails,
//! and everything that came out of it.

use std::collections::VecDeque;

use mainstay_messages::Timestamp;
use mainstay_messages::event::Fact;
use mainstay_messages::journal::{Change, Commit};

use super::driver::merge;
use super::{Durability, Machine, Now, Outcome, Plan, Write};
use crate::call::CallId;

/// See the module.
pub(crate) struct Rig<M: Machine> {
    pub(crate) machine: M,
    pub(crate) queue: VecDeque<M::Input>,
    pub(crate) store: Store,
    pub(crate) backlog: Option<Commit>,
    /// Durable facts, in order.
    pub(crate) facts: Vec<Fact>,
    /// The last durable change.
    pub(crate) durable: Option<Change>,
}

/// Whether commits work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Works,
    Fails,
}

/// What one input came to.
#[derive(Debug)]
pub(crate) enum Step<E> {
    Denied(CallId),
    Ignored(Option<CallId>),
    /// The effects, and whether the write before them worked.
    Did(Vec<E>, Store),
}

impl<M: Machine> Rig<M> {
    pub(crate) fn new(machine: M) -> Self {
        Self {
            machine,
            queue: VecDeque::new(),
            store: Store::Works,
            backlog: None,
            facts: Vec::new(),
            durable: None,
        }
    }

    /// Decides the next input that can be decided.
    pub(crate) fn step(&mut self, now: Now) -> Option<Step<M::Effect>> {
        let position = self.queue.iter().position(|input| !self.machine.holds(input))?;
        let input = self.queue.remove(position)?;
        Some(match self.machine.decide(input, now) {
            Outcome::Deny { call, .. } => Step::Denied(call),
            Outcome::Ignore { call, .. } => Step::Ignored(call),
            Outcome::Accept(Plan { next, write, effects }) => self.accept(next, write, effects),
        })
    }

    fn accept(
        &mut self,
        next: Option<M>,
        write: Option<Write<M>>,
        effects: Vec<M::Effect>,
    ) -> Step<M::Effect> {
        let (commit, refusal) = match write {
            None => {
                self.machine = next.unwrap_or_else(|| self.machine.clone());
                return Step::Did(effects, Store::Works);
            }
            Some(Write::Refuse { commit, refused, refusal }) => (commit, Some((refused, refusal))),
            Some(Write::GoOn { commit }) => (commit, None),
        };
        let commit = match self.backlog.clone() {
            Some(backlog) => merge(backlog, commit),
            None => commit,
        };
        match (self.store, refusal) {
            (Store::Works, _) => {
                self.write(commit);
                self.machine = next.unwrap_or_else(|| self.machine.clone());
                self.machine.set_durability(Durability::Written);
                Step::Did(effects, Store::Works)
            }
            (Store::Fails, Some((refused, refusal))) => {
                self.machine = refused.unwrap_or_else(|| self.machine.clone());
                Step::Did(refusal, Store::Fails)
            }
            (Store::Fails, None) => {
                self.backlog = Some(commit);
                self.machine = next.unwrap_or_else(|| self.machine.clone());
                self.machine.set_durability(Durability::Behind);
                Step::Did(effects, Store::Fails)
            }
        }
    }

    fn write(&mut self, commit: Commit) {
        self.facts.extend(commit.facts);
        self.durable = commit.changes.into_iter().next_back().or(self.durable.take());
        self.machine.set_durability(Durability::Written);
        if self.backlog.take().is_some() {
            self.queue.push_front(M::written());
        }
    }

    /// The store works again, and what could not be written is written.
    pub(crate) fn heal(&mut self) {
        self.store = Store::Works;
        if let Some(backlog) = self.backlog.clone() {
            self.write(backlog);
        }
    }

    /// Durable facts and those that are still to be written.
    pub(crate) fn all_facts(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter().chain(self.backlog.iter().flat_map(|commit| &commit.facts))
    }
}

/// A time at which `mono_ms` have passed.
pub(crate) fn at(mono_ms: u64) -> Now {
    Now { wall: Timestamp(1_000_000_000_000 + mono_ms * 1_000_000), mono_ms }
}
