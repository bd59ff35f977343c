//! Sessions on a terminal: a pseudo-terminal of the test's own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Child;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::fake::FakeDaemon;
use crate::{mainstay, run, signal, text, wait_until};

const SIZE: Winsize = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };

struct Pty {
    master: File,
    slave: OwnedFd,
}

impl Pty {
    fn open() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let master = openpt(flags).expect("a pseudo-terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let slave = ioctl_tiocgptpeer(&master, flags | OpenptFlags::CLOEXEC).expect("its other end");
        tcsetwinsize(&slave, SIZE).expect("its size");
        Self { master: master.into(), slave }
    }

    /// Starts the command on this terminal.
    fn start(&self, daemon: &FakeDaemon, arguments: &[&str]) -> Child {
        let end = || self.slave.try_clone().expect("a descriptor");
        let mut command = mainstay(daemon, arguments);
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: setsid and the ioctl are system calls that touch nothing that a fork could leave half done.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
            });
        }
        command.spawn().expect("the command starts")
    }

    fn type_in(&self, keys: &[u8]) {
        (&self.master).write_all(keys).expect("typed");
    }

    /// Reads what is on the screen until `end` is there.
    fn read_until(&self, end: &str) -> String {
        let mut screen = Vec::new();
        while !String::from_utf8_lossy(&screen).contains(end) {
            let mut byte = [0];
            (&self.master).read_exact(&mut byte).expect("a terminal that is there");
            screen.extend(byte);
        }
        String::from_utf8_lossy(&screen).into_owned()
    }

    /// Whether it takes lines and turns Ctrl-C into a signal, as a shell leaves it.
    fn is_cooked(&self) -> bool {
        let modes = tcgetattr(self.slave.as_fd()).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}

#[test]
fn the_terminal_is_raw_in_a_session_and_as_before_after_it() {
    let (daemon, pty) = (FakeDaemon::start(), Pty::open());
    let script = "echo ready; read line; echo got $line; exit 3";
    let mut child = pty.start(&daemon, &["run", "--rm", "-it", "--", "sh", "-c", script]);
    pty.read_until("ready");
    assert!(!pty.is_cooked());
    pty.type_in(b"hello\n");
    pty.read_until("got hello");
    assert_eq!(child.wait().expect("ends").code(), Some(3));
    assert!(pty.is_cooked());
}

#[test]
fn the_terminal_is_restored_when_the_session_is_ended_by_a_signal() {
    let (daemon, pty) = (FakeDaemon::start(), Pty::open());
    let mut child =
        pty.start(&daemon, &["run", "--rm", "-it", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    pty.read_until("ready");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().expect("ends").code(), Some(143));
    assert!(pty.is_cooked());
}

#[test]
fn a_change_of_the_window_is_passed_on() {
    let (daemon, pty) = (FakeDaemon::start(), Pty::open());
    let mut child = pty.start(&daemon, &["run", "--rm", "-it", "--", "sh", "-c", "echo ready; read line"]);
    pty.read_until("ready");
    tcsetwinsize(&pty.slave, Winsize { ws_row: 50, ..SIZE }).expect("another size");
    daemon.wait_for_request("resize 50x120");
    pty.type_in(b"\n");
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

#[test]
fn the_keys_leave_the_container_running() {
    let (daemon, pty) = (FakeDaemon::start(), Pty::open());
    let mut child =
        pty.start(&daemon, &["run", "-it", "--name", "web", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    pty.read_until("ready");
    pty.type_in(b"\x10\x11");
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    assert!(pty.is_cooked());
    let ps = run(&daemon, &["ps"], b"");
    assert!(text(&ps.stdout).contains("web"), "{}", text(&ps.stdout));
}

/// With a terminal that is only for output, Ctrl-C is still ours.
#[test]
fn ctrl_c_without_input_stops_the_container() {
    let (daemon, pty) = (FakeDaemon::start(), Pty::open());
    let mut child = pty.start(&daemon, &["run", "--rm", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    pty.read_until("ready");
    wait_until("the line discipline is cooked", || pty.is_cooked());
    pty.type_in(b"\x03");
    assert!(pty.read_until("kills it").contains("asked the container to stop"));
    assert_eq!(child.wait().expect("ends").code(), Some(130));
}
