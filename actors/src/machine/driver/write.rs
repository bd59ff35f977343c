//! How a decision becomes durable: what is written, what happens when that fails or takes too long, and what is
//! written again.
//!
//! ```text
//!  Idle ─ write ─► Busy ─┬─ durable ──────────────────────────► Idle
//!    ▲                   ├─ failed ──► Idle, and a backlog of what memory has gone on with
//!    │                   └─ no answer in time ─► in doubt ─┬─ durable ─► the backlog of meanwhile is written
//!    └──────────────── the backlog is written ◄────────────┴─ failed ──► it joins the backlog
//! ```

use std::pin::Pin;
use std::time::Duration;

use actix::dev::RecipientRequest;
use actix::fut::{ActorFuture, wrap_future};
use actix::{ActorFutureExt, AsyncContext, Context, MailboxError, Recipient};
use mainstay_messages::event::Seq;
use mainstay_messages::journal::{Change, Commit, Committed};
use mainstay_messages::{Error, Result};

use super::{
    COMMIT_TIMEOUT_MS, Doubt, Driver, Shell, WRITE_RETRY_MAX_MS, WRITE_RETRY_MS, Writing, Wrote, drain,
    merge, settle,
};
use crate::machine::{Durability, Machine, Write, backoff_ms};

/// What becomes of memory, and what is done, when a write is refused.
type Refusal<M> = (Option<M>, Vec<<M as Machine>::Effect>);

/// What a commit that is in doubt is to memory.
enum Doubtful {
    /// Memory has gone on with it: what is to be written again if it fails.
    GoneOn(Commit),
    /// Memory has not; what was owed before and went with it.
    Refused(Option<Commit>),
}

/// An answer of the journal that was not there in time.
type LateAnswer = Pin<Box<RecipientRequest<Commit>>>;

/// What came of a commit within its time.
enum Sent {
    Answered(Result<Committed>),
    /// No answer; it may still come.
    Late(LateAnswer),
}

/// Writes what has to be durable first, then has it done.
pub(super) fn begin_write<S: Shell>(
    shell: &mut S,
    next: Option<S::Machine>,
    write: Write<S::Machine>,
    effects: Vec<<S::Machine as Machine>::Effect>,
    ctx: &mut Context<S>,
) {
    let (commit, refusal) = match write {
        Write::Refuse { commit, refused, refusal } => (commit, Some((refused, refusal))),
        Write::GoOn { commit } => (commit, None),
    };
    let driver = shell.driver();
    if driver.doubt == Doubt::Some {
        return without_writing(shell, next, commit, refusal, effects, ctx);
    }
    let commit = match driver.backlog.clone() {
        Some(backlog) => merge(backlog, commit),
        None => commit,
    };
    let kept = commit.clone();
    let ended = send(driver, commit).map(move |sent, shell: &mut S, ctx| {
        shell.driver().writing = Writing::Idle;
        match (sent, refusal) {
            (Sent::Answered(Ok(_)), _) => {
                let owed = shell.driver().backlog.take();
                caught_up(shell, owed);
                let mut next = next;
                if let Some(next) = &mut next {
                    next.set_durability(Durability::Written);
                }
                settle(shell, next, effects, &Wrote::Durable, ctx);
            }
            (Sent::Answered(Err(error)), Some((refused, refusal))) => {
                shell.driver().world.counters.failed_commits.add();
                settle(shell, refused, refusal, &Wrote::Failed(error), ctx);
            }
            (Sent::Late(answer), Some((refused, refusal))) => {
                let error = late(shell.driver());
                let owed = shell.driver().backlog.take();
                match refused.as_ref().map(Machine::truth) {
                    // Nothing of it is to be left, not even this actor.
                    Some(truth @ (Change::DeleteSandbox(_) | Change::DeleteContainer(_))) => {
                        actix::spawn(set_right(answer, shell.driver().journal.clone(), truth));
                    }
                    _ => await_late(shell, answer, Doubtful::Refused(owed), ctx),
                }
                settle(shell, refused, refusal, &Wrote::Failed(error), ctx);
            }
            (Sent::Answered(Err(error)), None) => {
                let driver = shell.driver();
                driver.world.counters.failed_commits.add();
                let first = driver.backlog.replace(kept).is_none();
                go_on(shell, next, effects, error, ctx);
                if first {
                    write_again_later(shell, ctx);
                }
            }
            (Sent::Late(answer), None) => {
                let error = late(shell.driver());
                // What was owed before is in it.
                shell.driver().backlog = None;
                await_late(shell, answer, Doubtful::GoneOn(kept), ctx);
                go_on(shell, next, effects, error, ctx);
            }
        }
        drain(shell, ctx);
    });
    ctx.spawn(ended);
}

/// While an earlier commit is in doubt nothing is written: what has to be durable first is refused, what goes on in
/// any case is owed.
fn without_writing<S: Shell>(
    shell: &mut S,
    next: Option<S::Machine>,
    commit: Commit,
    refusal: Option<Refusal<S::Machine>>,
    effects: Vec<<S::Machine as Machine>::Effect>,
    ctx: &mut Context<S>,
) {
    let driver = shell.driver();
    let error = Error::unavailable("the store", "it has not answered an earlier commit");
    driver.world.counters.failed_commits.add();
    match refusal {
        Some((refused, refusal)) => settle(shell, refused, refusal, &Wrote::Failed(error), ctx),
        None => {
            driver.backlog = Some(match driver.backlog.take() {
                Some(backlog) => merge(backlog, commit),
                None => commit,
            });
            go_on(shell, next, effects, error, ctx);
        }
    }
}

/// Sends a commit to the journal and waits for the answer as long as it may take.
fn send<S: Shell>(
    driver: &mut Driver<S::Machine>,
    commit: Commit,
) -> impl ActorFuture<S, Output = Sent> + use<S> {
    driver.writing = Writing::Busy;
    let mut request = Box::pin(driver.journal.send(commit));
    let sent = async move {
        match tokio::time::timeout(Duration::from_millis(COMMIT_TIMEOUT_MS), &mut request).await {
            Ok(answer) => Sent::Answered(flat(answer)),
            Err(_elapsed) => Sent::Late(request),
        }
    };
    wrap_future::<_, S>(sent)
}

fn flat(answer: Result<Result<Committed>, MailboxError>) -> Result<Committed> {
    answer.unwrap_or_else(|error| Err(Error::unavailable("the journal", error)))
}

/// A commit was not answered in time.
fn late<M: Machine>(driver: &Driver<M>) -> Error {
    driver.world.counters.failed_commits.add();
    let what = format!("the store's answer to a commit of {}", driver.name);
    Error::DeadlineExceeded { what, after_ms: COMMIT_TIMEOUT_MS }
}

/// Waits for the answer that did not come in time.
fn await_late<S: Shell>(shell: &mut S, answer: LateAnswer, doubtful: Doubtful, ctx: &mut Context<S>) {
    shell.driver().doubt = Doubt::Some;
    ctx.spawn(wrap_future::<_, S>(answer).map(|answer, shell, ctx| {
        shell.driver().doubt = Doubt::None;
        match (flat(answer), doubtful) {
            (Ok(_), Doubtful::GoneOn(_)) => match shell.driver().backlog {
                Some(_) => write_again(shell, ctx),
                None => caught_up(shell, Some(Commit::default())),
            },
            (Ok(_), Doubtful::Refused(_)) => {
                // The store must follow memory, which did not follow it.
                let driver = shell.driver();
                let truth = Commit { changes: vec![driver.machine.truth()], facts: Vec::new() };
                let owed = driver.backlog.take().unwrap_or_default();
                driver.backlog = Some(merge(owed, truth));
                write_again(shell, ctx);
            }
            (Err(_), Doubtful::GoneOn(kept) | Doubtful::Refused(Some(kept))) => {
                let driver = shell.driver();
                let owed = driver.backlog.take().unwrap_or_default();
                driver.backlog = Some(merge(kept, owed));
                write_again_later(shell, ctx);
            }
            (Err(_), Doubtful::Refused(None)) if shell.driver().backlog.is_some() => write_again(shell, ctx),
            (Err(_), Doubtful::Refused(None)) => {}
        }
        drain(shell, ctx);
    }));
}

/// A creation that was refused for want of time: if it becomes durable all the same, it is taken back, as often as it
/// takes. Its actor is gone by then.
async fn set_right(answer: LateAnswer, journal: Recipient<Commit>, truth: Change) {
    let mut failures = 0;
    let mut result = flat(answer.await);
    while result.is_ok() && journal.connected() {
        let commit = Commit { changes: vec![truth.clone()], facts: Vec::new() };
        if flat(journal.send(commit).await).is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(backoff_ms(WRITE_RETRY_MS, WRITE_RETRY_MAX_MS, failures)))
            .await;
        failures = failures.saturating_add(1);
        result = Ok(Committed { last: Seq(0) });
    }
}

/// All that memory holds is durable. What was owed until now is said to be written, and readers see it.
fn caught_up<S: Shell>(shell: &mut S, owed: Option<Commit>) {
    let driver = shell.driver();
    driver.failures = 0;
    if owed.is_none() {
        return;
    }
    driver.queue.push_front(S::Machine::written());
    let before = driver.machine.clone();
    driver.machine.set_durability(Durability::Written);
    shell.publish(&before);
}

/// Memory changes although the store does not take it yet.
fn go_on<S: Shell>(
    shell: &mut S,
    next: Option<S::Machine>,
    effects: Vec<<S::Machine as Machine>::Effect>,
    error: Error,
    ctx: &mut Context<S>,
) {
    tracing::warn!(of = shell.driver().name, %error, "a change could not be written; going on, and writing it again");
    let mut next = next.unwrap_or_else(|| shell.driver().machine.clone());
    next.set_durability(Durability::Behind);
    settle(shell, Some(next), effects, &Wrote::Failed(error), ctx);
}

fn write_again_later<S: Shell>(shell: &mut S, ctx: &mut Context<S>) {
    let driver = shell.driver();
    let delay = backoff_ms(WRITE_RETRY_MS, WRITE_RETRY_MAX_MS, driver.failures);
    driver.failures = driver.failures.saturating_add(1);
    ctx.run_later(Duration::from_millis(delay), write_again);
}

fn write_again<S: Shell>(shell: &mut S, ctx: &mut Context<S>) {
    let driver = shell.driver();
    if driver.doubt == Doubt::Some {
        // It is written when that is resolved.
        return;
    }
    // Another write carried it in the meantime.
    let Some(backlog) = driver.backlog.clone() else { return };
    if driver.writing == Writing::Busy {
        return write_again_later(shell, ctx);
    }
    let ended = send(driver, backlog).map(|sent, shell: &mut S, ctx| {
        shell.driver().writing = Writing::Idle;
        match sent {
            Sent::Answered(Ok(_)) => {
                let owed = shell.driver().backlog.take();
                caught_up(shell, owed);
            }
            Sent::Answered(Err(_)) => write_again_later(shell, ctx),
            Sent::Late(answer) => {
                let owed = shell.driver().backlog.take().unwrap_or_default();
                await_late(shell, answer, Doubtful::GoneOn(owed), ctx);
            }
        }
        drain(shell, ctx);
    });
    ctx.spawn(ended);
}
