//! The pure part of the journal: the ring of the newest events, in order and without gaps.

use std::collections::{BTreeMap, VecDeque};

use mainstay_messages::event::{Event, Fact, Seq};

/// The newest events, for readers that are not far behind.
///
/// Invariants:
/// 1. The events in the ring rise by one.
/// 2. `last` is the number of the newest event that readers may see, and of the newest in the ring.
/// 3. The ring never holds more than its capacity.
/// 4. Commits that wait for an earlier one are all above `last + 1`.
#[derive(Debug)]
pub(crate) struct Ring {
    events: VecDeque<Event>,
    capacity: usize,
    last: Seq,
    /// Commits whose predecessors have not been answered yet, by the number of their first event.
    waiting: BTreeMap<Seq, Vec<Event>>,
}

/// What a reader gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The events that follow its cursor; none when it has seen all.
    Events(Vec<Event>),
    /// The ring has forgotten what it wants; the store has it.
    Older,
}

/// Whether commits are still on their way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// At least one.
    Some,
    /// None: a gap will not be filled any more.
    None,
}

impl Ring {
    /// A ring that begins after `last`.
    pub(crate) fn new(last: Seq, capacity: usize) -> Self {
        Self { events: VecDeque::new(), capacity, last, waiting: BTreeMap::new() }
    }

    /// Takes the facts of a durable commit whose last event has the number `last`.
    pub(crate) fn take(&mut self, last: Seq, facts: Vec<Fact>, pending: Pending) {
        let count = u64::try_from(facts.len()).unwrap_or(u64::MAX);
        let first = Seq(last.0.saturating_sub(count) + 1);
        let events: Vec<Event> =
            facts.into_iter().zip(first.0..).map(|(fact, seq)| fact.numbered(Seq(seq))).collect();
        if !events.is_empty() && first > self.last {
            self.waiting.insert(first, events);
        }
        self.admit();
        if pending == Pending::None && !self.waiting.is_empty() {
            self.jump();
        }
    }

    /// Moves into the ring what follows it without a gap.
    fn admit(&mut self) {
        while let Some(events) = self.waiting.remove(&self.last.next()) {
            for event in events {
                self.last = event.seq;
                self.events.push_back(event);
            }
            while self.events.len() > self.capacity {
                self.events.pop_front();
            }
        }
    }

    /// Gives up on events that were written but never reported, so that the ring does not stand still for
    /// ever. Readers find them in the store.
    fn jump(&mut self) {
        if let Some(first) = self.waiting.keys().next().copied() {
            self.events.clear();
            self.last = Seq(first.0 - 1);
            self.admit();
        }
    }

    /// At most `limit` events after `cursor`.
    pub(crate) fn read(&self, cursor: Seq, limit: usize) -> Read {
        if cursor >= self.last {
            return Read::Events(Vec::new());
        }
        match self.events.front() {
            Some(oldest) if oldest.seq <= cursor.next() => {
                let skip = usize::try_from(cursor.next().0 - oldest.seq.0).unwrap_or(usize::MAX);
                Read::Events(self.events.iter().skip(skip).take(limit).cloned().collect())
            }
            _ => Read::Older,
        }
    }

    /// The newest event that readers may see.
    pub(crate) fn last(&self) -> Seq {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_messages::Timestamp;
    use mainstay_messages::event::{Subject, What};
    use proptest::prelude::*;

    fn facts(count: usize) -> Vec<Fact> {
        let subject = Subject { sandbox: None, container: None, exec: None };
        vec![Fact { at: Timestamp(1), subject, what: What::ExitParked }; count]
    }

    fn invariant_events_rise_by_one(ring: &Ring) {
        let numbers: Vec<u64> = ring.events.iter().map(|event| event.seq.0).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    }

    fn invariant_last_is_the_newest(ring: &Ring) {
        assert!(ring.events.back().is_none_or(|event| event.seq == ring.last));
    }

    fn invariant_the_ring_is_bounded(ring: &Ring) {
        assert!(ring.events.len() <= ring.capacity);
    }

    fn invariant_waiting_commits_are_above(ring: &Ring) {
        assert!(ring.waiting.keys().all(|first| *first > ring.last.next()));
    }

    proptest! {
        /// Answers of the store may be seen in any order, and some never.
        #[test]
        fn readers_see_every_reported_event_once_and_in_order(
            sizes in prop::collection::vec(0_usize..4, 1..20),
            order in prop::collection::vec(any::<prop::sample::Index>(), 20),
            lost in prop::collection::vec(prop::bool::weighted(0.1), 20),
        ) {
            let mut last = 7;
            let mut commits: Vec<(u64, usize)> =
                sizes.iter().map(|size| { last += *size as u64; (last, *size) }).collect();
            let mut ring = Ring::new(Seq(7), 1_000);
            let mut turn = 0;
            let mut seen = Seq(7);
            while !commits.is_empty() {
                let (last, size) = commits.remove(order[turn].index(commits.len()));
                if !lost[turn] {
                    let pending = if commits.is_empty() { Pending::None } else { Pending::Some };
                    ring.take(Seq(last), facts(size), pending);
                }
                turn += 1;
                invariant_events_rise_by_one(&ring);
                invariant_last_is_the_newest(&ring);
                invariant_the_ring_is_bounded(&ring);
                invariant_waiting_commits_are_above(&ring);
                if let Read::Events(events) = ring.read(seen, 3) {
                    for event in events {
                        prop_assert_eq!(event.seq, seen.next());
                        seen = event.seq;
                    }
                }
            }
            if !lost[..turn].contains(&true) {
                prop_assert_eq!(ring.last(), Seq(last));
            }
        }
    }
}
