//! What is said when something is wrong, and with which exit status.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rstest::rstest;

use crate::fake::FakeDaemon;
use crate::{run, text};

/// The command with no daemon anywhere.
fn alone(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.env_remove("MAINSTAY_LOG").env_remove("MAINSTAY_SOCKET").env_remove("MAINSTAY_CONFIG");
    command.args(arguments).stdin(Stdio::null());
    command
}

#[rstest]
#[case(&["--socket", "/nonexistent/s", "ps"], 1, "is the daemon running?")]
#[case(&["--socket", "/nonexistent/s", "run", "-d", "--", "true"], 125, "--detach needs a daemon, and none answers on /nonexistent/s")]
#[case(&["--socket", "/nonexistent/s", "run", "--pod", "p", "--", "true"], 125, "--pod needs a daemon")]
#[case(&["--socket", "/nonexistent/s", "exec", "web", "true"], 125, "is the daemon running?")]
#[case(&["--config", "/nonexistent/c", "ps"], 1, "/nonexistent/c: cannot be read: No such file")]
#[case(&["config", "check", "/nonexistent/c"], 1, "/nonexistent/c: cannot be read: No such file")]
#[case(&["run", "--embedded", "--memory", "1k", "--", "true"], 125, "memory: 1024 bytes is not valid; expected at least")]
#[case(&["run", "--embedded", "--env-file", "/nonexistent/e", "--", "true"], 125, "/nonexistent/e: No such file")]
#[case(&["run", "--memory", "64x", "--", "true"], 2, "64m")]
#[case(&["run", "--membory", "64m", "--", "true"], 2, "a similar argument exists: '--memory'")]
#[case(&["exec", "web", "--tyt", "true"], 2, "--tyt")]
#[case(&["run", "-it", "--embedded", "--", "true"], 125, "leave out --tty")]
#[case(&["exec", "-it", "web", "sh"], 125, "leave out --tty")]
#[case(&["run", "--cpu-shares", "x", "--", "true"], 2, "expected a whole number")]
#[case(&["run", "--group-add", "wheel", "--", "true"], 2, "expected the number of a group")]
#[case(&["logs", "--tail", "all", "web"], 2, "expected a whole number")]
#[case(&["frobnicate"], 2, "frobnicate")]
fn says_it_in_a_sentence(#[case] arguments: &[&str], #[case] status: i32, #[case] part: &str) {
    let output = alone(arguments).output().expect("it runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(part), "{said}");
    assert!(status == 2 || said.starts_with("mainstay: ") && said.lines().count() == 1, "{said}");
    assert!(output.stdout.is_empty());
}

/// A program that had asked for JSON was told in a sentence what had failed, and took it to pieces.
#[rstest]
#[case(&["--socket", "/nonexistent/s", "ps"], 1, "unavailable", "is the daemon running?")]
#[case(&["--socket", "/nonexistent/s", "run", "-d", "--", "true"], 125, "needs_daemon", "--detach needs a daemon")]
#[case(&["--config", "/nonexistent/c", "ps"], 1, "configuration", "/nonexistent/c: cannot be read: No such file")]
#[case(&["run", "--embedded", "--memory", "1k", "--", "true"], 125, "invalid_argument", "memory: 1024 bytes is not")]
#[case(&["run", "--embedded", "--env-file", "/nonexistent/e", "--", "true"], 125, "file", "/nonexistent/e: No such")]
#[case(&["frobnicate"], 2, "usage", "frobnicate")]
fn says_it_in_json(#[case] arguments: &[&str], #[case] status: i32, #[case] kind: &str, #[case] part: &str) {
    let output = alone(&[&["--json"], arguments].concat()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(status));
    let said: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one document");
    let error = &said["error"];
    assert_eq!(error["kind"], kind, "{said}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains(part)), "{said}");
    assert!(error["details"].is_object(), "{said}");
    assert!(output.stdout.is_empty());
}

#[rstest]
#[case(&["run", "--embedded", "--", "true"], 125)]
#[case(&["daemon"], 1)]
fn without_root_it_says_that(#[case] arguments: &[&str], #[case] status: i32) {
    /// The user nobody of every distribution.
    const NOBODY: u32 = 65_534;
    let mut command = alone(arguments);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: user nobody may not execute the program in this directory");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(output.status.code(), Some(status));
    assert!(text(&output.stderr).contains("needs root"), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).lines().count(), 1);
}

#[test]
fn each_object_fails_for_itself() {
    let daemon = FakeDaemon::start();
    run(&daemon, &["run", "-d", "--name", "web", "--", "sleep", "1000"], b"");
    let output = run(&daemon, &["rm", "-f", "nobody", "web"], b"");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "web\n");
    assert_eq!(text(&output.stderr), "mainstay: no pod or container \"nobody\"\n");
    let output = run(&daemon, &["--json", "rm", "nobody"], b"");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json, serde_json::json!([{ "id": "nobody", "error": "no pod or container \"nobody\"" }]));
    let said: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    let details = serde_json::json!({ "kind": "either", "id": "nobody", "nearest": null });
    let message = "no pod or container \"nobody\"";
    let expected = serde_json::json!({ "kind": "not_found", "message": message, "details": details });
    assert_eq!(said, serde_json::json!({ "error": expected }));
}

#[test]
fn a_taken_name_names_its_holder() {
    let daemon = FakeDaemon::start();
    run(&daemon, &["run", "-d", "--name", "web", "--", "sleep", "1000"], b"");
    let output = run(&daemon, &["run", "--name", "web", "--", "true"], b"");
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains(&"01".repeat(16)), "{}", text(&output.stderr));
    assert_eq!(daemon.objects(), (1, 1));
}

#[test]
fn the_default_configuration_is_good() {
    let path = std::env::temp_dir().join(format!("mainstay-cli-config-{}.toml", std::process::id()));
    let default = alone(&["config", "default"]).output().expect("it runs");
    std::fs::write(&path, &default.stdout).expect("written");
    let check = alone(&["config", "check"]).arg(&path).output().expect("it runs");
    assert_eq!(text(&check.stdout), format!("{}: good\n", path.display()));
    std::fs::write(&path, "\nrootdir = \"/x\"\n").expect("written");
    let check = alone(&["config", "check"]).arg(&path).output().expect("it runs");
    std::fs::remove_file(&path).expect("ours");
    assert_eq!(check.status.code(), Some(1));
    assert!(text(&check.stderr).contains("line 2: unknown key \"rootdir\""), "{}", text(&check.stderr));
}

#[rstest]
#[case("bash")]
#[case("zsh")]
#[case("fish")]
fn completion_scripts_know_the_commands(#[case] shell: &str) {
    let output = alone(&["completion", shell]).output().expect("it runs");
    assert!(output.status.success());
    for word in ["explain", "pids-limit", "events"] {
        assert!(text(&output.stdout).contains(word), "{word} is missing");
    }
}
