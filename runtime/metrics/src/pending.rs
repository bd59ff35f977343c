//! The objects of which something is left that could not be undone yet.
//!
//! Owns: who is among them, as the journal tells it. Never: more than [`PENDING_MAX`]; beyond that the number stands still.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use mainstay_messages::event::Subject;

/// The most objects that are remembered.
pub const PENDING_MAX: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<HashSet<String>>);

impl Pending {
    /// Something of it is left. Answers how many there are.
    pub(crate) fn left(&self, subject: &Subject) -> usize {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < PENDING_MAX
            && let Some(key) = key(subject)
        {
            pending.insert(key);
        }
        pending.len()
    }

    /// Nothing of it is left. Answers how many there are.
    pub(crate) fn gone(&self, subject: &Subject) -> usize {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = key(subject) {
            pending.remove(&key);
        }
        pending.len()
    }

    /// Nobody knows any more of what something is left.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn key(subject: &Subject) -> Option<String> {
    match (&subject.container, &subject.sandbox) {
        (Some(container), _) => Some(format!("container {container}")),
        (None, Some(sandbox)) => Some(format!("pod {sandbox}")),
        (None, None) => None,
    }
}
