//! The newest state of each part of a pull, in the order of their news. Pure.

use std::collections::BTreeMap;

use mainstay_messages::image::{PullActivity, PullProgress};

/// The most states that are kept. An image has at most 500 layers, each with a transfer, an unpacking and a retry; what
/// is oldest gives way to more.
pub const PROGRESS_PLACES_MAX: usize = 2_048;

/// See the module.
///
/// Invariants:
/// 1. Every entry of `order` has its place, and every place its entry.
/// 2. There are never more than [`PROGRESS_PLACES_MAX`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Newest {
    order: BTreeMap<u64, (Place, PullProgress)>,
    places: BTreeMap<Place, u64>,
    next: u64,
}

/// What replaces what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Resolved,
    Part(String, Lane),
}

/// What goes on side by side in one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Transfer,
    Unpack,
    Retry,
}

impl Newest {
    /// Takes news. What they replace is forgotten; the end of a part replaces all that was told of it.
    pub(crate) fn put(&mut self, progress: PullProgress) {
        let place = match &progress {
            PullProgress::Resolved { .. } => Place::Resolved,
            PullProgress::Retry { part, .. } => Place::Part(part.clone(), Lane::Retry),
            PullProgress::Part { part, activity, .. } => {
                if *activity == PullActivity::Done {
                    self.forget(&Place::Part(part.clone(), Lane::Unpack));
                    self.forget(&Place::Part(part.clone(), Lane::Retry));
                }
                let unpacks = *activity == PullActivity::Unpacking;
                Place::Part(part.clone(), if unpacks { Lane::Unpack } else { Lane::Transfer })
            }
        };
        self.forget(&place);
        if self.order.len() >= PROGRESS_PLACES_MAX {
            self.take();
        }
        self.places.insert(place.clone(), self.next);
        self.order.insert(self.next, (place, progress));
        self.next += 1;
    }

    /// The oldest of them, which is not kept any longer.
    pub(crate) fn take(&mut self) -> Option<PullProgress> {
        let (_, (place, progress)) = self.order.pop_first()?;
        self.places.remove(&place);
        Some(progress)
    }

    /// What a newcomer has to know: the state of everything, the oldest first. Retries are news of
    /// a moment and are left out.
    pub(crate) fn present(&self) -> impl Iterator<Item = &PullProgress> {
        self.order.values().map(|(_, progress)| progress).filter(|p| !matches!(p, PullProgress::Retry { .. }))
    }

    fn forget(&mut self, place: &Place) {
        if let Some(number) = self.places.remove(place) {
            self.order.remove(&number);
        }
    }
}

#[cfg(test)]
pub(crate) mod sample {
    use super::*;

    pub(crate) fn part(part: &str, activity: PullActivity, bytes: u64) -> PullProgress {
        PullProgress::Part { part: part.into(), activity, bytes, of: Some(1_000_000) }
    }

    pub(crate) fn fetching(name: &str, bytes: u64) -> PullProgress {
        part(name, PullActivity::Fetching, bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::sample::*;
    use super::*;

    fn all(mut newest: Newest) -> Vec<PullProgress> {
        std::iter::from_fn(|| newest.take()).collect()
    }

    fn invariant_places_and_entries_agree(newest: &Newest) {
        assert!(newest.places.values().all(|number| newest.order.contains_key(number)));
        assert_eq!(newest.places.len(), newest.order.len());
        assert!(newest.order.len() <= PROGRESS_PLACES_MAX);
    }

    #[test]
    fn the_end_of_a_part_is_the_last_that_is_told_of_it() {
        let mut newest = Newest::default();
        newest.put(fetching("a", 1));
        newest.put(part("a", PullActivity::Unpacking, 1));
        newest.put(fetching("b", 1));
        newest.put(part("a", PullActivity::Done, 2));
        assert_eq!(all(newest), [fetching("b", 1), part("a", PullActivity::Done, 2)]);
    }

    #[test]
    fn a_newcomer_hears_of_no_retry_that_is_over() {
        let mut newest = Newest::default();
        newest.put(PullProgress::Retry { part: "a".into(), reason: "reset".into(), after_ms: 1 });
        newest.put(fetching("a", 1));
        assert_eq!(newest.present().cloned().collect::<Vec<_>>(), [fetching("a", 1)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        /// However fast one part is, a reader sees of every part the newest state, in the order of the news.
        #[test]
        fn a_reader_sees_the_newest_of_everything(
            news in prop::collection::vec((0_usize..3_000, 0_u64..9), 0..4_000),
        ) {
            let mut newest = Newest::default();
            let mut expected: Vec<(usize, u64)> = Vec::new();
            for (part, bytes) in news {
                newest.put(fetching(&part.to_string(), bytes));
                expected.retain(|(old, _)| *old != part);
                expected.push((part, bytes));
            }
            invariant_places_and_entries_agree(&newest);
            let kept = expected.split_off(expected.len().saturating_sub(PROGRESS_PLACES_MAX));
            let kept: Vec<_> = kept.into_iter().map(|(part, bytes)| fetching(&part.to_string(), bytes)).collect();
            prop_assert_eq!(all(newest), kept);
        }
    }
}
