//! Plugins that the runtime starts, as real processes.
//!
//! Each is a shell script that becomes this very program again, to run the "test" [`plugin_program`], which is a plugin with
//! faults.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mainstay_nri::link::{Accepted, CallError, Configuration, HandshakeError, Link, PodNotice, Updates};
use mainstay_nri::preinstalled::{End, LaunchError, PluginProcess, Preinstalled, launch, scan};
use mainstay_nri_plugin::api::PodSandbox;
use mainstay_nri_plugin::api::mux::Closed;
use tempfile::TempDir;

/// Far more than anything takes on a machine that is shared.
const AMPLE: Duration = Duration::from_secs(60);
/// Time between two looks at a condition.
const POLL: Duration = Duration::from_millis(10);

#[tokio::test]
#[ignore = "the program of a plugin, for the tests beside it"]
async fn plugin_program() {
    if std::env::var_os("NRI_PLUGIN_SOCKET").is_some() {
        mainstay_nri_plugin::faults::program().await;
        std::process::exit(0);
    }
}

fn install(dir: &Path, name: &str, script: &str) -> Preinstalled {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("changed");
    Preinstalled { name: name.parse().expect("valid"), path }
}

/// A script that is a plugin with faults.
fn faulty() -> String {
    let program = std::env::current_exe().expect("this program");
    format!("exec {} --ignored --exact plugin_program --nocapture", program.display())
}

/// Starts it. The file counts as being written to while another test forks with it open, which passes.
async fn started(plugin: &Preinstalled) -> (Accepted, PluginProcess) {
    let deadline = Instant::now() + AMPLE;
    loop {
        match launch(plugin).await {
            Ok(started) => return started,
            Err(LaunchError::Io { source, .. }) if source.kind() == ErrorKind::ExecutableFileBusy => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "{} is busy for ever", plugin.path.display());
        tokio::time::sleep(POLL).await;
    }
}

async fn link(plugin: &Preinstalled, plan: &str) -> (Result<(Link, Updates), HandshakeError>, PluginProcess) {
    let (accepted, process) = started(plugin).await;
    assert_eq!(accepted.peer().pid, Some(process.pid()));
    let configuration = Configuration {
        config: plan.to_owned(),
        runtime_name: "mainstay".to_owned(),
        runtime_version: "v0.0.0".to_owned(),
        registration_timeout: AMPLE,
        request_timeout: AMPLE,
    };
    let linked = async { accepted.register(AMPLE).await?.configure(configuration, AMPLE).await };
    (linked.await, process)
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + AMPLE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(POLL).await;
    }
}

fn is_there(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn number_in(path: &PathBuf) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[tokio::test]
async fn a_plugin_is_started_spoken_with_and_ends_with_its_connection() {
    let dir = TempDir::new().expect("a directory");
    install(dir.path(), "42-faulty", &faulty());
    let found = scan(dir.path()).expect("read");
    let (linked, process) = link(&found.plugins[0], "RunPodSandbox*1=refuse:not yet").await;
    let (link, _updates) = linked.expect("a link");
    // Its name is that of its file, which it was told.
    assert_eq!(link.name().to_string(), "42-faulty");
    let told = link.pod_notice(PodNotice::Run, PodSandbox::default(), AMPLE).await;
    assert_eq!(told.expect_err("refused").to_string(), "RunPodSandbox was refused: not yet");
    link.pod_notice(PodNotice::Run, PodSandbox::default(), AMPLE).await.expect("told");
    drop(link);
    assert_eq!(process.stop().await, End::Exited(0));
    assert!(!is_there(process.pid()), "it is reaped");
}

#[tokio::test]
async fn a_plugin_that_ends_is_seen_on_both_ways() {
    let dir = TempDir::new().expect("a directory");
    let plugin = install(dir.path(), "00-faulty", &faulty());
    let (linked, process) = link(&plugin, "RunPodSandbox=die").await;
    let (link, _updates) = linked.expect("a link");
    let told = link.pod_notice(PodNotice::Run, PodSandbox::default(), AMPLE).await;
    assert_eq!(told, Err(CallError::Gone { call: "RunPodSandbox", reason: Closed::There }));
    assert_eq!(process.ended().await, End::Exited(1));
    assert!(!is_there(process.pid()));
}

#[tokio::test]
async fn a_plugin_has_its_connection_three_variables_and_nothing_else() {
    let dir = TempDir::new().expect("a directory");
    let seen = dir.path().join("seen");
    let script = format!(
        "tr '\\0' '\\n' < /proc/self/environ > {0}; ls /proc/self/fd >> {0}; pwd >> {0}; echo done >> {0}; exec sleep 600",
        seen.display()
    );
    // Descriptors of this process that are not marked must not reach it either.
    let _open = fs::File::open("/dev/null").expect("opened");
    let (_accepted, process) = started(&install(dir.path(), "07-curious", &script)).await;
    until("it has looked", || fs::read_to_string(&seen).is_ok_and(|text| text.ends_with("done\n"))).await;
    let seen = fs::read_to_string(&seen).expect("read");
    let lines: Vec<_> = seen.lines().collect();
    let (variables, rest): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.contains('='));
    // The shell adds what it finds missing.
    let mut variables: Vec<_> = variables.into_iter().filter(|line| line.starts_with("NRI")).collect();
    variables.sort_unstable();
    assert_eq!(variables, ["NRI_PLUGIN_IDX=07", "NRI_PLUGIN_NAME=curious", "NRI_PLUGIN_SOCKET=3"]);
    // Number 4 is the directory that ls reads.
    assert_eq!(rest, ["0", "1", "2", "3", "4", "/", "done"]);
    process.kill();
    assert_eq!(process.ended().await, End::Killed(9));
}

#[tokio::test]
async fn what_a_plugin_starts_ends_with_it() {
    let dir = TempDir::new().expect("a directory");
    let child = dir.path().join("child");
    let script = format!("sleep 600 & echo $! > {}; exec sleep 600", child.display());
    let (_accepted, process) = started(&install(dir.path(), "10-parent", &script)).await;
    until("it has a child", || number_in(&child).is_some()).await;
    let child = number_in(&child).expect("a number");
    assert!(is_there(child));
    drop(process);
    until("its child has ended", || !is_there(child)).await;
}

/// The runtime may be killed at any time, and nothing of it runs then that could end a plugin.
#[tokio::test]
async fn a_plugin_does_not_outlive_a_runtime_that_is_killed() {
    let dir = TempDir::new().expect("a directory");
    let pid = dir.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", pid.display());
    let plugin = install(dir.path(), "10-survivor", &script);
    let mut runtime = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "runtime_program", "--nocapture"])
        .env("TEST_PLUGIN", &plugin.path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("started");
    until("the plugin runs", || number_in(&pid).is_some()).await;
    runtime.kill().expect("killed");
    runtime.wait().expect("reaped");
    let pid = number_in(&pid).expect("a number");
    until("the plugin has ended", || !is_there(pid)).await;
}

#[tokio::test]
#[ignore = "a runtime with a plugin, for the tests beside it"]
async fn runtime_program() {
    if let Some(path) = std::env::var_os("TEST_PLUGIN") {
        let plugin = Preinstalled { name: "10-survivor".parse().expect("valid"), path: path.into() };
        let _held = started(&plugin).await;
        std::future::pending::<()>().await;
    }
}

#[tokio::test]
async fn a_program_that_is_none_is_named() {
    let dir = TempDir::new().expect("a directory");
    let name = "10-missing".parse().expect("valid");
    let missing = Preinstalled { name, path: dir.path().join("10-missing") };
    let error = launch(&missing).await.err().expect("not started");
    assert!(matches!(error, LaunchError::Io { .. }));
    assert_eq!(error.to_string(), "plugin 10-missing cannot be started");
}
