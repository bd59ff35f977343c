//! What plugins have changed of a container is true of the real one.

mod world;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use mainstay_messages::adjustment::{
    Adjustment, DeviceChange, DeviceNode, Hook, Hooks, IoPriority, MemoryPolicy, MountChange, ResourceChange,
    Scheduler,
};
use mainstay_messages::record::ContainerRecord;
use mainstay_messages::spec::{Access, Mount, Rlimit};
use mainstay_messages::supervisor::{DeleteTask, StartTask};
use mainstay_messages::{Error, ExitStatus};
use serde_json::Value;
use world::World;

/// A hook of the host's shell.
fn shell(script: &str) -> Hook {
    Hook {
        path: "/bin/sh".into(),
        args: ["sh", "-c", script].map(str::to_owned).into(),
        env: vec!["PATH=/usr/bin:/bin".to_owned()],
        timeout_s: Some(30),
    }
}

fn text(pairs: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned()))).collect()
}

fn bind(source: &Path, destination: &str) -> MountChange {
    MountChange::Put {
        destination: destination.into(),
        kind: "bind".to_owned(),
        source: source.to_string_lossy().into_owned(),
        options: vec!["rbind".to_owned(), "ro".to_owned()],
    }
}

const SCRIPT: &str = r#"
echo "env $A $B ${C-none} $GPU"
echo "nofile $(ulimit -n)"
echo "score $(cat /proc/self/oom_score_adj)"
echo "mount $(cat /adjusted/file) $(test -e /given && echo yes || echo no)"
echo "device $(stat -c '%t:%T' /dev/extra) $(test -e /dev/fuse && echo yes || echo no)"
echo "somaxconn $(cat /proc/sys/net/core/somaxconn)"
echo "host $(readlink /proc/self/ns/ipc)"
echo "nice $(awk '{print $19}' /proc/self/stat)"
"#;

/// Each change of an adjustment is seen by the program.
#[actix::test]
async fn a_program_sees_what_was_changed() {
    let Some(mut world) = World::new() else { return };
    let temp = tempfile::tempdir().expect("a directory");
    fs::write(temp.path().join("file"), "content").expect("written");
    let cdi = r#"{ "cdiVersion": "0.6.0", "kind": "mainstay.test/card",
        "devices": [{ "name": "one", "containerEdits": { "env": ["GPU=one"] } }] }"#;
    fs::write(temp.path().join("card.json"), cdi).expect("written");
    world.settings.cdi_dirs = vec![temp.path().to_owned()];
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let mut container = world.container(&sandbox, "box", &["false"]);
    container.spec.process.env =
        [("A", "1"), ("C", "1")].map(|(key, value)| (key.into(), value.into())).into();
    container.spec.mounts = vec![Mount::bind(temp.path(), "/given", Access::ReadOnly)];
    let adjustment = Adjustment {
        args: Some(["sh", "-c", SCRIPT].map(str::to_owned).into()),
        env: vec![("B".to_owned(), Some("2".to_owned())), ("C".to_owned(), None)],
        mounts: vec![MountChange::Remove { destination: "/given".into() }, bind(temp.path(), "/adjusted")],
        rlimits: vec![Rlimit { name: "NOFILE".to_owned(), soft: 99, hard: 99 }],
        oom_score_adj: Some(700),
        devices: vec![DeviceChange::Put(DeviceNode {
            path: "/dev/extra".into(),
            kind: "c".to_owned(),
            major: 1,
            minor: 3,
            mode: Some(0o666),
            uid: None,
            gid: None,
        })],
        sysctls: text(&[("net.core.somaxconn", "77")]),
        namespaces: BTreeMap::from([("ipc".to_owned(), None)]),
        scheduler: Some(Scheduler { policy: "SCHED_OTHER".to_owned(), nice: 5, ..Scheduler::default() }),
        io_priority: Some(IoPriority { class: "IOPRIO_CLASS_BE".to_owned(), priority: 6 }),
        cdi_devices: vec!["mainstay.test/card=one".to_owned()],
        ..Adjustment::default()
    };
    let container = container.adjusted(adjustment);
    supervisor.run(&sandbox, &container).await;
    let exit = supervisor.exit_of("box").await;
    let log = world.log(&container);
    assert_eq!(exit.status, ExitStatus::Exited { code: 0 }, "{log}");
    let host = fs::read_link("/proc/self/ns/ipc").expect("readable");
    let seen = [
        "env 1 2 none one".to_owned(),
        "nofile 99".to_owned(),
        "score 700".to_owned(),
        "mount content no".to_owned(),
        "device 1:3 no".to_owned(),
        "somaxconn 77".to_owned(),
        format!("host {}", host.display()),
        "nice 5".to_owned(),
    ];
    for line in seen {
        assert!(log.contains(&format!(" F {line}\n")), "no {line:?} in {log}");
    }
}

/// Limits are in force at once, and are those that readers see.
#[actix::test]
async fn limits_that_were_changed_are_in_force() {
    let Some(world) = World::new() else { return };
    let supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let mut container = world.container(&sandbox, "box", &["sleep", "1000000"]);
    container.spec.resources.pids = Some(50);
    let adjustment = Adjustment {
        resources: ResourceChange { pids: Some(33), ..ResourceChange::default() },
        memory_policy: Some(MemoryPolicy { mode: "MPOL_DEFAULT".to_owned(), ..MemoryPolicy::default() }),
        ..Adjustment::default()
    };
    let container = container.adjusted(adjustment);
    assert_eq!(container.limits().pids, Some(33));
    supervisor.run(&sandbox, &container).await;
    let stats = world.cgroup("pod/box").stats().expect("a group");
    assert_eq!(stats.pids_limit, Some(33));
}

/// Hooks run where and when they are to, and see the container as it is then.
#[actix::test]
async fn hooks_run_in_their_order() {
    let Some(world) = World::new() else { return };
    let temp = tempfile::tempdir().expect("a directory");
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let file = |name: &str| temp.path().join(name);
    let hook = |name: &str| shell(&format!("cat > {:?}; echo {name} >> {:?}", file(name), file("order")));
    let points = ["prestart", "create_runtime", "create_container", "poststart", "poststop"];
    let hooks = Hooks {
        prestart: vec![hook("prestart")],
        create_runtime: vec![hook("create_runtime")],
        create_container: vec![hook("create_container")],
        start_container: vec![shell("cat > /start_container; id -u >> /start_container")],
        poststart: vec![hook("poststart"), shell("exit 1")],
        poststop: vec![shell("exit 1"), hook("poststop")],
    };
    let container = world.container(&sandbox, "box", &["sh", "-c", "cat /start_container"]);
    let adjustment =
        Adjustment { hooks, annotations: text(&[("my/key", "its value")]), ..Adjustment::default() };
    let container = container.adjusted(adjustment);
    let process = supervisor.create(&sandbox, &container).await.expect("created");
    assert_eq!(
        fs::read_to_string(file("order")).expect("there"),
        "prestart\ncreate_runtime\ncreate_container\n"
    );
    let start = StartTask { sandbox: sandbox.id.clone(), container: container.id.clone() };
    supervisor.done(start).await;
    assert_eq!(supervisor.exit_of("box").await.status, ExitStatus::Exited { code: 0 });
    let log = world.log(&container);
    assert!(log.contains("\"status\":\"created\"") && log.contains("}0\n"), "{log}");
    supervisor.done(DeleteTask { sandbox: sandbox.id.clone(), container: container.id.clone() }).await;
    assert_eq!(
        fs::read_to_string(file("order")).expect("there"),
        points.map(|point| format!("{point}\n")).concat()
    );
    for (point, status) in points.into_iter().zip(["creating", "creating", "creating", "running", "stopped"])
    {
        let state: Value = serde_json::from_slice(&fs::read(file(point)).expect("there")).expect("JSON");
        assert_eq!((&state["id"], &state["status"]), (&"box".into(), &status.into()), "{point}");
        assert_eq!(state["annotations"]["my/key"], "its value", "{point}");
        let pid = if point == "poststop" { Value::Null } else { process.pid.into() };
        assert_eq!(state["pid"], pid, "{point}");
    }
    assert!(world.left_of(&container).is_empty(), "{:?}", world.left_of(&container));
}

/// A hook that failed, or hung, left its container half made.
#[actix::test]
async fn a_creation_whose_hook_fails_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let temp = tempfile::tempdir().expect("a directory");
    let supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let stopped = temp.path().join("stopped");
    let failing = |name: &str, hooks: Hooks| {
        let hooks = Hooks { poststop: vec![shell(&format!("cat > {stopped:?}"))], ..hooks };
        world.container(&sandbox, name, &["true"]).adjusted(Adjustment { hooks, ..Adjustment::default() })
    };
    let bad = || vec![shell("echo no such card; exit 3")];
    let mut hanging = shell("sleep 1000000");
    hanging.timeout_s = Some(1);
    let cases = [
        (
            "createRuntime[0]",
            "no such card",
            failing("a", Hooks { create_runtime: bad(), ..Hooks::default() }),
        ),
        (
            "createContainer[0]",
            "no such card",
            failing("b", Hooks { create_container: bad(), ..Hooks::default() }),
        ),
        (
            "prestart[0]",
            "within 1000 ms",
            failing("c", Hooks { prestart: vec![hanging], ..Hooks::default() }),
        ),
    ];
    for (hook, why, container) in cases {
        let error = supervisor.create(&sandbox, &container).await.expect_err("it fails").to_string();
        assert!(error.contains(hook) && error.contains(why), "{error}");
        assert!(world.left_of(&container).is_empty(), "{:?}", world.left_of(&container));
        fs::remove_file(&stopped).expect("the hooks of the end have run");
    }
    let container = world.container(&sandbox, "box", &["sleep", "1000000"]);
    supervisor.run(&sandbox, &container).await;
}

/// The filter is the plugin's, and not the default one.
#[actix::test]
async fn a_filter_that_was_changed_is_loaded() {
    let Some(world) = World::new() else { return };
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let filter = r#"{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        { "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28, "args": [] }] }"#;
    let adjustment = Adjustment { seccomp: Some(filter.to_owned()), ..Adjustment::default() };
    let container = world.container(&sandbox, "box", &["sh", "-c", "mkdir /new 2>&1"]).adjusted(adjustment);
    supervisor.run(&sandbox, &container).await;
    assert_eq!(supervisor.exit_of("box").await.status, ExitStatus::Exited { code: 1 });
    let log = world.log(&container);
    assert!(log.contains("No space left"), "{log}");
}

/// A pair of devices of the host, gone with it.
struct Veth;

const DEVICE: &str = "msadjust0";
const PEER: &str = "msadjust1";

fn ip(args: &[&str]) -> String {
    let output = Command::new("ip").args(args).output().expect("ip(8) runs");
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

impl Drop for Veth {
    fn drop(&mut self) {
        // One end takes the other along, wherever that is.
        let _ = Command::new("ip").args(["link", "delete", PEER]).output();
    }
}

/// A device that was given stayed in the pod's network namespace when its container had gone, and no other could have it.
#[actix::test]
async fn a_network_device_is_given_and_comes_back() {
    let Some(world) = World::new() else { return };
    if Command::new("ip").arg("-V").output().is_err() {
        eprintln!("skipped a_network_device_is_given_and_comes_back: there is no ip(8)");
        return;
    }
    ip(&["link", "add", DEVICE, "type", "veth", "peer", "name", PEER]);
    let _veth = Veth;
    ip(&["address", "add", "192.0.2.9/24", "dev", DEVICE]);
    let mut supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let devices = || BTreeMap::from([(DEVICE.to_owned(), "card0".to_owned())]);
    // Twice: what came back can be given again.
    for name in ["a", "b"] {
        let adjustment = Adjustment { net_devices: devices(), ..Adjustment::default() };
        let container = world.container(&sandbox, name, &["ip", "-o", "address", "show", "card0"]);
        let container = container.adjusted(adjustment);
        supervisor.run(&sandbox, &container).await;
        assert_eq!(supervisor.exit_of(name).await.status, ExitStatus::Exited { code: 0 });
        let log = world.log(&container);
        assert!(log.contains("192.0.2.9/24"), "{log}");
        supervisor.done(DeleteTask { sandbox: sandbox.id.clone(), container: container.id.clone() }).await;
        assert!(ip(&["-o", "address", "show", DEVICE]).contains("192.0.2.9/24"));
    }
    let hooks = Hooks { create_runtime: vec![shell("exit 1")], ..Hooks::default() };
    let adjustment = Adjustment { net_devices: devices(), hooks, ..Adjustment::default() };
    let container = world.container(&sandbox, "c", &["true"]).adjusted(adjustment);
    supervisor.create(&sandbox, &container).await.expect_err("its hook fails");
    assert!(ip(&["-o", "address", "show", DEVICE]).contains("192.0.2.9/24"));
}

type Change = Box<dyn FnOnce(ContainerRecord) -> ContainerRecord>;

fn refused(change: impl FnOnce(&mut Adjustment)) -> impl FnOnce(ContainerRecord) -> ContainerRecord {
    let mut adjustment = Adjustment::default();
    change(&mut adjustment);
    move |container| container.adjusted(adjustment)
}

/// What cannot be done is said before anything starts.
#[actix::test]
async fn what_the_machine_cannot_do_is_refused_by_name() {
    let Some(world) = World::new() else { return };
    let supervisor = world.supervisor().await;
    let sandbox = supervisor.launch(world.sandbox("pod")).await;
    let cases: Vec<(&str, Change)> = vec![
        ("CDI_devices", Box::new(refused(|all| all.cdi_devices = vec!["no.such/card=1".to_owned()]))),
        (
            "linux.devices",
            Box::new(refused(|all| {
                all.devices = vec![DeviceChange::Remove { path: "/dev/null".into() }];
            })),
        ),
        ("seccomp", Box::new(refused(|all| all.seccomp = Some("{}".to_owned())))),
        ("net.core.no_such", Box::new(refused(|all| all.sysctls = text(&[("net.core.no_such", "1")])))),
    ];
    for (number, (field, change)) in cases.into_iter().enumerate() {
        let container = change(world.container(&sandbox, &format!("c{number}"), &["true"]));
        let error: Error = supervisor.create(&sandbox, &container).await.expect_err("refused");
        assert!(error.to_string().contains(field), "{error}");
        assert!(world.left_of(&container).is_empty(), "{:?}", world.left_of(&container));
    }
}
