//! A store in memory that can fail, hang and be slow.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, pending, ready};
use mainstay_messages::event::{Event, Seq};
use mainstay_messages::journal::{Change, Commit, Committed};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::{ContainerId, Error, Result, SandboxId};

use super::fence::Fence;
use crate::ports::{Damaged, EventFilter, EventPage, EventQuery, Loaded, Store};

/// See the module. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
    fence: Fence,
}

#[derive(Debug, Default)]
struct Inner {
    sandboxes: BTreeMap<SandboxId, SandboxRecord>,
    containers: BTreeMap<ContainerId, ContainerRecord>,
    damaged: Vec<Damaged>,
    events: Vec<Event>,
    last: Seq,
    fault: StoreFault,
    commits: u64,
}

/// What goes wrong with commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreFault {
    /// Nothing.
    #[default]
    None,
    /// They fail, as on a full disk.
    Fail,
    /// They are written, but the answer comes so much later, in milliseconds.
    Slow(u64),
    /// They are never answered.
    Hang,
}

impl MemoryStore {
    /// From now on commits go wrong like this.
    pub fn set_fault(&self, fault: StoreFault) {
        self.lock().fault = fault;
    }

    /// A row that cannot be read.
    pub fn damage(&self, damaged: Damaged) {
        self.lock().damaged.push(damaged);
    }

    /// All events that are kept.
    pub fn all_events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// The number of the last event.
    pub fn last(&self) -> Seq {
        self.lock().last
    }

    /// Commits that were written.
    pub fn commits(&self) -> u64 {
        self.lock().commits
    }

    /// Forgets all events up to this one.
    pub fn trim(&self, to: Seq) {
        self.lock().events.retain(|event| event.seq > to);
    }

    /// A container's durable record.
    pub fn container(&self, id: &ContainerId) -> Option<ContainerRecord> {
        self.lock().containers.get(id).cloned()
    }

    /// A sandbox's durable record.
    pub fn sandbox(&self, id: &SandboxId) -> Option<SandboxRecord> {
        self.lock().sandboxes.get(id).cloned()
    }

    pub(super) fn fence(&self) -> &Fence {
        &self.fence
    }

    pub(super) fn behind_a_new_fence(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), fence: Fence::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write(&mut self, commit: Commit) -> Committed {
        self.commits += 1;
        for change in commit.changes {
            match change {
                Change::PutSandbox(record) => drop(self.sandboxes.insert(record.id.clone(), *record)),
                Change::DeleteSandbox(id) => drop(self.sandboxes.remove(&id)),
                Change::PutContainer(record) => drop(self.containers.insert(record.id.clone(), *record)),
                Change::DeleteContainer(id) => {
                    self.damaged.retain(|damaged| damaged.id != id.as_str());
                    self.containers.remove(&id);
                }
            }
        }
        for fact in commit.facts {
            self.last = self.last.next();
            self.events.push(fact.numbered(self.last));
        }
        Committed { last: self.last }
    }
}

impl Store for MemoryStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Committed>> {
        if self.fence.is_closed() {
            return pending().boxed();
        }
        let mut inner = self.lock();
        match inner.fault {
            StoreFault::None => ready(Ok(inner.write(commit))).boxed(),
            StoreFault::Fail => {
                ready(Err(Error::unavailable("the store", "no space left on device"))).boxed()
            }
            StoreFault::Slow(ms) => {
                let committed = inner.write(commit);
                tokio::time::sleep(Duration::from_millis(ms)).map(move |()| Ok(committed)).boxed()
            }
            StoreFault::Hang => pending().boxed(),
        }
    }

    fn load(&self) -> BoxFuture<'static, Result<Loaded>> {
        let inner = self.lock();
        let loaded = Loaded {
            sandboxes: inner.sandboxes.values().cloned().collect(),
            containers: inner.containers.values().cloned().collect(),
            damaged: inner.damaged.clone(),
            last: inner.last,
            boot_id: None,
        };
        ready(Ok(loaded)).boxed()
    }

    fn load_container(&self, id: &ContainerId) -> BoxFuture<'static, Result<Option<ContainerRecord>>> {
        ready(Ok(self.container(id))).boxed()
    }

    fn load_sandbox(&self, id: &SandboxId) -> BoxFuture<'static, Result<Option<SandboxRecord>>> {
        ready(Ok(self.sandbox(id))).boxed()
    }

    fn events(&self, query: EventQuery) -> BoxFuture<'static, Result<EventPage>> {
        let inner = self.lock();
        let wanted = |event: &&Event| {
            let about = match &query.subject {
                None => true,
                Some(EventFilter::Sandbox(id)) => event.subject.sandbox.as_ref() == Some(id),
                Some(EventFilter::Container(id)) => event.subject.container.as_ref() == Some(id),
            };
            about && event.seq > query.after
        };
        let events = inner.events.iter().filter(wanted).take(query.limit).cloned().collect();
        let first_kept = inner.events.first().map_or(inner.last.next(), |event| event.seq);
        ready(Ok(EventPage { events, first_kept, last: inner.last })).boxed()
    }
}
