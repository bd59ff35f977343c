//! What separates the actors of a crashed daemon from the world that outlives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Open until the daemon behind it is killed.
#[derive(Clone, Debug, Default)]
pub(super) struct Fence {
    closed: Arc<AtomicBool>,
}

impl Fence {
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}
