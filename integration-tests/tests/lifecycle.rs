//! Pods and containers from nothing to removed, on real processes: the plain ways and the ways of bad input.

use mainstay::{
    ContainerPhase, ContainerSpec, Error, ExitStatus, IfRunning, Rootfs, SandboxPhase, SandboxSpec, Signal,
    StopOptions,
};
use mainstay_integration_tests::{Shorthand, script_spec, world};
use rstest::rstest;

#[rstest]
#[case("exit 0", 0)]
#[case("exit 3", 3)]
#[case("exit 255", 255)]
// PID 1 of a pid namespace cannot be killed from inside: these are for its child, and for nobody.
#[case("sh -c 'kill -KILL $$'; exit $?", 137)]
#[case("kill -TERM $$; exit 4", 4)]
#[tokio::test]
async fn an_exit_keeps_its_code(#[case] script: &str, #[case] code: u32) {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", script).await;
    let exit = runtime.exit_of(&container).await;
    assert_eq!(exit.code(), code, "{exit}");
    assert_eq!(runtime.container(&container).expect("listed").record.phase, ContainerPhase::Exited);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// moby PR#8990 and cd#6429: a failed start showed code 0 or no time, or left debris, or hung.
#[rstest]
#[case("/nope", "/nope")]
#[case("nope-nope", "nope-nope")]
#[case("/etc", "/etc")]
#[case("/etc/hostname", "/etc/hostname")]
#[tokio::test]
async fn a_command_that_cannot_run_is_a_start_error(#[case] program: &str, #[case] named: &str) {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let spec = ContainerSpec::new("c".parse().expect("a good name"), [program]);
    let outcome = match runtime.create_container(&pod, spec).await {
        Ok(container) => runtime.start_container(&container).await,
        Err(error) => Err(error),
    };
    let error = outcome.expect_err("it cannot run");
    assert!(error.to_string().contains(named), "{error}");
    let container = runtime.containers_of(&pod).pop().expect("it stays listed").record.clone();
    assert_eq!(container.phase, ContainerPhase::Exited);
    let exit = container.exit.expect("a terminal record");
    assert_eq!((exit.code(), exit.reason()), (128, "StartError"));
    assert!(exit.at.seconds() > 0, "it has a time");
    runtime.remove_container(&container.id, IfRunning::Refuse).await.expect("it can be removed");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_missing_rootfs_is_a_start_error_that_names_it() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut spec = script_spec("c", "true");
    spec.rootfs = Rootfs::Directory { path: "/does/not/exist".into() };
    let error = runtime.create_container(&pod, spec).await.expect_err("there is no such root");
    assert!(error.to_string().contains("/does/not/exist"), "{error}");
    let container = runtime.containers_of(&pod).pop().expect("it stays listed").record.clone();
    assert!(matches!(container.exit.expect("a terminal record").status, ExitStatus::StartError { .. }));
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_taken_name_names_its_holder_and_is_free_after_removal() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut other = SandboxSpec::new("p".parse().expect("a good name"));
    other.labels.insert("a".into(), "b".into());
    match runtime.run_sandbox(other.clone()).await {
        Err(Error::NameTaken { holder, .. }) => assert_eq!(holder, pod.as_str()),
        other => panic!("expected NameTaken, got {other:?}"),
    }
    let same = SandboxSpec::new("p".parse().expect("a good name"));
    assert_eq!(runtime.run_sandbox(same).await.expect("the same request joins"), pod);
    let first = runtime.created(&pod, "c", "true").await;
    match runtime.create_container(&pod, script_spec("c", "false")).await {
        Err(Error::NameTaken { holder, .. }) => assert_eq!(holder, first.as_str()),
        other => panic!("expected NameTaken, got {other:?}"),
    }
    runtime.remove_container(&first, IfRunning::Refuse).await.expect("removed");
    runtime.created(&pod, "c", "false").await;
    runtime.remove_sandbox(&pod).await.expect("removed");
    runtime.run_sandbox(other).await.expect("the name is free at once");
    world.finish(runtime).await;
}

/// PR#10520, cd#8953, crio#240: tear-down loops failed on objects that were gone or going.
#[tokio::test]
async fn stopping_and_removing_what_is_not_there_is_a_success() {
    let world = world!();
    let runtime = world.start().await;
    let nobody = "0123456789abcdef0123456789abcdef";
    let (pod, container) = (nobody.parse().expect("an id"), nobody.parse().expect("an id"));
    runtime.stop_container(&container, StopOptions::default()).await.expect("success");
    runtime.remove_container(&container, IfRunning::Refuse).await.expect("success");
    runtime.stop_sandbox(&pod, None).await.expect("success");
    runtime.remove_sandbox(&pod).await.expect("success");
    let started = runtime.start_container(&container).await;
    assert!(matches!(started, Err(Error::NotFound { .. })), "{started:?}");
    let killed = runtime.kill_container(&container, Signal::TERM).await;
    assert!(matches!(killed, Err(Error::NotFound { .. })), "{killed:?}");
    world.finish(runtime).await;
}

#[tokio::test]
async fn twenty_removals_at_once_all_succeed() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "sleep 1000").await;
    let containers = (0..20).map(|_| runtime.remove_container(&container, IfRunning::Kill));
    let pods = (0..20).map(|_| runtime.remove_sandbox(&pod));
    let (a, b) =
        futures::future::join(futures::future::join_all(containers), futures::future::join_all(pods)).await;
    for outcome in a.into_iter().chain(b) {
        outcome.expect("every one succeeds");
    }
    assert!(runtime.containers().is_empty() && runtime.sandboxes().is_empty());
    world.finish(runtime).await;
}

#[tokio::test]
async fn an_unknown_name_gets_the_nearest_one() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("database").await;
    let container = runtime.created(&pod, "postgres", "true").await;
    let error = runtime.resolve_container("postgers").expect_err("unknown");
    assert!(error.to_string().contains("did you mean"), "{error}");
    assert!(error.to_string().contains("postgres"), "{error}");
    assert_eq!(runtime.resolve_container(&container.as_str()[..8]).expect("a prefix"), container);
    assert_eq!(runtime.resolve_container("database/postgres").expect("a full name"), container);
    assert_eq!(runtime.resolve_sandbox("database").expect("a name"), pod);
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_pod_shares_its_namespaces_and_not_its_processes() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let a = runtime.started(&pod, "a", "sleep 1000").await;
    let b = runtime.started(&pod, "b", "sleep 1000").await;
    for (namespace, shared) in [("net", true), ("ipc", true), ("uts", true), ("pid", false), ("mnt", false)] {
        let script = format!("readlink /proc/self/ns/{namespace}");
        let (in_a, in_b) = (runtime.sh(&a, &script).await.stdout, runtime.sh(&b, &script).await.stdout);
        assert_eq!(in_a == in_b, shared, "{namespace}");
    }
    assert_eq!(runtime.sh(&a, "hostname").await.stdout, b"p\n");
    assert_eq!(runtime.sh(&a, "cat /sys/class/net/lo/operstate; ls /sys/class/net").await.exit.code(), 0);
    runtime.stop_sandbox(&pod, Some(std::time::Duration::ZERO)).await.expect("stopped");
    assert_eq!(runtime.sandbox(&pod).expect("listed").record.phase, SandboxPhase::Stopped);
    for container in [a, b] {
        assert_eq!(runtime.exit_of(&container).await.code(), 137);
    }
    world.finish(runtime).await;
}

#[tokio::test]
async fn two_runtimes_live_in_one_process() {
    let (one, two) = (world!(), world!());
    let (first, second) = (one.start().await, two.start().await);
    let (a, b) = (first.pod("p").await, second.pod("p").await);
    let c = first.started(&a, "c", "exit 1").await;
    let d = second.started(&b, "c", "exit 2").await;
    assert_eq!(first.exit_of(&c).await.code(), 1);
    assert_eq!(second.exit_of(&d).await.code(), 2);
    assert!(second.container(&c).is_err(), "one does not see the other's");
    one.finish(first).await;
    two.finish(second).await;
}
