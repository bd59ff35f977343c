//! The published snapshots: readers list, inspect and wait here, without asking any actor (P6).
//!
//! The lock is held only to find or clone pointers. Each object has a watch channel of its own, whose last
//! value stays with whoever watches when the object is gone. Only actors publish, through `Publisher`; a
//! directory never changes anything by itself and never does IO.

mod resolve;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use mainstay_messages::record::{ContainerSnapshot, ExecSnapshot, SandboxSnapshot};
use mainstay_messages::{ContainerId, ExecId, SandboxId};
use tokio::sync::watch;

/// What readers see. Cheap to clone.
#[derive(Clone, Default)]
pub struct Directory {
    shelves: Arc<RwLock<Shelves>>,
}

/// The writing half, which only actors have.
#[derive(Clone)]
pub(crate) struct Publisher {
    directory: Directory,
}

#[derive(Default)]
struct Shelves {
    sandboxes: Shelf<SandboxId, SandboxSnapshot>,
    containers: Shelf<ContainerId, ContainerSnapshot>,
    execs: Shelf<ExecId, ExecSnapshot>,
}

/// The snapshots of one kind of object.
struct Shelf<K, S> {
    objects: BTreeMap<K, watch::Sender<Arc<S>>>,
}

impl<K, S> Default for Shelf<K, S> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, S> Shelf<K, S> {
    fn get(&self, id: &K) -> Option<Arc<S>> {
        self.objects.get(id).map(|object| Arc::clone(&object.borrow()))
    }

    fn watch(&self, id: &K) -> Option<watch::Receiver<Arc<S>>> {
        self.objects.get(id).map(watch::Sender::subscribe)
    }

    fn all(&self) -> Vec<Arc<S>> {
        self.objects.values().map(|object| Arc::clone(&object.borrow())).collect()
    }
}

impl Directory {
    /// All sandboxes, by id.
    pub fn sandboxes(&self) -> Vec<Arc<SandboxSnapshot>> {
        self.read().sandboxes.all()
    }

    /// All containers, or those of one sandbox, by id.
    pub fn containers(&self, sandbox: Option<&SandboxId>) -> Vec<Arc<ContainerSnapshot>> {
        let mut containers = self.read().containers.all();
        if let Some(sandbox) = sandbox {
            containers.retain(|container| container.record.sandbox == *sandbox);
        }
        containers
    }

    /// The execs of a container that run, and the last of those that have ended, by id.
    pub fn execs(&self, container: &ContainerId) -> Vec<Arc<ExecSnapshot>> {
        let mut execs = self.read().execs.all();
        execs.retain(|exec| exec.container == *container);
        execs
    }

    /// A sandbox.
    pub fn sandbox(&self, id: &SandboxId) -> Option<Arc<SandboxSnapshot>> {
        self.read().sandboxes.get(id)
    }

    /// A container.
    pub fn container(&self, id: &ContainerId) -> Option<Arc<ContainerSnapshot>> {
        self.read().containers.get(id)
    }

    /// An exec.
    pub fn exec(&self, id: &ExecId) -> Option<Arc<ExecSnapshot>> {
        self.read().execs.get(id)
    }

    /// A sandbox's snapshots from now on. The channel closes when the sandbox is gone; its last value stays.
    pub fn watch_sandbox(&self, id: &SandboxId) -> Option<watch::Receiver<Arc<SandboxSnapshot>>> {
        self.read().sandboxes.watch(id)
    }

    /// A container's snapshots from now on. The channel closes when the container is gone; its last value stays.
    ///
    /// ```no_run
    /// # async fn example(directory: mainstay_actors::Directory, id: mainstay_messages::ContainerId) {
    /// if let Some(mut container) = directory.watch_container(&id) {
    ///     let ended = container.wait_for(|snapshot| snapshot.record.exit.is_some()).await;
    ///     println!("{:?}", ended.map(|snapshot| snapshot.record.exit.clone()));
    /// }
    /// # }
    /// ```
    pub fn watch_container(&self, id: &ContainerId) -> Option<watch::Receiver<Arc<ContainerSnapshot>>> {
        self.read().containers.watch(id)
    }

    /// An exec's snapshots from now on. The channel closes when the exec is forgotten; its last value stays.
    pub fn watch_exec(&self, id: &ExecId) -> Option<watch::Receiver<Arc<ExecSnapshot>>> {
        self.read().execs.watch(id)
    }

    fn read(&self) -> RwLockReadGuard<'_, Shelves> {
        // Nothing that can panic runs under the lock, so a poisoned one holds sound data.
        self.shelves.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelves> {
        self.shelves.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader's value changes; a first value makes the object.
macro_rules! publish {
    ($directory:expr, $shelf:ident, $id:expr, $snapshot:expr) => {{
        let snapshot = $snapshot;
        if let Some(object) = $directory.read().$shelf.objects.get($id) {
            object.send_replace(snapshot);
            return;
        }
        $directory.write().$shelf.objects.insert($id.clone(), watch::Sender::new(snapshot));
    }};
}

impl Publisher {
    /// The writing half of `directory`.
    pub(crate) fn new(directory: Directory) -> Self {
        Self { directory }
    }

    /// The reading half.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Shows a sandbox.
    pub(crate) fn sandbox(&self, snapshot: SandboxSnapshot) {
        let snapshot = Arc::new(snapshot);
        publish!(self.directory, sandboxes, &snapshot.record.id, Arc::clone(&snapshot));
    }

    /// Shows a container.
    pub(crate) fn container(&self, snapshot: ContainerSnapshot) {
        let snapshot = Arc::new(snapshot);
        publish!(self.directory, containers, &snapshot.record.id, Arc::clone(&snapshot));
    }

    /// Shows an exec.
    pub(crate) fn exec(&self, snapshot: Arc<ExecSnapshot>) {
        publish!(self.directory, execs, &snapshot.id, Arc::clone(&snapshot));
    }

    /// A sandbox is gone.
    pub(crate) fn sandbox_gone(&self, id: &SandboxId) {
        self.directory.write().sandboxes.objects.remove(id);
    }

    /// A container is gone.
    pub(crate) fn container_gone(&self, id: &ContainerId) {
        self.directory.write().containers.objects.remove(id);
    }

    /// An exec is forgotten.
    pub(crate) fn exec_gone(&self, id: &ExecId) {
        self.directory.write().execs.objects.remove(id);
    }
}
