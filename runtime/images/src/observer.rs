//! Who is told of progress, and who can stop it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_oci_image::Event;

/// Takes the events of an operation, and can cancel it. Clones are the same observer.
#[derive(Clone)]
pub struct Observer {
    events: Arc<dyn Fn(Event) + Send + Sync>,
    cancelled: Arc<AtomicBool>,
}

impl Observer {
    /// An observer that gives each event to a function. It is called on the threads that work, and holds them up.
    pub fn new(events: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self { events: Arc::new(events), cancelled: Arc::new(AtomicBool::new(false)) }
    }

    /// An observer that looks away.
    pub fn none() -> Self {
        Self::new(drop)
    }

    /// Makes what is observed stop at its next entry or piece of data.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn event(&self, event: Event) {
        (self.events)(event);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}
