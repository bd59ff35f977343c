//! Sessions without a terminal.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;

use rstest::rstest;
use rustix::process::Signal;

use crate::fake::{FakeDaemon, NOT_CREATABLE, NOT_STARTABLE, SLOW_POD};
use crate::{mainstay, run, signal, text};

#[rstest]
#[case("exit 0", 0)]
#[case("exit 3", 3)]
#[case("exit 255", 255)]
#[case("kill -9 $$", 137)]
#[case("kill -TERM $$", 143)]
fn the_exit_status_is_that_of_the_container(#[case] script: &str, #[case] status: i32) {
    let daemon = FakeDaemon::start();
    let output = run(&daemon, &["run", "--rm", "--", "sh", "-c", script], b"");
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    assert_eq!(daemon.objects(), (0, 0));
}

#[test]
fn output_goes_where_it_went() {
    let daemon = FakeDaemon::start();
    let output = run(&daemon, &["run", "--", "sh", "-c", "printf out; printf err >&2"], b"");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out", "err"));
    // Without --rm the container stays for `logs` and `inspect`.
    assert_eq!(daemon.objects(), (1, 1));
}

/// moby#31223: the last bytes before the exit were lost, now and then.
#[test]
fn all_output_arrives_before_the_exit() {
    let daemon = FakeDaemon::start();
    for _ in 0..20 {
        let output =
            run(&daemon, &["run", "--rm", "--", "sh", "-c", "head -c 1048576 /dev/zero; exit 3"], b"");
        assert_eq!((output.stdout.len(), output.status.code()), (1_048_576, Some(3)));
    }
}

#[test]
fn input_goes_in_and_its_end_too() {
    let daemon = FakeDaemon::start();
    let input: Vec<u8> = (0..3_000_000u32).map(|i| (i % 253) as u8).collect();
    let output = run(&daemon, &["run", "--rm", "-i", "--", "cat"], &input);
    assert_eq!(output.stdout, input);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn without_interactive_no_input_is_taken() {
    let daemon = FakeDaemon::start();
    let output = run(&daemon, &["run", "--rm", "--", "sh", "-c", "echo done"], b"unread");
    assert_eq!(text(&output.stdout), "done\n");
}

/// Input waited for the process to read, output for us to take it, and both for ever, when one task did both.
#[test]
fn a_process_that_writes_before_it_reads_does_not_block_us() {
    let daemon = FakeDaemon::start();
    let script = "head -c 4000000 /dev/zero; wc -c";
    let output = run(&daemon, &["run", "--rm", "-i", "--", "sh", "-c", script], &vec![b'x'; 2_000_000]);
    assert_eq!(text(&output.stdout[4_000_000..]).trim(), "2000000");
}

/// `mainstay run -- yes | head -1` must end as `yes | head -1` does.
#[test]
fn a_reader_who_leaves_ends_the_container_and_then_us() {
    let daemon = FakeDaemon::start();
    let mut child = mainstay(&daemon, &["run", "--rm", "--", "yes"]).spawn().expect("starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0; 2]).expect("some output");
    drop(stdout);
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.signal(), Some(13), "{:?}", output.status);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(daemon.objects(), (0, 0));
    assert!(daemon.requests().contains(&"stop SIGKILL 0".to_owned()));
}

#[test]
fn a_signal_asks_the_container_to_stop_and_its_own_code_counts() {
    let daemon = FakeDaemon::start();
    let script = "trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = mainstay(&daemon, &["run", "--rm", "--", "sh", "-c", script]).spawn().expect("starts");
    let mut ready = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is ready");
    signal(&child, Signal::TERM);
    let output = child.wait_with_output().expect("ends");
    assert_eq!((text(&output.stdout), output.status.code()), ("bye\n", Some(9)));
    assert!(daemon.requests().contains(&"stop SIGTERM 10000".to_owned()));
    assert_eq!(daemon.objects(), (0, 0));
}

#[test]
fn a_second_signal_kills() {
    let daemon = FakeDaemon::start();
    let script = "trap '' INT; echo ready; while :; do sleep 0.01; done";
    let mut child = mainstay(&daemon, &["run", "--rm", "--", "sh", "-c", script]).spawn().expect("starts");
    child.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 6]).expect("it is ready");
    signal(&child, Signal::INT);
    daemon.wait_for_request("stop SIGINT 10000");
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("ends").code(), Some(137));
}

/// Ctrl-C while the pod was being made left the pod behind.
#[test]
fn a_signal_while_the_pod_is_made_leaves_nothing() {
    let daemon = FakeDaemon::start();
    let mut child = mainstay(&daemon, &["run", "--rm", "--name", SLOW_POD, "--", "sleep", "1000"])
        .spawn()
        .expect("starts");
    daemon.wait_for_request("run pod slow");
    signal(&child, Signal::TERM);
    // Whether it sees the signal or the pod first must make no difference.
    daemon.let_pods_be_made();
    assert_eq!(child.wait().expect("ends").code(), Some(143));
    assert_eq!(daemon.objects(), (0, 0));
}

#[test]
fn other_signals_are_passed_on() {
    let daemon = FakeDaemon::start();
    let script = "trap 'echo usr1; exit 4' USR1; echo ready; while :; do sleep 0.01; done";
    let mut child = mainstay(&daemon, &["run", "--rm", "--", "sh", "-c", script]).spawn().expect("starts");
    child.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 6]).expect("it is ready");
    signal(&child, Signal::USR1);
    let output = child.wait_with_output().expect("ends");
    assert_eq!((text(&output.stdout), output.status.code()), ("usr1\n", Some(4)));
}

#[test]
fn what_cannot_be_started_says_why_once() {
    let daemon = FakeDaemon::start();
    let output = run(&daemon, &["run", "--rm", "--", NOT_STARTABLE], b"");
    assert_eq!(output.status.code(), Some(128));
    assert_eq!(text(&output.stderr), "mainstay: \"/not/startable\" was not found\n");
    assert_eq!(daemon.objects(), (0, 0));
}

#[test]
fn what_cannot_be_made_takes_its_pod_along() {
    let daemon = FakeDaemon::start();
    let output = run(&daemon, &["run", "--", NOT_CREATABLE], b"");
    assert_eq!(output.status.code(), Some(125));
    let expected = "mainstay: command: \"/not/creatable\" is not valid; expected something else\n";
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(daemon.objects(), (0, 0));
}

#[test]
fn a_detached_container_runs_on_and_can_be_worked_with() {
    let daemon = FakeDaemon::start();
    let id = run(&daemon, &["run", "-d", "--name", "web", "--", "sleep", "1000"], b"");
    assert_eq!(text(&id.stdout), format!("{}\n", "02".repeat(16)));
    let ps = run(&daemon, &["ps"], b"");
    assert!(text(&ps.stdout).contains("sleep 1000"), "{}", text(&ps.stdout));
    let ps: serde_json::Value =
        serde_json::from_slice(&run(&daemon, &["ps", "--json"], b"").stdout).expect("JSON");
    assert_eq!((&ps[0]["name"], &ps[0]["phase"]), (&"web".into(), &"running".into()));
    let exec = run(&daemon, &["exec", "-i", "web", "sh", "-c", "cat; exit 6"], b"typed");
    assert_eq!((text(&exec.stdout), exec.status.code()), ("typed", Some(6)));
    let removal = run(&daemon, &["stop", "-t", "0", "web"], b"");
    assert_eq!(text(&removal.stdout), "web\n");
    assert_eq!(text(&run(&daemon, &["wait", "web"], b"").stdout), "143\n");
    // The pod was made for it and goes with it.
    assert_eq!(text(&run(&daemon, &["rm", "web"], b"").stdout), "web\n");
    assert_eq!(daemon.objects(), (0, 0));
}

#[test]
fn an_exec_gets_our_signals() {
    let daemon = FakeDaemon::start();
    run(&daemon, &["run", "-d", "--name", "web", "--", "sleep", "1000"], b"");
    let script = "trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done";
    let mut child = mainstay(&daemon, &["exec", "web", "sh", "-c", script]).spawn().expect("starts");
    child.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 6]).expect("it is ready");
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("ends").code(), Some(5));
    assert!(daemon.requests().contains(&"kill exec SIGINT".to_owned()));
}

#[test]
fn a_pod_of_others_is_not_removed_with_a_container() {
    let daemon = FakeDaemon::start();
    run(&daemon, &["pod", "run", "shared"], b"");
    run(&daemon, &["run", "--rm", "--pod", "shared", "--", "true"], b"");
    assert_eq!(daemon.objects(), (1, 0));
    run(&daemon, &["run", "-d", "--pod", "shared", "--name", "web", "--", "sleep", "1000"], b"");
    run(&daemon, &["rm", "-f", "web"], b"");
    assert_eq!(daemon.objects(), (1, 0));
}

#[test]
fn a_pod_in_use_is_only_removed_by_force() {
    let daemon = FakeDaemon::start();
    run(&daemon, &["pod", "run", "shared"], b"");
    run(&daemon, &["run", "-d", "--pod", "shared", "--name", "web", "--", "sleep", "1000"], b"");
    let refused = run(&daemon, &["pod", "rm", "shared"], b"");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("in use by container web"), "{}", text(&refused.stderr));
    run(&daemon, &["pod", "rm", "-f", "shared"], b"");
    assert_eq!(daemon.objects(), (0, 0));
}
