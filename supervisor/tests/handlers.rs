//! Pods whose containers `runc` makes: the whole way from a spec to an exit, and what is refused before anything is made.

mod world;

use mainstay_messages::spec::{IdMapping, IdMappings, Seccomp, UserNamespace};
use mainstay_messages::supervisor::{DeleteTask, LaunchShim, PodEnd, StopShim};
use mainstay_messages::{Error, ExitStatus, Handler};
use mainstay_supervisor::handlers::{OciProgram, Runner, Vulnerable};
use rustix::process::Signal;
use world::{World, runs, signal, until};

/// The handlers of these tests.
const RUNC: &str = "runc";
const CAREFUL: &str = "careful";
const ABSENT: &str = "absent";

fn handler(name: &str) -> Handler {
    name.parse().expect("a good name")
}

/// A world with the handlers, where there is a `runc`.
fn world() -> Option<World> {
    let mut world = World::new()?;
    let found =
        ["/usr/bin/runc", "/usr/sbin/runc"].into_iter().find(|path| std::path::Path::new(path).exists());
    let Some(runc) = found else {
        assert!(std::env::var_os("MAINSTAY_TEST_REQUIRE_PEERS").is_none(), "runc is missing");
        eprintln!("skipped: runc is not installed");
        return None;
    };
    let program =
        |program: &str, vulnerable| Runner::Oci(OciProgram { program: program.to_owned(), vulnerable });
    world.settings.handlers = [
        (handler(RUNC), program(runc, Vulnerable::Warn)),
        (handler(CAREFUL), program(&old_runc(&world), Vulnerable::Refuse)),
        (handler(ABSENT), program("/nowhere/runc", Vulnerable::Warn)),
    ]
    .into_iter()
    .collect();
    Some(world)
}

/// A program that says that it is an old one.
fn old_runc(world: &World) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = world.settings.state_dir.with_file_name("old-runc");
    std::fs::write(&path, "#!/bin/sh\necho runc version 1.1.11\n").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    path.display().to_string()
}

/// Everything that a usual container has (seccomp, masked paths, capabilities, limits, a layer) goes through another runtime.
#[actix::test]
async fn a_usual_container_runs_behind_another_runtime() {
    let Some(world) = world() else { return };
    let mut supervisor = world.supervisor().await;
    let mut pod = world.sandbox("pod");
    pod.spec.handler = Some(handler(RUNC));
    let pod = supervisor.launch(pod).await;
    let script = "id -u; grep -c Seccomp:.2 /proc/self/status; echo x > /etc/new; exit 7";
    let mut container = world.container(&pod, "web", &["sh", "-c", script]);
    container.spec.resources.pids = Some(50);
    supervisor.run(&pod, &container).await;
    assert_eq!(supervisor.exit_of("web").await.status, ExitStatus::Exited { code: 7 });
    let log = world.log(&container);
    let words: Vec<_> = log.lines().filter_map(|line| line.split(' ').nth(3)).collect();
    assert_eq!(words, ["0", "1"], "{log}");
    supervisor.done(DeleteTask { sandbox: pod.id.clone(), container: container.id.clone() }).await;
    assert!(world.left_of(&container).is_empty(), "{:?}", world.left_of(&container));
    supervisor.done(StopShim { sandbox: pod.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&pod).is_empty(), "{:?}", world.left(&pod));
}

/// The pod's user namespace is named by path, and its ids come with it.
#[actix::test]
async fn a_user_namespace_of_the_pod_is_joined() {
    let Some(world) = world() else { return };
    let mut supervisor = world.supervisor().await;
    let mut pod = world.sandbox("pod");
    pod.spec.handler = Some(handler(RUNC));
    let ids = IdMappings::both([IdMapping { container: 0, host: 300_000, size: 65_536 }]);
    pod.spec.user_namespace = UserNamespace::Mapped(ids);
    let pod = supervisor.launch(pod).await;
    let container = world.container(&pod, "web", &["sh", "-c", "id -u; cat /proc/self/uid_map; exit 3"]);
    supervisor.run(&pod, &container).await;
    let exit = supervisor.exit_of("web").await;
    assert_eq!(exit.status, ExitStatus::Exited { code: 3 }, "{}", world.log(&container));
    assert!(world.log(&container).contains("300000"), "{}", world.log(&container));
    supervisor.done(StopShim { sandbox: pod.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&pod).is_empty(), "{:?}", world.left(&pod));
}

#[actix::test]
async fn pods_of_a_program_that_is_missing_or_has_holes_are_refused_and_leave_nothing() {
    let Some(world) = world() else { return };
    let supervisor = world.supervisor().await;
    for (name, said) in
        [(ABSENT, "/nowhere/runc"), (CAREFUL, "runc 1.1.11 has 6 known holes, CVE-2024-21626")]
    {
        let mut pod = world.sandbox(name);
        pod.spec.handler = Some(handler(name));
        let launched = supervisor.address.send(LaunchShim { record: pod.clone() }).await.expect("it runs");
        let error = launched.expect_err("refused").to_string();
        assert!(error.contains(said), "{error}");
        assert!(world.left(&pod).is_empty(), "{:?}", world.left(&pod));
    }
    // Others are not harmed.
    let pod = supervisor.launch(world.sandbox("pod")).await;
    supervisor.done(StopShim { sandbox: pod.id.clone(), end: PodEnd::Removed }).await;
}

/// An old runtime left out what it did not know, and the container ran with less than was asked for.
#[actix::test]
async fn what_a_runtime_would_leave_out_is_refused_by_name() {
    let Some(world) = world() else { return };
    let supervisor = world.supervisor().await;
    let mut pod = world.sandbox("pod");
    pod.spec.handler = Some(handler(RUNC));
    let pod = supervisor.launch(pod).await;
    let mut container = world.container(&pod, "web", &["true"]);
    let profile = r#"{"defaultAction":"SCMP_ACT_ALLOW","flags":["SECCOMP_FILTER_FLAG_LOG"]}"#;
    container.spec.security.seccomp = Seccomp::Profile { json: profile.to_owned() };
    match supervisor.create(&pod, &container).await {
        Err(Error::Unsupported { setting, reason }) => {
            assert_eq!(setting, "linux.seccomp.flags");
            assert!(reason.starts_with("runc 1.1"), "{reason}");
        }
        // A newer one knows it.
        Ok(_) => {}
        Err(other) => panic!("{other}"),
    }
    supervisor.done(StopShim { sandbox: pod.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&pod).is_empty(), "{:?}", world.left(&pod));
}

/// `kill -9` of the shim: its containers are killed by cgroup, get a terminal fact, and nothing is left of the runtime's state.
#[actix::test]
async fn a_shim_that_is_killed_takes_its_containers_with_it() {
    let Some(world) = world() else { return };
    let mut supervisor = world.supervisor().await;
    let mut pod = world.sandbox("pod");
    pod.spec.handler = Some(handler(RUNC));
    let pod = supervisor.launch(pod).await;
    let container = world.container(&pod, "web", &["sleep", "1000000"]);
    let process = supervisor.run(&pod, &container).await;
    signal(&pod.shim.clone().expect("launched").process, Signal::KILL);
    let exit = supervisor.exit_of("web").await;
    assert!(matches!(exit.status, ExitStatus::Unknown { .. } | ExitStatus::Signaled { .. }), "{exit:?}");
    until("the container is gone", || !runs(&process)).await;
    supervisor.done(StopShim { sandbox: pod.id.clone(), end: PodEnd::Removed }).await;
    assert!(world.left(&pod).is_empty(), "{:?}", world.left(&pod));
}
