//! How containers end: P1 and P2.

use futures::future::join_all;
use mainstay::{
    ContainerPhase, ContainerSpec, ExitStatus, IfRunning, SandboxId, SandboxPhase, Signal, UnknownReason,
};
use mainstay_integration_tests::{Shorthand, run, script_spec, wait};
use rustix::process::{Pid, kill_process};

use crate::stage::Stage;

/// Containers of a storm.
const STORM: u32 = 24;

pub async fn an_exit_keeps_its_code(stage: Stage) {
    let pod = stage.pod("p").await;
    for (name, code) in [("zero", 0), ("three", 3), ("most", 255)] {
        let container = stage.runtime.started(&pod, name, &format!("exit {code}")).await;
        let exit = stage.runtime.exit_of(&container).await;
        assert_eq!(exit.code(), code, "{exit}");
        let record = stage.runtime.container(&container).expect("listed").record.clone();
        assert_eq!(record.phase, ContainerPhase::Exited);
        assert_eq!(stage.exits_of(&container).await, [exit]);
    }
    stage.finish().await;
}

pub async fn a_signal_is_told_as_one(stage: Stage) {
    let pod = stage.pod("p").await;
    let killed = stage.runtime.started(&pod, "killed", "exec sleep 1000").await;
    stage.runtime.kill_container(&killed, Signal::KILL).await.expect("killed");
    let exit = stage.runtime.exit_of(&killed).await;
    assert_eq!((exit.code(), exit.reason()), (137, "Error"), "{exit}");
    let handled = stage
        .runtime
        .started(&pod, "handled", "trap 'exit 21' USR1; echo ready; while :; do sleep 0.05; done")
        .await;
    let log = stage.runtime.container(&handled).expect("listed").record.log_path.clone();
    wait::until("its trap is set", || std::fs::read_to_string(&log).ok()?.contains("ready").then_some(()))
        .await;
    stage.runtime.kill_container(&handled, Signal(10)).await.expect("told");
    assert_eq!(stage.runtime.exit_of(&handled).await.code(), 21);
    stage.finish().await;
}

/// moby PR#8990 and cd#6429: a failed start showed code 0 or no time, or left debris, or hung.
pub async fn a_command_that_cannot_run_is_a_start_error(stage: Stage) {
    let pod = stage.pod("p").await;
    start_error(&stage, &pod, "path", "/nope").await;
    start_error(&stage, &pod, "word", "nope-nope").await;
    let after = stage.runtime.started(&pod, "after", "exit 4").await;
    assert_eq!(stage.runtime.exit_of(&after).await.code(), 4, "the pod is as it was");
    stage.finish().await;
}

pub async fn a_folder_is_no_command(stage: Stage) {
    let pod = stage.pod("p").await;
    start_error(&stage, &pod, "folder", "/etc").await;
    stage.finish().await;
}

async fn start_error(stage: &Stage, pod: &SandboxId, name: &str, program: &str) {
    let spec = ContainerSpec::new(name.parse().expect("a good name"), [program]);
    let error = run(&stage.runtime, pod, spec).await.expect_err("it cannot run");
    assert!(error.to_string().contains(program), "{error}");
    let listed = stage.runtime.containers_of(pod);
    let record = &listed.iter().find(|one| one.record.name().as_str() == name).expect("it stays").record;
    assert_eq!(record.phase, ContainerPhase::Exited);
    let exit = record.exit.clone().expect("a terminal record");
    assert_eq!((exit.code(), exit.reason()), (128, "StartError"), "{exit}");
    stage.runtime.remove_container(&record.id, IfRunning::Refuse).await.expect("removed");
}

/// case 7: OOMKilled is said only when PID 1 itself was killed for want of memory, and a stop is never called so.
pub async fn out_of_memory_is_told_from_a_kill(stage: Stage) {
    let pod = stage.pod("p").await;
    let eat = "x=$(head -c 300000000 /dev/zero | tr '\\0' x)";
    let limited = |name: &str, script: &str| {
        let mut spec = script_spec(name, script);
        spec.resources.memory_bytes = Some(64 << 20);
        spec
    };
    let init = run(&stage.runtime, &pod, limited("init", eat)).await.expect("it runs");
    let exit = stage.runtime.exit_of(&init).await;
    assert_eq!((exit.code(), exit.reason()), (137, "OOMKilled"));
    let killed = run(&stage.runtime, &pod, limited("killed", "exec sleep 1000")).await.expect("it runs");
    stage.runtime.kill_container(&killed, Signal::KILL).await.expect("killed");
    let exit = stage.runtime.exit_of(&killed).await;
    assert_eq!((exit.code(), exit.reason()), (137, "Error"));
    stage.finish().await;
}

pub async fn a_storm_of_exits_appears_once_each(stage: Stage) {
    let pods = [stage.pod("p").await, stage.pod("q").await];
    let lives = (0..STORM).map(|n| {
        let (stage, pod) = (&stage, &pods[n as usize % 2]);
        async move {
            let container = stage.runtime.started(pod, &format!("c{n}"), &format!("exit {n}")).await;
            assert_eq!(stage.runtime.exit_of(&container).await.code(), n);
            container
        }
    });
    let containers = join_all(lives).await;
    for (n, container) in (0..).zip(&containers) {
        let codes: Vec<u32> = stage.exits_of(container).await.iter().map(mainstay::Exit::code).collect();
        assert_eq!(codes, [n]);
    }
    stage.finish().await;
}

/// Case 13 (moby#43491, cd#3199): a killed shim left containers "running", or processes alive with nobody to watch them.
pub async fn a_killed_shim_ends_its_containers(stage: Stage) {
    let pod = stage.pod("p").await;
    let other = stage.pod("other").await;
    let bystander = stage.runtime.started(&other, "c", "exec sleep 1000").await;
    let killed = stage.runtime.started(&pod, "c", "setsid sleep 1000 & exec sleep 1000").await;
    let shim = stage.runtime.sandbox(&pod).expect("listed").record.shim.clone().expect("a shim").process.pid;
    let pid = Pid::from_raw(shim.cast_signed()).expect("a process id");
    kill_process(pid, rustix::process::Signal::KILL).expect("the shim is there");
    let exit = stage.runtime.exit_of(&killed).await;
    assert_eq!(exit.status, ExitStatus::Unknown { reason: UnknownReason::ShimDied }, "{exit}");
    wait::until("the pod is not ready", || {
        (stage.runtime.sandbox(&pod).ok()?.record.phase == SandboxPhase::NotReady).then_some(())
    })
    .await;
    assert_eq!(stage.exits_of(&killed).await, [exit]);
    assert_eq!(stage.runtime.sh(&bystander, "echo hi").await.stdout, b"hi\n", "others are not touched");
    stage.runtime.remove_sandbox(&pod).await.expect("removed");
    stage.pod("p").await;
    stage.finish().await;
}

pub async fn removal_kills_what_runs_and_frees_its_name(stage: Stage) {
    let pod = stage.pod("p").await;
    for _ in 0..2 {
        let container = stage.runtime.started(&pod, "c", "setsid sleep 1000 & exec sleep 1000").await;
        let refused = stage.runtime.remove_container(&container, IfRunning::Refuse).await;
        refused.expect_err("it runs");
        let removed = stage.runtime.remove_container(&container, IfRunning::Kill);
        wait::finish("it is removed", removed).await.expect("removed");
    }
    let created = stage.runtime.created(&pod, "c", "exit 1").await;
    stage.runtime.remove_container(&created, IfRunning::Kill).await.expect("it never ran");
    wait::finish("the pod is removed", stage.runtime.remove_sandbox(&pod)).await.expect("removed");
    stage.world.assert_nothing_left().await;
    stage.pod("p").await;
    stage.finish().await;
}
