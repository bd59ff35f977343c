//! Stop as a negotiation, and reads that never wait, on real processes.

use std::time::{Duration, Instant};

use mainstay::{ContainerPhase, Signal, StopOptions};
use mainstay_integration_tests::{Shorthand, script_spec, wait, world};

fn grace(seconds: u64) -> StopOptions {
    StopOptions { signal: None, grace: Some(Duration::from_secs(seconds)) }
}

/// Ends by itself, with its own code, a while after TERM.
const SLOW_TO_STOP: &str = "trap 'sleep 1; exit 21' TERM; echo ready; while :; do sleep 0.1; done";
/// Never ends by itself.
const DEAF: &str = "trap '' TERM; echo ready; while :; do sleep 0.1; done";

async fn ready(runtime: &mainstay::Runtime, container: &mainstay::ContainerId) {
    let log = runtime.container(container).expect("listed").record.log_path.clone();
    wait::until("the trap is set", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("ready")).then_some(())
    })
    .await;
}

/// People look into what is slow to stop, and probes go on; exec was refused for the whole of the grace time, while the container was told to
/// be running.
#[tokio::test]
async fn in_its_grace_time_a_container_takes_execs() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", DEAF).await;
    ready(&runtime, &container).await;
    {
        let stop = runtime.stop_container(&container, grace(300));
        let left = tokio::time::timeout(Duration::from_millis(200), stop).await;
        assert!(left.is_err(), "it is still being stopped when the caller leaves");
    }
    assert_eq!(runtime.container(&container).expect("listed").record.phase, ContainerPhase::Stopping);
    let output = runtime.sh(&container, "echo hi").await;
    assert_eq!((output.stdout.as_slice(), output.exit.code()), (&b"hi\n"[..], 0));
    runtime.stop_container(&container, grace(0)).await.expect("a shorter stop wins");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// cri#1098: a client that left in the middle of a long grace had its container killed at once.
#[tokio::test]
async fn a_caller_that_leaves_changes_nothing() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", SLOW_TO_STOP).await;
    ready(&runtime, &container).await;
    {
        let mut stop = Box::pin(runtime.stop_container(&container, grace(300)));
        let left = tokio::time::timeout(Duration::from_millis(200), &mut stop).await;
        assert!(left.is_err(), "it is still being stopped when the caller leaves");
    }
    let exit = runtime.exit_of(&container).await;
    assert_eq!(exit.code(), 21, "it ended by itself: {exit}");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_later_shorter_stop_wins_and_a_longer_one_changes_nothing() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", DEAF).await;
    ready(&runtime, &container).await;
    let long = runtime.stop_container(&container, grace(3600));
    let short = async {
        wait::until("the first stop is under way", || {
            (runtime.container(&container).ok()?.record.phase == ContainerPhase::Stopping).then_some(())
        })
        .await;
        let longer = runtime.stop_container(&container, grace(7200));
        let shorter = runtime.stop_container(&container, grace(1));
        futures::future::join(longer, shorter).await
    };
    let (first, (longer, shorter)) = wait::finish("all stops", futures::future::join(long, short)).await;
    for outcome in [first, longer, shorter] {
        outcome.expect("all of them are answered");
    }
    assert_eq!(runtime.exit_of(&container).await.code(), 137);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

#[tokio::test]
async fn the_signal_is_the_requests_or_the_specs() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let script = "trap 'exit 31' INT; trap 'exit 32' USR1; echo ready; while :; do sleep 0.1; done";
    for (name, requested, code) in [("spec", None, 31), ("request", Some(Signal(10)), 32)] {
        let mut spec = script_spec(name, script);
        spec.stop_signal = Some(Signal(2));
        let container = runtime.create_container(&pod, spec).await.expect("created");
        runtime.start_container(&container).await.expect("started");
        ready(&runtime, &container).await;
        let options = StopOptions { signal: requested, grace: Some(Duration::from_secs(60)) };
        runtime.stop_container(&container, options).await.expect("stopped");
        assert_eq!(runtime.exit_of(&container).await.code(), code);
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// Stopping a container whose shim had been sent SIGSTOP failed after 10 s, although the container was dead: nobody was there
/// to say how it had ended. The kernel is asked instead, and the real end is told, once.
#[tokio::test]
async fn a_container_of_a_stopped_shim_can_be_stopped() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let killed = runtime.started(&pod, "killed", DEAF).await;
    let ended =
        runtime.started(&pod, "ended", "trap 'exit 17' TERM; echo ready; while :; do sleep 0.1; done").await;
    ready(&runtime, &killed).await;
    ready(&runtime, &ended).await;
    let shim = runtime.sandbox(&pod).expect("listed").record.shim.clone().expect("a shim").process.pid;
    let signal = |pid: u32, signal| {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("it is there");
    };
    signal(shim, rustix::process::Signal::STOP);
    let init = runtime.container(&ended).expect("listed").record.process.clone().expect("it runs").pid;
    signal(init, rustix::process::Signal::TERM);
    wait::until("it has ended", || {
        let stat = std::fs::read_to_string(format!("/proc/{init}/stat")).expect("a zombie");
        stat.contains(") Z ").then_some(())
    })
    .await;
    for (container, code) in [(&killed, 137), (&ended, 17)] {
        let stopped = wait::finish("it is stopped", runtime.stop_container(container, grace(0))).await;
        stopped.expect("stopped");
        assert_eq!(runtime.exit_of(container).await.code(), code);
    }
    signal(shim, rustix::process::Signal::CONT);
    for container in [&killed, &ended] {
        wait::until_async("it is removed", async || {
            runtime.remove_container(container, mainstay::IfRunning::Refuse).await.is_ok()
        })
        .await;
    }
    let mut exits = 0;
    let options =
        mainstay::EventOptions { after: mainstay::Seq(0), follow: mainstay::Follow::No, subject: None };
    let mut events = runtime.events(options);
    while let Some(event) = events.next_event().await.expect("the journal is read") {
        exits += u32::from(matches!(event.what, mainstay::What::ContainerExited { .. }));
    }
    assert_eq!(exits, 2, "each end is told once, whoever saw it");
    world.finish(runtime).await;
}

/// Case 28: stopping a process that ends at that very moment failed with "process already finished".
#[tokio::test]
async fn stopping_what_ends_by_itself_is_never_an_error() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    for n in 0..50 {
        let container = runtime.started(&pod, &format!("c{n}"), "sleep 0.05; exit 9").await;
        tokio::time::sleep(Duration::from_millis(35 + n % 30)).await;
        runtime.stop_container(&container, grace(0)).await.expect("stopped");
        let code = runtime.exit_of(&container).await.code();
        assert!(code == 9 || code == 137, "{code}");
    }
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// cd#10583, crio PR#3881: one slow container made every list hang. Here its whole shim hangs.
#[tokio::test]
async fn reads_do_not_wait_for_a_hung_shim_and_other_pods_are_not_touched() {
    let world = world!();
    let runtime = world.start().await;
    let hung = runtime.pod("hung").await;
    let container = runtime.started(&hung, "c", "exec sleep 1000").await;
    let other = runtime.pod("other").await;
    let shim = runtime.sandbox(&hung).expect("listed").record.shim.clone().expect("a shim").process.pid;
    let shim = rustix::process::Pid::from_raw(shim.cast_signed()).expect("an id");
    rustix::process::kill_process(shim, rustix::process::Signal::STOP).expect("stopped");
    let call = tokio::spawn({
        let (runtime, container) = (runtime.clone(), container.clone());
        async move { runtime.reopen_log(&container).await }
    });
    let mut slowest = Duration::ZERO;
    for _ in 0..1_000 {
        let start = Instant::now();
        assert_eq!(runtime.containers().len(), 1);
        assert_eq!(runtime.container(&container).expect("listed").record.phase, ContainerPhase::Running);
        slowest = slowest.max(start.elapsed());
        tokio::task::yield_now().await;
    }
    println!("slowest of 1000 reads: {slowest:?}");
    let quick = runtime.started(&other, "c", "exit 6").await;
    assert_eq!(runtime.exit_of(&quick).await.code(), 6);
    let answer = wait::finish("the call on the hung shim ends", call).await.expect("no panic");
    assert!(answer.expect_err("the shim hangs").to_string().contains("did not finish within"));
    // A kill must work all the same: it goes by cgroup.
    runtime.kill_container(&container, Signal::KILL).await.ok();
    rustix::process::kill_process(shim, rustix::process::Signal::CONT).expect("continued");
    assert_eq!(runtime.sh_or_exit(&container).await, 137);
    runtime.remove_sandbox(&hung).await.expect("removed");
    runtime.remove_sandbox(&other).await.expect("removed");
    world.finish(runtime).await;
}

trait Killed {
    /// Kills it again, now that its shim answers, and tells the code of its exit.
    async fn sh_or_exit(&self, container: &mainstay::ContainerId) -> u32;
}

impl Killed for mainstay::Runtime {
    async fn sh_or_exit(&self, container: &mainstay::ContainerId) -> u32 {
        let _ = self.kill_container(container, Signal::KILL).await;
        self.exit_of(container).await.code()
    }
}
