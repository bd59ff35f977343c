//! What overtakes what, and what is cut off where: faults that the simulation found.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mainstay_actors::fakes::{
    Behaviour, Call, Director, FakeWorld, Made, Messenger, Program, StoreCall, StoreFault,
};
use mainstay_actors::ports::Store;
use mainstay_actors::router::{PoisonContainer, PoisonSandbox};
use mainstay_actors::{HowDown, Routed};
use mainstay_messages::container::{IfRunning, StartExec};
use mainstay_messages::event::What;
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::process::OomVerdict;
use mainstay_messages::record::{ContainerPhase, SandboxPhase};
use mainstay_messages::router::TaskKey;
use mainstay_messages::{ContainerId, Error, ExecSpec, Exit, ExitStatus, SandboxId, SandboxSpec, Timestamp};
use rstest::rstest;

use crate::world::{Test, pass};

async fn back(world: FakeWorld, how: HowDown) -> Test {
    let core = world.restart(how).await.expect("the store loads");
    let test = Test { world, core };
    pass(1).await;
    test
}

fn ends(test: &Test) -> usize {
    test.count(|what| matches!(what, What::ContainerExited { .. }))
}

/// The commits from this one on, the first being 0, go wrong; those before are good.
fn fail_commits_from(test: &Test, first: u32, fault: StoreFault) {
    let count = AtomicU32::new(0);
    test.world.store.set_director(move |call| match call {
        StoreCall::Commit(_) if count.fetch_add(1, Ordering::Relaxed) >= first => fault,
        _ => StoreFault::None,
    });
}

async fn exec(test: &Test, container: &ContainerId) {
    let message = StartExec { container: container.clone(), spec: ExecSpec::new(["true"]) };
    test.core.router.send(Routed(message)).await.expect("the router runs").expect("it runs");
}

async fn poison(test: &Test, container: &ContainerId) {
    let message = PoisonContainer { container: container.clone() };
    let answer = test.core.router.send(Routed(message)).await.expect("the router runs");
    assert!(matches!(answer, Err(Error::Internal { .. })), "{answer:?}");
}

fn stranger() -> (TaskKey, Exit) {
    let task = TaskKey {
        sandbox: "s".parse().expect("an id"),
        container: "stranger".parse().expect("an id"),
        exec: None,
    };
    (task, Exit { status: ExitStatus::Exited { code: 1 }, at: Timestamp(1), oom: OomVerdict::NotKilled })
}

/// A commit that was not answered in time was durable all the same, and was written again: the journal had the end of
/// a container twice (P1).
#[actix::test]
async fn a_commit_that_is_answered_late_is_not_written_twice() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    test.world.store.set_fault(StoreFault::Slow(15_000));
    test.world.host.end_task(&web, 3);
    assert_eq!(test.exit_code(&web).await, 3);
    // What comes meanwhile is owed, and written once as well.
    test.stop_pod(&pod, Some(0)).await.expect("stopped");
    test.world.store.set_fault(StoreFault::None);
    test.until("the exit is settled", |test| test.world.host.unsettled() == 0).await;
    pass(60_000).await;
    assert_eq!(ends(&test), 1);
    assert_eq!(test.count(|what| matches!(what, What::SandboxStopped)), 1);
    test.remove_pod(&pod).await.expect("removed");
}

/// The same for the end of somebody whom nobody knows.
#[actix::test]
async fn an_unclaimed_exit_is_written_once_by_a_slow_store() {
    let test = Test::new();
    test.world.store.set_fault(StoreFault::Slow(15_000));
    let (task, exit) = stranger();
    test.world.host.report(task, exit);
    test.until("it is settled", |test| test.world.host.unsettled() == 0).await;
    assert_eq!(test.count(|what| matches!(what, What::ExitUnclaimed { .. })), 1);
}

/// Readers saw for ever that the store did not take a change that it had long taken.
#[actix::test]
async fn a_store_that_has_caught_up_is_seen_to_have() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    test.world.store.set_fault(StoreFault::Fail);
    test.stop(&web, 0).await.expect("stopped");
    assert!(test.shown(&web).activity.is_some(), "it says that the store is behind");
    test.world.store.set_fault(StoreFault::None);
    pass(60_000).await;
    assert_eq!(test.shown(&web).activity, None);
}

/// A pod was said to be ready although that could not be written: after a crash it was undone under its user (P7).
#[actix::test]
async fn a_pod_is_ready_when_that_is_durable() {
    let test = Test::new();
    fail_commits_from(&test, 1, StoreFault::Fail);
    let error = test.run("pod").await.expect_err("that it is ready cannot be written");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    test.world.store.behave();
    test.until("it is undone", |test| test.core.directory.sandboxes().is_empty()).await;
    assert_eq!(test.world.host.shims(), 0);
    test.run("pod").await.expect("the name is free");
}

/// The undoing of a start was cut off: the pod stayed listed, and its shim ran (P4).
#[actix::test]
async fn the_undoing_of_a_start_outlives_a_restart() {
    let test = Test::new();
    test.world.host.misbehave(Call::LaunchShim, Behaviour::AnswerNever, 1);
    test.world.host.misbehave(Call::StopShim, Behaviour::Hang, 1);
    // Longer than a launch may take.
    let cut_off = tokio::time::timeout(Duration::from_secs(160), test.run("pod")).await;
    assert!(cut_off.is_err());
    assert_eq!(test.core.directory.sandboxes()[0].record.phase, SandboxPhase::NotReady);
    let test = back(test.world.crash(), HowDown::Restarted).await;
    test.until("it is undone", |test| test.core.directory.sandboxes().is_empty()).await;
    assert_eq!(test.world.host.shims(), 0);
    test.run("pod").await.expect("the name is free");
}

/// An actor panicked while its commit was under way, and was started again from the record before that commit: the
/// end of its container came to be in the journal twice (P1, P9).
#[actix::test]
async fn an_actor_begins_again_after_the_commits_of_the_one_before() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    test.world.store.set_fault(StoreFault::Late { durable_ms: 5_000, answer_ms: 0 });
    test.world.host.end_task(&web, 4);
    pass(10).await;
    poison(&test, &web).await;
    test.world.store.set_fault(StoreFault::None);
    test.until("the exit is settled", |test| test.world.host.unsettled() == 0).await;
    assert_eq!(test.exit_code(&web).await, 4);
    assert_eq!(ends(&test), 1);
}

/// Readers had seen an exit that the store did not take, and saw the container run again when its actor panicked (P6).
#[actix::test]
async fn an_exit_that_was_seen_stays_to_be_seen() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    test.world.store.set_fault(StoreFault::Fail);
    test.world.host.end_task(&web, 5);
    assert_eq!(test.exit_code(&web).await, 5);
    let mut watch = test.core.directory.watch_container(&web).expect("it is listed");
    poison(&test, &web).await;
    test.world.store.set_fault(StoreFault::None);
    let lost = watch.wait_for(|shown| shown.record.exit.is_none());
    assert!(tokio::time::timeout(Duration::from_secs(60), lost).await.is_err());
    assert_eq!(ends(&test), 1);
}

/// A shim died before the answer to its launch: the pod was Ready for ever, without a shim.
#[actix::test]
async fn a_shim_dies_before_its_launch_is_answered() {
    let test = Test::new();
    test.world.host.misbehave(Call::LaunchShim, Behaviour::AnswerLate(5_000), 1);
    let dies = async {
        pass(1_000).await;
        test.world.host.pods().iter().for_each(|pod| test.world.host.kill_shim(pod));
    };
    let (ran, ()) = futures::join!(test.run("pod"), dies);
    assert!(matches!(ran, Err(Error::Unavailable { .. })), "{ran:?}");
    pass(10_000).await;
    assert!(test.core.directory.sandboxes().is_empty());
    test.run("pod").await.expect("the name is free");
}

/// A shim died while the answer that it had been found was under way: the pod became Ready again, without a shim.
#[actix::test]
async fn a_shim_dies_before_its_adoption_is_answered() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let world = test.world.crash();
    world.host.misbehave(Call::AdoptShim, Behaviour::AnswerLate(5_000), 1);
    let test = back(world, HowDown::Restarted).await;
    test.world.host.kill_shim(&pod);
    pass(30_000).await;
    assert_eq!(test.pod_phase(&pod), SandboxPhase::NotReady);
    assert_eq!(test.exit_code(&web).await, 255);
    test.remove_pod(&pod).await.expect("removed");
}

/// The report that a container is lost came before the answer to its adoption: one that had never been made was kept
/// as if it had ended, instead of being undone (P4).
#[rstest]
#[case::gone(HowDown::Restarted)]
#[case::rebooted(HowDown::Rebooted)]
#[actix::test]
async fn a_container_that_was_never_made_has_no_end(#[case] how: HowDown) {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Hang, 1);
    let cut_off = tokio::time::timeout(Duration::from_secs(1), test.create(&pod, "web")).await;
    assert!(cut_off.is_err());
    let world = test.world.crash();
    world.host.reboot();
    world.host.misbehave(Call::AdoptShim, Behaviour::AnswerLate(5_000), 1);
    let test = back(world, how).await;
    test.until("it is undone", |test| test.core.directory.containers(None).is_empty()).await;
    assert_eq!(ends(&test), 0);
    test.remove_pod(&pod).await.expect("removed");
}

/// The same, found out by a stop of one whose shim had not answered.
#[actix::test]
async fn stopping_a_container_that_was_never_made_undoes_it() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Hang, 1);
    let cut_off = tokio::time::timeout(Duration::from_secs(1), test.create(&pod, "web")).await;
    assert!(cut_off.is_err());
    let web = test.core.directory.containers(None)[0].record.id.clone();
    let world = test.world.crash();
    let refused = Behaviour::Fail(Error::unavailable("the shim", "it is stopped"));
    world.host.misbehave(Call::AdoptShim, refused, 8);
    let test = back(world, HowDown::Restarted).await;
    test.stop(&web, 0).await.expect("stopped");
    assert!(test.core.directory.containers(None).is_empty());
    assert_eq!(ends(&test), 0);
}

/// An exit was reported before the answer to the adoption of a container that was being removed: the removal stood
/// still for ever.
#[actix::test]
async fn an_exit_does_not_end_a_removal_that_is_adopted() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let refused = Error::unavailable("the shim", "it is stopped");
    let world = test.world.crash();
    world.host.misbehave(Call::AdoptShim, Behaviour::Fail(refused.clone()), 1);
    world.host.misbehave(Call::DeleteTask, Behaviour::Hang, 1);
    let test = back(world, HowDown::Restarted).await;
    test.until("nobody answers", |test| test.phase(&web) == ContainerPhase::Unknown).await;
    let cut_off = tokio::time::timeout(Duration::from_millis(500), test.remove(&web, IfRunning::Kill));
    assert!(cut_off.await.is_err());
    let world = test.world.crash();
    world.host.end_task(&web, 9);
    world.host.misbehave(Call::AdoptShim, Behaviour::AnswerLate(5_000), 1);
    let test = back(world, HowDown::Restarted).await;
    test.until("it is gone", |test| test.core.directory.container(&web).is_none()).await;
    assert_eq!(ends(&test), 1);
}

/// A start failed: the process that waited to be told to run stayed, for as long as the container was listed (P4).
#[actix::test]
async fn what_waited_for_a_start_that_failed_is_removed() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.create(&pod, "web").await.expect("created");
    let failure = Error::StartFailed { reason: "no such program".to_owned() };
    test.world.host.misbehave(Call::StartTask, Behaviour::Fail(failure), 1);
    test.world.host.misbehave(Call::DeleteTask, Behaviour::Hang, 1);
    assert!(matches!(test.start(&web).await, Err(Error::StartFailed { .. })));
    assert_eq!(test.exit_code(&web).await, 128);
    // The undoing is cut off, too.
    poison(&test, &web).await;
    test.until("its process is gone", |test| test.world.host.tasks() == 0).await;
    assert_eq!(test.phase(&web), ContainerPhase::Exited, "it stays listed with the reason");
}

/// A start was not answered, and its shim died: the caller heard that it had worked.
#[actix::test]
async fn a_start_of_which_nobody_knows_has_not_worked() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.create(&pod, "web").await.expect("created");
    test.world.host.misbehave(Call::StartTask, Behaviour::Hang, 1);
    let dies = async {
        pass(1_000).await;
        test.world.host.kill_shim(&pod);
    };
    let (started, ()) = futures::join!(test.start(&web), dies);
    assert!(matches!(started, Err(Error::DeadlineExceeded { .. })), "{started:?}");
    assert_eq!(test.count(|what| matches!(what, What::ContainerStarted { .. })), 0);
    assert_eq!(test.exit_code(&web).await, 255);
}

/// A container was told to run, the daemon was killed before it heard that it did, and the container was removed while
/// nobody answered: its process had no terminal fact (P1).
#[actix::test]
async fn a_process_of_which_nobody_heard_has_an_end() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.create(&pod, "web").await.expect("created");
    test.world.host.misbehave(Call::StartTask, Behaviour::AnswerNever, 1);
    let cut_off = tokio::time::timeout(Duration::from_secs(1), test.start(&web)).await;
    assert!(cut_off.is_err());
    let world = test.world.crash();
    let refused = Behaviour::Fail(Error::unavailable("the shim", "it is stopped"));
    world.host.misbehave(Call::AdoptShim, refused, 8);
    let test = back(world, HowDown::Restarted).await;
    test.world.host.set_director(Mute);
    test.remove(&web, IfRunning::Kill)
        .await
        .expect("it is killed, and its end is known, before it is deleted");
    assert!(test.core.directory.container(&web).is_none());
    assert_eq!(ends(&test), 1);
    let killed = |what: &What| matches!(what, What::ContainerExited { exit } if exit.code() == 137);
    assert_eq!(test.count(killed), 1);
}

/// Reports get lost.
struct Mute;

impl Director for Mute {
    fn call(&mut self, _made: &Made) -> Option<Behaviour> {
        None
    }

    fn report(&mut self, _task: &TaskKey) -> Vec<Messenger> {
        Vec::new()
    }
}

/// The daemon was killed between the end of a container and those of its execs, and the machine rebooted: the execs
/// had no terminal facts for as long as the container was listed (P1).
#[actix::test]
async fn the_execs_of_a_container_that_had_ended_have_ends() {
    let test = Test::new();
    test.world.host.set_exec_program(Program { runs: None, ..Program::default() });
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    exec(&test, &web).await;
    test.world.host.set_director(OnlyContainers);
    test.world.host.end_task(&web, 0);
    assert_eq!(test.exit_code(&web).await, 0);
    let world = test.world.crash();
    world.host.behave();
    world.host.reboot();
    let test = back(world, HowDown::Rebooted).await;
    test.until("the exec has an end", |test| test.count(|what| matches!(what, What::ExecExited { .. })) == 1)
        .await;
    assert_eq!(test.phase(&web), ContainerPhase::Exited);
}

/// Reports of execs get lost.
struct OnlyContainers;

impl Director for OnlyContainers {
    fn call(&mut self, made: &Made) -> Option<Behaviour> {
        (made.call == Call::QueryTask).then_some(Behaviour::Hang)
    }

    fn report(&mut self, task: &TaskKey) -> Vec<Messenger> {
        match task.exec {
            None => vec![Messenger::RELIABLE],
            Some(_) => Vec::new(),
        }
    }
}

/// A creation was given up because the store was slow, and became durable all the same; its name was taken by
/// another. After a crash the one that was given up had the name, and the other could be made twice.
#[actix::test]
async fn a_name_belongs_to_the_pod_that_was_made() {
    let test = Test::new();
    let made = test.pod().await;
    let mut given_up = test.world.store.sandbox(&made).expect("a record");
    given_up.id = "0-given-up".parse::<SandboxId>().expect("an id");
    given_up.spec = SandboxSpec::new("pod".parse().expect("a name"));
    given_up.phase = SandboxPhase::Starting;
    given_up.shim = None;
    let change = Change::PutSandbox(Box::new(given_up));
    let commit = Commit { changes: vec![change], facts: Vec::new() };
    test.world.store.commit(commit).await.expect("written");
    let test = back(test.world.crash(), HowDown::Restarted).await;
    test.until("it is undone", |test| test.core.directory.sandboxes().len() == 1).await;
    assert_eq!(test.run("pod").await, Ok(made), "it joins the one that has the name");
}

/// The supervisor knew of an exit that nobody claimed, having reported it itself: it was asked about for ever (P2).
#[actix::test]
async fn an_exit_that_its_shim_knows_and_nobody_claims_is_unclaimed() {
    let test = Test::new();
    let (task, exit) = stranger();
    test.world.host.report(task, exit);
    test.until("it is settled", |test| test.world.host.unsettled() == 0).await;
    assert_eq!(test.core.counters.unclaimed.get(), 1);
}

/// A pod's actor panicked while its launch was under way: the shim came to be after the pod had been undone.
#[actix::test]
async fn a_launch_that_is_under_way_is_undone_after_it() {
    let test = Test::new();
    test.world.host.misbehave(Call::LaunchShim, Behaviour::Delay(3_000), 1);
    let kill = async {
        pass(500).await;
        let sandbox = test.core.directory.sandboxes()[0].record.id.clone();
        let answer = test.core.router.send(Routed(PoisonSandbox { sandbox })).await.expect("the router runs");
        assert!(answer.is_err());
    };
    let (ran, ()) = futures::join!(test.run("pod"), kill);
    assert!(matches!(ran, Err(Error::Internal { .. })), "{ran:?}");
    pass(10_000).await;
    assert!(test.core.directory.sandboxes().is_empty());
    assert_eq!(test.world.host.shims(), 0);
}

/// The end of a process during the downtime has the time at which it came, not that at which it was seen.
#[actix::test]
async fn an_end_keeps_its_time() {
    let test = Test::new();
    let pod = test.pod().await;
    let web = test.running(&pod, "web").await;
    let world = test.world.crash();
    world.host.end_task(&web, 1);
    pass(60_000).await;
    let test = back(world, HowDown::Restarted).await;
    assert_eq!(test.exit_code(&web).await, 1);
    let record = test.shown(&web).record.clone();
    let ran_ns = record.exit.expect("an exit").at.nanos_since(record.started_at.expect("a start"));
    assert!(ran_ns < 1_000_000_000, "{ran_ns}");
}
