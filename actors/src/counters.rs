//! Numbers for metrics and benchmarks. They only ever rise.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// What the actors count.
#[derive(Debug, Default)]
pub struct Counters {
    /// Calls that the router passed on.
    pub routed: Counter,
    /// Calls that were refused because an inbox was full.
    pub refused: Counter,
    /// Exits that were parked.
    pub parked: Counter,
    /// Exits that changed the state of a container or exec.
    pub delivered: Counter,
    /// Exits that changed nothing.
    pub absorbed: Counter,
    /// Exits that nobody claimed by their deadline.
    pub unclaimed: Counter,
    /// Actors that were started again.
    pub restarts: Counter,
    /// Commits that failed.
    pub failed_commits: Counter,
    /// Notes for the journal that were dropped because the store did not keep up, or refused them.
    pub lost_notes: Counter,
    /// Pulls of images that were begun.
    pub pulls_started: Counter,
    /// Callers who joined a pull that was under way.
    pub pulls_joined: Counter,
    /// Pulls that ended with the image here.
    pub pulls_succeeded: Counter,
    /// Pulls that failed, those that timed out among them.
    pub pulls_failed: Counter,
    /// Pulls that were given up because nobody waited for them any more.
    pub pulls_cancelled: Counter,
    /// Pulls that were given up because nothing moved, questions to a registry among them.
    pub pulls_timed_out: Counter,
}

impl Counter {
    /// Adds one.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
