//! One at a time, by key: whoever is inside works, the others wait in the order in which they came.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// The gates, by key. A gate that nobody uses is not kept.
#[derive(Debug)]
pub(crate) struct Gates<K> {
    gates: Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>,
}

/// Being inside, until it is dropped.
#[derive(Debug)]
pub(crate) struct Passage<K: Eq + Hash> {
    gates: Arc<Gates<K>>,
    key: K,
    /// None only while it is dropped.
    inside: Option<OwnedMutexGuard<()>>,
}

impl<K: Clone + Debug + Eq + Hash> Gates<K> {
    /// Passes the gate of `key`. `waits` is called when somebody is inside; what it gives is kept during the wait.
    pub(crate) async fn enter<W>(self: &Arc<Self>, key: &K, waits: impl FnOnce() -> W) -> Passage<K> {
        let gate = Arc::clone(self.lock().entry(key.clone()).or_default());
        let inside = match Arc::clone(&gate).try_lock_owned() {
            Ok(inside) => inside,
            Err(_) => {
                let _wait = waits();
                gate.lock_owned().await
            }
        };
        Passage { gates: Arc::clone(self), key: key.clone(), inside: Some(inside) }
    }
}

impl<K> Gates<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<tokio::sync::Mutex<()>>>> {
        // The map is sound after each of its steps.
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Default for Gates<K> {
    fn default() -> Self {
        Self { gates: Mutex::new(HashMap::new()) }
    }
}

impl<K: Eq + Hash> Drop for Passage<K> {
    fn drop(&mut self) {
        let mut gates = self.gates.lock();
        self.inside = None;
        // One is the map's own. Those who wait hold one each, and get it under the same lock.
        if gates.get(&self.key).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            gates.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_nothing_is_kept() {
        let gates: Arc<Gates<u8>> = Arc::default();
        let first = gates.enter::<()>(&1, || panic!("nobody is inside")).await;
        let other = gates.enter::<()>(&2, || panic!("nobody is inside")).await;
        let waited = Cell::new(false);
        let mut second = Box::pin(gates.enter(&1, || waited.set(true)));
        assert!(futures::poll!(&mut second).is_pending() && waited.get());
        drop(first);
        let second = second.await;
        assert_eq!(gates.lock().len(), 2);
        drop((second, other));
        assert!(gates.lock().is_empty());
    }

    /// A pull that is cancelled while it waits must not leave its gate behind for ever; the next who passes clears it.
    #[tokio::test]
    async fn one_who_gives_up_waiting_is_forgotten() {
        let gates: Arc<Gates<u8>> = Arc::default();
        let first = gates.enter(&1, || ()).await;
        {
            let mut second = Box::pin(gates.enter(&1, || ()));
            assert!(futures::poll!(&mut second).is_pending());
        }
        drop(first);
        assert!(gates.lock().is_empty());
    }
}
