//! What containers have on the disk, counted one after the other in the background while somebody asks for it.
//!
//! ```text
//!   asleep ──asked──► counts what is due, one at a time ──nobody has asked for a while──► asleep
//! ```
//!
//! Counting looks at every file, so it is never done in a call. A container whose files take long to count is counted more
//! seldom. A new one has nothing yet, which needs no counting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mainstay_messages::supervisor::DiskUsage;
use mainstay_messages::usage::DiskSample;
use mainstay_messages::{ContainerId, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::system::System;

/// Time between two counts of the files of a container, in milliseconds, when nothing else is set.
pub const DISK_INTERVAL_DEFAULT_MS: u64 = 60_000;
/// How long files are counted on after somebody asked, in milliseconds.
pub const WANTED_MS: u64 = 300_000;
/// Between two counts of a container is so much more time than one takes: counting it is at most this part of a CPU's work.
const EASE: u32 = 20;
/// The longest pause before it is looked whether there are new containers, in milliseconds.
const LOOK_MS: u64 = 5_000;

/// What was counted, and what is to be.
#[derive(Debug, Default)]
pub(crate) struct DiskBook {
    pages: Mutex<Pages>,
    asked: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Pages {
    wanted_at: Option<Instant>,
    interval: Duration,
    counted: HashMap<ContainerId, Counted>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    sample: Option<DiskSample>,
    due: Instant,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Count(ContainerId),
    Pause(Duration),
    /// Nobody has asked for a while.
    Sleep,
}

impl DiskBook {
    /// What a container had on the disk when it was last counted. One that was made less than two intervals ago and was not
    /// counted yet had nothing when it was made.
    pub(super) fn of(
        &self,
        id: &ContainerId,
        created_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<DiskSample> {
        let pages = self.pages();
        let counted = pages.counted.get(id).and_then(|counted| counted.sample);
        counted.or_else(|| {
            let created_at = created_at?;
            let young = 2 * pages.interval.as_nanos();
            (u128::from(now.0.saturating_sub(created_at.0)) < young)
                .then(|| DiskSample { at: created_at, usage: DiskUsage::default() })
        })
    }

    /// Somebody asks.
    pub(super) fn want(&self) {
        self.pages().wanted_at = Some(Instant::now());
        self.asked.notify_one();
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        // Each change of the pages is one call, so that a poisoned lock holds sound ones.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    /// Which of these comes next; those that are gone are forgotten.
    fn next(&mut self, living: Vec<ContainerId>, now: Instant) -> Next {
        let wanted = self.wanted_at.is_some_and(|at| now < at + Duration::from_millis(WANTED_MS));
        if !wanted {
            return Next::Sleep;
        }
        self.counted.retain(|id, _| living.contains(id));
        let due = |id: &ContainerId| self.counted.get(id).map_or(now, |counted| counted.due);
        let look = Duration::from_millis(LOOK_MS);
        match living.into_iter().map(|id| (due(&id), id)).min() {
            Some((due, id)) if due <= now => Next::Count(id),
            Some((due, _)) => Next::Pause((due - now).min(look)),
            None => Next::Pause(look),
        }
    }

    fn note(&mut self, id: ContainerId, sample: Option<DiskSample>, took: Duration, now: Instant) {
        let before = self.counted.get(&id).and_then(|counted| counted.sample);
        let due = now + self.interval.max(took * EASE);
        self.counted.insert(id, Counted { sample: sample.or(before), due });
    }
}

/// Counts for as long as the system is there.
pub(crate) async fn count_forever(system: Weak<System>, interval: Duration) {
    let asked = {
        let Some(system) = system.upgrade() else { return };
        system.samples.disks.pages().interval = interval;
        Arc::clone(&system.samples.disks.asked)
    };
    loop {
        asked.notified().await;
        loop {
            let Some(system) = system.upgrade() else { return };
            if system.closed().was_said() {
                return;
            }
            let living = system.directory.containers(None);
            let living = living.iter().filter(|c| super::has_processes(c)).map(|c| c.record.id.clone());
            let next = system.samples.disks.pages().next(living.collect(), Instant::now());
            match next {
                Next::Count(id) => count(&system, id).await,
                Next::Pause(pause) => {
                    drop(system);
                    tokio::time::sleep(pause).await;
                }
                Next::Sleep => break,
            }
        }
    }
}

async fn count(system: &System, id: ContainerId) {
    let began = Instant::now();
    let at = Timestamp::from_system(std::time::SystemTime::now());
    let sample = match system.disk_usage(&id).await {
        Ok(usage) => Some(DiskSample { at, usage }),
        Err(error) => {
            tracing::debug!(container = %id, %error, "its files were not counted");
            None
        }
    };
    let now = Instant::now();
    system.samples.disks.pages().note(id, sample, now - began, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ContainerId {
        format!("c{number}").parse().expect("an id")
    }

    #[test]
    fn what_is_due_is_counted_and_what_takes_long_more_seldom() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut pages = Pages { interval: 10 * second, ..Pages::default() };
        assert_eq!(pages.next(vec![id(1)], now), Next::Sleep, "nobody asked");
        pages.wanted_at = Some(now);
        assert_eq!(pages.next(vec![id(1), id(2)], now), Next::Count(id(1)));
        pages.note(id(1), None, second, now);
        assert_eq!(pages.next(vec![id(1), id(2)], now), Next::Count(id(2)));
        pages.note(id(2), None, second / 100, now);
        assert_eq!(pages.next(vec![id(1), id(2)], now), Next::Pause(5 * second));
        assert_eq!(pages.next(vec![id(1), id(2)], now + 9 * second), Next::Pause(second));
        assert_eq!(pages.next(vec![id(1), id(2)], now + 10 * second), Next::Count(id(2)));
        pages.note(id(2), None, second / 100, now + 10 * second);
        assert_eq!(pages.next(vec![id(1)], now + 20 * second), Next::Count(id(1)));
        assert_eq!(pages.counted.len(), 1, "what is gone is forgotten");
        assert_eq!(pages.next(vec![id(1)], now + Duration::from_millis(WANTED_MS)), Next::Sleep);
    }

    #[test]
    fn a_new_container_has_nothing_and_an_old_one_is_not_known_until_it_was_counted() {
        let book = DiskBook::default();
        book.pages().interval = Duration::from_secs(1);
        let of = |created_at: u64| book.of(&id(1), Some(Timestamp(created_at)), Timestamp(9_000_000_000));
        assert_eq!(of(8_000_000_000).map(|sample| sample.at), Some(Timestamp(8_000_000_000)));
        assert_eq!(of(6_000_000_000), None);
        let sample = DiskSample { at: Timestamp(5), usage: DiskUsage { bytes: 4, inodes: 1 } };
        book.pages().note(id(1), Some(sample), Duration::ZERO, Instant::now());
        book.pages().note(id(1), None, Duration::ZERO, Instant::now());
        assert_eq!(of(6_000_000_000), Some(sample), "a count that failed changes nothing");
    }
}
