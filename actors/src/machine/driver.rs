//! The part of an actor that is the same in all: it takes inputs one by one, has them decided, written and done.

use std::collections::VecDeque;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{Actor, ActorFutureExt, AsyncContext, Context, Recipient};
use mainstay_messages::Error;
use mainstay_messages::journal::{Change, Commit};

use super::{Durability, Machine, Outcome, Plan, Write, backoff_ms};
use crate::call::{CallId, ask};
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

impl<M: Machine> Driver<M> {
    /// A driver for `machine`; `name` says in errors whose it is.
    pub(crate) fn new(machine: M, name: String, world: World) -> Self {
        let journal = world.journal.clone();
        Self {
            machine,
            queue: VecDeque::new(),
            writing: Writing::Idle,
            backlog: None,
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
                begin_write(shell, next, write, effects, ctx);
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

fn begin_write<S: Shell>(
    shell: &mut S,
    next: Option<S::Machine>,
    write: Write<S::Machine>,
    effects: Vec<<S::Machine as Machine>::Effect>,
    ctx: &mut Context<S>,
) {
    let driver = shell.driver();
    let (commit, refusal) = match write {
        Write::Refuse { commit, refused, refusal } => (commit, Some((refused, refusal))),
        Write::GoOn { commit } => (commit, None),
    };
    let commit = match driver.backlog.clone() {
        Some(backlog) => merge(backlog, commit),
        None => commit,
    };
    driver.writing = Writing::Busy;
    let kept = commit.clone();
    let what = format!("the store's answer to a commit of {}", driver.name);
    let written = ask(driver.journal.clone(), commit, what, COMMIT_TIMEOUT_MS);
    let ended = wrap_future::<_, S>(written).map(move |result, shell, ctx| {
        shell.driver().writing = Writing::Idle;
        match (result, refusal) {
            (Ok(_), _) => {
                mark_written(shell.driver());
                let mut next = next;
                if let Some(next) = &mut next {
                    next.set_durability(Durability::Written);
                }
                settle(shell, next, effects, &Wrote::Durable, ctx);
            }
            (Err(error), Some((refused, refusal))) => {
                refuse_later_effects_of(shell.driver(), &error);
                settle(shell, refused, refusal, &Wrote::Failed(error), ctx);
            }
            (Err(error), None) => {
                let next = next.unwrap_or_else(|| shell.driver().machine.clone());
                go_on(shell, next, kept, effects, error, ctx);
            }
        }
        drain(shell, ctx);
    });
    ctx.spawn(ended);
}

fn mark_written<M: Machine>(driver: &mut Driver<M>) {
    driver.failures = 0;
    driver.machine.set_durability(Durability::Written);
    if driver.backlog.take().is_some() {
        driver.queue.push_front(M::written());
    }
}

/// A commit that was refused for want of time may still become durable. Then what memory says must follow it;
/// the journal keeps the order.
fn refuse_later_effects_of<M: Machine>(driver: &Driver<M>, error: &Error) {
    driver.world.counters.failed_commits.add();
    if matches!(error, Error::DeadlineExceeded { .. }) {
        driver.journal.do_send(Commit { changes: vec![driver.machine.truth()], facts: Vec::new() });
    }
}

fn go_on<S: Shell>(
    shell: &mut S,
    mut next: S::Machine,
    commit: Commit,
    effects: Vec<<S::Machine as Machine>::Effect>,
    error: Error,
    ctx: &mut Context<S>,
) {
    tracing::warn!(of = shell.driver().name, %error, "a change could not be written; going on, and writing it again");
    next.set_durability(Durability::Behind);
    let driver = shell.driver();
    driver.world.counters.failed_commits.add();
    let first = driver.backlog.is_none();
    driver.backlog = Some(commit);
    settle(shell, Some(next), effects, &Wrote::Failed(error), ctx);
    if first {
        write_again_later(shell, ctx);
    }
}

fn write_again_later<S: Shell>(shell: &mut S, ctx: &mut Context<S>) {
    let driver = shell.driver();
    let delay = backoff_ms(WRITE_RETRY_MS, WRITE_RETRY_MAX_MS, driver.failures);
    driver.failures = driver.failures.saturating_add(1);
    ctx.run_later(Duration::from_millis(delay), write_again);
}

fn write_again<S: Shell>(shell: &mut S, ctx: &mut Context<S>) {
    let driver = shell.driver();
    // Another write carried it in the meantime.
    let Some(backlog) = driver.backlog.clone() else { return };
    if driver.writing == Writing::Busy {
        return write_again_later(shell, ctx);
    }
    driver.writing = Writing::Busy;
    let what = format!("the store's answer to a repeated commit of {}", driver.name);
    let written = ask(driver.journal.clone(), backlog, what, COMMIT_TIMEOUT_MS);
    let ended = wrap_future::<_, S>(written).map(|result, shell, ctx| {
        shell.driver().writing = Writing::Idle;
        match result {
            Ok(_) => mark_written(shell.driver()),
            Err(_) => write_again_later(shell, ctx),
        }
        drain(shell, ctx);
    });
    ctx.spawn(ended);
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
