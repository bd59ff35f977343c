//! The discipline of every actor, written once: input → pure decision → durable → memory → replies, snapshot
//! and effects (P7).
//!
//! ```text
//!  message ─► feed ─► queue ─► decide ─┬─ Deny ───► answer with the error
//!                       ▲              ├─ Ignore ─► answer with success, nothing changed
//!                       │              └─ Accept ─┬─ no write ──────────────────────► memory, snapshot, effects
//!        inputs that come during a write          └─ write ─► journal ─┬─ durable ──► memory, snapshot, effects
//!                                                                      ├─ failed, Refuse: as it was
//!                                                                      └─ failed, GoOn: as durable, and the
//!                                                                         write is repeated until it works
//! ```
//!
//! Commands that make or start something are written with `Refuse`; facts, stops, kills and removes with
//! `GoOn`. The driver never looks into an input: all rules are in `decide`, which has no clock and does no IO.

mod driver;
#[cfg(test)]
pub(crate) mod rig;

use std::fmt::Debug;

use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::{Error, Timestamp};

use crate::call::CallId;

pub use driver::{COMMIT_TIMEOUT_MS, WRITE_RETRY_MAX_MS, WRITE_RETRY_MS};
pub(crate) use driver::{Driver, Shell, Wrote, feed, unrecorded};

/// The time, as a decision needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For records and facts.
    pub wall: Timestamp,
    /// For deadlines: it never goes back. Milliseconds since some moment of this run.
    pub mono_ms: u64,
}

/// A pure state: input to outcome.
pub trait Machine: Clone + Debug + 'static {
    /// Whatever can happen to it.
    type Input: 'static;
    /// Whatever it wants to have done.
    type Effect: Debug + 'static;

    /// What follows from an input. Changes nothing.
    fn decide(&self, input: Self::Input, now: Now) -> Outcome<Self>;

    /// Whether this input has to wait until the state has changed.
    fn holds(&self, input: &Self::Input) -> bool;

    /// The input that says that a write which had failed is durable now.
    fn written() -> Self::Input;

    /// Told whether all that it decided is durable.
    fn set_durability(&mut self, durability: Durability);

    /// What the store should hold of it.
    fn truth(&self) -> Change;
}

/// Whether the store holds all that memory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It does.
    #[default]
    Written,
    /// A write failed and is being repeated.
    Behind,
}

/// What a decision comes to.
#[derive(Debug)]
pub enum Outcome<M: Machine> {
    /// It is done.
    Accept(Plan<M>),
    /// Nothing needs to be done: it is so already, or it is too late to matter.
    Ignore {
        /// Who is told so.
        call: Option<CallId>,
        /// Why, in a few words.
        why: &'static str,
    },
    /// It cannot be done.
    Deny {
        /// Who is told so.
        call: CallId,
        /// Why.
        error: Error,
    },
}

/// What an accepted input changes and causes.
#[derive(Debug)]
pub struct Plan<M: Machine> {
    /// The state after it; none when it stays as it is.
    pub next: Option<M>,
    /// What must be durable first.
    pub write: Option<Write<M>>,
    /// What is done then.
    pub effects: Vec<M::Effect>,
}

/// A write, and what happens when it fails.
#[derive(Debug)]
pub enum Write<M: Machine> {
    /// Then this is the state instead of the next one, and this is done instead of the effects.
    Refuse {
        /// What is written.
        commit: Commit,
        /// The state when it fails; none when it stays as it is.
        refused: Option<M>,
        /// What is done when it fails.
        refusal: Vec<M::Effect>,
    },
    /// Then memory changes all the same, and the write is repeated until it works.
    GoOn {
        /// What is written.
        commit: Commit,
    },
}

/// The time before an attempt: `first_ms`, doubled after each failure, never above `max_ms`.
pub(crate) fn backoff_ms(first_ms: u64, max_ms: u64, failures: u32) -> u64 {
    first_ms.saturating_mul(1_u64.checked_shl(failures).unwrap_or(u64::MAX)).min(max_ms)
}
