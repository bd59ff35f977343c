//! The server as its clients see it, with processes and ports that are made up.

mod fakes;
mod ports;
mod processes;
mod refusals;
mod tls;

use std::future::Future;
use std::time::Duration;

/// How long anything here may take, in milliseconds. Far more than it does.
const PATIENCE_MS: u64 = 60_000;

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_millis(PATIENCE_MS), future).await.expect("it does not hang")
}
