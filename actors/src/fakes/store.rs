//! A store in memory that can fail, hang and be slow.
//!
//! It keeps the order that the real store keeps with its one writer: commits become durable, and are answered, in
//! the order of the calls, so one that is slow holds up those behind it. Readers see what is durable.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, pending, ready};
use mainstay_messages::event::{Bearer, Event, Seq, Subject};
use mainstay_messages::journal::{Change, Commit, Committed};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::{ContainerId, Error, Name, Result, SandboxId, Timestamp};
use tokio::time::Instant;

use super::fence::Fence;
use crate::ports::{BEARERS_MAX, Damaged, EventFilter, EventPage, EventQuery, Loaded, Store};

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
    /// Those who have or had a name, the oldest first.
    bearers: Vec<(Name, Bearer)>,
    last: Seq,
    fault: StoreFault,
    director: Director,
    commits: u64,
    /// Commits that have not been written, in the order of the calls.
    queue: VecDeque<(u64, Commit)>,
    /// What became of those that were written by one behind them.
    written: BTreeMap<u64, Committed>,
    calls: u64,
    /// Before this nothing that is called now becomes durable.
    durable_at: Option<Instant>,
    /// Before this nothing that is called now is answered.
    answered_at: Option<Instant>,
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
    /// They become durable so much later, and the answer comes after that, in milliseconds.
    Late {
        /// Until it is durable.
        durable_ms: u64,
        /// From then until the answer.
        answer_ms: u64,
    },
    /// They are never written and never answered.
    Hang,
}

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreCall<'a> {
    /// To write this.
    Commit(&'a Commit),
    /// To read something.
    Read,
}

/// Who decides how each call goes.
#[derive(Default)]
struct Director(Option<Decide>);

type Decide = Box<dyn FnMut(StoreCall<'_>) -> StoreFault + Send>;

impl fmt::Debug for Director {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Director")
    }
}

impl MemoryStore {
    /// From now on commits go wrong like this.
    pub fn set_fault(&self, fault: StoreFault) {
        self.lock().fault = fault;
    }

    /// From now on this decides about each call that the fault leaves alone. A read can fail or hang.
    pub fn set_director(&self, director: impl FnMut(StoreCall<'_>) -> StoreFault + Send + 'static) {
        self.lock().director = Director(Some(Box::new(director)));
    }

    /// All goes well again.
    pub fn behave(&self) {
        let mut inner = self.lock();
        inner.fault = StoreFault::None;
        inner.director = Director::default();
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

    /// The events above this number.
    pub fn events_after(&self, seq: Seq) -> Vec<Event> {
        let inner = self.lock();
        let first = inner.events.partition_point(|event| event.seq <= seq);
        inner.events[first..].to_vec()
    }

    /// The ids of all records.
    pub fn ids(&self) -> (Vec<SandboxId>, Vec<ContainerId>) {
        let inner = self.lock();
        (inner.sandboxes.keys().cloned().collect(), inner.containers.keys().cloned().collect())
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

    /// The daemon is killed: what was not written is lost.
    pub(super) fn behind_a_new_fence(&self) -> Self {
        let mut inner = self.lock();
        inner.queue.clear();
        inner.written.clear();
        (inner.durable_at, inner.answered_at) = (None, None);
        drop(inner);
        Self { inner: Arc::clone(&self.inner), fence: Fence::default() }
    }

    /// The answer to a commit that fails when its turn comes.
    fn failure(&self, mut inner: MutexGuard<'_, Inner>) -> BoxFuture<'static, Result<Committed>> {
        let (_, _, answered_at) = inner.take_place(0, 0);
        let failure = Err(Error::unavailable("the store", "no space left on device"));
        match answered_at <= Instant::now() {
            true => ready(failure).boxed(),
            false => tokio::time::sleep_until(answered_at).map(|()| failure).boxed(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn fault(&mut self, call: StoreCall<'_>) -> StoreFault {
        match (self.fault, &mut self.director.0) {
            (StoreFault::None, Some(director)) => director(call),
            (fault, _) => fault,
        }
    }

    /// The answer to a read that goes wrong.
    fn unread<T: Send + 'static>(&mut self) -> Option<BoxFuture<'static, Result<T>>> {
        // A disk that cannot be written to can still be read.
        let fault = self.director.0.as_mut().map_or(StoreFault::None, |director| director(StoreCall::Read));
        match fault {
            StoreFault::Fail => {
                Some(ready(Err(Error::unavailable("the store", "input/output error"))).boxed())
            }
            StoreFault::Hang => Some(pending().boxed()),
            StoreFault::None | StoreFault::Slow(_) | StoreFault::Late { .. } => None,
        }
    }

    /// Takes its place behind those that came before; answers the number of the call and when it is durable and
    /// answered.
    fn take_place(&mut self, durable_ms: u64, answer_ms: u64) -> (u64, Instant, Instant) {
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        let durable_at = after(durable_ms).max(self.durable_at.unwrap_or(now));
        let answered_at =
            (durable_at + Duration::from_millis(answer_ms)).max(self.answered_at.unwrap_or(now));
        (self.durable_at, self.answered_at) = (Some(durable_at), Some(answered_at));
        self.calls += 1;
        (self.calls, durable_at, answered_at)
    }

    /// Writes all up to this one; answers what became of it.
    fn write_up_to(&mut self, call: u64) -> Option<Committed> {
        while self.queue.front().is_some_and(|(first, _)| *first <= call) {
            let Some((first, commit)) = self.queue.pop_front() else { break };
            let committed = self.write(commit);
            self.written.insert(first, committed);
        }
        self.written.remove(&call)
    }

    fn write(&mut self, commit: Commit) -> Committed {
        self.commits += 1;
        for change in commit.changes {
            match change {
                Change::PutSandbox(record) => {
                    self.has_name(record.name(), Subject::sandbox(&record.id), record.created_at);
                    self.sandboxes.insert(record.id.clone(), *record);
                }
                Change::DeleteSandbox(id) => drop(self.sandboxes.remove(&id)),
                Change::PutContainer(record) => {
                    let subject = Subject::container(&record.sandbox, &record.id);
                    self.has_name(record.name(), subject, record.created_at);
                    self.containers.insert(record.id.clone(), *record);
                }
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

    fn has_name(&mut self, name: &Name, subject: Subject, created_at: Timestamp) {
        let bearer = Bearer { subject, created_at };
        if !self.bearers.iter().any(|(_, known)| *known == bearer) {
            self.bearers.push((name.clone(), bearer));
        }
    }
}

impl Store for MemoryStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Committed>> {
        if self.fence.is_closed() {
            return pending().boxed();
        }
        let mut inner = self.lock();
        let (durable_ms, answer_ms) = match inner.fault(StoreCall::Commit(&commit)) {
            StoreFault::None => (0, 0),
            StoreFault::Slow(ms) => (0, ms),
            StoreFault::Late { durable_ms, answer_ms } => (durable_ms, answer_ms),
            StoreFault::Fail => return self.failure(inner),
            StoreFault::Hang => return pending().boxed(),
        };
        let (call, durable_at, answered_at) = inner.take_place(durable_ms, answer_ms);
        inner.queue.push_back((call, commit));
        let now = Instant::now();
        let early = if durable_at <= now { inner.write_up_to(call) } else { None };
        drop(inner);
        let store = self.clone();
        async move {
            let committed = match early {
                Some(committed) => Some(committed),
                None => {
                    tokio::time::sleep_until(durable_at).await;
                    if store.fence.is_closed() {
                        return pending().await;
                    }
                    store.lock().write_up_to(call)
                }
            };
            if answered_at > now {
                tokio::time::sleep_until(answered_at).await;
            }
            // Written by this call or by one behind it, and answered once.
            committed.ok_or_else(|| Error::internal("the store", "a commit was written twice"))
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'static, Result<Loaded>> {
        let mut inner = self.lock();
        if let Some(unread) = inner.unread() {
            return unread;
        }
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
        let unread = self.lock().unread();
        unread.unwrap_or_else(|| ready(Ok(self.container(id))).boxed())
    }

    fn load_sandbox(&self, id: &SandboxId) -> BoxFuture<'static, Result<Option<SandboxRecord>>> {
        let unread = self.lock().unread();
        unread.unwrap_or_else(|| ready(Ok(self.sandbox(id))).boxed())
    }

    fn events(&self, query: EventQuery) -> BoxFuture<'static, Result<EventPage>> {
        let mut inner = self.lock();
        if let Some(unread) = inner.unread() {
            return unread;
        }
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

    fn bearers(&self, name: &Name) -> BoxFuture<'static, Result<Vec<Bearer>>> {
        let mut inner = self.lock();
        if let Some(unread) = inner.unread() {
            return unread;
        }
        let named = inner.bearers.iter().rev().filter(|(known, _)| known == name);
        let found = named.map(|(_, bearer)| bearer.clone()).take(BEARERS_MAX).collect();
        ready(Ok(found)).boxed()
    }
}
