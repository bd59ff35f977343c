//! The daemon was killed and comes back (P5).

use mainstay_actors::HowDown;
use mainstay_actors::Routed;
use mainstay_actors::fakes::{Behaviour, Call, FakeWorld, OnSignal, Program};
use mainstay_actors::ports::{Damaged, Store};
use mainstay_messages::container::{IfRunning, StartExec};
use mainstay_messages::error::Kind;
use mainstay_messages::event::What;
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::record::{ContainerPhase, ContainerRecord, SandboxPhase};
use mainstay_messages::{Error, ExecSpec, ExitStatus, Signal, Timestamp};

use mainstay_messages::process::UnknownReason;

use crate::world::{Test, pass};

/// The daemon is killed at this instant; what it leaves is its store and its shims.
fn crash(test: Test) -> FakeWorld {
    test.world.crash()
}

async fn back(world: FakeWorld, how: HowDown) -> Test {
    let core = world.restart(how).await.expect("the store loads");
    let test = Test { world, core };
    pass(1).await;
    test
}

#[actix::test]
async fn running_containers_are_adopted() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let waiting = test.create(&pod, "waiting").await.expect("created");
    let test = back(crash(test), HowDown::Restarted).await;
    test.until("the pod is adopted", |test| test.count(|what| matches!(what, What::ShimAdopted { .. })) == 1)
        .await;
    assert_eq!(test.pod_phase(&pod), SandboxPhase::Ready);
    assert_eq!((test.phase(&web), test.phase(&waiting)), (ContainerPhase::Running, ContainerPhase::Created));
    test.start(&waiting).await.expect("started");
    test.stop(&web, 1_000).await.expect("stopped");
    assert_eq!(test.exit_code(&web).await, 143);
    test.remove_pod(&pod).await.expect("removed");
    assert_eq!((test.world.host.shims(), test.world.host.tasks()), (0, 0));
}

/// Right after a restart with 500 pods a list had 329 of them, and removing one of the others by its id succeeded as if it
/// were long gone: actors that were started had not run yet. It was running 17 minutes later.
#[actix::test]
async fn everything_is_listed_at_once() {
    const PODS: usize = 200;
    let test = Test::new();
    for number in 0..PODS {
        let pod = test.run(&format!("pod-{number}")).await.expect("a pod");
        test.create(&pod, "c").await.expect("created");
    }
    let world = crash(test);
    let core = world.restart(HowDown::Restarted).await.expect("the store loads");
    assert_eq!((core.directory.sandboxes().len(), core.directory.containers(None).len()), (PODS, PODS));
}

/// Case 4: an exit during the downtime had code 0 or 255 afterwards.
#[actix::test]
async fn an_exit_during_the_downtime_keeps_its_code() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let world = crash(test);
    world.host.end_task(&web, 42);
    pass(5_000).await;
    let test = back(world, HowDown::Restarted).await;
    assert_eq!(test.exit_code(&web).await, 42);
    test.until("it is settled", |test| test.world.host.unsettled() == 0).await;
    assert_eq!(test.count(|what| matches!(what, What::ContainerExited { .. })), 1);
}

/// Case 17: after a reboot containers were Running and names taken.
#[actix::test]
async fn after_a_reboot_nothing_runs_and_names_are_free() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let world = crash(test);
    world.host.reboot();
    let test = back(world, HowDown::Rebooted).await;
    test.until("the container is ended", |test| test.phase(&web) == ContainerPhase::Exited).await;
    let exit = test.shown(&web).record.exit.clone().expect("an exit");
    assert_eq!(exit.status, ExitStatus::Unknown { reason: UnknownReason::HostRebooted });
    assert_eq!(test.pod_phase(&pod), SandboxPhase::NotReady);
    test.stop_pod(&pod, None).await.expect("stopped");
    test.remove_pod(&pod).await.expect("removed");
    test.run("pod").await.expect("the name is free");
}

/// Case 17: whoever looked right after the start was shown pods that are ready and containers that run, on a machine that
/// had just booted.
#[actix::test]
async fn nobody_is_shown_that_something_outlived_a_reboot() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let waiting = test.create(&pod, "waiting").await.expect("created");
    let world = crash(test);
    world.host.reboot();
    world.host.misbehave(Call::AdoptShim, Behaviour::Hang, 1);
    let core = world.restart(HowDown::Rebooted).await.expect("the store loads");
    let test = Test { world, core };
    pass(1).await;
    assert_eq!(test.pod_phase(&pod), SandboxPhase::Unknown);
    assert_eq!((test.phase(&web), test.phase(&waiting)), (ContainerPhase::Unknown, ContainerPhase::Unknown));
    for container in [&web, &waiting] {
        assert_eq!(test.exit_code(container).await, 255);
    }
    test.until("the pod is not ready", |test| test.pod_phase(&pod) == SandboxPhase::NotReady).await;
}

#[actix::test]
async fn a_shim_that_died_during_the_downtime() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let world = crash(test);
    world.host.reboot();
    let test = back(world, HowDown::Restarted).await;
    assert_eq!(test.exit_code(&web).await, 255);
    test.until("the pod is not ready", |test| test.pod_phase(&pod) == SandboxPhase::NotReady).await;
    test.remove_pod(&pod).await.expect("removed");
}

/// Case 9: the daemon died in the middle of a creation. The container is gone or adopted; a repetition works.
#[actix::test]
async fn a_creation_that_was_cut_off_is_undone() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Hang, 1);
    let cut_off = tokio::time::timeout(std::time::Duration::from_secs(1), test.create(&pod, "web")).await;
    assert!(cut_off.is_err());
    let test = back(crash(test), HowDown::Restarted).await;
    test.until("it is undone", |test| test.core.directory.containers(None).is_empty()).await;
    test.create(&pod, "web").await.expect("created");
}

#[actix::test]
async fn a_creation_that_had_worked_is_adopted() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::AnswerNever, 1);
    let cut_off = tokio::time::timeout(std::time::Duration::from_secs(1), test.create(&pod, "web")).await;
    assert!(cut_off.is_err());
    let test = back(crash(test), HowDown::Restarted).await;
    let web = test.create(&pod, "web").await.expect("joined");
    assert_eq!(test.phase(&web), ContainerPhase::Created);
    assert_eq!(test.world.host.made(Call::CreateTask).len(), 1);
    test.start(&web).await.expect("started");
}

#[actix::test]
async fn a_pod_that_was_being_made_is_undone() {
    let test = Test::new();
    test.world.host.misbehave(Call::LaunchShim, Behaviour::AnswerNever, 1);
    let cut_off = tokio::time::timeout(std::time::Duration::from_secs(1), test.run("pod")).await;
    assert!(cut_off.is_err());
    let test = back(crash(test), HowDown::Restarted).await;
    test.until("it is undone", |test| test.core.directory.sandboxes().is_empty()).await;
    assert_eq!(test.world.host.shims(), 0);
    test.run("pod").await.expect("the name is free");
}

/// Case 27: the daemon is restarted during a grace. The process keeps what is left of it, and gets no second
/// signal.
#[actix::test]
async fn a_grace_outlives_a_restart() {
    let test = Test::new();
    test.world
        .host
        .set_program("slow", Program { on_term: OnSignal::Exits(10_000, 7), ..Program::default() });
    test.world.host.set_program("deaf", Program { on_term: OnSignal::Ignores, ..Program::default() });
    let pod = test.pod().await;
    let (slow, deaf) = (test.running(&pod, "slow").await, test.running(&pod, "deaf").await);
    let stops = futures::future::join(test.stop(&slow, 30_000), test.stop(&deaf, 30_000));
    assert!(tokio::time::timeout(std::time::Duration::from_secs(3), stops).await.is_err());
    let began = tokio::time::Instant::now();
    let test = back(crash(test), HowDown::Restarted).await;
    assert_eq!(test.exit_code(&slow).await, 7);
    assert_eq!(test.exit_code(&deaf).await, 137);
    assert!((26_900..27_200).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    let terms = test.world.host.made(Call::SignalTask);
    assert_eq!(terms.iter().filter(|made| made.signal == Some(Signal::TERM)).count(), 2, "one for each");
}

/// containerd#12600: a stop or removal that a restart interrupted left the object as it was.
#[actix::test]
async fn a_removal_outlives_a_restart() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    test.world.host.misbehave(Call::DeleteTask, Behaviour::Hang, 1);
    let cut_off = tokio::time::timeout(std::time::Duration::from_secs(1), test.remove_pod(&pod)).await;
    assert!(cut_off.is_err());
    let test = back(crash(test), HowDown::Restarted).await;
    test.until("all is gone", |test| test.core.directory.sandboxes().is_empty()).await;
    assert!(test.core.directory.container(&web).is_none());
    assert_eq!((test.world.host.shims(), test.world.host.tasks()), (0, 0));
}

/// Case 10: one shim that did not answer kept the daemon from starting. Here it alone is Unknown, and heals.
#[actix::test]
async fn a_shim_that_does_not_answer_delays_itself_alone() {
    let test = Test::new();
    let stuck = test.run("a-stuck").await.expect("ready");
    let web = test.running(&stuck, "web").await;
    let world = crash(test);
    world.host.misbehave(Call::AdoptShim, Behaviour::Hang, 2);
    let test = back(world, HowDown::Restarted).await;
    let other = test.run("other").await.expect("others are served at once");
    test.running(&other, "web").await;
    test.until("it is listed as unknown", |test| test.pod_phase(&stuck) == SandboxPhase::Unknown).await;
    test.until("so is its container", |test| test.phase(&web) == ContainerPhase::Unknown).await;
    let durable = test.world.store.container(&web).expect("a record");
    assert_eq!(durable.phase, ContainerPhase::Running, "the store keeps what was last known");
    test.until("it heals", |test| test.pod_phase(&stuck) == SandboxPhase::Ready).await;
    test.until("so does its container", |test| test.phase(&web) == ContainerPhase::Running).await;
    test.stop(&web, 0).await.expect("stopped");
}

#[actix::test]
async fn damaged_rows_are_listed_and_can_be_removed() {
    let test = Test::new();
    let world = crash(test);
    let reason = "not JSON".to_owned();
    world.store.damage(Damaged { kind: Kind::Container, id: "c-broken".to_owned(), reason: reason.clone() });
    world.store.damage(Damaged { kind: Kind::Sandbox, id: "s-broken".to_owned(), reason });
    let test = back(world, HowDown::Restarted).await;
    let (container, sandbox) = ("c-broken".parse().expect("an id"), "s-broken".parse().expect("an id"));
    pass(20_000).await;
    assert_eq!(test.phase(&container), ContainerPhase::Unknown);
    assert_eq!(test.pod_phase(&sandbox), SandboxPhase::Unknown);
    test.remove(&container, IfRunning::Refuse).await.expect("removed");
    test.remove_pod(&sandbox).await.expect("removed");
    assert!(test.core.directory.containers(None).is_empty() && test.core.directory.sandboxes().is_empty());
}

/// The store was slow, a creation of `web` was given up, and another `web` was made; then the first became durable all the same.
/// After the restart nobody answered for the pod, both were listed as Unknown, and `stop web` was refused because two have
/// that name.
#[actix::test]
async fn a_name_means_the_one_that_was_made() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let made = test.shown(&web).record.clone();
    let given_up = "given-up".parse().expect("an id");
    let later = Timestamp(made.created_at.0 + 1);
    let intent = ContainerRecord::intent(given_up, pod.clone(), made.spec, made.log_path, later);
    let given_up = intent.id.clone();
    let world = crash(test);
    let commit = Commit { changes: vec![Change::PutContainer(Box::new(intent))], facts: Vec::new() };
    world.store.commit(commit).await.expect("written");
    world.host.misbehave(Call::AdoptShim, Behaviour::Fail(Error::internal("the shim", "it refuses")), 1);
    let test = back(world, HowDown::Restarted).await;
    assert_eq!((test.phase(&web), test.phase(&given_up)), (ContainerPhase::Unknown, ContainerPhase::Unknown));
    assert_eq!(test.core.directory.resolve_container("web"), Ok(web.clone()));
    assert_eq!(test.core.directory.resolve_container("pod/web"), Ok(web.clone()));
    assert_eq!(test.core.directory.resolve_container("given"), Ok(given_up.clone()));
    test.until("the shim answers", |test| test.phase(&web) == ContainerPhase::Running).await;
    test.until("what was never made is gone", |test| test.core.directory.container(&given_up).is_none())
        .await;
    test.remove(&web, IfRunning::Kill).await.expect("removed");
    test.create(&pod, "web").await.expect("the name is free");
}

/// An exec that an earlier daemon started has one terminal fact, whoever sees its end.
#[actix::test]
async fn an_exec_outlives_a_restart() {
    let test = Test::new();
    test.world.host.set_exec_program(Program { runs: Some((5_000, 4)), ..Program::default() });
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let message = StartExec { container: web.clone(), spec: ExecSpec::new(["true"]) };
    test.core.router.send(Routed(message)).await.expect("the router runs").expect("it runs");
    let test = back(crash(test), HowDown::Restarted).await;
    pass(20_000).await;
    test.until("it is settled", |test| test.world.host.unsettled() == 0).await;
    assert_eq!(test.count(|what| matches!(what, What::ExecExited { .. })), 1);
    test.remove(&web, IfRunning::Kill).await.expect("removed");
    assert_eq!(test.count(|what| matches!(what, What::ExecExited { .. })), 1);
}

#[actix::test]
async fn an_exec_of_which_nobody_knows_gets_a_terminal_fact_with_its_container() {
    let test = Test::new();
    test.world.host.set_exec_program(Program { runs: None, ..Program::default() });
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let message = StartExec { container: web.clone(), spec: ExecSpec::new(["true"]) };
    test.core.router.send(Routed(message)).await.expect("the router runs").expect("it runs");
    let world = crash(test);
    world.host.reboot();
    let test = back(world, HowDown::Rebooted).await;
    test.until("it has its terminal fact", |test| {
        test.count(|what| matches!(what, What::ExecExited { .. })) == 1
    })
    .await;
    test.remove(&web, IfRunning::Refuse).await.expect("removed");
    assert_eq!(test.count(|what| matches!(what, What::ExecExited { .. })), 1);
    assert!(matches!(test.start(&web).await, Err(Error::NotFound { .. })));
}
