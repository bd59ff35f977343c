//! Hooks: where they run, what they are told, and what their failures do.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use mainstay_launch::{CgroupEntry, HookPoint, HooksRequest, LaunchError, Reply, run_hooks};
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::cases;
use crate::world::{ID, WantedIo, World, host_mounts, reap, wait_reply};

cases![
    hooks_on_the_host_run_before_the_root_is_entered,
    hooks_of_the_container_run_in_it,
    a_hook_that_fails_is_named_with_its_words,
    a_start_hook_that_fails_keeps_the_program_from_running,
    a_hook_that_hangs_is_killed_with_what_it_started,
    a_hook_that_cannot_be_executed_says_so,
    hooks_after_the_end_are_all_run,
    hooks_that_are_wrong_are_refused_by_name,
    a_hook_has_nothing_but_what_it_is_given,
];

/// A hook of the host's shell.
fn shell(script: &str) -> Value {
    json!({ "path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"] })
}

/// Runs hooks to their end; the warnings.
fn run(world: &World, points: &[HookPoint], pid: Option<Pid>) -> Result<Vec<String>, LaunchError> {
    let (spec, bundle) = (world.parsed(), world.path("bundle"));
    let host_mounts = Some(host_mounts().as_fd());
    let request = HooksRequest { points, spec: &spec, id: ID, bundle: &bundle, pid, host_mounts };
    let mut launching = run_hooks(request).unwrap();
    let reply = wait_reply(&mut launching);
    reap(&launching);
    match reply? {
        Reply::Ready { warnings, .. } => Ok(warnings),
        Reply::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn hooks_on_the_host_run_before_the_root_is_entered() {
    let mut world = World::new();
    let (state, seen) = (world.path("state"), world.path("seen"));
    let script = format!("cat > {state:?}; readlink /proc/self/ns/mnt > {seen:?}");
    world.spec["annotations"]["my/key"] = json!("its value");
    world.spec["hooks"] = json!({ "prestart": [shell("true")], "createRuntime": [shell(&script)] });
    world.shell("echo program");
    let mut called = 0;
    let environment = |pid| {
        called += 1;
        assert_eq!(
            run(&world, &[HookPoint::Prestart, HookPoint::CreateRuntime], Some(pid)).unwrap(),
            [""; 0]
        );
        let state = read(&state);
        assert_eq!((&state["id"], &state["status"]), (&json!(ID), &json!("creating")));
        assert_eq!(state["pid"], json!(pid.as_raw_pid()));
        assert_eq!(state["bundle"], json!(world.path("bundle")));
        assert_eq!(state["annotations"]["my/key"], json!("its value"));
        // Everything of the container is there to be looked at.
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
        assert!(mounts.contains(&format!("{}/rootfs/proc", world.path("bundle").display())), "{mounts}");
    };
    let mut running = world.create_with(WantedIo::Pipes, CgroupEntry::default(), environment).unwrap();
    running.launching.release().unwrap();
    assert!(matches!(wait_reply(&mut running.launching).unwrap(), Reply::Running));
    assert_eq!(running.wait().output(), "program");
    assert_eq!(called, 1);
    let host = fs::read_link(format!("/proc/self/fd/{}", host_mounts().as_raw_fd())).unwrap();
    assert_eq!(fs::read_to_string(&seen).unwrap().trim(), host.to_str().unwrap());
}

fn hooks_of_the_container_run_in_it() {
    let mut world = World::new();
    let state = world.path("state");
    world.spec["hostname"] = json!("boxed");
    let script = format!("cat > {state:?}; uname -n > {:?}", world.path("name"));
    world.spec["hooks"] = json!({
        "createContainer": [shell(&script)],
        "startContainer": [{ "path": "/bin/sh", "args": ["sh", "-c", "cat > /tmp/state; id -u > /tmp/user"] }],
    });
    fs::set_permissions(world.image("tmp"), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    world.user("app").shell("cat /tmp/user; cat /tmp/state");
    let running = world.start(WantedIo::Pipes).unwrap();
    let pid = running.pid().as_raw_pid();
    let ended = running.wait();
    let (user, started) = ended.output().split_once('\n').unwrap();
    assert_eq!(user, "1000");
    let started: Value = serde_json::from_str(started).unwrap();
    assert_eq!((&started["status"], &started["pid"]), (&json!("created"), &json!(pid)));
    let created = read(&state);
    assert_eq!((&created["status"], &created["pid"]), (&json!("creating"), &json!(pid)));
    assert_eq!(fs::read_to_string(world.path("name")).unwrap().trim(), "boxed");
}

fn a_hook_that_fails_is_named_with_its_words() {
    let mut world = World::new();
    world.args(&["/bin/true"]);
    world.spec["hooks"] =
        json!({ "createContainer": [shell("true"), shell("echo no such card >&2; exit 3")] });
    let error = world.run().unwrap_err().to_string();
    assert_eq!(
        error,
        "hooks.createContainer[1] (\"/bin/sh\") ended with status 3; it said: \"no such card\""
    );
}

fn a_start_hook_that_fails_keeps_the_program_from_running() {
    let mut world = World::new();
    world.spec["hooks"] =
        json!({ "startContainer": [{ "path": "/bin/sh", "args": ["sh", "-c", "kill -9 $$"] }] });
    world.shell("touch /tmp/ran");
    let error = world.run().unwrap_err().to_string();
    assert_eq!(error, "hooks.startContainer[0] (\"/bin/sh\") was ended by signal 9");
    assert!(!world.path("upper/tmp/ran").exists());
}

fn a_hook_that_hangs_is_killed_with_what_it_started() {
    let mut world = World::new();
    let child = world.path("child");
    let mut hook = shell(&format!("sleep 1000 & echo $! > {child:?}; echo waiting; wait"));
    hook["timeout"] = json!(1);
    world.spec["hooks"] = json!({ "createRuntime": [hook] });
    let error = run(&world, &[HookPoint::CreateRuntime], None).unwrap_err().to_string();
    assert!(error.ends_with("did not end within 1000 ms and was killed; it said: \"waiting\""), "{error}");
    let pid = fs::read_to_string(&child).unwrap();
    let gone = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.map_or(true, |stat| stat.contains(") Z"))
    };
    // It was signalled before this was reported; the kernel is given its time.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !gone() {
        assert!(std::time::Instant::now() < deadline, "process {pid} is still there");
        std::thread::yield_now();
    }
}

fn a_hook_that_cannot_be_executed_says_so() {
    let mut world = World::new();
    world.args(&["/bin/true"]);
    world.spec["hooks"] = json!({ "createContainer": [{ "path": "/no/such/hook" }] });
    let error = world.run().unwrap_err().to_string();
    assert!(error.contains("it cannot be executed: No such file or directory"), "{error}");
}

fn hooks_after_the_end_are_all_run() {
    let mut world = World::new();
    let state = world.path("state");
    world.spec["hooks"] = json!({ "poststop": [shell("exit 4"), shell(&format!("cat > {state:?}"))] });
    let warnings = run(&world, &[HookPoint::Poststop], None).unwrap();
    assert_eq!(warnings, ["hooks.poststop[0] (\"/bin/sh\") ended with status 4"]);
    assert_eq!(read(&state)["status"], json!("stopped"));
    assert_eq!(read(&state)["pid"], Value::Null);
}

fn hooks_that_are_wrong_are_refused_by_name() {
    let mut world = World::new();
    world.args(&["/bin/true"]);
    world.spec["hooks"] = json!({ "poststart": [{ "path": "hook" }] });
    assert!(world.run().unwrap_err().to_string().contains("hooks.poststart[0].path"));
    world.spec["hooks"] = json!({ "poststop": [{ "path": "/hook", "timeout": 0 }] });
    assert!(world.run().unwrap_err().to_string().contains("hooks.poststop[0].timeout"));
}

fn a_hook_has_nothing_but_what_it_is_given() {
    let mut world = World::new();
    let seen = world.path("seen");
    let script = format!("exec > {seen:?}; env; ls /proc/self/fd | wc -l; grep SigIgn /proc/self/status");
    world.spec["hooks"] = json!({ "createRuntime": [{ "path": "/bin/sh", "args": ["sh", "-c", script] }] });
    run(&world, &[HookPoint::CreateRuntime], None).unwrap();
    let seen = fs::read_to_string(&seen).unwrap();
    let kept: Vec<&str> = seen
        .lines()
        .filter(|line| !["PWD=", "_=", "SHLVL=", "OLDPWD="].iter().any(|own| line.starts_with(own)))
        .collect();
    // Descriptors 0 to 2, and the one that lists them.
    assert_eq!(kept, ["4", "SigIgn:\t0000000000000000"]);
}
