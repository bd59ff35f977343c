//! The part of an actor that is the same in all: it takes inputs one by one, has them decided, written and done.

mod write;

use std::collections::VecDeque;

use actix::{Actor, Context, Recipient};
use mainstay_messages::Error;
use mainstay_messages::journal::{Change, Commit};

use super::{Machine, Outcome, Plan};
use crate::call::CallId;
use crate::world::World;

/// Time that the journal has for one commit, in milliseconds. Usually it takes less than one.
pub const COMMIT_TIMEOUT_MS: u64 = 10_000;
/// Time from a failed write to the next attempt, in milliseconds; doubled after each failure.
pub const WRITE_RETRY_MS: u64 = 250;
/// The longest time between attempts to write, in milliseconds.
pub const WRITE_RETRY_MAX_MS: u64 = 30_000;

/// Whether the write before these effects worked.
#[derive(Clone, Debug)]
pub(crate) enum Wrote {
    /// It is durable, or there was none.
    Durable,
    /// It failed.
    Failed(Error),
}

/// What is told those who asked for a removal that is done and cannot be written down yet.
pub(crate) fn unrecorded(error: &Error) -> Error {
    match error {
        Error::Unavailable { what, reason } => {
            let reason = format!("{reason} (all but its record is gone; the record follows by itself)");
            Error::Unavailable { what: what.clone(), reason }
        }
        other => other.clone(),
    }
}

/// An actor around a machine.
pub(crate) trait Shell: Actor<Context = Context<Self>> {
    /// Its machine.
    type Machine: Machine;

    /// Its driver.
    fn driver(&mut self) -> &mut Driver<Self::Machine>;

    /// Shows the state to readers. `before` is the state that they saw until now.
    fn publish(&mut self, before: &Self::Machine);

    /// Does what a decision wants.
    fn perform(&mut self, effect: <Self::Machine as Machine>::Effect, wrote: &Wrote, ctx: &mut Context<Self>);

    /// Tells a caller that nothing needed to be done.
    fn ignored(&mut self, call: Option<CallId>, why: &'static str);

    /// Tells a caller that it cannot be done.
    fn denied(&mut self, call: CallId, error: Error);
}

/// The part of an actor that is the same in all.
pub(crate) struct Driver<M: Machine> {
    machine: M,
    /// Inputs that came during a write or that the machine holds. Commands among them are bounded by the
    /// seats of the inbox; the rest are answers to calls of this actor's own and facts, which are bounded by
    /// who sends them.
    queue: VecDeque<M::Input>,
    writing: Writing,
    /// What could not be written.
    backlog: Option<Commit>,
    /// Whether a commit is under way that was not answered in time.
    doubt: Doubt,
    failures: u32,
    journal: Recipient<Commit>,
    world: World,
    /// Who is writing, for errors.
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    Idle,
    Busy,
}

/// Whether a commit is under way that was not answered in time. It may still become durable, so it is neither
/// repeated, or its facts would be in the journal twice, nor overtaken, until its answer is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    Some,
}

impl<M: Machine> Driver<M> {
    /// A driver for `machine`; `name` says in errors whose it is.
    pub(crate) fn new(machine: M, name: String, world: World) -> Self {
        let journal = world.journal.clone();
        Self {
            machine,
            queue: VecDeque::new(),
            writing: Writing::Idle,
            backlog: None,
            doubt: Doubt::None,
            failures: 0,
            journal,
            world,
            name,
        }
    }

    /// The state.
    pub(crate) fn machine(&self) -> &M {
        &self.machine
    }

    /// Takes an input that a decision itself asked for; it is decided when those before it are done.
    pub(crate) fn again(&mut self, input: M::Input) {
        self.queue.push_back(input);
    }

    /// The next input that can be decided now.
    fn take(&mut self) -> Option<M::Input> {
        if self.writing == Writing::Busy {
            return None;
        }
        let machine = &self.machine;
        let position = self.queue.iter().position(|input| !machine.holds(input))?;
        self.queue.remove(position)
    }
}

/// Takes an input; it is decided when those before it are done.
pub(crate) fn feed<S: Shell>(shell: &mut S, input: <S::Machine as Machine>::Input, ctx: &mut Context<S>) {
    shell.driver().queue.push_back(input);
    drain(shell, ctx);
}

fn drain<S: Shell>(shell: &mut S, ctx: &mut Context<S>) {
    while let Some(input) = shell.driver().take() {
        let now = shell.driver().world.now();
        match shell.driver().machine.decide(input, now) {
            Outcome::Deny { call, error } => shell.denied(call, error),
            Outcome::Ignore { call, why } => shell.ignored(call, why),
            Outcome::Accept(Plan { next, write: None, effects }) => {
                settle(shell, next, effects, &Wrote::Durable, ctx);
            }
            Outcome::Accept(Plan { next, write: Some(write), effects }) => {
                write::begin_write(shell, next, write, effects, ctx);
            }
        }
    }
}

/// Memory, then snapshot, then effects.
fn settle<S: Shell>(
    shell: &mut S,
    next: Option<S::Machine>,
    effects: Vec<<S::Machine as Machine>::Effect>,
    wrote: &Wrote,
    ctx: &mut Context<S>,
) {
    if let Some(next) = next {
        let before = std::mem::replace(&mut shell.driver().machine, next);
        shell.publish(&before);
    }
    for effect in effects {
        shell.perform(effect, wrote, ctx);
    }
}

/// Two commits as one: of two changes of the same record only the later one counts.
pub(super) fn merge(earlier: Commit, later: Commit) -> Commit {
    let mut merged = earlier;
    for change in later.changes {
        merged.changes.retain(|old| record_of(old) != record_of(&change));
        merged.changes.push(change);
    }
    merged.facts.extend(later.facts);
    merged
}

fn record_of(change: &Change) -> (&'static str, &str) {
    match change {
        Change::PutSandbox(record) => ("sandbox", record.id.as_str()),
        Change::DeleteSandbox(id) => ("sandbox", id.as_str()),
        Change::PutContainer(record) => ("container", record.id.as_str()),
        Change::DeleteContainer(id) => ("container", id.as_str()),
    }
}
