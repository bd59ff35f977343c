//! Exec and attach.
//!
//! | module | holds |
//! |---|---|
//! | `spdy` | one stream for each of error, stdin, stdout, stderr and resize |
//! | `websocket` | one channel for each of them |
//!
//! Owns: how the streams of a process are told apart on a connection, and how long its farewell may take. Never: runs the session,
//! which is the same for both.

pub(crate) mod spdy;
pub(crate) mod websocket;

use std::time::Duration;

use tokio::time::timeout;

use crate::peer::Gone;

/// Pieces of input that wait for a process, each of at most 32 KiB.
pub const STDIN_QUEUE_PIECES: usize = 8;
/// Time for a client to take the outcome of a process that has ended, and what output is before it, in milliseconds. Whoever reads in a
/// pager may take a while; one that never reads must not keep its place for ever.
pub const FAREWELL_MS: u64 = 300_000;

/// A client was told all there is, or it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    All,
    /// It left, or did not read in time.
    NotAll,
}

/// Tells a client how its process ended, for as long as it is there and may take.
async fn tell(farewell: impl Future<Output = ()>, mut gone: Gone) -> Told {
    tokio::select! {
        // What has room is sent, also to a client that has closed its own side.
        biased;
        told = timeout(Duration::from_millis(FAREWELL_MS), farewell) => match told {
            Ok(()) => Told::All,
            Err(_) => {
                tracing::debug!("a client did not read the outcome of its process within {FAREWELL_MS} ms");
                Told::NotAll
            }
        },
        () = gone.heard() => Told::NotAll,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::peer::GoneGuard;

    /// A client that did not read when its process had ended kept its connection, and its place among them, for ever.
    #[tokio::test(start_paused = true)]
    async fn a_farewell_is_over_in_time_or_when_the_client_is_gone() {
        let (guard, gone) = GoneGuard::new();
        assert_eq!(tell(ready(()), gone.clone()).await, Told::All);
        assert_eq!(tell(pending(), gone.clone()).await, Told::NotAll, "the time is over");
        drop(guard);
        assert_eq!(tell(ready(()), gone.clone()).await, Told::All);
        let start = tokio::time::Instant::now();
        assert_eq!(tell(pending(), gone).await, Told::NotAll);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
