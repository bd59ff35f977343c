//! What a durable journal entry costs: alone, and when many are on their way at once.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use futures::executor::block_on;
use futures::future::join_all;
use mainstay_actors::ports::Store;
use mainstay_messages::event::{Fact, Subject, What};
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::record::ContainerRecord;
use mainstay_messages::{ContainerId, ContainerSpec, SandboxId, Timestamp};
use mainstay_store::{Options, SqliteStore};

/// Commits on their way at once.
const GROUP: u64 = 256;

fn fact() -> Fact {
    let (sandbox, container) = ids();
    Fact {
        at: Timestamp(1_700_000_000_000_000_000),
        subject: Subject::container(&sandbox, &container),
        what: What::ContainerStarted { pid: 4_711 },
    }
}

fn record() -> ContainerRecord {
    let (sandbox, container) = ids();
    let spec = ContainerSpec::new("bench".parse().expect("a good name"), ["sleep", "1"]);
    ContainerRecord::intent(container, sandbox, spec, "/var/log/bench".into(), Timestamp(1))
}

fn ids() -> (SandboxId, ContainerId) {
    (SandboxId::from_random([1; 16]), ContainerId::from_random([2; 16]))
}

fn append(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a directory");
    let store =
        SqliteStore::open(directory.path().join("store.db"), Options::new("bench")).expect("opens").store;
    let entry = Commit { changes: vec![], facts: vec![fact()] };
    let change = Commit { changes: vec![Change::PutContainer(Box::new(record()))], facts: vec![fact()] };

    let mut group = criterion.benchmark_group("append");
    for (name, commit) in [("entry", &entry), ("record and entry", &change)] {
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("single {name}"), |bencher| {
            bencher.iter_batched(
                || commit.clone(),
                |commit| block_on(store.commit(commit)).expect("written"),
                BatchSize::SmallInput,
            );
        });
        group.throughput(Throughput::Elements(GROUP));
        group.bench_function(format!("grouped {name}"), |bencher| {
            bencher.iter_batched(
                || vec![commit.clone(); GROUP as usize],
                |commits| block_on(join_all(commits.into_iter().map(|commit| store.commit(commit)))),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, append);
criterion_main!(benches);
