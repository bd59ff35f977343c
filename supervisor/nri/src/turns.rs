//! Whose turn it is to be told of.
//!
//! Owns: that the events of one pod, its containers' among them, are told one after the other. Never: lets a pod wait for
//! another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};

use mainstay_messages::SandboxId;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The pods of which plugins are being told.
#[derive(Debug, Default)]
pub(crate) struct PodTurns(StdMutex<HashMap<SandboxId, Weak<Mutex<()>>>>);

impl PodTurns {
    /// Waits until nothing else of this pod is being told.
    pub(crate) async fn take(&self, pod: &SandboxId) -> OwnedMutexGuard<()> {
        self.of(pod).lock_owned().await
    }

    fn of(&self, pod: &SandboxId) -> Arc<Mutex<()>> {
        // Each change of the map is one call, so that a poisoned lock holds a sound map.
        let mut pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = pods.get(pod).and_then(Weak::upgrade) {
            return turn;
        }
        pods.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        pods.insert(pod.clone(), Arc::downgrade(&turn));
        turn
    }
}
