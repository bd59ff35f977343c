//! Waiting for conditions, with a deadline that is no part of what is tested.

use std::time::Duration;

/// How long anything may take before a test gives up, in milliseconds. Far more than anything takes.
pub const CONDITION_MS: u64 = 120_000;
/// Time between two looks at a condition, in milliseconds.
const POLL_MS: u64 = 10;

/// Looks until a condition holds.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let look = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
    };
    finish(what, look).await;
}

/// Waits for a future; panics with `what` when it never ends.
pub async fn finish<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_millis(CONDITION_MS), future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {CONDITION_MS} ms in vain: {what}"),
    }
}
