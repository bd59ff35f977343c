//! What one running operation (a pull, an import, an export) keeps from garbage collection.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use mainstay_oci_image::Digest;

use crate::activity::Tables;
use crate::images::Inner;

/// Keeps everything that was asked for through it from garbage collection, until it is dropped or the process ends.
/// Through it blobs are claimed ([`Hold::blob`]), layers unpacked ([`Hold::layer`]) and images recorded ([`Hold::record`]).
#[derive(Debug)]
pub struct Hold {
    inner: Arc<Inner>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    blobs: HashSet<Digest>,
    chains: HashSet<Digest>,
}

impl Hold {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, kept: Mutex::default() }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn keep_blob(&self, tables: &mut Tables, digest: &Digest) {
        if self.kept().blobs.insert(digest.clone()) {
            tables.hold_blob(digest);
        }
    }

    pub(crate) fn keep_chain(&self, tables: &mut Tables, chain: &Digest) {
        if self.kept().chains.insert(chain.clone()) {
            tables.hold_chain(chain);
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        // Nothing can panic between two changes of what the lock guards.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut *self.kept());
        let (blobs, chains): (Vec<_>, Vec<_>) =
            (kept.blobs.into_iter().collect(), kept.chains.into_iter().collect());
        self.inner.activity.tables().release(&blobs, &chains);
    }
}
