//! Signs of life of work that takes as long as it takes.
//!
//! Copying an image's volume takes a second or an hour, and no deadline fits both. As long as something moves it goes on; it has
//! failed when nothing has for a while (P8).
//!
//! Owns: the count. Never: decides how long a while is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Shared by who works and who watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Movement(Arc<AtomicU64>);

impl Movement {
    /// Something has moved.
    pub fn moved(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until nothing has moved between two looks, of which there is one each `silence_ms`.
    pub async fn stopped(&self, silence_ms: u64) {
        loop {
            let before = self.count();
            tokio::time::sleep(Duration::from_millis(silence_ms)).await;
            if self.count() == before {
                return;
            }
        }
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether something has moved so often.
    #[cfg(test)]
    pub fn has_moved(&self, times: u64) -> bool {
        self.count() >= times
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// The volumes of an image were filled within the deadline of small files: a huge one on a slow disk failed its container.
    #[tokio::test(start_paused = true)]
    async fn what_moves_has_no_end_and_what_stands_still_has() {
        const SILENCE_MS: u64 = 100;
        const MOVES: u64 = 50;
        let (movement, began) = (Movement::default(), Instant::now());
        let moving = async {
            for _ in 0..MOVES {
                tokio::time::sleep(Duration::from_millis(SILENCE_MS / 2 + 1)).await;
                movement.moved();
            }
            began.elapsed()
        };
        let watching = async {
            movement.stopped(SILENCE_MS).await;
            began.elapsed()
        };
        // The time is a pretended one.
        let (last, stopped) = tokio::join!(moving, watching);
        assert!(stopped > last, "it moved until {last:?} and was given up at {stopped:?}");
        assert!(stopped <= last + 2 * Duration::from_millis(SILENCE_MS), "{stopped:?} after {last:?}");
    }
}
