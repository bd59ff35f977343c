//! What is done to containers that run.

use std::time::Duration;

use mainstay::{ExecSpec, Paused, Resources, SessionItem, Signal, StopOptions};
use mainstay_integration_tests::{Shorthand, run, script_spec, wait, waiting};

use crate::stage::Stage;

/// Never ends by itself.
const DEAF: &str = "trap '' TERM; echo ready; while :; do sleep 0.1; done";

fn grace(seconds: u64) -> StopOptions {
    StopOptions { signal: None, grace: Some(Duration::from_secs(seconds)) }
}

async fn ready(stage: &Stage, container: &mainstay::ContainerId) {
    let log = stage.runtime.container(container).expect("listed").record.log_path.clone();
    wait::until("the trap is set", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("ready")).then_some(())
    })
    .await;
}

pub async fn stop_keeps_its_grace_time(stage: Stage) {
    let pod = stage.pod("p").await;
    let container = stage.runtime.started(&pod, "c", DEAF).await;
    ready(&stage, &container).await;
    let stop = stage.runtime.stop_container(&container, grace(300));
    let mut stop = Box::pin(stop);
    let left = tokio::time::timeout(Duration::from_millis(200), &mut stop).await;
    assert!(left.is_err(), "it is deaf, and is still being stopped");
    assert_eq!(stage.runtime.sh(&container, "echo hi").await.stdout, b"hi\n", "and takes execs");
    let shorter = stage.runtime.stop_container(&container, grace(0));
    let (first, second) = wait::finish("both stops", futures::future::join(&mut stop, shorter)).await;
    first.and(second).expect("stopped");
    assert_eq!(stage.runtime.exit_of(&container).await.code(), 137);
    drop(stop);
    stage.finish().await;
}

pub async fn a_stopped_container_ends_with_its_own_code(stage: Stage) {
    let pod = stage.pod("p").await;
    let script = "trap 'exit 31' INT; trap 'exit 32' TERM; echo ready; while :; do sleep 0.1; done";
    let mut spec = script_spec("spec", script);
    spec.stop_signal = Some(Signal(2));
    for (spec, code) in [(spec, 31), (script_spec("usual", script), 32)] {
        let container = run(&stage.runtime, &pod, spec).await.expect("it runs");
        ready(&stage, &container).await;
        stage.runtime.stop_container(&container, grace(60)).await.expect("stopped");
        assert_eq!(stage.runtime.exit_of(&container).await.code(), code);
    }
    stage.finish().await;
}

pub async fn signals_reach_execs(stage: Stage) {
    let pod = stage.pod("p").await;
    let container = stage.runtime.started(&pod, "c", "exec sleep 1000").await;
    let session = stage.runtime.exec(&container, ExecSpec::new(["sleep", "1000"])).await.expect("it runs");
    let exec = session.exec().expect("an exec").clone();
    let (mut reader, _writer) = session.split();
    stage.runtime.kill_exec(&container, &exec, Signal::KILL).await.expect("killed");
    let exit = loop {
        match wait::finish("the exec ends", reader.next()).await.expect("told").expect("not over yet") {
            SessionItem::Exited(exit) => break exit,
            SessionItem::Output { .. } | SessionItem::CutOff { .. } => {}
        }
    };
    assert_eq!(exit.code(), 137);
    assert_eq!(stage.runtime.sh(&container, "echo hi").await.stdout, b"hi\n", "the container runs on");
    stage.finish().await;
}

pub async fn a_paused_container_stands_still(stage: Stage) {
    let pod = stage.pod("p").await;
    let container = stage.runtime.started(&pod, "c", "while :; do echo tick; sleep 0.02; done").await;
    let log = stage.runtime.container(&container).expect("listed").record.log_path.clone();
    let length = || std::fs::metadata(&log).map_or(0, |file| file.len());
    wait::until("it says something", || (length() > 0).then_some(())).await;
    wait::finish("it is paused", stage.runtime.pause_container(&container)).await.expect("paused");
    assert_eq!(stage.runtime.container(&container).expect("listed").record.paused, Paused::Yes);
    // What it wrote before is on its way to the log. That nothing comes can only be seen by waiting.
    let still = async {
        let mut last = length();
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            match length() {
                now if now == last => return last,
                now => last = now,
            }
        }
    };
    let last = wait::finish("it stands still", still).await;
    wait::finish("it goes on", stage.runtime.resume_container(&container)).await.expect("resumed");
    wait::until("it says more", || (length() > last).then_some(())).await;
    stage.runtime.pause_container(&container).await.expect("paused");
    stage.runtime.stop_container(&container, grace(0)).await.expect("stopped while it stands still");
    assert_eq!(stage.runtime.exit_of(&container).await.code(), 137);
    stage.finish().await;
}

pub async fn limits_can_be_changed(stage: Stage) {
    let pod = stage.pod("p").await;
    let spec = waiting("c", |spec| spec.resources.memory_bytes = Some(128 << 20));
    let container = run(&stage.runtime, &pod, spec).await.expect("it runs");
    let limit = async || stage.runtime.stats(&container).await.expect("measured").memory_limit_bytes;
    assert_eq!(limit().await, Some(128 << 20));
    let change = Resources { memory_bytes: Some(96 << 20), pids: Some(77), ..Resources::default() };
    stage.runtime.update_container(&container, change).await.expect("changed");
    assert_eq!(limit().await, Some(96 << 20));
    let stats = stage.runtime.stats(&container).await.expect("measured");
    assert_eq!(stats.pids_limit, Some(77));
    stage.finish().await;
}

pub async fn use_is_measured(stage: Stage) {
    let pod = stage.pod("p").await;
    let container = stage.runtime.started(&pod, "c", "while :; do :; done").await;
    wait::until_async("it has used CPU time", async || {
        let stats = stage.runtime.stats(&container).await.expect("measured");
        stats.cpu_usage_ns.is_some_and(|used| used > 50_000_000)
    })
    .await;
    let stats = stage.runtime.stats(&container).await.expect("measured");
    assert!(stats.memory_usage_bytes.is_some_and(|used| used > 0), "{stats:?}");
    let whole = stage.runtime.sandbox_stats(&pod).await.expect("measured");
    assert!(whole.total.cpu_usage_ns >= stats.cpu_usage_ns, "{whole:?}");
    stage.finish().await;
}
