//! When a pull is alive and when a transfer has stalled (P8): decisions only, no clock, no IO.
//!
//! [`Liveness`] judges a whole pull. Every event of any part refreshes it, bytes or not:
//!
//! ```text
//!             event: deadline = now + progress_timeout (+ the pause that a retry announced)
//!               ┌──┐
//!   new ──► [alive]──┴─ all parts wait for a slot ──► [waiting]  no deadline: others work
//!               │ ◄───────────── event ──────────────────┘
//!               └─ check at or after the deadline ──► [silent]   said once, with the part that is to blame
//! ```
//!
//! [`Watch`] judges one transfer within it. A transfer that brings nothing for `stall_timeout`, or less than the floor
//! over a window, is tried again alone, while the others go on; the retry is an event, so the pull lives.
//!
//! Moments are durations since any fixed point of a monotonic clock: a step of the wall clock is never seen.

use std::collections::BTreeMap;
use std::time::Duration;

use mainstay_oci_image::{Event, Part, Step};
use thiserror::Error;

/// A point in time, since a fixed one of the caller's choice.
pub type Moment = Duration;

/// How long a pull may be silent by default, in seconds.
pub const PROGRESS_TIMEOUT_DEFAULT_S: u64 = 300;
/// How long throughput is measured before it is held against the floor, in seconds.
pub const FLOOR_WINDOW_S: u64 = 30;

/// Nothing happened for the whole time-out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "nothing happened for {} ms: {part} stands at {got} bytes{}, and the last event was {} ms ago: {last}",
    .timeout.as_millis(), expected_text(.expected), .age.as_millis()
)]
pub struct Silence {
    /// The part that has been silent longest, of those that are at work.
    pub part: Part,
    /// Bytes of it that there are.
    pub got: u64,
    /// Bytes that there should be, where it is known.
    pub expected: Option<u64>,
    /// The last event of that part.
    pub last: Step,
    /// How long ago it was.
    pub age: Duration,
    /// The time-out.
    pub timeout: Duration,
}

fn expected_text(expected: &Option<u64>) -> String {
    expected.map(|bytes| format!(" of {bytes}")).unwrap_or_default()
}

/// Judges a whole pull.
///
/// 1. An event never brings the deadline nearer.
/// 2. Silence is said at most once, and nothing after it changes that.
#[derive(Debug)]
pub struct Liveness {
    /// None is off.
    timeout: Option<Duration>,
    parts: BTreeMap<Part, Progress>,
    now: Moment,
    deadline: Moment,
    silent: bool,
}

#[derive(Debug)]
struct Progress {
    got: u64,
    expected: Option<u64>,
    last: Step,
    at: Moment,
}

impl Liveness {
    /// A pull that starts now. A time-out of zero is off.
    pub fn new(timeout: Duration, now: Moment) -> Self {
        let timeout = (!timeout.is_zero()).then_some(timeout);
        let deadline = now.saturating_add(timeout.unwrap_or(Duration::MAX));
        Self { timeout, parts: BTreeMap::new(), now, deadline, silent: false }
    }

    /// Takes an event.
    pub fn observe(&mut self, event: &Event, now: Moment) {
        if self.silent {
            return;
        }
        self.now = self.now.max(now);
        let pause = match event.step {
            // The pause was announced, and often ordered by the registry: it is no silence.
            Step::Retrying { after, .. } => after,
            _ => Duration::ZERO,
        };
        if let Some(timeout) = self.timeout {
            self.deadline = self.deadline.max(self.now.saturating_add(timeout).saturating_add(pause));
        }
        let part = self.parts.entry(event.part.clone()).or_insert_with(|| Progress {
            got: 0,
            expected: None,
            last: event.step.clone(),
            at: self.now,
        });
        match &event.step {
            Step::Started { offset, expected } => {
                (part.got, part.expected) = (*offset, expected.or(part.expected))
            }
            Step::Received { bytes } => part.got = part.got.saturating_add(*bytes),
            _ => {}
        }
        part.last = event.step.clone();
        part.at = self.now;
    }

    /// When to check next; none while nothing can be silent.
    pub fn deadline(&self) -> Option<Moment> {
        (self.timeout.is_some() && !self.silent && !self.all_wait()).then_some(self.deadline)
    }

    /// Whether the pull has been silent for the whole time-out. Said once.
    pub fn check(&mut self, now: Moment) -> Option<Silence> {
        self.now = self.now.max(now);
        let timeout = self.timeout?;
        if self.deadline().is_none_or(|deadline| self.now < deadline) {
            return None;
        }
        self.silent = true;
        let at_work = |step: &Step| !matches!(step, Step::Waiting | Step::Done);
        let worst =
            self.parts.iter().min_by_key(|(_, progress)| (!at_work(&progress.last), progress.at)).map(
                |(part, progress)| Silence {
                    part: part.clone(),
                    got: progress.got,
                    expected: progress.expected,
                    last: progress.last.clone(),
                    age: self.now.saturating_sub(progress.at),
                    timeout,
                },
            );
        Some(worst.unwrap_or_else(|| Silence {
            part: Part::Manifest("that was asked for".to_owned()),
            got: 0,
            expected: None,
            last: Step::Waiting,
            age: timeout,
            timeout,
        }))
    }

    /// Bytes that there are, and those that there should be, over all parts that said so.
    pub fn bytes(&self) -> (u64, u64) {
        self.parts.values().fold((0, 0), |(got, expected), part| {
            (got.saturating_add(part.got), expected.saturating_add(part.expected.unwrap_or(0)))
        })
    }

    /// Whether there is work, and all of it waits for room that others have to make. Each of those has a deadline of
    /// its own, so room will be made.
    fn all_wait(&self) -> bool {
        let mut waiting = self.parts.values().filter(|part| part.last != Step::Done).peekable();
        waiting.peek().is_some() && waiting.all(|part| part.last == Step::Waiting)
    }
}

/// What a transfer has to bring to be left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The longest time without a byte.
    pub stall_timeout: Duration,
    /// The fewest bytes per second, over [`FLOOR_WINDOW_S`]; 0 is off.
    pub floor_bytes_per_s: u64,
}

/// Why a transfer is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// No byte came.
    Silent {
        /// For so long.
        for_: Duration,
    },
    /// Too few bytes came.
    Slow {
        /// So many.
        bytes: u64,
        /// In so long.
        within: Duration,
    },
}

/// Judges one transfer. It runs only while the registry is waited for: a disk that takes its time is not the
/// registry's fault.
#[derive(Debug)]
pub struct Watch {
    pace: Pace,
    /// Since when a byte is waited for.
    since: Moment,
    /// Of the window that runs: the time that was spent waiting, and what came.
    waited: Duration,
    bytes: u64,
}

impl Watch {
    /// A transfer that starts now.
    pub fn new(pace: Pace, now: Moment) -> Self {
        Self { pace, since: now, waited: Duration::ZERO, bytes: 0 }
    }

    /// The next bytes are waited for from now on.
    pub fn wait(&mut self, now: Moment) {
        self.since = now.max(self.since);
    }

    /// The last moment at which the next byte is in time.
    pub fn deadline(&self) -> Moment {
        self.since.saturating_add(self.pace.stall_timeout)
    }

    /// Bytes came; an error when they are too few.
    pub fn received(&mut self, bytes: u64, now: Moment) -> Result<(), Stall> {
        self.waited += now.saturating_sub(self.since);
        self.bytes = self.bytes.saturating_add(bytes);
        self.since = now.max(self.since);
        if self.pace.floor_bytes_per_s == 0 || self.waited < Duration::from_secs(FLOOR_WINDOW_S) {
            return Ok(());
        }
        let (bytes, within) = (self.bytes, self.waited);
        (self.bytes, self.waited) = (0, Duration::ZERO);
        let needed = u128::from(self.pace.floor_bytes_per_s).saturating_mul(within.as_millis()) / 1000;
        if u128::from(bytes) < needed { Err(Stall::Slow { bytes, within }) } else { Ok(()) }
    }

    /// Nothing came until now; an error from the deadline on.
    pub fn check(&self, now: Moment) -> Result<(), Stall> {
        if now < self.deadline() {
            Ok(())
        } else {
            Err(Stall::Silent { for_: now.saturating_sub(self.since) })
        }
    }
}

#[cfg(test)]
mod tests;
