//! Exits that are on their way to the journal while their container is removed: a removal goes on while the store fails.
//! Whoever asks about such a process, now or after a restart, is told how it ended.

mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::router::TaskKey;
use mainstay_messages::supervisor::{
    AdoptShim, Adopted, DeleteTask, PodEnd, QueryTask, SignalScope, SignalTask, StartExecTask, StopShim,
    TaskKnowledge, TaskState, TaskStatus,
};
use mainstay_messages::{ExecSpec, Exit, Signal};
use rustix::process::Signal as UnixSignal;
use world::{DEADLINE, Fact, Running, World, runs, signal, until};

fn key(container: &ContainerRecord, exec: Option<&str>) -> TaskKey {
    let exec = exec.map(|id| id.parse().expect("a good id"));
    TaskKey { sandbox: container.sandbox.clone(), container: container.id.clone(), exec }
}

/// A container whose exec has ended with 5, and that was killed and removed before the journal took either.
async fn removed_too_soon(
    world: &World,
    supervisor: &mut Running,
) -> (SandboxRecord, ContainerRecord, Vec<(TaskKey, Exit)>) {
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let container = world.container(&sandbox, "web", &["sleep", "1000000"]);
    supervisor.run(&sandbox, &container).await;
    let exec = StartExecTask {
        sandbox: sandbox.id.clone(),
        container: container.clone(),
        exec: "probe".parse().expect("a good id"),
        spec: ExecSpec::new(["sh", "-c", "exit 5"]),
    };
    supervisor.done(exec).await;
    let mut exits = vec![exit_of(supervisor, &key(&container, Some("probe"))).await];
    let kill = SignalTask { task: key(&container, None), signal: Signal::KILL, scope: SignalScope::Cgroup };
    supervisor.done(kill).await;
    exits.push(exit_of(supervisor, &key(&container, None)).await);
    let delete = DeleteTask { sandbox: sandbox.id.clone(), container: container.id.clone() };
    supervisor.done(delete).await;
    assert_eq!(exits[0].1.code(), 5);
    assert_eq!(exits[1].1.code(), 137);
    (sandbox, container, exits)
}

/// The next report of this process; those of others are left out.
async fn exit_of(supervisor: &mut Running, wanted: &TaskKey) -> (TaskKey, Exit) {
    loop {
        match supervisor.fact().await {
            Fact::Exited(task, exit) if task == *wanted => return (task, exit),
            Fact::Exited(..) | Fact::Died(_) => {}
        }
    }
}

async fn knowledge(supervisor: &Running, task: &TaskKey) -> TaskKnowledge {
    supervisor.done(QueryTask { task: task.clone() }).await
}

fn ended(knowledge: &TaskKnowledge, as_in: &Exit) -> bool {
    matches!(knowledge, TaskKnowledge::Known(TaskState { status: TaskStatus::Exited(exit), .. }) if exit == as_in)
}

/// After the restart an exec was said not to be known to its shim, and so its end became Unknown; then its real end came, too
/// late. And the shim had forgotten the end of PID 1 with its container: nobody could tell it any more.
#[actix::test]
async fn after_a_restart_the_shim_tells_how_what_was_removed_has_ended() {
    let Some(world) = World::new() else { return };
    let mut first = world.reluctant_supervisor(u32::MAX).await;
    let (sandbox, container, exits) = removed_too_soon(&world, &mut first).await;
    for (task, exit) in &exits {
        let known = knowledge(&first, task).await;
        assert!(ended(&known, exit), "{task:?}: {known:?}");
    }
    first.vanish();

    let mut second = world.reluctant_supervisor(1).await;
    let adopt = AdoptShim {
        record: sandbox.clone(),
        containers: vec![container.id.clone()],
        processes: Default::default(),
    };
    let Adopted::Running(tasks) = second.done(adopt).await else { panic!("it runs") };
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert_eq!(tasks[0].status, TaskStatus::Exited(exits[1].1.clone()));
    for (task, exit) in &exits {
        let known = knowledge(&second, task).await;
        assert!(ended(&known, exit), "{task:?}: {known:?}");
    }
    // Reported until it is settled, and then forgotten.
    let mut told: BTreeMap<TaskKey, u32> = BTreeMap::new();
    while told.len() < 2 || told.values().any(|times| *times < 2) {
        let Fact::Exited(task, exit) = second.fact().await else { panic!("no exit") };
        assert!(exits.contains(&(task.clone(), exit.clone())), "{task:?} {exit:?}");
        *told.entry(task).or_default() += 1;
    }
    let end = Instant::now() + DEADLINE;
    for (task, _) in &exits {
        while knowledge(&second, task).await != TaskKnowledge::NotKnown {
            assert!(Instant::now() < end, "{task:?} is never forgotten");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    second.done(StopShim { sandbox: sandbox.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&sandbox).is_empty(), "{:?}", world.left(&sandbox));
}

/// The records of what was removed are gone. When the shim died then, before it had announced the exits again, they were as if
/// they had never been.
#[actix::test]
async fn exits_of_what_was_removed_outlive_the_shim() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.reluctant_supervisor(2).await;
    let (sandbox, _, exits) = removed_too_soon(&world, &mut supervisor).await;
    let shim = &sandbox.shim.as_ref().expect("launched").process;
    signal(shim, UnixSignal::KILL);
    until("the shim is dead", || !runs(shim)).await;
    let mut told = BTreeMap::new();
    // The death is told last of all, when the exits are settled.
    while let Fact::Exited(task, exit) = supervisor.fact().await {
        told.insert(task, exit);
    }
    assert_eq!(told, exits.into_iter().collect());
}
