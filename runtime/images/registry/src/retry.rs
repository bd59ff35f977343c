//! How long to wait before the next try, and when there is none: decisions only.

use std::time::{Duration, SystemTime};

/// The pause before the first retry, in milliseconds; it doubles with each.
pub const BACKOFF_FIRST_MS: u64 = 500;
/// The longest pause of the client's own choice, in milliseconds.
pub const BACKOFF_MAX_MS: u64 = 30_000;
/// The longest pause that a registry may ask for with `Retry-After`, in seconds; one that asks for more is not waited for.
pub const RETRY_AFTER_MAX_S: u64 = 300;
/// Rounds over all hosts that bring nothing, before a request fails.
pub const TRIES_DEFAULT: u32 = 6;
/// Bytes that a try must have brought to count as none: a transfer that moves on is not given up.
pub const PROGRESS_BYTES_MIN: u64 = 64 << 10;

/// How often and how patiently to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries in a row that bring nothing; at least 1.
    pub tries: u32,
    /// The pause before the first retry.
    pub first: Duration,
    /// The longest pause of the client's own choice.
    pub longest: Duration,
    /// The longest pause that a registry may ask for.
    pub retry_after_max: Duration,
    /// Bytes that a try must have brought to count as none.
    pub progress_bytes: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: TRIES_DEFAULT,
            first: Duration::from_millis(BACKOFF_FIRST_MS),
            longest: Duration::from_millis(BACKOFF_MAX_MS),
            retry_after_max: Duration::from_secs(RETRY_AFTER_MAX_S),
            progress_bytes: PROGRESS_BYTES_MIN,
        }
    }
}

impl RetryPolicy {
    /// The pause after so many tries in a row that brought nothing, none when that was the last one.
    ///
    /// `asked` is what the registry asked for; more than the policy allows ends it. `jitter`, from 0 to 1, spreads
    /// clients over the upper half of the pause, and beyond what was asked, never before it.
    pub fn pause(&self, failed: u32, asked: Option<Duration>, jitter: f64) -> Option<Duration> {
        if failed >= self.tries.max(1) || asked.is_some_and(|asked| asked > self.retry_after_max) {
            return None;
        }
        let doubled = self.first.saturating_mul(2u32.saturating_pow(failed.saturating_sub(1)));
        let own = doubled.min(self.longest).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        Some(match asked {
            Some(asked) => asked + self.first.min(self.longest).mul_f64(jitter.clamp(0.0, 1.0)),
            None => own,
        })
    }
}

/// What `Retry-After` asks for: seconds, or a date (RFC 9110, section 10.2.3). A date in the past is now; none for
/// what is neither.
pub fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("3", Some(3))]
    #[case(" 0 ", Some(0))]
    #[case("Thu, 01 Jan 1970 00:01:40 GMT", Some(90))]
    #[case("Thu, 01 Jan 1970 00:00:00 GMT", Some(0))]
    #[case("-1", None)]
    #[case("1.5", None)]
    #[case("soon", None)]
    #[case("99999999999999999999", None)]
    fn reads(#[case] value: &str, #[case] expected: Option<u64>) {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        assert_eq!(retry_after(value, now), expected.map(Duration::from_secs));
    }

    #[test]
    fn it_ends() {
        let policy = RetryPolicy { tries: 3, ..RetryPolicy::default() };
        let pauses: Vec<_> = (1..=4).map(|failed| policy.pause(failed, None, 1.0)).collect();
        let first = Duration::from_millis(BACKOFF_FIRST_MS);
        assert_eq!(pauses, [Some(first), Some(first * 2), None, None]);
    }

    #[test]
    fn what_the_registry_asks_for_is_waited_for_or_ends_it() {
        let policy = RetryPolicy::default();
        let asked = Duration::from_secs(RETRY_AFTER_MAX_S);
        assert_eq!(policy.pause(1, Some(asked), 0.0), Some(asked));
        assert_eq!(policy.pause(1, Some(asked + Duration::from_secs(1)), 0.0), None);
    }

    proptest! {
        #[test]
        fn a_pause_is_never_shorter_than_asked_nor_longer_than_the_longest(
            failed in 0u32..100, asked in proptest::option::of(0u64..400), jitter in -1.0f64..2.0,
        ) {
            let policy = RetryPolicy { tries: 1000, ..RetryPolicy::default() };
            let asked = asked.map(Duration::from_secs);
            match (policy.pause(failed, asked, jitter), asked) {
                (Some(pause), Some(asked)) => prop_assert!(pause >= asked && pause <= asked + policy.first),
                (Some(pause), None) => prop_assert!(pause >= policy.first / 2 && pause <= policy.longest),
                (None, asked) => prop_assert!(asked.is_some_and(|asked| asked > policy.retry_after_max)),
            }
        }
    }
}
