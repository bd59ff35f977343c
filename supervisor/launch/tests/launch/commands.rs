//! The program: that it runs, and what is said when it cannot.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use mainstay_launch::{CgroupEntry, CommandFault, LAUNCH_FAILED_STATUS, LaunchError, Reply};
use rustix::process::Signal;
use serde_json::json;

use crate::cases;
use crate::world::{WantedIo, World, reap, wait_reply};

cases![
    output_and_exit_status,
    a_command_that_cannot_run_fails_the_create,
    an_interpreter_that_is_missing_is_named,
    path_and_environment,
    the_program_waits_for_the_release,
    the_child_ends_with_its_caller,
    several_at_once,
    working_directories,
    a_working_directory_cannot_be_a_descriptor,
    exactly_three_descriptors,
    limits,
    an_oom_score_that_cannot_be_had_is_a_warning,
    signals_are_as_in_a_shell,
];

fn output_and_exit_status() {
    let mut world = World::new();
    let ended = world.shell("echo out; echo err >&2; exit 7").run().unwrap();
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(ended.status.code(), Some(7));
    assert_eq!(ended.warnings, [""; 0]);
}

/// A start that failed once showed exit code 0, or no end at all, and left things behind (field case 8).
fn a_command_that_cannot_run_fails_the_create() {
    let mut world = World::new();
    fs::write(world.image("data/plain"), "#!/bin/sh\n").unwrap();
    for (program, expected) in [
        ("/nope", CommandFault::NotFound { searched: None }),
        ("nope", CommandFault::NotFound { searched: Some("/bin".to_owned()) }),
        ("/etc", CommandFault::Directory),
        ("/data/plain", CommandFault::NotExecutable),
        ("/dev/null", CommandFault::NotExecutable),
    ] {
        match world.args(&[program]).create(WantedIo::Pipes, CgroupEntry::default()) {
            Err(LaunchError::Command { program: named, fault }) => {
                assert_eq!((named.as_str(), fault), (program, expected))
            }
            other => panic!("{program}: {:?}", other.err()),
        }
    }
    assert!(matches!(world.args(&[]).run(), Err(LaunchError::Spec { .. })));
    assert!(matches!(world.args(&[""]).run(), Err(LaunchError::Spec { .. })));
    world.spec["process"]["cwd"] = json!("relative");
    assert!(matches!(world.args(&["/bin/true"]).run(), Err(LaunchError::Spec { .. })));
}

fn an_interpreter_that_is_missing_is_named() {
    let mut world = World::new();
    for (name, content) in [("script", "#!/nope\n"), ("garbage", "\u{1}\u{2}\u{3}")] {
        fs::write(world.image("data").join(name), content).unwrap();
        fs::set_permissions(world.image("data").join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = world.args(&["/data/script"]).run().unwrap_err();
    assert!(matches!(script, LaunchError::Command { fault: CommandFault::NoInterpreter, .. }), "{script}");
    let garbage = world.args(&["/data/garbage"]).run().unwrap_err();
    assert!(matches!(garbage, LaunchError::Command { fault: CommandFault::WrongFormat, .. }), "{garbage}");
}

fn path_and_environment() {
    let mut world = World::new();
    world.spec["process"]["env"] = json!(["A=1", "PATH=/nope:/bin", "EMPTY="]);
    assert_eq!(world.args(&["env"]).run().unwrap().output(), "A=1\nPATH=/nope:/bin\nEMPTY=\nHOME=/root");
    world.spec["process"]["env"] = json!(["HOME=/elsewhere"]);
    assert_eq!(world.args(&["/bin/env"]).run().unwrap().output(), "HOME=/elsewhere");
    world.spec["process"]["env"] = json!([]);
    assert_eq!(world.args(&["env"]).user("app").run().unwrap().output(), "HOME=/home/app");
}

fn the_program_waits_for_the_release() {
    let mut world = World::new();
    world.shell("echo ran > /data/mark");
    let created = world.create(WantedIo::Pipes, CgroupEntry::default()).unwrap();
    assert!(!world.path("upper/data/mark").exists());
    created.launching.release().unwrap();
    created.wait().output();
    assert_eq!(fs::read_to_string(world.path("upper/data/mark")).unwrap(), "ran\n");
}

/// A child whose caller is gone would wait for ever, with the container's mounts and name spaces (invariant 4).
fn the_child_ends_with_its_caller() {
    let world = World::new();
    let created = world.create(WantedIo::Pipes, CgroupEntry::default()).unwrap();
    let watch = rustix::process::pidfd_open(created.pid(), rustix::process::PidfdFlags::empty()).unwrap();
    drop(created.launching);
    let status = rustix::process::waitid(
        rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&watch)),
        rustix::process::WaitIdOptions::EXITED,
    );
    assert_eq!(status.unwrap().unwrap().exit_status(), Some(LAUNCH_FAILED_STATUS));
}

/// A child that inherited the socket of another would keep it from ever being seen as started.
fn several_at_once() {
    let worlds: Vec<World> = (0..4).map(|_| World::new()).collect();
    let created: Vec<_> =
        worlds.iter().map(|world| world.create(WantedIo::Pipes, CgroupEntry::default()).unwrap()).collect();
    for container in created.iter().rev() {
        container.launching.release().unwrap();
    }
    for mut container in created {
        let reply = wait_reply(&mut container.launching).unwrap();
        assert!(matches!(reply, Reply::Running), "{reply:?}");
        container.wait().output();
    }
}

fn working_directories() {
    let mut world = World::new();
    for (path, mode) in [("private", 0o700), ("owned", 0o700)] {
        fs::create_dir(world.image(path)).unwrap();
        fs::set_permissions(world.image(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::chown(world.image("owned"), Some(1000), Some(1000)).unwrap();
    std::os::unix::fs::symlink("/data", world.image("link")).unwrap();
    for (cwd, seen) in [
        ("/", "/"),
        ("/data", "/data"),
        ("/made/on/the/way", "/made/on/the/way"),
        ("/link", "/data"),
        ("/../etc", "/etc"),
    ] {
        world.spec["process"]["cwd"] = json!(cwd);
        assert_eq!(world.args(&["pwd"]).run().unwrap().output(), seen);
    }
    // One that only its owner may enter, and one that only root may enter, for a process that is neither at some time.
    for (cwd, user) in [("/owned", "1000"), ("/private", "1000")] {
        world.spec["process"]["cwd"] = json!(cwd);
        assert_eq!(world.args(&["/bin/pwd"]).user(user).run().unwrap().output(), cwd);
    }
    world.spec["process"]["cwd"] = json!("/etc/passwd");
    assert!(matches!(world.run(), Err(LaunchError::System { .. })));
}

/// With WORKDIR `/proc/self/fd/N` a container once began in a directory of the host that the runtime had open
/// (CVE-2024-21626).
fn a_working_directory_cannot_be_a_descriptor() {
    let mut world = World::new();
    let host = fs::File::open("/").unwrap();
    for number in 3..40 {
        for cwd in [
            format!("/proc/self/fd/{number}"),
            format!("/proc/self/fd/{number}/../etc"),
            format!("/proc/1/fd/{number}"),
        ] {
            world.spec["process"]["cwd"] = json!(cwd);
            let error = world.shell("cat ../../../etc/hostname").run().unwrap_err();
            assert!(matches!(error, LaunchError::Spec { .. } | LaunchError::System { .. }), "{cwd}: {error}");
        }
    }
    for cwd in ["/proc/self/cwd", "/proc/self/root", "/proc/1/root/etc"] {
        world.spec["process"]["cwd"] = json!(cwd);
        assert!(world.run().is_err(), "{cwd}");
    }
    std::os::unix::fs::symlink("/proc/self/fd/5", world.image("link")).unwrap();
    world.spec["process"]["cwd"] = json!("/link");
    assert!(world.run().is_err());
    drop(host);
}

fn exactly_three_descriptors() {
    let mut world = World::new();
    let leaks: Vec<fs::File> = (0..30).map(|_| fs::File::open("/").unwrap()).collect();
    for leak in leaks.iter().step_by(2) {
        rustix::io::fcntl_setfd(leak, rustix::io::FdFlags::empty()).unwrap();
    }
    // The listing has one of its own open.
    let script = "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done";
    assert_eq!(
        world.shell(script).run().unwrap().output().lines().take(3).collect::<Vec<_>>(),
        ["0", "1", "2"]
    );
    let container = world.args(&["/bin/sleep", "1000"]).start(WantedIo::Pipes).unwrap();
    let count = |pid| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert_eq!(count(container.pid()), 3);
    let exec = world
        .start_exec(&container, None, json!({ "args": ["/bin/sleep", "1000"] }), WantedIo::Pipes)
        .unwrap();
    assert_eq!(count(exec.pid()), 3);
    exec.kill();
    container.kill();
}

fn limits() {
    let mut world = World::new();
    assert_eq!(world.shell("ulimit -Sn; ulimit -Hn").run().unwrap().output(), "512\n1024");
    world.spec["process"]["rlimits"] = json!([{ "type": "RLIMIT_CORE", "soft": 2, "hard": 1 }]);
    let error = world.run().unwrap_err().to_string();
    assert!(error.contains("RLIMIT_CORE") && error.contains("above the hard limit"), "{error}");
    let twice = json!({ "type": "RLIMIT_CORE", "soft": 0, "hard": 0 });
    world.spec["process"]["rlimits"] = json!([twice, twice]);
    assert!(world.run().unwrap_err().to_string().contains("twice"));
}

/// Lowering the score needs CAP_SYS_RESOURCE, which a nested machine lacks; failing there would mean no pod at all.
fn an_oom_score_that_cannot_be_had_is_a_warning() {
    let mut world = World::new();
    let own: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    world.spec["process"]["oomScoreAdj"] = json!(own + 10);
    let ended = world.args(&["/bin/cat", "/proc/self/oom_score_adj"]).run().unwrap();
    assert_eq!(ended.output(), (own + 10).to_string());
    world.spec["process"]["oomScoreAdj"] = json!(-999);
    let ended = world.run().unwrap();
    if ended.output() != "-999" {
        assert_eq!(ended.output(), own.to_string());
        assert!(ended.warnings.iter().any(|warning| warning.contains("oomScoreAdj")), "{:?}", ended.warnings);
    }
    world.spec["process"]["oomScoreAdj"] = json!(1001);
    assert!(matches!(world.run(), Err(LaunchError::Spec { .. })));
}

/// Rust programs ignore SIGPIPE, and an ignored signal stays ignored over an exec: shells in containers then never end in
/// a pipeline.
fn signals_are_as_in_a_shell() {
    let mut world = World::new();
    let status = world.args(&["/bin/cat", "/proc/self/status"]).run().unwrap();
    for set in ["SigBlk", "SigIgn", "SigCgt"] {
        assert_eq!(crate::world::status_line(status.output(), set), "0000000000000000", "{set}");
    }
    let container = world.args(&["/bin/sleep", "1000"]).start(WantedIo::Pipes).unwrap();
    rustix::process::pidfd_send_signal(&container.launching.pidfd, Signal::KILL).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&reap(&container.launching)), Some(9));
}
