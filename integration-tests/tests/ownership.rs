//! What belongs to one runtime, and what is left of it when it ends: closed, dropped, or killed with whatever it had started.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mainstay::{
    AttachOptions, Config, ContainerPhase, Error, EventOptions, ExecSpec, Follow, LogOptions, Runtime, Seq,
    Shutdown,
};
use mainstay_integration_tests::ledger::cgroup_tops;
use mainstay_integration_tests::{Daemon, Shorthand, peer, script_spec, wait, world};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mainstay-under-test");
/// What a container says that runs.
const UP: &str = "up";

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a process id"), signal).expect("it is there");
}

/// Two daemons on one state directory ran beside each other, with stores of their own: each found the other's pods, took them
/// for its own whose records it had lost, and removed them.
#[tokio::test]
async fn a_state_directory_and_a_cgroup_belong_to_one_runtime() {
    let (world, other) = (world!(), world!());
    let mut daemon = Daemon::start(&world, &[]).await;
    let apart = other.config();
    let same_state = Config { state_dir: world.config().state_dir, ..apart.clone() };
    let same_cgroup = Config { cgroup_parent: world.cgroup().to_owned(), ..apart };
    for (config, what) in [
        (same_state, format!("the state directory {}", world.config().state_dir.display())),
        (same_cgroup, format!("the cgroup {}", world.cgroup())),
    ] {
        let refused = Runtime::start(config).await.expect_err("a second one").to_string();
        let holder = format!("it belongs to the runtime of process {}", daemon.pid());
        assert!(refused.starts_with(&what) && refused.contains(&holder), "{refused}");
        assert!(!other.config().root_dir.join("store.db").exists(), "nothing was looked at or written");
    }
    daemon.kill();
    let runtime = world.start().await;
    world.finish(runtime).await;
}

/// A command that was to run an image by itself, beside a daemon on the same directory, waited a minute for what that one never
/// gives away, and then did not say who it was.
#[tokio::test]
async fn images_that_a_daemon_keeps_are_not_waited_for() {
    let world = world!();
    let config = world.path().join("config.toml");
    fs::write(&config, world.config().to_string()).expect("written");
    let runtime = world.start().await;
    fs::create_dir_all(world.config().root_dir.join("images")).expect("made");
    assert_eq!(runtime.images().await.expect("they are opened, and kept"), []);
    let run = ["run", "--embedded", "localhost:1/nothing:1", "true"];
    let output = Command::new(PROGRAM).arg("--config").arg(&config).args(run).stdin(Stdio::null()).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let who = format!("the runtime of process {} has them open as long as it runs", std::process::id());
    assert!(!output.status.success() && said.contains(&who), "{said}");
    world.finish(runtime).await;
}

/// Shims and what runs in them outlive a daemon that is killed. Were they to have what it had locked, the next daemon could
/// not be started as long as anything ran.
#[tokio::test]
async fn a_daemon_that_was_killed_is_followed_at_once() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    for _ in 0..3 {
        let mut daemon = Daemon::start(&world, &[]).await;
        daemon.kill();
    }
    let runtime = world.start().await;
    runtime.stop_container(&container, Default::default()).await.expect("adopted");
    world.finish(runtime).await;
}

/// Whoever waited on a runtime that was closed waited for ever: what it publishes stays readable, so no channel closed.
#[tokio::test]
async fn all_who_wait_hear_that_the_runtime_was_closed() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "trap : TERM; echo up; while :; do sleep 1; done").await;
    let mut events = runtime.events_from_now(None);
    let session = runtime.attach(&container, AttachOptions::default()).await.expect("attached");
    let exec = runtime.exec(&container, ExecSpec::new(["cat", "/dev/zero"])).await.expect("it runs");
    let follow = LogOptions { follow: Follow::Yes, ..LogOptions::default() };
    let mut logs = runtime.logs(&container, follow).await.expect("a log");
    let (waiting, stopping) = (runtime.clone(), runtime.clone());
    let waiters = async {
        tokio::join!(
            async { waiting.wait(&container).await.map(drop) },
            async { stopping.stop_container(&container, Default::default()).await },
            async {
                while events.next().await?.is_some() {}
                Ok(())
            },
            async {
                while logs.next().await?.is_some() {}
                Ok(())
            },
            async {
                let (mut reader, _) = session.split();
                while reader.next().await?.is_some() {}
                Ok(())
            },
            async { exec.collect(0).await.map(drop) },
        )
    };
    let close = async {
        let stops =
            || runtime.container(&container).ok().filter(|c| c.record.phase == ContainerPhase::Stopping);
        wait::until("the stop is under way", stops).await;
        runtime.clone().close(Shutdown::LeaveRunning).await
    };
    let (closed, heard) = tokio::join!(close, wait::finish("all hear it", waiters));
    closed.expect("closed");
    let (wait, stop, events, logs, attach, exec) = heard;
    for (who, heard) in [
        ("wait", wait),
        ("stop", stop),
        ("events", events),
        ("logs", logs),
        ("attach", attach),
        ("exec", exec),
    ] {
        let error: Error = heard.expect_err(who);
        assert!(matches!(&error, Error::Unavailable { what, .. } if what == "the runtime"), "{who}: {error}");
        assert!(error.to_string().contains("it was closed"), "{who}: {error}");
    }
    let late = runtime.wait(&container).await.expect_err("closed").to_string();
    assert!(late.contains("it was closed"), "{late}");
    drop((waiting, stopping, runtime));
    let runtime = world.start().await;
    world.finish(runtime).await;
}

/// The same when nobody closes it and the last handle is dropped, and of what was there before nothing is withheld.
#[tokio::test]
async fn a_stream_that_outlives_the_last_handle_ends() {
    let world = world!();
    let runtime = world.start().await;
    runtime.pod("p").await;
    let all = EventOptions { after: Seq(0), follow: Follow::Yes, subject: None };
    let mut events = runtime.events(all);
    drop(runtime);
    let mut count = 0;
    let error = loop {
        match wait::finish("the end of the stream", events.next()).await {
            Ok(entry) => count += usize::from(entry.is_some()),
            Err(error) => break error,
        }
    };
    assert!(count > 0 && error.to_string().contains("it was closed"), "{count} {error}");
    drop(events);
    let runtime = wait::finish("the directories are free", world.start()).await;
    world.finish(runtime).await;
}

/// `mainstay bench` left an empty cgroup in each hierarchy whenever it was used.
#[tokio::test]
async fn a_benchmark_leaves_nothing() {
    let world = world!();
    let mut command = Command::new(PROGRAM);
    command.args([
        "bench",
        "lifecycle",
        "--pods",
        "1",
        "--parallel",
        "1",
        "--memory-pods",
        "1",
        "--directory",
    ]);
    let child =
        command.arg(world.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let name = format!("mainstay-bench-{}", child.id());
    let output =
        tokio::task::spawn_blocking(|| child.wait_with_output()).await.expect("no panic").expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(cgroup_tops(&format!("/{name}")), Vec::<PathBuf>::new());
    assert!(!world.path().join(name).exists());
}

/// A `mainstay run` with a container that runs, and what it has started. Killed when dropped.
struct RunningCommand {
    child: Child,
    zygotes: BTreeSet<u32>,
    shims: BTreeSet<u32>,
    directory: PathBuf,
    cgroup: String,
}

impl RunningCommand {
    async fn start() -> Self {
        let script = format!("sleep 1000 & echo {UP}; wait");
        let child = Command::new(PROGRAM)
            .args(["run", "--embedded", "--", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("it starts");
        let stdout = child.stdout.take().expect("a pipe");
        let line = tokio::task::spawn_blocking(move || BufReader::new(stdout).lines().next());
        let line = wait::finish("the container runs", line).await.expect("no panic");
        assert_eq!(line.expect("it says something").expect("readable"), UP);
        let (mut zygotes, mut shims, mut directory) = (BTreeSet::new(), BTreeSet::new(), None);
        for pid in children(child.id()) {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            let role = if words.iter().any(|word| word == "--zygote-fd") { &mut zygotes } else { &mut shims };
            role.insert(pid);
            let option = words.iter().position(|word| word == "--throw-away");
            directory = directory.or(option.map(|index| PathBuf::from(words[index + 1].as_ref())));
        }
        let directory = directory.expect("a directory that is thrown away");
        let cgroup = format!("/{}", directory.file_name().expect("a name").to_string_lossy());
        Self { child, zygotes, shims, directory, cgroup }
    }

    /// Kills it and others as if at one moment: it is stopped first, and does nothing about the end of the others.
    fn kill_with(&mut self, others: &BTreeSet<u32>) {
        signal(self.child.id(), Signal::STOP);
        for pid in others {
            signal(*pid, Signal::KILL);
        }
        self.child.kill().and_then(|()| self.child.wait()).expect("our child");
    }

    fn processes(&self) -> usize {
        cgroup_tops(&self.cgroup).iter().map(|top| processes_below(top)).sum()
    }

    async fn leaves_nothing(&self) {
        let left = || (self.processes(), cgroup_tops(&self.cgroup), self.directory.exists());
        wait::until("nothing is left", || (left() == (0, Vec::new(), false)).then_some(())).await;
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let listed = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    listed.flat_map(|pids| pids.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect()
}

fn processes_below(group: &Path) -> usize {
    let own = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines().count();
    let below = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    own + below.filter(|path| path.is_dir()).map(|path| processes_below(&path)).sum::<usize>()
}

/// kill -9 of `mainstay run`, alone or with some of what it had started, left its directory, its cgroups, and, when its shim
/// was killed too, the container running for ever.
#[rstest]
#[case::alone(false, false)]
#[case::with_its_zygote(true, false)]
#[case::with_its_shims(false, true)]
#[tokio::test]
async fn a_command_that_is_killed_leaves_nothing(#[case] zygotes: bool, #[case] shims: bool) {
    if !peer::is_root() {
        return;
    }
    let mut run = RunningCommand::start().await;
    let none = BTreeSet::new();
    let others: BTreeSet<u32> = [(zygotes, &run.zygotes), (shims, &run.shims)]
        .into_iter()
        .flat_map(|(killed, pids)| if killed { pids } else { &none })
        .copied()
        .collect();
    assert!(run.processes() > 0);
    run.kill_with(&others);
    run.leaves_nothing().await;
}

/// When everything is killed that could clear away, containers end all the same, and the next command clears away.
#[tokio::test]
async fn a_command_that_is_killed_with_all_that_it_started_leaves_nothing_that_runs() {
    if !peer::is_root() {
        return;
    }
    let mut run = RunningCommand::start().await;
    let others = run.zygotes.union(&run.shims).copied().collect();
    run.kill_with(&others);
    wait::until("its containers have ended", || (run.processes() == 0).then_some(())).await;
    assert!(run.directory.exists(), "there is nobody who could have removed it");
    let next = Command::new(PROGRAM).args(["run", "--embedded", "--", "true"]).stdin(Stdio::null()).status();
    assert!(next.expect("it runs").success());
    run.leaves_nothing().await;
}

/// The end of the last pod took away the cgroup above with all that was in it: with the new, still empty cgroup of a pod that
/// was being made, and its limits.
#[tokio::test]
async fn pods_are_made_while_others_are_removed() {
    let world = world!();
    let config = Config { shims: mainstay::ShimLifetime::WithRuntime, ..world.config() };
    let runtime = Runtime::start(config).await.expect("starts");
    let lives = (0..4).map(|lane| {
        let runtime = &runtime;
        async move {
            for round in 0..5 {
                let pod = runtime.pod(&format!("p-{lane}-{round}")).await;
                let container =
                    runtime.create_container(&pod, script_spec("c", "exit 3")).await.expect("made");
                runtime.start_container(&container).await.expect("runs");
                assert_eq!(runtime.exit_of(&container).await.code(), 3);
                runtime.remove_sandbox(&pod).await.expect("removed");
            }
        }
    });
    wait::finish("all pods", futures::future::join_all(lives)).await;
    world.finish(runtime).await;
}
