//! The end that steps which follow each other have in common.
//!
//! Owns: how much of it is left. Never: lets a step have more than its own limit.

use std::time::Duration;

use tokio::time::Instant;

/// A point in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct End(Instant);

impl End {
    /// So many milliseconds from now.
    pub(super) fn in_ms(limit_ms: u64) -> Self {
        Self(Instant::now() + Duration::from_millis(limit_ms))
    }

    /// How long a step may take that has a limit of its own, in milliseconds.
    pub(super) fn left_ms(self, limit_ms: u64) -> u64 {
        let left = self.0.saturating_duration_since(Instant::now()).as_millis();
        u64::try_from(left).unwrap_or(u64::MAX).min(limit_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step had its own limit, and all of them together had more than the caller of them.
    #[test]
    fn a_step_has_no_more_than_what_is_left_and_no_more_than_its_own() {
        assert_eq!(End::in_ms(0).left_ms(1_000), 0);
        assert_eq!(End::in_ms(3_600_000).left_ms(1_000), 1_000);
        assert!(End::in_ms(1_000).left_ms(5_000) <= 1_000);
    }
}
