//! The end of a runtime, for whoever waits on it.
//!
//! What a runtime publishes stays readable after its end, so the channels that waiters watch stay open too, and say nothing any
//! more. This one says it.
//!
//! Owns: being told, and the error that waiters get. Never: ends anything.

use mainstay_messages::{Error, Result};
use tokio::sync::watch;

/// Says it once.
#[derive(Debug)]
pub(crate) struct Closing(watch::Sender<Life>);

/// Hears it, also when it was said before.
#[derive(Clone, Debug)]
pub(crate) struct Closed(watch::Receiver<Life>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Runs,
    Over,
}

impl Closing {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Life::Runs))
    }

    /// The runtime ends. Dropping this says the same.
    pub(crate) fn say(&self) {
        self.0.send_replace(Life::Over);
    }

    pub(crate) fn listen(&self) -> Closed {
        Closed(self.0.subscribe())
    }
}

impl Closed {
    /// Waits until the runtime has ended.
    pub(crate) async fn heard(&mut self) {
        // It fails when the other end is gone, and the runtime with it.
        let _ = self.0.wait_for(|life| *life == Life::Over).await;
    }

    /// Whether the runtime has ended.
    pub(crate) fn was_said(&self) -> bool {
        *self.0.borrow() == Life::Over || self.0.has_changed().is_err()
    }

    /// What is waited for, if it comes before the end of the runtime or is there already.
    pub(crate) async fn or<T>(&mut self, waited_for: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            value = waited_for => Ok(value),
            () = self.heard() => Err(closed()),
        }
    }
}

/// What is answered from then on.
pub(crate) fn closed() -> Error {
    Error::unavailable("the runtime", "it was closed")
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn what_is_there_counts_and_what_is_not_never_comes() {
        let closing = Closing::new();
        let mut one = closing.listen();
        assert_eq!(one.or(ready(1)).await, Ok(1));
        closing.say();
        assert_eq!(one.or(ready(1)).await, Ok(1));
        assert_eq!(one.or(pending::<()>()).await, Err(closed()));
        assert_eq!(closing.listen().or(pending::<()>()).await, Err(closed()), "said before it listened");
        let closing = Closing::new();
        let mut one = closing.listen();
        drop(closing);
        assert_eq!(one.or(pending::<()>()).await, Err(closed()));
    }
}
