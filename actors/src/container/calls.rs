//! Who waits for an answer, and how an answer reaches them.

use mainstay_messages::router::ExitReceipt;
use mainstay_messages::{Error, Result};

use super::state::Answer;
use super::{Container, Waiting};
use crate::call::CallId;

impl Waiting {
    /// Whether nobody waits any more.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Done(reply) | Self::Told(reply) => reply.is_abandoned(),
            Self::Created(reply) => reply.is_abandoned(),
            Self::Exec(reply) => reply.is_abandoned(),
            Self::Stats(reply) => reply.is_abandoned(),
            Self::Receipt(reply, _) => reply.is_abandoned(),
            Self::Nobody => true,
        }
    }

    /// Nothing needed to be done.
    pub(super) fn done(self) {
        match self {
            Self::Done(reply) | Self::Told(reply) => reply.send(Ok(())),
            Self::Receipt(reply, _) => reply.send(ExitReceipt::Settled),
            Self::Created(_) | Self::Exec(_) | Self::Stats(_) => self.fail(mismatch()),
            Self::Nobody => {}
        }
    }

    /// It could not be done.
    pub(crate) fn fail(self, error: Error) {
        match self {
            Self::Done(reply) | Self::Told(reply) => reply.send(Err(error)),
            Self::Created(reply) => reply.send(Err(error)),
            Self::Exec(reply) => reply.send(Err(error)),
            Self::Stats(reply) => reply.send(Err(error)),
            Self::Receipt(reply, _) => reply.send(ExitReceipt::Pending),
            Self::Nobody => {}
        }
    }

    fn answer(self, answer: Result<Answer>) {
        match (self, answer) {
            (waiting, Err(error)) => waiting.fail(error),
            (Self::Done(reply), Ok(Answer::Done)) => reply.send(Ok(())),
            (Self::Created(reply), Ok(Answer::Created(id))) => reply.send(Ok(id)),
            (Self::Exec(reply), Ok(Answer::Exec(id))) => reply.send(Ok(id)),
            (Self::Receipt(reply, _), Ok(Answer::Receipt(receipt))) => reply.send(receipt),
            (waiting, Ok(_)) => waiting.fail(mismatch()),
        }
    }
}

/// A decision answered a call with something that it did not ask for.
fn mismatch() -> Error {
    Error::internal("a container actor", "the answer does not fit the call")
}

impl Container {
    /// Answers calls. Those whose callers were dropped for want of room are not there any more.
    pub(super) fn answer(&mut self, calls: Vec<CallId>, answer: &Result<Answer>) {
        for call in calls {
            if let Some(waiting) = self.calls.remove(&call) {
                waiting.answer(answer.clone());
            }
        }
    }
}
