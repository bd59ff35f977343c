//! P1 and P2 on real processes: every exit appears once, with its code, whatever storm it comes in.

use std::collections::BTreeMap;
use std::io::Write;

use futures::future::join_all;
use mainstay::{
    ContainerId, EventOptions, ExecSpec, ExitStatus, Follow, IfRunning, Runtime, SandboxId, SandboxPhase,
    Seq, Shutdown, Signal, UnknownReason, What,
};
use mainstay_integration_tests::{Shorthand, script_spec, wait, world};
use rustix::process::{Pid, kill_process};

const STORM_PODS: usize = 10;
const STORM_CONTAINERS: usize = 500;
const STOPPED_SHIM_CONTAINERS: usize = 200;

/// How often each container's exit is in the journal, and with which code.
async fn journalled(runtime: &Runtime) -> BTreeMap<ContainerId, Vec<u32>> {
    let mut all: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    let options = EventOptions { after: Seq(0), follow: Follow::No, subject: None };
    let mut events = runtime.events(options);
    while let Some(event) = events.next_event().await.expect("the journal is read") {
        if let (Some(container), What::ContainerExited { exit }) = (event.subject.container, event.what) {
            all.entry(container).or_default().push(exit.code());
        }
    }
    all
}

fn signal_shim(runtime: &Runtime, pod: &SandboxId, signal: rustix::process::Signal) {
    let shim = runtime.sandbox(pod).expect("listed").record.shim.clone().expect("a shim");
    let pid = Pid::from_raw(shim.process.pid.cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("the shim is there");
}

#[tokio::test]
async fn five_hundred_exits_at_once_appear_once_each_with_their_code() {
    let world = world!();
    let runtime = world.start().await;
    let gate = world.path().join("gate");
    std::fs::create_dir(&gate).expect("made");
    let mut pods = Vec::new();
    for n in 0..STORM_PODS {
        pods.push(runtime.pod(&format!("p{n}")).await);
    }
    let mut expected = BTreeMap::new();
    // All wait for the other end of a FIFO, so that they end together.
    let fifo = gate.join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).expect("made");
    for n in 0..STORM_CONTAINERS {
        let pod = &pods[n % STORM_PODS];
        let code = u32::try_from(n % 256).expect("small");
        let script = format!("read line < {}; exit {code}", fifo.display());
        let mut spec = script_spec(&format!("c{n}"), &script);
        spec.mounts.push(mainstay::Mount::bind(&gate, &gate, mainstay::Access::ReadOnly));
        let container = runtime.create_container(pod, spec).await.expect("created");
        runtime.start_container(&container).await.expect("started");
        expected.insert(container, vec![code]);
    }
    // A line for each; whoever opens the FIFO late finds it open, with a line in it.
    let mut lines = std::fs::OpenOptions::new().write(true).open(&fifo).expect("they wait for it");
    lines.write_all(&[b'\n'; STORM_CONTAINERS]).expect("written");
    for (container, code) in &expected {
        assert_eq!(runtime.exit_of(container).await.code(), code[0]);
    }
    drop(lines);
    assert_eq!(journalled(&runtime).await, expected);
    join_all(pods.iter().map(|pod| runtime.remove_sandbox(pod))).await;
    world.finish(runtime).await;
}

#[tokio::test]
async fn exits_behind_a_stopped_shim_appear_once_it_goes_on() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let mut containers = Vec::new();
    for n in 0..STOPPED_SHIM_CONTAINERS {
        containers.push(runtime.started(&pod, &format!("c{n}"), "exec sleep 1000").await);
    }
    signal_shim(&runtime, &pod, rustix::process::Signal::STOP);
    for container in &containers {
        let record = runtime.container(container).expect("listed").record.clone();
        let pid = record.process.expect("a process").pid;
        kill_process(Pid::from_raw(pid.cast_signed()).expect("an id"), rustix::process::Signal::KILL)
            .expect("killed");
    }
    let listed = runtime.containers_of(&pod);
    assert_eq!(listed.len(), STOPPED_SHIM_CONTAINERS, "reads do not wait for the shim");
    signal_shim(&runtime, &pod, rustix::process::Signal::CONT);
    for container in &containers {
        assert_eq!(runtime.exit_of(container).await.code(), 137);
    }
    let counts = journalled(&runtime).await;
    assert!(containers.iter().all(|container| counts[container] == [137]), "{counts:?}");
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// cd PR#10603: the exit of PID 1 was held back until pending execs had ended, and a steady stream of them starved it.
#[tokio::test]
async fn pid_1_that_exits_amid_a_storm_of_execs_is_seen() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "sleep 2; exit 7").await;
    let storm = join_all((0..20).map(|_| async {
        let mut outcomes = 0u32;
        // Until the container has ended; then every exec is refused.
        while let Ok(output) = runtime.exec_output(&container, ExecSpec::new(["true"])).await {
            let fine = output.exit.code() == 0 || output.exit.code() == 137;
            assert!(fine, "{}", output.exit);
            outcomes += 1;
        }
        outcomes
    }));
    let (outcomes, exit) =
        wait::finish("every exec returns", async { tokio::join!(storm, runtime.exit_of(&container)) }).await;
    assert_eq!(exit.code(), 7);
    assert!(outcomes.into_iter().sum::<u32>() > 0, "execs ran");
    let late = runtime.exec_output(&container, ExecSpec::new(["true"])).await.expect_err("it has ended");
    assert!(late.to_string().contains("exited"), "{late}");
    assert_eq!(journalled(&runtime).await[&container], [7]);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// Case 13 (moby#43491, cd#3199): a killed shim left containers "running", or processes alive with nobody to watch them.
#[tokio::test]
async fn a_killed_shim_ends_its_containers_and_says_so() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let other = runtime.pod("other").await;
    let bystander = runtime.started(&other, "c", "exec sleep 1000").await;
    let mut containers = Vec::new();
    for n in 0..3 {
        // A child in a session of its own must not survive either.
        containers.push(runtime.started(&pod, &format!("c{n}"), "setsid sleep 1000 & exec sleep 1000").await);
    }
    signal_shim(&runtime, &pod, rustix::process::Signal::KILL);
    for container in &containers {
        let exit = runtime.exit_of(container).await;
        assert_eq!(exit.status, ExitStatus::Unknown { reason: UnknownReason::ShimDied }, "{exit}");
        assert_eq!((exit.code(), exit.reason()), (255, "Unknown"));
    }
    wait::until("the pod is not ready", || {
        (runtime.sandbox(&pod).ok()?.record.phase == SandboxPhase::NotReady).then_some(())
    })
    .await;
    let refused = runtime.create_container(&pod, script_spec("x", "true")).await;
    assert!(refused.expect_err("it takes none").to_string().contains("not ready"));
    assert_eq!(runtime.sh(&bystander, "echo hi").await.stdout, b"hi\n", "others are not touched");
    runtime.remove_sandbox(&pod).await.expect("removed");
    runtime.pod("p").await;
    world.finish(runtime).await;
}

/// Case 4 (cd#6771, cd#10515): an exit while the daemon was down became code 0 or 255, and the task could not be removed.
#[tokio::test]
async fn exits_while_nobody_was_there_keep_code_and_time() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let gate = world.path().join("gate");
    std::fs::create_dir(&gate).expect("made");
    let script = format!("until [ -e {}/open ]; do sleep 0.02; done; exit 42", gate.display());
    let mut spec = script_spec("ends", &script);
    spec.mounts.push(mainstay::Mount::bind(&gate, &gate, mainstay::Access::ReadOnly));
    let ends = runtime.create_container(&pod, spec).await.expect("created");
    runtime.start_container(&ends).await.expect("started");
    let runs = runtime.started(&pod, "runs", "exec sleep 1000").await;
    let process = runtime.container(&ends).expect("listed").record.process.clone().expect("a process");
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    std::fs::write(gate.join("open"), "").expect("written");
    wait::until("it has ended", || (!alive(process.pid)).then_some(())).await;
    let died = mainstay::Timestamp::from_system(std::time::SystemTime::now());

    let runtime = world.start().await;
    let exit = runtime.exit_of(&ends).await;
    assert_eq!(exit.code(), 42, "{exit}");
    assert!(exit.at <= died, "the time is that of the death, not of the restart");
    assert_eq!(runtime.sh(&runs, "echo hi").await.stdout, b"hi\n", "the other runs on and can be used");
    assert_eq!(journalled(&runtime).await[&ends], [42]);
    runtime.remove_container(&ends, IfRunning::Refuse).await.expect("removed");
    runtime.kill_container(&runs, Signal::KILL).await.expect("killed");
    assert_eq!(runtime.exit_of(&runs).await.code(), 137);
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}

/// A zombie counts as dead: its shim has not been waited for yet, or it has and the number is free.
fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// case 7: OOMKilled is said only when PID 1 itself was killed for want of memory, and a stop is never called so.
#[tokio::test]
async fn out_of_memory_is_told_from_a_kill() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let eat = "x=$(head -c 300000000 /dev/zero | tr '\\0' x)";
    let limited = |name: &str, script: &str| {
        let mut spec = script_spec(name, script);
        spec.resources.memory_bytes = Some(64 << 20);
        spec
    };
    let init = runtime.create_container(&pod, limited("init", eat)).await.expect("created");
    runtime.start_container(&init).await.expect("started");
    let exit = runtime.exit_of(&init).await;
    assert_eq!((exit.code(), exit.reason()), (137, "OOMKilled"));
    let child = runtime.create_container(&pod, limited("child", &format!("sh -c '{eat}'; exit 0"))).await;
    let child = child.expect("created");
    runtime.start_container(&child).await.expect("started");
    let exit = runtime.exit_of(&child).await;
    assert_eq!((exit.code(), exit.reason()), (0, "Completed"), "only a child was killed");
    let killed = runtime.started(&pod, "killed", "exec sleep 1000").await;
    runtime.kill_container(&killed, Signal::KILL).await.expect("killed");
    let exit = runtime.exit_of(&killed).await;
    assert_eq!((exit.code(), exit.reason()), (137, "Error"));
    runtime.remove_sandbox(&pod).await.expect("removed");
    world.finish(runtime).await;
}
