//! CPU time in a second, from two measurements (pure).

use mainstay_messages::Timestamp;

/// The shortest time between two measurements that tells a rate, in milliseconds: over less than that it is mostly noise.
pub const RATE_WINDOW_MIN_MS: u64 = 1_000;

const NS_PER_SECOND: u128 = 1_000_000_000;

/// What is kept of a measurement for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuClock {
    /// When the window begins.
    at: Timestamp,
    /// CPU time by then, in nanoseconds.
    usage_ns: u64,
    /// The rate that was found last, in nanoseconds a second.
    pub(super) nano_cores: Option<u64>,
}

/// Goes on to a measurement. Within [`RATE_WINDOW_MIN_MS`] the rate is the one from before. A clock that was set back, or a
/// count that began anew, begins a window.
pub(super) fn advance(before: Option<CpuClock>, at: Timestamp, usage_ns: u64) -> CpuClock {
    let fresh = CpuClock { at, usage_ns, nano_cores: None };
    let Some(before) = before else { return fresh };
    let (Some(elapsed), Some(used)) = (at.0.checked_sub(before.at.0), usage_ns.checked_sub(before.usage_ns))
    else {
        return fresh;
    };
    if elapsed < RATE_WINDOW_MIN_MS * 1_000_000 {
        return before;
    }
    let rate = u128::from(used) * NS_PER_SECOND / u128::from(elapsed);
    CpuClock { nano_cores: u64::try_from(rate).ok(), ..fresh }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_rate_is_of_the_time_between_two_measurements() {
        let first = advance(None, Timestamp(SECOND), 5_000);
        assert_eq!(first.nano_cores, None, "nobody knows how long that took");
        let soon = advance(Some(first), Timestamp(SECOND + 1), 6_000);
        assert_eq!(soon, first, "the window goes on");
        let later = advance(Some(soon), Timestamp(3 * SECOND), 5_000 + SECOND);
        assert_eq!(later.nano_cores, Some(SECOND / 2), "half a CPU over two seconds");
        assert_eq!(advance(Some(later), Timestamp(3 * SECOND + 5), 7 * SECOND).nano_cores, Some(SECOND / 2));
    }

    #[test]
    fn a_clock_that_was_set_back_or_a_count_that_began_anew_tells_no_rate() {
        let before = CpuClock { at: Timestamp(10 * SECOND), usage_ns: 100, nano_cores: Some(1) };
        assert_eq!(advance(Some(before), Timestamp(9 * SECOND), 200).nano_cores, None);
        assert_eq!(advance(Some(before), Timestamp(20 * SECOND), 99).nano_cores, None);
    }
}
