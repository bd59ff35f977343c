//! Make, start, remove.

use futures::future::join_all;
use mainstay_actors::Routed;
use mainstay_actors::fakes::{Behaviour, Call, Program};
use mainstay_messages::container::{IfRunning, KillContainer, MeasureContainer, StartExec};
use mainstay_messages::event::What;
use mainstay_messages::record::{ContainerPhase, ExecPhase, SandboxPhase};
use mainstay_messages::router::{CreateContainer, RunSandbox};
use mainstay_messages::spec::{ContainerSpec, SandboxSpec};
use mainstay_messages::{ContainerId, Error, ExecSpec, SandboxId, Signal};

use crate::world::{Test, pass};

#[actix::test]
async fn a_pod_with_a_container_from_beginning_to_end() {
    let test = Test::new();
    let pod = test.pod().await;
    assert_eq!(test.pod_phase(&pod), SandboxPhase::Ready);
    let container = test.create(&pod, "web").await.expect("created");
    assert_eq!(test.phase(&container), ContainerPhase::Created);
    test.start(&container).await.expect("started");
    assert_eq!(test.phase(&container), ContainerPhase::Running);
    test.stop(&container, 5_000).await.expect("stopped");
    let shown = test.shown(&container);
    assert_eq!(shown.record.phase, ContainerPhase::Exited);
    assert_eq!(shown.record.exit.as_ref().expect("an exit").code(), 143);
    test.remove(&container, IfRunning::Refuse).await.expect("removed");
    assert!(test.core.directory.container(&container).is_none());
    test.remove_pod(&pod).await.expect("removed");
    assert!(test.core.directory.sandbox(&pod).is_none());
    assert_eq!((test.world.host.shims(), test.world.host.tasks()), (0, 0));
    assert_eq!(test.world.store.sandbox(&pod), None);
    test.until("every exit is settled", |test| test.world.host.unsettled() == 0).await;
    assert_eq!(test.count(|what| matches!(what, What::ContainerExited { .. })), 1);
}

/// containerd#4604: a client whose Create timed out got "name is reserved" for hours. Here a repetition joins
/// the operation that is running and gets the same id, and one with another spec hears what is going on.
#[actix::test]
async fn a_repeated_creation_joins_the_first() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Delay(5_000), 1);
    let first = test.create(&pod, "web");
    let second = async {
        pass(1_000).await;
        test.create(&pod, "web").await
    };
    let other = async {
        pass(1_500).await;
        let spec = ContainerSpec::new("web".parse().expect("a name"), ["false"]);
        test.core.router.send(CreateContainer { sandbox: pod.clone(), spec }).await.expect("the router runs")
    };
    let (first, second, other) = futures::join!(first, second, other);
    assert_eq!(first.as_ref().expect("created"), second.as_ref().expect("joined"));
    assert!(matches!(other, Err(Error::InProgress { .. })), "{other:?}");
    assert_eq!(test.create(&pod, "web").await, first, "after it, the same");
    let spec = ContainerSpec::new("web".parse().expect("a name"), ["false"]);
    let message = CreateContainer { sandbox: pod.clone(), spec };
    let other = test.core.router.send(message).await.expect("the router runs");
    assert!(matches!(other, Err(Error::NameTaken { .. })), "{other:?}");
    assert_eq!(test.world.host.made(Call::CreateTask).len(), 1);
}

/// A caller that gives up does not end what it asked for: the next one finds it.
#[actix::test]
async fn a_creation_goes_on_without_its_caller() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Delay(5_000), 1);
    let gave_up = tokio::time::timeout(std::time::Duration::from_secs(2), test.create(&pod, "web")).await;
    assert!(gave_up.is_err());
    test.create(&pod, "web").await.expect("joined");
    assert_eq!(test.world.host.made(Call::CreateTask).len(), 1);
}

/// containerd#12438, #13355: a pod whose start failed kept its name and its shim. Here it is undone, and the same
/// request can be made again at once.
#[actix::test]
async fn a_pod_that_cannot_start_leaves_nothing_and_frees_its_name() {
    let test = Test::new();
    let broken = Error::StartFailed { reason: "no namespaces".to_owned() };
    test.world.host.misbehave(Call::LaunchShim, Behaviour::Fail(broken.clone()), 1);
    assert_eq!(test.run("pod").await, Err(broken));
    assert!(test.core.directory.sandboxes().is_empty());
    assert_eq!(test.world.host.made(Call::StopShim).len(), 1);
    assert_eq!(test.count(|what| matches!(what, What::Undone { .. })), 1);
    test.run("pod").await.expect("the same request again");
}

/// crio#8790: an undo that failed was dropped after a while. Here it is repeated for as long as the record
/// stands, and the pod stays listed until then.
#[actix::test]
async fn an_undo_that_fails_is_repeated_until_it_works() {
    let test = Test::new();
    let broken = Error::StartFailed { reason: "no namespaces".to_owned() };
    let stuck = Error::unavailable("the cgroup", "device or resource busy");
    test.world.host.misbehave(Call::LaunchShim, Behaviour::Fail(broken.clone()), 1);
    test.world.host.misbehave(Call::StopShim, Behaviour::Fail(stuck), 12);
    assert_eq!(test.run("pod").await, Err(broken));
    let listed = test.core.directory.sandboxes();
    assert_eq!(listed[0].record.phase, SandboxPhase::NotReady);
    assert!(matches!(test.run("pod").await, Err(Error::InProgress { .. })));
    test.until("it is undone", |test| test.core.directory.sandboxes().is_empty()).await;
    assert_eq!(test.world.host.made(Call::StopShim).len(), 13);
    test.run("pod").await.expect("the name is free");
}

/// Case 22 (crio#8790, crio#9097): a creation that failed for want of something that the request had no part in kept its name
/// for as long as nobody removed what was never there. Here it is undone first, and then the same name works at once.
#[actix::test]
async fn a_creation_that_fails_for_no_fault_of_its_own_leaves_no_trace() {
    let test = Test::new();
    let pod = test.pod().await;
    let full = Error::unavailable("/lib/layers", "no space left on device");
    test.world.host.misbehave(Call::CreateTask, Behaviour::Fail(full.clone()), 1);
    assert_eq!(test.create(&pod, "web").await, Err(full));
    assert!(test.core.directory.containers(Some(&pod)).is_empty());
    assert_eq!(test.world.host.made(Call::DeleteTask).len(), 1, "whatever there was of it is taken away");
    test.create(&pod, "web").await.expect("the name is free");
    assert_eq!(test.count(|what| matches!(what, What::ContainerExited { .. })), 0, "nothing has run");
}

/// The same, when it cannot be undone at once: whoever asked is told why it failed, and it stays listed until it is gone.
#[actix::test]
async fn a_failed_creation_that_cannot_be_undone_stays_listed_until_it_is() {
    let test = Test::new();
    let pod = test.pod().await;
    let full = Error::unavailable("/lib/layers", "no space left on device");
    let busy = Error::unavailable("the cgroup", "device or resource busy");
    test.world.host.misbehave(Call::CreateTask, Behaviour::Fail(full.clone()), 1);
    test.world.host.misbehave(Call::DeleteTask, Behaviour::Fail(busy), 5);
    assert_eq!(test.create(&pod, "web").await, Err(full));
    let listed = test.core.directory.containers(Some(&pod));
    assert_eq!(listed[0].record.phase, ContainerPhase::Removing);
    assert!(matches!(test.create(&pod, "web").await, Err(Error::Terminating { .. })));
    test.until("it is undone", |test| test.core.directory.containers(Some(&pod)).is_empty()).await;
    test.create(&pod, "web").await.expect("the name is free");
}

/// Case 8: a start that failed showed code 0, or nothing at all. Here: Exited, 128, StartError, with the reason.
#[actix::test]
async fn a_container_that_cannot_be_made_or_started_says_why() {
    let test = Test::new();
    let pod = test.pod().await;
    let missing = Error::StartFailed { reason: "rootfs /nope: no such directory".to_owned() };
    test.world.host.misbehave(Call::CreateTask, Behaviour::Fail(missing), 1);
    let error = test.create(&pod, "bad").await.expect_err("it cannot be made");
    assert!(error.to_string().contains("/nope"), "{error}");
    let bad = test.core.directory.containers(Some(&pod))[0].record.clone();
    assert!(error.to_string().contains(bad.id.as_str()), "{error}");
    let exit = bad.exit.clone().expect("an exit");
    assert_eq!((bad.phase, exit.code(), exit.reason()), (ContainerPhase::Exited, 128, "StartError"));
    assert!(matches!(test.create(&pod, "bad").await, Err(Error::StartFailed { .. })), "the same again");
    test.remove(&bad.id, IfRunning::Refuse).await.expect("removed");
    let again = test.create(&pod, "bad").await.expect("the name is free");

    let missing = Error::StartFailed { reason: "/nope: no such file".to_owned() };
    test.world.host.misbehave(Call::StartTask, Behaviour::Fail(missing), 1);
    let error = test.start(&again).await.expect_err("it cannot be started");
    assert!(error.to_string().contains("/nope"), "{error}");
    let exit = test.shown(&again).record.exit.clone().expect("an exit");
    assert_eq!((exit.code(), exit.reason()), (128, "StartError"));
    test.remove(&again, IfRunning::Refuse).await.expect("removed");
    assert_eq!(test.world.host.tasks(), 0);
}

/// A start whose answer never comes may have worked: the container is ended, and its true end is its exit.
#[actix::test]
async fn a_start_that_is_not_answered_ends_the_container() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.create(&pod, "web").await.expect("created");
    test.world.host.misbehave(Call::StartTask, Behaviour::AnswerNever, 1);
    let error = test.start(&container).await.expect_err("it is not answered");
    assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error}");
    assert_eq!(test.exit_code(&container).await, 137);
}

/// Case 25: tear-down loops failed on objects that were gone or going.
#[actix::test]
async fn stop_and_remove_of_what_is_not_there_are_successes() {
    let test = Test::new();
    let nobody: ContainerId = "nobody".parse().expect("an id");
    let no_pod: SandboxId = "no-pod".parse().expect("an id");
    test.stop(&nobody, 0).await.expect("success");
    test.remove(&nobody, IfRunning::Refuse).await.expect("success");
    test.stop_pod(&no_pod, None).await.expect("success");
    test.remove_pod(&no_pod).await.expect("success");
    let kill = KillContainer { container: nobody.clone(), signal: Signal::TERM };
    let killed = test.core.router.send(Routed(kill)).await.expect("the router runs");
    assert!(matches!(killed, Err(Error::NotFound { .. })));
    assert!(matches!(test.start(&nobody).await, Err(Error::NotFound { .. })));
    assert!(matches!(test.create(&no_pod, "web").await, Err(Error::NotFound { .. })));
}

#[actix::test]
async fn an_unknown_id_is_answered_with_the_nearest_known_name() {
    let test = Test::new();
    let pod = test.pod().await;
    test.create(&pod, "frontend").await.expect("created");
    let error = test.start(&"frontent".parse().expect("an id")).await.expect_err("unknown");
    assert!(error.to_string().contains("did you mean \"frontend\""), "{error}");
}

/// Case 25: of twenty parallel removals some failed with "already in removing state".
#[actix::test]
async fn twenty_parallel_removals_all_succeed() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    let removals = (0..20).map(|_| test.remove(&container, IfRunning::Kill));
    for result in join_all(removals).await {
        result.expect("removed");
    }
    let other = test.running(&pod, "web").await;
    let removals = (0..20).map(|_| test.remove_pod(&pod));
    for result in join_all(removals).await {
        result.expect("removed");
    }
    assert!(test.core.directory.container(&other).is_none());
    assert_eq!((test.world.host.shims(), test.world.host.tasks()), (0, 0));
    assert_eq!(test.count(|what| matches!(what, What::ContainerExited { .. })), 2);
    assert_eq!(test.count(|what| matches!(what, What::SandboxRemoved)), 1);
}

/// Case 25: RemovePodSandbox during Create left an orphan container.
#[actix::test]
async fn a_pod_is_removed_during_a_creation() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Delay(3_000), 1);
    let creation = test.create(&pod, "web");
    let removal = async {
        pass(500).await;
        test.remove_pod(&pod).await
    };
    let (_created, removed) = futures::join!(creation, removal);
    removed.expect("removed");
    assert!(test.core.directory.containers(None).is_empty());
    assert_eq!((test.world.host.shims(), test.world.host.tasks()), (0, 0));
    test.run("pod").await.expect("the name is free");
}

#[actix::test]
async fn a_container_is_removed_during_its_creation() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Delay(3_000), 1);
    let creation = test.create(&pod, "web");
    let removal = async {
        pass(500).await;
        let id = test.core.directory.containers(None)[0].record.id.clone();
        assert!(matches!(test.remove(&id, IfRunning::Refuse).await, Err(Error::WrongPhase { .. })));
        test.remove(&id, IfRunning::Kill).await
    };
    let (created, removed) = futures::join!(creation, removal);
    removed.expect("removed");
    assert!(matches!(created, Err(Error::Terminating { .. })), "{created:?}");
    assert_eq!(test.world.host.tasks(), 0);
    test.create(&pod, "web").await.expect("the name is free");
}

/// A deletion that fails keeps the container listed with the reason, and is repeated.
#[actix::test]
async fn a_deletion_that_fails_is_repeated() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.create(&pod, "web").await.expect("created");
    let busy = Error::unavailable("the cgroup", "device or resource busy");
    test.world.host.misbehave(Call::DeleteTask, Behaviour::Fail(busy.clone()), 3);
    assert_eq!(test.remove(&container, IfRunning::Refuse).await, Err(busy));
    let activity = test.shown(&container).activity.clone().expect("it is busy");
    assert!(activity.step.contains("busy"), "{activity:?}");
    test.until("it is gone", |test| test.core.directory.container(&container).is_none()).await;
    assert_eq!(test.world.host.made(Call::DeleteTask).len(), 4);
}

/// One hung shim must not slow down the others, nor the readers (P6, P9).
#[actix::test]
async fn a_hung_call_harms_its_own_container_alone() {
    let test = Test::new();
    let pod = test.pod().await;
    test.world.host.misbehave(Call::CreateTask, Behaviour::Hang, 1);
    let stuck = test.create(&pod, "stuck");
    let rest = async {
        pass(10).await;
        let before = tokio::time::Instant::now();
        let other = test.running(&pod, "other").await;
        test.stop(&other, 1_000).await.expect("stopped");
        assert!(before.elapsed().as_millis() < 100, "it waited for the stuck one");
        assert_eq!(test.core.directory.containers(Some(&pod)).len(), 2);
    };
    let (stuck, ()) = futures::join!(stuck, rest);
    assert!(matches!(stuck, Err(Error::DeadlineExceeded { .. })), "{stuck:?}");
    test.remove_pod(&pod).await.expect("removed");
}

#[actix::test]
async fn execs_run_end_and_are_refused_when_the_container_has_ended() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.create(&pod, "web").await.expect("created");
    let exec = || StartExec { container: container.clone(), spec: ExecSpec::new(["true"]) };
    let early = test.core.router.send(Routed(exec())).await.expect("the router runs");
    assert!(matches!(early, Err(Error::WrongPhase { .. })));
    test.start(&container).await.expect("started");
    let id = test.core.router.send(Routed(exec())).await.expect("the router runs").expect("it runs");
    let mut watch = test.core.directory.watch_exec(&id).expect("it is listed");
    let shown = watch.wait_for(|shown| shown.phase == ExecPhase::Exited).await.expect("it ends").clone();
    assert_eq!(shown.exit.as_ref().expect("an exit").code(), 0);

    test.world.host.set_exec_program(Program { runs: None, ..Program::default() });
    let id = test.core.router.send(Routed(exec())).await.expect("the router runs").expect("it runs");
    test.stop(&container, 0).await.expect("stopped");
    let late = test.core.router.send(Routed(exec())).await.expect("the router runs");
    assert!(matches!(late, Err(Error::WrongPhase { .. })));
    let mut watch = test.core.directory.watch_exec(&id).expect("it is listed");
    watch.wait_for(|shown| shown.exit.is_some()).await.expect("it has an end too");
    test.remove(&container, IfRunning::Refuse).await.expect("removed");
    assert!(test.core.directory.exec(&id).is_none());
    assert_eq!(test.count(|what| matches!(what, What::ExecExited { .. })), 2);
}

/// P11: more calls than an inbox holds are refused, and stops still get through.
#[actix::test]
async fn a_full_inbox_refuses_but_lets_stops_through() {
    let test = Test::new();
    let pod = test.pod().await;
    let container = test.running(&pod, "web").await;
    test.world.host.misbehave(Call::MeasureTask, Behaviour::Delay(5_000), 1_000);
    let measure = || test.core.router.send(Routed(MeasureContainer { container: container.clone() }));
    let measurements = join_all((0..300).map(|_| measure()));
    let stop = async {
        pass(100).await;
        test.stop(&container, 0).await
    };
    let (measured, stopped) = futures::join!(measurements, stop);
    stopped.expect("stopped");
    let refused =
        measured.iter().filter(|answer| matches!(answer, Ok(Err(Error::ResourceExhausted { .. })))).count();
    assert_eq!(refused, 300 - 256);
    assert_eq!(test.core.counters.refused.get(), 44);
}

#[actix::test]
async fn a_repeated_run_joins_the_first() {
    let test = Test::new();
    test.world.host.misbehave(Call::LaunchShim, Behaviour::Delay(5_000), 1);
    let different = async {
        pass(100).await;
        let mut spec = SandboxSpec::new("pod".parse().expect("a name"));
        spec.hostname = Some("other".to_owned());
        test.core.router.send(RunSandbox { spec }).await.expect("the router runs")
    };
    let (first, second, different) = futures::join!(test.run("pod"), test.run("pod"), different);
    assert_eq!(first.as_ref().expect("ready"), second.as_ref().expect("joined"));
    assert!(matches!(different, Err(Error::InProgress { .. })), "{different:?}");
    assert_eq!(test.run("pod").await, first);
    assert_eq!(test.world.host.shims(), 1);
}
