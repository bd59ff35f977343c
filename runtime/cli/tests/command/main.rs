//! The command itself, as a process, against a daemon that fakes containers with child processes: exit
//! statuses, exact output, input, signals, terminals, and what is said when something is wrong. No root is
//! needed.

mod fake;
mod session;
mod terminal;
mod wrong;

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fake::FakeDaemon;

/// How long a condition that must come true may take, in milliseconds: far more than it ever takes.
const CONDITION_DEADLINE_MS: u64 = 60_000;

/// The command, as a client of `daemon`.
fn mainstay(daemon: &FakeDaemon, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.env_remove("MAINSTAY_LOG").env_remove("MAINSTAY_CONFIG");
    command.arg("--socket").arg(&daemon.socket).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command to its end with this input.
fn run(daemon: &FakeDaemon, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = mainstay(daemon, arguments).stdin(Stdio::piped()).spawn().expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // Whoever does not read its input ends it early.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic");
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Waits for a condition.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_millis(CONDITION_DEADLINE_MS);
    while !holds() {
        assert!(Instant::now() < deadline, "did not come true in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("our own child");
}
