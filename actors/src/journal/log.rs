//! The events as subscribers see them. A subscriber pulls from its cursor: out of the ring of the newest
//! events, or page by page out of the store when it is further behind. It costs nothing while it does not
//! ask, and never holds up anybody.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mainstay_messages::event::{Bearer, Event, Fact, Seq};
use mainstay_messages::{Name, Result};
use tokio::sync::watch;

use super::state::{Pending, Read, Ring};
use crate::ports::{EventPage, EventQuery, Store};

/// Events that are kept in memory for subscribers that are not far behind. More than a kibibyte each, they are much of what a
/// daemon without pods holds; those who are further behind read the store.
pub const RING_EVENTS: usize = 1_024;
/// Events that a subscriber takes at once.
pub const PAGE_EVENTS: usize = 256;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct EventLog {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    ring: Mutex<Inner>,
    last: watch::Sender<Seq>,
    /// Where the subscribers are; those that were dropped are forgotten when the next one comes.
    places: Mutex<Vec<Weak<AtomicU64>>>,
    missed: AtomicU64,
}

/// How those who read the journal keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    /// How many there are.
    pub subscribers: u64,
    /// How far the slowest is behind, in events.
    pub lag: u64,
    /// Events that were trimmed before a subscriber had read them, of all subscribers so far.
    pub missed: u64,
}

struct Inner {
    ring: Ring,
    /// Commits that the store has not answered.
    under_way: usize,
}

/// A commit that the store has not answered. Dropped, it counts as never reported.
pub(super) struct Turn {
    log: EventLog,
}

/// A reader of the journal, at its own pace.
pub struct Subscription {
    log: EventLog,
    cursor: Seq,
    /// The cursor, for [`EventLog::readers`].
    place: Arc<AtomicU64>,
    ready: VecDeque<Event>,
    newest: watch::Receiver<Seq>,
}

/// What a subscriber gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The next event.
    Event(Event),
    /// Events that it had not read are not kept any more.
    Lagged {
        /// The first of them.
        from: Seq,
        /// The last of them.
        to: Seq,
    },
}

impl EventLog {
    /// A log of what is written to `store` after `last`.
    pub fn new(store: Arc<dyn Store>, last: Seq) -> Self {
        let ring = Mutex::new(Inner { ring: Ring::new(last, RING_EVENTS), under_way: 0 });
        let (last, places, missed) = (watch::Sender::new(last), Mutex::default(), AtomicU64::default());
        Self { shared: Arc::new(Shared { store, ring, last, places, missed }) }
    }

    /// The number of the newest event.
    pub fn last(&self) -> Seq {
        *self.shared.last.borrow()
    }

    /// All events after `after`, the past ones and those to come.
    pub fn subscribe(&self, after: Seq) -> Subscription {
        let newest = self.shared.last.subscribe();
        let place = Arc::new(AtomicU64::new(after.0));
        let mut places = self.places();
        places.retain(|place| place.strong_count() > 0);
        places.push(Arc::downgrade(&place));
        drop(places);
        Subscription { log: self.clone(), cursor: after, place, ready: VecDeque::new(), newest }
    }

    /// How the subscribers keep up. Asks none of them.
    pub fn readers(&self) -> Readers {
        let last = self.last().0;
        let missed = self.shared.missed.load(Ordering::Relaxed);
        let places = self.places();
        let places = places.iter().filter_map(Weak::upgrade).map(|place| place.load(Ordering::Relaxed));
        places.fold(Readers { missed, ..Readers::default() }, |readers, place| Readers {
            subscribers: readers.subscribers + 1,
            lag: readers.lag.max(last.saturating_sub(place)),
            ..readers
        })
    }

    /// A page of what is kept, for readers of the past.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn page(&self, query: EventQuery) -> Result<EventPage> {
        self.shared.store.events(query).await
    }

    /// Those who have or had a name, the newest first, as far as it is kept.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn bearers(&self, name: &Name) -> Result<Vec<Bearer>> {
        self.shared.store.bearers(name).await
    }

    /// A commit is on its way.
    pub(super) fn begin(&self) -> Turn {
        self.lock().under_way += 1;
        Turn { log: self.clone() }
    }

    /// The store has answered a commit: with the number of its last event and its facts, or with an error.
    pub(super) fn end(&self, turn: Turn, durable: Option<(Seq, Vec<Fact>)>) {
        if let Some((last, facts)) = durable {
            let mut inner = self.lock();
            let pending = if inner.under_way > 1 { Pending::Some } else { Pending::None };
            inner.ring.take(last, facts, pending);
        }
        drop(turn);
    }

    fn places(&self) -> MutexGuard<'_, Vec<Weak<AtomicU64>>> {
        // Each change of the list is one call, so that a poisoned lock holds a sound list.
        self.shared.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The ring is sound after each of its steps, so a poisoned lock holds sound data.
        self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.log.lock();
        inner.under_way -= 1;
        let last = inner.ring.last();
        drop(inner);
        self.log.shared.last.send_if_modified(|seen| {
            let newer = last > *seen;
            *seen = last.max(*seen);
            newer
        });
    }
}

impl Subscription {
    /// The next item; waits for one when all have been read. May be dropped while it waits: nothing is lost.
    ///
    /// # Errors
    /// Those of the store, when it had to be asked. The next call tries again.
    pub async fn next(&mut self) -> Result<Item> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.at(event.seq);
                return Ok(Item::Event(event));
            }
            self.newest.mark_unchanged();
            let read = self.log.lock().ring.read(self.cursor, PAGE_EVENTS);
            match read {
                Read::Events(events) if events.is_empty() => {
                    // The sender lives in the log that this subscription holds, so this cannot fail.
                    let _ = self.newest.changed().await;
                }
                Read::Events(events) => self.ready = events.into(),
                Read::Older => {
                    if let Some(lagged) = self.read_older().await? {
                        return Ok(lagged);
                    }
                }
            }
        }
    }

    /// The number of the last event that was read.
    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    fn at(&mut self, seq: Seq) {
        self.cursor = seq;
        self.place.store(seq.0, Ordering::Relaxed);
    }

    async fn read_older(&mut self) -> Result<Option<Item>> {
        let query = EventQuery { after: self.cursor, limit: PAGE_EVENTS, subject: None };
        let page = self.log.page(query).await?;
        let from = self.cursor.next();
        // An event that was trimmed, or could not be read, leaves a gap before the first one of the page. A
        // page without any means that all that the ring knows of are gone.
        let first = page.events.first().map_or(self.log.lock().ring.last().next(), |event| event.seq);
        self.ready = page.events.into();
        if first > from {
            let to = Seq(first.0 - 1);
            self.at(to);
            self.log.shared.missed.fetch_add(to.0 - from.0 + 1, Ordering::Relaxed);
            return Ok(Some(Item::Lagged { from, to }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
