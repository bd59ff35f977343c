//! How many messages a second pass through the router to a container and back, and how many decisions a second
//! the pure state of a container makes.

use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::future::join_all;
use mainstay_actors::container::state::{Input, State};
use mainstay_actors::fakes::FakeWorld;
use mainstay_actors::machine::{Machine, Now, Outcome};
use mainstay_actors::{CallId, Core, Routed};
use mainstay_messages::container::{MeasureContainer, StartContainer};
use mainstay_messages::record::ContainerRecord;
use mainstay_messages::router::{CreateContainer, RunSandbox};
use mainstay_messages::{ContainerId, ContainerSpec, Error, SandboxSpec, Timestamp};

/// Messages on their way at the same time.
const IN_FLIGHT: u64 = 128;

async fn running_container(core: &Core) -> ContainerId {
    let spec = SandboxSpec::new("pod".parse().expect("a name"));
    let sandbox = core.router.send(RunSandbox { spec }).await.expect("the router runs").expect("a pod");
    let spec = ContainerSpec::new("web".parse().expect("a name"), ["true"]);
    let create = CreateContainer { sandbox, spec };
    let container = core.router.send(create).await.expect("the router runs").expect("a container");
    let start = Routed(StartContainer { container: container.clone() });
    core.router.send(start).await.expect("the router runs").expect("it starts");
    container
}

fn routed(criterion: &mut Criterion) {
    let system = actix::System::new();
    let (core, container) = system.block_on(async {
        let core = FakeWorld::new().start();
        let container = running_container(&core).await;
        (core, container)
    });
    system.block_on(async {
        let start = Routed(StartContainer { container: container.clone() });
        let answer = core.router.send(start).await.expect("the router runs");
        assert!(matches!(answer, Err(Error::WrongPhase { .. })), "the container itself answers: {answer:?}");
        let before = core.counters.routed.get();
        let start = || Routed(StartContainer { container: container.clone() });
        let answers = join_all((0..IN_FLIGHT).map(|_| core.router.send(start()))).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Err(Error::WrongPhase { .. })))));
        assert_eq!(core.counters.routed.get() - before, IN_FLIGHT, "each goes through the router");
    });
    let mut group = criterion.benchmark_group("routing");
    group.throughput(Throughput::Elements(IN_FLIGHT));
    // A start of a running container is denied by the container itself: there and back, and nothing else.
    group.bench_function("to a container and back", |bencher| {
        bencher.iter_custom(|rounds| {
            system.block_on(async {
                let began = Instant::now();
                for _ in 0..rounds {
                    let start = || Routed(StartContainer { container: container.clone() });
                    join_all((0..IN_FLIGHT).map(|_| core.router.send(start()))).await;
                }
                began.elapsed()
            })
        });
    });
    group.bench_function("to the supervisor and back", |bencher| {
        bencher.iter_custom(|rounds| {
            system.block_on(async {
                let began = Instant::now();
                for _ in 0..rounds {
                    let measure = || Routed(MeasureContainer { container: container.clone() });
                    join_all((0..IN_FLIGHT).map(|_| core.router.send(measure()))).await;
                }
                began.elapsed()
            })
        });
    });
    group.finish();
}

fn decided(criterion: &mut Criterion) {
    let id = "c".parse().expect("an id");
    let sandbox = "s".parse().expect("an id");
    let spec = ContainerSpec::new("web".parse().expect("a name"), ["true"]);
    let record = ContainerRecord::intent(id, sandbox, spec.clone(), "/log".into(), Timestamp(1));
    let state = State::proposed(record);
    let mut group = criterion.benchmark_group("decisions");
    group.throughput(Throughput::Elements(2));
    group.bench_function("create, admitted", |bencher| {
        bencher.iter(|| {
            let create = Input::Create { call: CallId(1), spec: Box::new(spec.clone()) };
            let Outcome::Accept(plan) = state.decide(create, Now::default()) else {
                panic!("it is accepted")
            };
            let next = plan.next.expect("it changes");
            next.decide(Input::Admitted(Ok(())), Now::default())
        });
    });
    group.finish();
}

criterion_group!(benches, routed, decided);
criterion_main!(benches);
