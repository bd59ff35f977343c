//! The axis of time of a picture: a step of a millisecond and a container that ran for a week are to be seen side by side.
//!
//! Between two moments at which something happens lies room that grows with the logarithm of the time between them. So the order
//! is right, longer is wider, and what the marks say is the true time.
//!
//! Pure. Never: draws.

use mainstay_messages::Timestamp;

/// The room between two moments that are a microsecond apart, in the unit of the picture before it is fitted.
const GAP_MIN: f64 = 1.0;
/// What each tenfold of a microsecond adds to it.
const GAP_PER_DECADE: f64 = 3.0;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The moments, in their order, with their places.
    moments: Vec<(Timestamp, f64)>,
}

impl Axis {
    /// An axis over these moments, from 0 to `width`.
    pub(super) fn new(moments: impl IntoIterator<Item = Timestamp>, width: f64) -> Self {
        let mut moments: Vec<Timestamp> = moments.into_iter().collect();
        moments.sort_unstable();
        moments.dedup();
        let mut place = 0.0;
        let mut before = None;
        let mut placed: Vec<(Timestamp, f64)> = Vec::with_capacity(moments.len());
        for moment in moments {
            place += before.map_or(0.0, |before| gap(moment.nanos_since(before)));
            placed.push((moment, place));
            before = Some(moment);
        }
        let scale = if place > 0.0 { width / place } else { 0.0 };
        placed.iter_mut().for_each(|(_, place)| *place *= scale);
        Self { moments: placed }
    }

    /// Where a moment is. One that is not on the axis is where the one before it is.
    pub(super) fn place(&self, moment: Timestamp) -> f64 {
        let after = self.moments.partition_point(|(other, _)| *other <= moment);
        self.moments.get(after.saturating_sub(1)).map_or(0.0, |(_, place)| *place)
    }

    /// Moments that are at least so far from one another, for marks.
    pub(super) fn marks(&self, apart: f64) -> Vec<(Timestamp, f64)> {
        let mut marks: Vec<(Timestamp, f64)> = Vec::new();
        for (moment, place) in &self.moments {
            if marks.last().is_none_or(|(_, last)| place - last >= apart) {
                marks.push((*moment, *place));
            }
        }
        marks
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is drawn")]
fn gap(nanos: u64) -> f64 {
    GAP_MIN + GAP_PER_DECADE * (1.0 + nanos as f64 / 1_000.0).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_longer_is_wider() {
        let micro = |micros: u64| Timestamp(micros * 1_000);
        let axis = Axis::new([micro(5), micro(0), micro(1_000_000_005), micro(1_005)], 100.0);
        let places = [0, 5, 1_005, 1_000_000_005].map(|at| axis.place(micro(at)));
        assert_eq!((places[0], places[3]), (0.0, 100.0));
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        assert!(
            places[3] - places[2] > places[2] - places[1] && places[2] - places[1] > places[1],
            "{places:?}"
        );
        assert!(places[1] > 5.0, "a moment is to be seen beside a quarter of an hour: {places:?}");
        assert_eq!(axis.marks(0.0).len(), 4);
        assert_eq!(axis.marks(1_000.0).len(), 1);
    }

    #[test]
    fn a_single_moment_has_a_place() {
        assert_eq!(Axis::new([Timestamp(7)], 100.0).place(Timestamp(7)), 0.0);
        assert_eq!(Axis::new([], 100.0).place(Timestamp(7)), 0.0);
    }
}
