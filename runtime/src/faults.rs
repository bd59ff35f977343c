//! The places where tests strike, those of the sagas and those of the durable writes. Only with the feature `faults`.
//!
//! Every write of the store is two places, `commit.WHAT.before` and `commit.WHAT.after`, where `WHAT` is the record that is
//! written and its phase, or that it is deleted, or `facts` for a write without a record. Every file that is written to be found
//! again is two, `write.FILE.before` and `write.FILE.after`. See [`mainstay_supervisor::faults`] for what can happen there and
//! how it is asked for.

use std::sync::Arc;

use futures::future::BoxFuture;
use mainstay_actors::ports::{EventPage, EventQuery, Loaded, Store};
use mainstay_messages::event::Bearer;
use mainstay_messages::journal::{Change, Commit, Committed};
use mainstay_messages::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use mainstay_messages::{ContainerId, Name, Result, SandboxId};
pub use mainstay_supervisor::faults::{FAULTS_DIRECTORY, HELD, Moment, shim_points};
use mainstay_supervisor::faults::{is_set, reach};

/// All places but those of shims ([`shim_points`]), in the usual order.
pub fn points() -> Vec<String> {
    let sandboxes = SandboxPhase::ALL.iter().map(|phase| sandbox(phase.word()));
    let containers = ContainerPhase::ALL.iter().map(|phase| container(phase.word()));
    let gone = [sandbox(DELETED), container(DELETED), FACTS.to_owned()];
    let commits = sandboxes.chain(containers).chain(gone);
    let commits = commits.flat_map(|what| Moment::ALL.map(|moment| point(&what, moment)));
    mainstay_supervisor::faults::points().into_iter().chain(commits).collect()
}

/// The word for a record that is deleted.
const DELETED: &str = "deleted";
/// The word for a write without a record.
const FACTS: &str = "facts";

fn sandbox(phase: &str) -> String {
    format!("sandbox-{}", phase.replace(' ', "-"))
}

fn container(phase: &str) -> String {
    format!("container-{}", phase.replace(' ', "-"))
}

fn point(what: &str, moment: Moment) -> String {
    format!("commit.{what}.{}", moment.word())
}

/// What a commit writes.
fn what(commit: &Commit) -> String {
    match commit.changes.first() {
        Some(Change::PutSandbox(record)) => sandbox(record.phase.word()),
        Some(Change::PutContainer(record)) => container(record.phase.word()),
        Some(Change::DeleteSandbox(_)) => sandbox(DELETED),
        Some(Change::DeleteContainer(_)) => container(DELETED),
        None => FACTS.to_owned(),
    }
}

/// A store whose writes pass the places.
pub(crate) struct StruckStore {
    store: Arc<dyn Store>,
}

impl StruckStore {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

impl Store for StruckStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Committed>> {
        let what = what(&commit);
        let (before, after) = (point(&what, Moment::Before), point(&what, Moment::After));
        if !is_set(&before) && !is_set(&after) {
            // Called here and now, so that the order of the calls is that of the writes.
            return self.store.commit(commit);
        }
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            reach(&before).await?;
            let committed = store.commit(commit).await?;
            // Whoever is told that it failed repeats it; here it is not.
            reach(&after).await.map(|_| committed)
        })
    }

    fn load(&self) -> BoxFuture<'static, Result<Loaded>> {
        self.store.load()
    }

    fn load_container(&self, id: &ContainerId) -> BoxFuture<'static, Result<Option<ContainerRecord>>> {
        self.store.load_container(id)
    }

    fn load_sandbox(&self, id: &SandboxId) -> BoxFuture<'static, Result<Option<SandboxRecord>>> {
        self.store.load_sandbox(id)
    }

    fn events(&self, query: EventQuery) -> BoxFuture<'static, Result<EventPage>> {
        self.store.events(query)
    }

    fn bearers(&self, name: &Name) -> BoxFuture<'static, Result<Vec<Bearer>>> {
        self.store.bearers(name)
    }
}
