//! When a transfer has stalled (P8): decisions only, no clock, no IO.
//!
//! A transfer that brings nothing for `stall_timeout`, or less than the floor over a window, is tried again alone, while
//! the others of a pull go on; the retry is an event, so the pull lives. Whether a whole pull lives is judged by whoever
//! hears the events of all its parts.
//!
//! Moments are durations since any fixed point of a monotonic clock: a step of the wall clock is never seen.

use std::time::Duration;

/// A point in time, since a fixed one of the caller's choice.
pub type Moment = Duration;

/// How long throughput is measured before it is held against the floor, in seconds.
pub const FLOOR_WINDOW_S: u64 = 30;

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
