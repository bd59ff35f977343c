//! Waiting for conditions, never for luck.

use std::time::{Duration, Instant};

/// How long a condition may take before a test gives up, in milliseconds. Far more than any takes: machines are
/// shared, and a test that fails for want of time tells nothing.
pub const CONDITION_MS: u64 = 60_000;
/// Time between two looks at a condition, in milliseconds.
const POLL_MS: u64 = 10;

/// Looks until `condition` gives a value; panics with `what` when it never does.
pub async fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_millis(CONDITION_MS);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {CONDITION_MS} ms in vain: {what}");
        tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
    }
}

/// Looks until a look, which may take its time, finds the condition; panics with `what` when it never does.
pub async fn until_async(what: &str, condition: impl AsyncFn() -> bool) {
    let looks = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
    };
    finish(what, looks).await;
}

/// Waits for a future; panics with `what` when it never ends.
pub async fn finish<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_millis(CONDITION_MS), future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {CONDITION_MS} ms in vain: {what}"),
    }
}

/// Waits for a future or for a condition, whichever comes first; none when it was the condition.
pub async fn until_or<T>(
    what: &str,
    future: &mut (impl Future<Output = T> + Unpin),
    mut condition: impl FnMut() -> bool,
) -> Option<T> {
    tokio::select! {
        value = finish(what, future) => Some(value),
        () = until(what, || condition().then_some(())) => None,
    }
}
