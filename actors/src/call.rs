//! How a call reaches an actor and how its answer gets back: the seat that it holds in the receiver's
//! inbox (P11), the reply that can be answered later and never gets lost, and the hand-over by which the
//! router passes a caller's reply on without waiting itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message, Recipient};
use mainstay_messages::router::ExitReceipt;
use mainstay_messages::{Error, Result};

/// The number of a call that waits for its answer inside one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// The receiver's count of calls that it has not answered, shared with whoever sends to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    unanswered: Arc<AtomicUsize>,
}

/// A place in an [`Inbox`], given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    unanswered: Arc<AtomicUsize>,
}

/// Where an answer goes. One that is dropped unanswered says so to the caller.
#[derive(Debug)]
pub(crate) struct Reply<T: Lost> {
    to: Option<OneshotSender<T>>,
    _seat: Option<Seat>,
}

/// What a caller hears when the actor that had its call died.
pub(crate) trait Lost {
    /// The answer in that case.
    fn lost() -> Self;
}

/// The router's answer to a call that it passes on: the receiver answers the caller directly.
pub struct Handover<T>(Passing<T>);

/// The second half of a hand-over, once the caller's end is known.
type Deliver<T> = Box<dyn FnOnce(Option<OneshotSender<T>>)>;

enum Passing<T> {
    Answered(T),
    Passed(Deliver<T>),
}

impl Inbox {
    /// A seat, if fewer than `limit` are taken.
    pub(crate) fn admit(&self, limit: usize) -> Option<Seat> {
        let taken = self.unanswered.fetch_add(1, Ordering::Relaxed);
        let seat = Seat { unanswered: Arc::clone(&self.unanswered) };
        (taken < limit).then_some(seat)
    }

    /// Calls that are not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.load(Ordering::Relaxed)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Lost> Reply<T> {
    /// A reply to this caller, if there is one.
    pub(crate) fn new(to: Option<OneshotSender<T>>, seat: Option<Seat>) -> Self {
        Self { to, _seat: seat }
    }

    /// Answers. A caller that has left changes nothing.
    pub(crate) fn send(mut self, answer: T) {
        if let Some(to) = self.to.take() {
            let _ = to.send(answer);
        }
    }

    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.to.as_ref().is_none_or(OneshotSender::is_closed)
    }
}

impl<T: Lost> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let _ = to.send(T::lost());
        }
    }
}

impl<T> Lost for Result<T> {
    fn lost() -> Self {
        Err(Error::internal("an actor", "it ended while it had this request and is started again; ask again"))
    }
}

impl Lost for ExitReceipt {
    fn lost() -> Self {
        Self::Pending
    }
}

impl<T> Handover<T> {
    /// Answered on the spot.
    pub(crate) fn answer(answer: T) -> Self {
        Self(Passing::Answered(answer))
    }

    /// Passed on: `deliver` gets the caller's end.
    pub(crate) fn pass(deliver: impl FnOnce(Option<OneshotSender<T>>) + 'static) -> Self {
        Self(Passing::Passed(Box::new(deliver)))
    }
}

impl<A, M> MessageResponse<A, M> for Handover<M::Result>
where
    A: Actor,
    M: Message,
{
    fn handle(self, _ctx: &mut A::Context, to: Option<OneshotSender<M::Result>>) {
        match self.0 {
            Passing::Answered(answer) => {
                if let Some(to) = to {
                    // A caller that has left changes nothing.
                    let _ = to.send(answer);
                }
            }
            Passing::Passed(deliver) => deliver(to),
        }
    }
}

/// Sends a message and waits for its answer, no longer than `limit_ms`. `what` says in an error what was
/// waited for, and on whom.
pub(crate) async fn ask<M, T>(to: Recipient<M>, message: M, what: String, limit_ms: u64) -> Result<T>
where
    M: Message<Result = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    match tokio::time::timeout(Duration::from_millis(limit_ms), to.send(message)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_closed)) => Err(Error::unavailable(what, "its actor has ended")),
        Err(_elapsed) => Err(Error::DeadlineExceeded { what, after_ms: limit_ms }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_given_back_and_a_refused_one_is_not_kept() {
        let inbox = Inbox::default();
        let first = inbox.admit(1).expect("there is room");
        assert!(inbox.admit(1).is_none());
        drop(first);
        assert_eq!(inbox.unanswered(), 0);
        assert!(inbox.admit(1).is_some());
    }

    #[tokio::test]
    async fn a_reply_that_is_dropped_still_answers() {
        let (to, answer) = tokio::sync::oneshot::channel::<Result<()>>();
        drop(Reply::new(Some(to), None));
        assert!(matches!(answer.await, Ok(Err(Error::Internal { .. }))));
    }
}
