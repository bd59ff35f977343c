//! Stop is a negotiation.

use std::time::Duration;

use mainstay_actors::fakes::{Behaviour, Call, OnSignal, Program};
use mainstay_messages::container::IfRunning;
use mainstay_messages::event::What;
use mainstay_messages::record::{ContainerPhase, SandboxPhase};
use mainstay_messages::{Error, Signal};
use tokio::time::Instant;

use crate::world::{Test, pass};

fn stubborn() -> Program {
    Program { on_term: OnSignal::Ignores, ..Program::default() }
}

fn signals(test: &Test) -> Vec<Signal> {
    test.world.host.made(Call::SignalTask).iter().filter_map(|made| made.signal).collect()
}

#[actix::test]
async fn the_grace_ends_with_a_kill() {
    let test = Test::new();
    test.world.host.set_program("web", stubborn());
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    let before = Instant::now();
    test.stop(&container, 3_000).await.expect("stopped");
    assert!((3_000..3_100).contains(&before.elapsed().as_millis()), "{:?}", before.elapsed());
    assert_eq!(signals(&test), [Signal::TERM, Signal::KILL]);
    assert_eq!(test.exit_code(&container).await, 137);
}

/// The earliest deadline of all who asked counts, and the signal is sent once.
#[actix::test]
async fn a_later_shorter_stop_wins_and_a_later_longer_one_changes_nothing() {
    let test = Test::new();
    test.world.host.set_program("web", stubborn());
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    let before = Instant::now();
    let later = |after: u64, grace: u64| {
        let (test, container) = (&test, &container);
        async move {
            pass(after).await;
            test.stop(container, grace).await
        }
    };
    let (a, b, c) = futures::join!(later(0, 60_000), later(1_000, 2_000), later(1_500, 30_000));
    for stopped in [a, b, c] {
        stopped.expect("stopped");
    }
    assert!((3_000..3_100).contains(&before.elapsed().as_millis()), "{:?}", before.elapsed());
    assert_eq!(signals(&test), [Signal::TERM, Signal::KILL]);
}

/// cri#1098: the kubelet was restarted, its call was cancelled, and a container with an hour of grace was killed
/// at once. Here a caller that leaves changes nothing.
#[actix::test]
async fn a_caller_that_leaves_does_not_shorten_the_grace() {
    let test = Test::new();
    test.world.host.set_program("web", Program { on_term: OnSignal::Exits(10_000, 7), ..Program::default() });
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    let left = tokio::time::timeout(Duration::from_secs(1), test.stop(&container, 30_000)).await;
    assert!(left.is_err());
    pass(7_000).await;
    assert_eq!(test.phase(&container), ContainerPhase::Stopping, "it still has its grace");
    assert_eq!(test.exit_code(&container).await, 7, "it ends by itself, with its own code");
    assert_eq!(signals(&test), [Signal::TERM]);
}

/// containerd#999: a stop failed because the process had just ended. Here it never does, and the true code stays.
#[actix::test]
async fn stopping_what_ends_by_itself_is_never_an_error() {
    let test = Test::new();
    let pod = test.pod().await;
    for round in 0..40 {
        let name = format!("c{round}");
        test.world.host.set_program(&name, Program { runs: Some((300, 3)), ..Program::default() });
        let container = test.running(&pod, &name).await;
        pass(280 + round).await;
        test.stop(&container, 0).await.expect("stopped");
        assert!(matches!(test.exit_code(&container).await, 3 | 137));
        test.remove(&container, IfRunning::Refuse).await.expect("removed");
    }
}

/// A stop of a container that is being made or started waits for that, and one that never ran is killed.
#[actix::test]
async fn a_stop_during_create_and_start_waits_for_them() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Delay(2_000), 1);
    let stop = async {
        pass(500).await;
        let id = test.core.directory.containers(None)[0].record.id.clone();
        test.stop(&id, 60_000).await.expect("stopped");
        id
    };
    let (created, stopped) = futures::join!(test.create(&pod, "a"), stop);
    assert_eq!(created.expect("created"), stopped);
    assert_eq!(test.phase(&stopped), ContainerPhase::Exited);
    assert_eq!(test.shown(&stopped).record.started_at, None);

    let other = test.create(&pod, "b").await.expect("created");
    test.world.host.misbehave(Call::StartTask, Behaviour::Delay(2_000), 1);
    let stop = async {
        pass(500).await;
        test.stop(&other, 60_000).await
    };
    let (started, stopped) = futures::join!(test.start(&other), stop);
    started.expect("started");
    stopped.expect("stopped");
    assert_eq!(test.exit_code(&other).await, 143);
}

/// A process that even SIGKILL does not end (D state): callers hear so in time, and the work goes on.
#[actix::test]
async fn a_kill_that_does_not_work_is_repeated_and_said() {
    let test = Test::new();
    let immortal = Program { on_term: OnSignal::Ignores, on_kill: OnSignal::Ignores, runs: None };
    test.world.host.set_program("web", immortal);
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    let error = test.stop(&container, 0).await.expect_err("it does not end");
    assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error}");
    assert_eq!(test.phase(&container), ContainerPhase::Stopping);
    pass(60_000).await;
    assert!(signals(&test).len() > 4, "it is killed again and again");
    test.world.host.end_task(&container, 9);
    assert_eq!(test.exit_code(&container).await, 9);
}

/// The shim does not answer at all: the kill goes on by other means, and the active query finds the end.
#[actix::test]
async fn the_end_is_found_by_asking_when_nobody_reports_it() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    test.world.host.misbehave(Call::SignalTask, Behaviour::Hang, 1);
    test.stop(&container, 0).await.expect("stopped");
    assert_eq!(test.exit_code(&container).await, 137);
}

#[actix::test]
async fn a_pod_is_stopped_with_all_its_containers_in_parallel() {
    let test = Test::new();
    let pod = test.pod().await;
    for name in ["a", "b", "c"] {
        test.world.host.set_program(name, stubborn());
        test.running(&pod, name).await;
    }
    let before = Instant::now();
    test.stop_pod(&pod, Some(5_000)).await.expect("stopped");
    assert!((5_000..5_200).contains(&before.elapsed().as_millis()), "{:?}", before.elapsed());
    assert_eq!(test.pod_phase(&pod), SandboxPhase::Stopped);
    for container in test.core.directory.containers(Some(&pod)) {
        assert_eq!(container.record.phase, ContainerPhase::Exited);
    }
    assert!(matches!(test.create(&pod, "d").await, Err(Error::WrongPhase { .. })));
    test.stop_pod(&pod, None).await.expect("it is stopped");
    test.remove_pod(&pod).await.expect("removed");
    assert_eq!(
        test.count(|what| matches!(what, What::SandboxStopped)),
        2,
        "stopped, and once more when removed"
    );
}

/// Nothing is left of a pod that is Stopped and has no container. Its removal ended its shim once more as a stop, and then again
/// to clear up: half of the time that it took, and a second end in the journal.
#[actix::test]
async fn an_empty_pod_that_is_stopped_is_not_stopped_again() {
    let test = Test::new();
    let pod = test.pod().await;
    test.stop_pod(&pod, None).await.expect("stopped");
    test.remove_pod(&pod).await.expect("removed");
    assert_eq!(test.count(|what| matches!(what, What::SandboxStopped)), 1);
    assert_eq!(test.count(|what| matches!(what, What::SandboxRemoved)), 1);
}

/// A shorter stop of the pod reaches containers that have a longer grace already.
#[actix::test]
async fn a_later_shorter_stop_of_the_pod_wins() {
    let test = Test::new();
    test.world.host.set_program("web", stubborn());
    let pod = test.pod().await;
    test.running(&pod, "web").await;
    let before = Instant::now();
    let shorter = async {
        pass(1_000).await;
        test.stop_pod(&pod, Some(1_000)).await
    };
    let (first, second) = futures::join!(test.stop_pod(&pod, Some(600_000)), shorter);
    first.expect("stopped");
    second.expect("stopped");
    assert!((2_000..2_200).contains(&before.elapsed().as_millis()), "{:?}", before.elapsed());
}
