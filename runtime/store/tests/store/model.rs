//! Any sequence of commits and restarts leaves what a simple map would hold.

use std::collections::BTreeMap;

use futures::executor::block_on;
use futures::future::join_all;
use mainstay_actors::ports::{EventQuery, Store};
use mainstay_messages::event::{Event, Seq};
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::{ContainerId, SandboxId, Timestamp};
use mainstay_store::SqliteStore;
use proptest::prelude::*;

use crate::samples::{container, options, sandbox, started};

#[derive(Clone, Debug)]
enum Step {
    /// Commits that are all asked for before the first one is awaited.
    Commits(Vec<Commit>),
    Restart,
}

#[derive(Debug, Default, PartialEq)]
struct Model {
    sandboxes: BTreeMap<SandboxId, SandboxRecord>,
    containers: BTreeMap<ContainerId, ContainerRecord>,
    events: Vec<Event>,
}

impl Model {
    fn apply(&mut self, commit: Commit) -> Seq {
        for change in commit.changes {
            match change {
                Change::PutSandbox(record) => drop(self.sandboxes.insert(record.id.clone(), *record)),
                Change::DeleteSandbox(id) => drop(self.sandboxes.remove(&id)),
                Change::PutContainer(record) => drop(self.containers.insert(record.id.clone(), *record)),
                Change::DeleteContainer(id) => drop(self.containers.remove(&id)),
            }
        }
        for fact in commit.facts {
            let seq = self.last().next();
            self.events.push(fact.numbered(seq));
        }
        self.last()
    }

    fn last(&self) -> Seq {
        Seq(self.events.len() as u64)
    }

    fn of(store: &SqliteStore) -> Self {
        let loaded = block_on(store.load()).expect("readable");
        assert_eq!(loaded.damaged, []);
        let page = block_on(store.events(EventQuery { after: Seq(0), limit: 10_000, subject: None }));
        let model = Self {
            sandboxes: loaded.sandboxes.into_iter().map(|record| (record.id.clone(), record)).collect(),
            containers: loaded.containers.into_iter().map(|record| (record.id.clone(), record)).collect(),
            events: page.expect("readable").events,
        };
        assert_eq!(model.last(), loaded.last);
        model
    }
}

fn change() -> impl Strategy<Value = Change> {
    (0..4u8, 0..4u8, any::<u32>()).prop_map(|(what, id, mark)| {
        let id = format!("id{id}");
        match what {
            0 => {
                let mut record = sandbox(&id);
                record.reason = Some(format!("'{mark}\""));
                Change::PutSandbox(Box::new(record))
            }
            1 => Change::DeleteSandbox(id.parse().expect("good")),
            2 => {
                let mut record = container(&id, "id0");
                record.started_at = Some(Timestamp(u64::from(mark) << 32));
                Change::PutContainer(Box::new(record))
            }
            _ => Change::DeleteContainer(id.parse().expect("good")),
        }
    })
}

fn commit() -> impl Strategy<Value = Commit> {
    let facts = prop::collection::vec(any::<u32>().prop_map(|pid| started("id0", "id1", pid)), 0..4);
    (prop::collection::vec(change(), 0..4), facts).prop_map(|(changes, facts)| Commit { changes, facts })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(commit(), 1..8).prop_map(Step::Commits),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_store_equals_a_map(steps in prop::collection::vec(step(), 1..12)) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store.db");
        let open = || SqliteStore::open(&path, options()).expect("opens").store;
        let mut store = open();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Restart => {
                    drop(store);
                    store = open();
                }
                Step::Commits(commits) => {
                    let answers: Vec<_> = commits.iter().map(|commit| store.commit(commit.clone())).collect();
                    for (commit, answer) in commits.into_iter().zip(block_on(join_all(answers))) {
                        prop_assert_eq!(answer.expect("written").last, model.apply(commit));
                    }
                }
            }
            prop_assert_eq!(&Model::of(&store), &model);
        }
        drop(store);
        prop_assert_eq!(&Model::of(&open()), &model);
    }
}
