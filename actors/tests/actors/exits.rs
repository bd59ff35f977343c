//! Exits at any time (P1, P2).

use mainstay_actors::Routed;
use mainstay_actors::fakes::{Behaviour, Call, Program};
use mainstay_messages::container::{IfRunning, StartExec};
use mainstay_messages::event::What;
use mainstay_messages::process::OomVerdict;
use mainstay_messages::record::{ContainerPhase, SandboxPhase};
use mainstay_messages::router::{ExitReceipt, TaskExited, TaskKey};
use mainstay_messages::{ExecSpec, Exit, ExitStatus, Timestamp};

use crate::world::{Test, pass};

fn exit(code: u8) -> Exit {
    Exit { status: ExitStatus::Exited { code }, at: Timestamp(1), oom: OomVerdict::NotKilled }
}

fn key(sandbox: &str, container: &str) -> TaskKey {
    TaskKey {
        sandbox: sandbox.parse().expect("an id"),
        container: container.parse().expect("an id"),
        exec: None,
    }
}

/// The process ends before its start is answered: the exit is latched, and the late answer changes nothing.
#[actix::test]
async fn an_exit_overtakes_the_answer_to_the_start() {
    let test = Test::new();
    test.world.host.set_program("web", Program { runs: Some((1, 5)), ..Program::default() });
    let pod = test.pod().await;
    let container = test.create(&pod, "web").await.expect("created");
    test.world.host.misbehave(Call::StartTask, Behaviour::AnswerLate(1_000), 1);
    test.start(&container).await.expect("it was started");
    let record = test.shown(&container).record.clone();
    assert_eq!((record.phase, record.exit.expect("an exit").code()), (ContainerPhase::Exited, 5));
    assert!(record.started_at.is_some());
    let order: Vec<bool> = test
        .facts()
        .iter()
        .filter_map(|what| match what {
            What::ContainerStarted { .. } => Some(false),
            What::ContainerExited { .. } => Some(true),
            _ => None,
        })
        .collect();
    assert_eq!(order, [false, true], "in the journal the start comes first, and each once");
}

#[actix::test]
async fn an_exit_for_somebody_unknown_is_parked_asked_about_and_counted() {
    let test = Test::new();
    test.world.host.report(key("s", "stranger"), exit(4));
    test.until("it is unclaimed", |test| test.core.counters.unclaimed.get() == 1).await;
    test.until("it is settled", |test| test.world.host.unsettled() == 0).await;
    assert_eq!(test.core.counters.parked.get(), 1);
    assert_eq!(test.count(|what| matches!(what, What::ExitParked)), 1, "however often it was repeated");
    assert_eq!(test.count(|what| matches!(what, What::ExitUnclaimed { .. })), 1);
    assert_eq!(test.world.host.made(Call::QueryTask).len(), 1);
}

/// containerd#10390 and PR 11579: an exit that came before the container was in the store was dropped. Here it
/// waits, and is delivered when the container is registered.
#[actix::test]
async fn a_parked_exit_is_delivered_when_its_container_is_registered() {
    let test = Test::new();
    let pod = test.pod().await;
    // The id that the next container will get is found out by making one on another host.
    let other = Test::another();
    let same = other.pod().await;
    assert_eq!(pod, same);
    let id = other.create(&same, "web").await.expect("created");
    let task = TaskKey { sandbox: pod.clone(), container: id.clone(), exec: None };
    test.world.host.report(task, exit(9));
    test.until("it is parked", |test| test.core.counters.parked.get() == 1).await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Delay(3_000), 1);
    test.create(&pod, "web").await.expect_err("it ended before it was ready");
    assert_eq!(test.exit_code(&id).await, 9);
    assert_eq!(test.count(|what| matches!(what, What::ExitDelivered)), 1);
    test.until("it is settled", |test| test.world.host.unsettled() == 0).await;
    test.remove(&id, IfRunning::Refuse).await.expect("removed");
}

/// containerd#12038: the daemon panicked on an exit of a container that was torn down.
#[actix::test]
async fn late_and_repeated_exits_change_nothing() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    let report = |code| TaskExited {
        task: TaskKey { sandbox: pod.clone(), container: container.clone(), exec: None },
        exit: exit(code),
    };
    for code in [3, 4, 5] {
        let receipt = test.core.router.send(report(code)).await.expect("the router runs");
        assert_eq!(receipt, ExitReceipt::Settled);
    }
    assert_eq!(test.exit_code(&container).await, 3, "the first one counts");
    pass(10).await;
    assert_eq!(test.count(|what| matches!(what, What::ExitAbsorbed { .. })), 1, "one note, not one for each");
    test.world.host.end_task(&container, 3);
    test.until("its own report is settled", |test| test.world.host.unsettled() == 0).await;
    test.remove(&container, IfRunning::Refuse).await.expect("removed");
    for _ in 0..3 {
        let receipt = test.core.router.send(report(6)).await.expect("the router runs");
        assert_eq!(receipt, ExitReceipt::Settled);
    }
    pass(10).await;
    assert_eq!(test.count(|what| matches!(what, What::ExitAbsorbed { .. })), 2);
    assert_eq!(test.count(|what| matches!(what, What::ContainerExited { .. })), 1);
}

/// Case 1, containerd#10603: a storm of execs kept the exit of PID 1 back.
#[actix::test]
async fn an_exec_storm_does_not_keep_an_exit_back() {
    let test = Test::new();
    test.world.host.set_program("web", Program { runs: Some((500, 7)), ..Program::default() });
    test.world.host.set_exec_program(Program { runs: Some((40, 0)), ..Program::default() });
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    let storm = (0..20).map(|_| async {
        let mut refused = 0;
        while refused == 0 {
            let message = StartExec { container: container.clone(), spec: ExecSpec::new(["true"]) };
            refused +=
                u32::from(test.core.router.send(Routed(message)).await.expect("the router runs").is_err());
            pass(7).await;
        }
    });
    futures::future::join_all(storm).await;
    assert_eq!(test.exit_code(&container).await, 7);
    test.until("every exit is settled", |test| test.world.host.unsettled() == 0).await;
    let started = test.count(|what| matches!(what, What::ExecStarted { .. }));
    let ended = test.count(|what| matches!(what, What::ExecExited { .. }));
    assert!(ended >= started && started > 100, "{started} execs were started, {ended} ended");
    assert_eq!(test.core.directory.execs(&container).len(), 64, "so many are shown");
}

/// Case 13: a shim was killed, and its containers stayed Running for ever.
#[actix::test]
async fn a_shim_that_dies_takes_its_containers_along() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    test.world.host.kill_shim(&pod);
    assert_eq!(test.exit_code(&container).await, 255);
    test.until("the pod is not ready", |test| test.pod_phase(&pod) == SandboxPhase::NotReady).await;
    test.stop_pod(&pod, None).await.expect("stopped");
    test.remove_pod(&pod).await.expect("removed");
    test.run("pod").await.expect("the name is free");
}
