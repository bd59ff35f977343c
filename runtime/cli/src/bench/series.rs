//! A series of measured times, and how it is shown.

use std::time::Duration;

use serde::Serialize;

/// Times of one kind.
#[derive(Clone, Debug, Default)]
pub struct Series {
    times: Vec<Duration>,
}

/// What is said of a series, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// How many.
    pub count: usize,
    /// Half of them were at most this.
    pub p50_us: u64,
    /// Nine of ten were at most this.
    pub p90_us: u64,
    /// All of them were at most this.
    pub max_us: u64,
}

impl Series {
    /// Adds one.
    pub fn push(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// Nothing for an empty series.
    pub fn summary(&self) -> Option<Summary> {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
        };
        Some(Summary { count: sorted.len(), p50_us: at(50)?, p90_us: at(90)?, max_us: at(100)? })
    }
}

impl FromIterator<Duration> for Series {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self { times: times.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let series: Series = (1..=10).map(Duration::from_micros).collect();
        let summary = series.summary().expect("not empty");
        assert_eq!((summary.p50_us, summary.p90_us, summary.max_us, summary.count), (5, 9, 10, 10));
    }

    #[test]
    fn one_is_all_and_none_is_nothing() {
        let one: Series = [Duration::from_micros(7)].into_iter().collect();
        assert_eq!(one.summary().map(|s| (s.p50_us, s.p90_us)), Some((7, 7)));
        assert_eq!(Series::default().summary(), None);
    }
}
