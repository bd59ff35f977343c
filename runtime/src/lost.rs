//! What a store has lost: pods and containers that have directories, and no row.
//!
//! A store that cannot be read is set aside and begins empty, one may be missing or older than what runs, and single rows
//! may be damaged. The directories of pods hold the records that they were made by, so that what runs is adopted all the
//! same (P5); what they have of networks, the networks know. Owns: putting these records into the store before the actors begin, and saying so. Never: touches a pod.

use std::collections::HashSet;
use std::path::Path;
use std::time::SystemTime;

use mainstay_actors::ports::{Loaded, Store};
use mainstay_messages::Timestamp;
use mainstay_messages::error::Kind;
use mainstay_messages::event::{Fact, Subject, What};
use mainstay_messages::journal::{Change, Commit};
use mainstay_supervisor::paths::Directories;
use mainstay_supervisor::rebuilt::{Known, Rebuilt, rebuild};

use crate::networks::Networks;

/// Where what is lost is known beside the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    /// What pods and containers were asked for.
    pub(crate) directories: &'a Directories,
    /// What pods have of networks.
    pub(crate) networks: &'a Networks,
}

/// Adds to what the store holds what the directories of pods know beside it, here and in the store.
pub(crate) async fn bring_back(
    store: &dyn Store,
    loaded: &mut Loaded,
    places: Places<'_>,
    set_aside: Option<&Path>,
) {
    let known = Known {
        sandboxes: loaded.sandboxes.iter().map(|record| record.id.clone()).collect(),
        containers: loaded.containers.iter().map(|record| record.id.clone()).collect(),
    };
    let mut rebuilt = rebuild(places.directories, &known);
    for record in &mut rebuilt.sandboxes {
        record.network = places.networks.attached(&record.id);
    }
    for directory in &rebuilt.unreadable {
        tracing::error!(directory = %directory.display(), "no record names it and it holds none: see `mainstay audit`");
    }
    let commit = commit(&rebuilt, set_aside, Timestamp::from_system(SystemTime::now()));
    if commit.facts.is_empty() {
        return;
    }
    let (pods, containers) = (rebuilt.sandboxes.len(), rebuilt.containers.len());
    tracing::warn!(
        pods,
        containers,
        "records that the store has lost are rebuilt from the directories of pods"
    );
    match store.commit(commit).await {
        Ok(committed) => loaded.last = committed.last,
        // The actors write what they know with the next change of each object.
        Err(error) => tracing::error!(%error, "rebuilt records are not in the store yet"),
    }
    let Rebuilt { sandboxes, containers, .. } = rebuilt;
    let ids: HashSet<(Kind, &str)> = sandboxes
        .iter()
        .map(|record| (Kind::Sandbox, record.id.as_str()))
        .chain(containers.iter().map(|record| (Kind::Container, record.id.as_str())))
        .collect();
    loaded.damaged.retain(|damaged| !ids.contains(&(damaged.kind, damaged.id.as_str())));
    loaded.sandboxes.extend(sandboxes);
    loaded.containers.extend(containers);
}

fn commit(rebuilt: &Rebuilt, set_aside: Option<&Path>, at: Timestamp) -> Commit {
    let mut commit = Commit::default();
    let fact = |subject, what| Fact { at, subject, what };
    if let Some(moved_to) = set_aside {
        let subject = Subject { sandbox: None, container: None, exec: None };
        let moved_to = moved_to.display().to_string();
        commit.facts.push(fact(subject, What::StoreReplaced { moved_to }));
    }
    for record in &rebuilt.sandboxes {
        commit.changes.push(Change::PutSandbox(Box::new(record.clone())));
        commit.facts.push(fact(Subject::sandbox(&record.id), What::RecordRebuilt));
    }
    for record in &rebuilt.containers {
        commit.changes.push(Change::PutContainer(Box::new(record.clone())));
        commit.facts.push(fact(Subject::container(&record.sandbox, &record.id), What::RecordRebuilt));
    }
    commit
}
