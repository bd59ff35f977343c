//! Times as the interface has them: nanoseconds since 1970, 0 for none.

use std::time::{Duration, SystemTime};

use mainstay::Timestamp;

/// A time.
pub(crate) fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

/// A time that there may be.
pub(crate) fn nanos_or_none(at: Option<Timestamp>) -> i64 {
    at.map_or(0, nanos)
}

/// The time now.
pub(crate) fn now() -> i64 {
    nanos(Timestamp::from_system(SystemTime::now()))
}

/// Seconds as a caller gives them; what is below 0 is 0.
pub(crate) fn seconds(given: i64) -> Duration {
    Duration::from_secs(u64::try_from(given).unwrap_or_default())
}
