//! Further processes in a running container.

use std::fs;

use mainstay_launch::{CommandFault, LaunchError, WindowSize};
use rustix::process::{Signal, pidfd_send_signal};
use serde_json::json;

use crate::cases;
use crate::world::{Running, WantedIo, World, reap, status_line};

cases![
    it_is_in_the_container,
    it_is_confined_like_the_container,
    it_reports_what_cannot_run,
    it_has_a_terminal,
    nothing_is_executed_in_what_has_ended,
    its_working_directory_is_inside,
];

fn sleeper(world: &mut World) -> Running {
    world.args(&["/bin/sleep", "1000"]).start(WantedIo::Pipes).unwrap()
}

fn it_is_in_the_container() {
    let mut world = World::new();
    world.spec["hostname"] = json!("inside");
    let container = sleeper(&mut world);
    let script = "for n in pid net ipc uts mnt cgroup; do readlink /proc/self/ns/$n; done; hostname; cat /proc/1/comm; exit 3";
    let ended = world.exec(&container, None, json!({ "args": ["sh", "-c", script] })).unwrap();
    assert_eq!(ended.status.code(), Some(3));
    let lines: Vec<_> = ended.stdout.lines().collect();
    for (line, name) in lines.iter().zip(["pid", "net", "ipc", "uts", "mnt", "cgroup"]) {
        let of_container = fs::read_link(format!("/proc/{}/ns/{name}", container.pid())).unwrap();
        assert_eq!(*line, of_container.to_str().unwrap());
    }
    assert_eq!(lines[6..], ["inside", "sleep"]);
    // The caller is back where it was: its next child is not born in the container.
    let own =
        std::process::Command::new("/bin/busybox").args(["readlink", "/proc/self/ns/pid"]).output().unwrap();
    let expected = fs::read_link("/proc/self/ns/pid").unwrap();
    assert_eq!(String::from_utf8(own.stdout).unwrap().trim(), expected.to_str().unwrap());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&container.kill()), Some(9));
}

fn it_is_confined_like_the_container() {
    let mut world = World::new();
    let container = sleeper(&mut world);
    let mut change = json!({ "args": ["/bin/cat", "/proc/self/status"] });
    let ended = world.exec(&container, Some("app"), change.clone()).unwrap();
    for (name, value) in [
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("CapEff", "0000000000000000"),
        ("CapBnd", "00000000a80425fb"),
    ] {
        assert_eq!(status_line(ended.output(), name), value, "{name}");
    }
    change["capabilities"] = json!(null);
    let ended = world.exec(&container, None, change).unwrap();
    assert_eq!(status_line(ended.output(), "CapEff"), "00000000a80425fb");
    let ended =
        world.exec(&container, None, json!({ "args": ["mount", "-t", "tmpfs", "x", "/data"] })).unwrap();
    assert!(!ended.status.success());
    container.kill();
}

fn it_reports_what_cannot_run() {
    let mut world = World::new();
    let container = sleeper(&mut world);
    for (program, expected) in
        [("/nope", CommandFault::NotFound { searched: None }), ("/etc", CommandFault::Directory)]
    {
        match world.exec(&container, None, json!({ "args": [program] })) {
            Err(LaunchError::Command { fault, .. }) => assert_eq!(fault, expected),
            other => panic!("{other:?}"),
        }
    }
    container.kill();
}

fn it_has_a_terminal() {
    let mut world = World::new();
    let container = sleeper(&mut world);
    let size = WindowSize { rows: 12, columns: 34 };
    let change = json!({ "args": ["sh", "-c", "stty size; tty"] });
    let exec = world.start_exec(&container, Some("app"), change, WantedIo::Terminal(size)).unwrap();
    assert_eq!(exec.wait_terminal().1, "12 34\n/dev/pts/0\n");
    container.kill();
}

/// An exec in a container that had just ended once ran into an error that named the kernel's ENOMEM, and clients retried.
fn nothing_is_executed_in_what_has_ended() {
    let mut world = World::new();
    let container = sleeper(&mut world);
    pidfd_send_signal(&container.launching.pidfd, Signal::KILL).unwrap();
    let mut fds = [rustix::event::PollFd::new(&container.launching.pidfd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, None).unwrap();
    let change = json!({ "args": ["/bin/true"] });
    assert!(matches!(world.exec(&container, None, change.clone()), Err(LaunchError::TargetGone)));
    reap(&container.launching);
    assert!(matches!(world.exec(&container, None, change), Err(LaunchError::TargetGone)));
}

fn its_working_directory_is_inside() {
    let mut world = World::new();
    let container = sleeper(&mut world);
    let host = fs::File::open("/").unwrap();
    for number in 3..40 {
        let change = json!({ "args": ["pwd"], "cwd": format!("/proc/self/fd/{number}") });
        assert!(world.exec(&container, None, change).is_err(), "{number}");
    }
    drop(host);
    let ended = world.exec(&container, None, json!({ "args": ["pwd"], "cwd": "/data" })).unwrap();
    assert_eq!(ended.output(), "/data");
    container.kill();
}
