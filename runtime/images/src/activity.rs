//! What is going on: which blobs are being fetched, which layers unpacked, and what running pulls hold.
//!
//! Everything here dies with the process. Whoever wants something holds it first and looks it up then, under one lock;
//! garbage collection takes the same lock to decide, so it never takes what somebody has just found.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use mainstay_oci_image::Digest;

use crate::error::{ImagesError, Result};

/// How much of something that is under way there is, and how it ended.
#[derive(Debug, Default)]
pub(crate) struct Work {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct State {
    /// Bytes that can be read.
    pub(crate) written: u64,
    /// Rises when the bytes start anew.
    pub(crate) round: u64,
    pub(crate) end: Option<End>,
}

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is whole, and recorded.
    Complete,
    /// Whoever was at it stopped.
    Stopped,
}

/// The table of everything that is going on.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) blobs: HashMap<Digest, Arc<Work>>,
    /// By chain.
    pub(crate) layers: HashMap<Digest, Arc<Work>>,
    held_blobs: HashMap<Digest, usize>,
    held_chains: HashMap<Digest, usize>,
}

impl Work {
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits until `look` finds something.
    pub(crate) fn wait<T>(&self, mut look: impl FnMut(&State) -> Option<T>) -> T {
        let mut state = self.state();
        loop {
            if let Some(found) = look(&state) {
                return found;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the end.
    pub(crate) fn finished(&self, what: impl FnOnce() -> String) -> Result<()> {
        match self.wait(|state| state.end) {
            End::Complete => Ok(()),
            End::Stopped => Err(ImagesError::Interrupted { what: what() }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can panic between two changes of what the lock guards.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        // As above.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    pub(crate) fn hold_blob(&mut self, digest: &Digest) {
        *self.held_blobs.entry(digest.clone()).or_default() += 1;
    }

    pub(crate) fn hold_chain(&mut self, chain: &Digest) {
        *self.held_chains.entry(chain.clone()).or_default() += 1;
    }

    pub(crate) fn release(&mut self, blobs: &[Digest], chains: &[Digest]) {
        release(&mut self.held_blobs, blobs);
        release(&mut self.held_chains, chains);
    }

    /// Whether garbage collection must leave a blob alone.
    pub(crate) fn needs_blob(&self, digest: &Digest) -> bool {
        self.held_blobs.contains_key(digest) || self.blobs.contains_key(digest)
    }

    /// Whether garbage collection must leave the layer of a chain alone.
    pub(crate) fn needs_chain(&self, chain: &Digest) -> bool {
        self.held_chains.contains_key(chain) || self.layers.contains_key(chain)
    }
}

fn release(held: &mut HashMap<Digest, usize>, digests: &[Digest]) {
    for digest in digests {
        if let Some(count) = held.get_mut(digest) {
            *count -= 1;
            if *count == 0 {
                held.remove(digest);
            }
        }
    }
}
