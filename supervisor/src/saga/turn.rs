//! Whose turn it is to work on an object.
//!
//! Owns: that the sagas of one object follow one another, and so do their pieces of blocking work. Such a piece cannot be
//! stopped: a look at a file on a server that is gone lasts for as long as it lasts. Once its deadline has passed its step
//! has failed and is undone; were the undo not to wait for it, it would make afterwards what nobody takes away any more.
//! Never: lets one object wait for another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};
use std::time::Duration;

use mainstay_messages::{ContainerId, Error, Result};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::machine::Machine;
use crate::movement::Movement;

#[cfg(test)]
mod tests;

/// The objects that are being worked on.
#[derive(Debug, Default)]
pub(crate) struct Turns(StdMutex<HashMap<String, Weak<Object>>>);

#[derive(Debug, Default)]
struct Object {
    sagas: Arc<Mutex<()>>,
    pieces: Arc<Mutex<()>>,
}

/// The right to work on one object, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    object: Arc<Object>,
    name: String,
    machine: Arc<Machine>,
    _held: OwnedMutexGuard<()>,
}

impl Turns {
    /// The object of this name. Objects that nobody works on are forgotten.
    fn object(&self, name: &str) -> Arc<Object> {
        // Each change of the map is one call, so that a poisoned lock holds a sound map.
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = objects.get(name).and_then(Weak::upgrade) {
            return object;
        }
        objects.retain(|_, object| object.strong_count() > 0);
        let object = Arc::default();
        objects.insert(name.to_owned(), Arc::downgrade(&object));
        object
    }
}

impl Turn {
    /// Waits until no other saga works on the object that `name` says, such as `pod ID`.
    pub async fn take(machine: &Arc<Machine>, name: String) -> Result<Self> {
        let object = machine.turns.object(&name);
        let held = within(machine, &name, Arc::clone(&object.sagas)).await?;
        Ok(Self { object, name, machine: Arc::clone(machine), _held: held })
    }

    /// Waits until no other saga works on a container.
    pub async fn of_container(machine: &Arc<Machine>, container: &ContainerId) -> Result<Self> {
        Self::take(machine, format!("container {container}")).await
    }

    /// What [`Machine::blocking`] does, after all earlier pieces of work on this object, whether somebody still waits for
    /// them or not.
    pub async fn blocking<T: Send + 'static>(
        &self,
        what: impl Into<String>,
        work: impl FnOnce(&Machine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.blocking_within(what, self.machine.settings.timeouts.files_ms, work).await
    }

    /// The same with another deadline.
    pub async fn blocking_within<T: Send + 'static>(
        &self,
        what: impl Into<String>,
        after_ms: u64,
        work: impl FnOnce(&Machine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.blocking_while_moving(what, after_ms, &Movement::default(), work).await
    }

    /// What [`Machine::blocking_while_moving`] does, likewise.
    pub async fn blocking_while_moving<T: Send + 'static>(
        &self,
        what: impl Into<String>,
        silence_ms: u64,
        movement: &Movement,
        work: impl FnOnce(&Machine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let held = within(&self.machine, &self.name, Arc::clone(&self.object.pieces)).await?;
        // So that whoever waits for this piece finds the same object.
        let object = Arc::clone(&self.object);
        let piece = move |machine: &Machine| {
            let _kept = (held, object);
            work(machine)
        };
        self.machine.blocking_while_moving(what, silence_ms, movement, piece).await
    }
}

async fn within(machine: &Machine, name: &str, lock: Arc<Mutex<()>>) -> Result<OwnedMutexGuard<()>> {
    let after_ms = machine.settings.timeouts.files_ms;
    tokio::time::timeout(Duration::from_millis(after_ms), lock.lock_owned()).await.map_err(|_| {
        Error::DeadlineExceeded { what: format!("earlier work on {name}, which has to end first,"), after_ms }
    })
}
