//! P5 on real processes: daemons and shims that are killed, a machine that is booted again, a store that is lost. What
//! ran goes on, what ended is said once and truly, and no name is stuck.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use futures::future::join_all;
use mainstay::{
    ContainerId, ContainerPhase, ContainerSnapshot, EventOptions, ExitStatus, Follow, IfRunning, Repair,
    Runtime, SandboxId, SandboxPhase, SandboxSpec, Seq, Shutdown, UnknownReason, What,
};
use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, Shorthand, World, script_spec, wait, world};
use mainstay_messages::admin::Reference;
use rstest::rstest;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::UnshareFlags;

/// Pods of case 10, of which one hangs.
const STUCK_PODS: usize = 10;
/// Rounds of case 13.
const SHIM_KILL_ROUNDS: usize = 20;
/// Containers of case 3; the last one ends so many tenths of a second after its start.
const ENDING_CONTAINERS: u8 = 40;
/// Containers in each of them.
const SHIM_KILL_CONTAINERS: usize = 3;

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a process id"), signal).expect("it is there");
}

/// A zombie has ended: whoever started it has not waited for it yet, or its number is free.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

fn shim_of(runtime: &Runtime, pod: &SandboxId) -> u32 {
    runtime.sandbox(pod).expect("listed").record.shim.clone().expect("a shim").process.pid
}

fn phase(runtime: &Runtime, container: &ContainerId) -> ContainerPhase {
    runtime.container(container).expect("listed").record.phase
}

async fn until_phase(runtime: &Runtime, pod: &SandboxId, phase: SandboxPhase) {
    wait::until(&format!("the pod is {phase}"), || {
        (runtime.sandbox(pod).ok()?.record.phase == phase).then_some(())
    })
    .await;
}

async fn assert_clean(runtime: &Runtime) {
    let findings = wait::finish("an audit", runtime.audit(Repair::No)).await.expect("it looks");
    assert!(findings.is_empty(), "{findings:#?}");
}

/// How often each container's exit is in the journal.
async fn exits_journalled(runtime: &Runtime) -> BTreeMap<ContainerId, usize> {
    let mut all = BTreeMap::new();
    let mut events = runtime.events(EventOptions { after: Seq(0), follow: Follow::No, subject: None });
    while let Some(event) = events.next_event().await.expect("the journal is read") {
        if let (Some(container), What::ContainerExited { .. }) = (event.subject.container, event.what) {
            *all.entry(container).or_default() += 1;
        }
    }
    all
}

/// Kills everything of a world, and waits until it is gone: shims first, so that none can say how the others ended.
async fn kill_all(world: &World) {
    let shims = world.ledger().shims;
    for pid in &shims {
        signal(*pid, Signal::KILL);
    }
    wait::until("nothing of it runs", || {
        let ledger = world.ledger();
        for pid in &ledger.processes {
            let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
            // It may just have died.
            let _ = kill_process(pid, Signal::KILL);
        }
        // One that ends has no command line any more before it has ended: a runtime that looked then found a shim that was there and
        // out of reach, and told the true ends of what it had not reaped.
        (ledger.processes.is_empty() && shims.iter().all(|pid| has_ended(*pid))).then_some(())
    })
    .await;
    for group in world.ledger().cgroups.iter().rev() {
        let _ = fs::remove_dir(group);
    }
}

/// Gives this thread, and those that it starts, a view of the machine with another boot id.
fn pretend_reboot(world: &World) {
    // SAFETY: this thread alone gets a mount namespace and a root of its own; no descriptor table or memory is split.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.expect("unshared");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private");
    let id = world.path().join("boot_id");
    fs::write(&id, "00000000-1111-2222-3333-444444444444\n").expect("written");
    mount(&id, "/proc/sys/kernel/random/boot_id", "", MountFlags::BIND, None).expect("mounted");
}

/// What became of the machine while nobody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// Everything in memory, and another boot id.
    Reboot,
    /// The same without a boot: processes killed, the state directory wiped.
    ProcessesAndState,
    /// Processes alone.
    Processes,
}

/// Case 17 (crio#1742, talos#13411, cri#948): after a reboot pods were Running, names taken, and removal timed out.
#[rstest]
#[case(Loss::Reboot, UnknownReason::HostRebooted)]
#[case(Loss::ProcessesAndState, UnknownReason::LostWhileDown)]
#[case(Loss::Processes, UnknownReason::LostWhileDown)]
#[tokio::test]
async fn after_everything_died_nothing_runs_and_names_are_free(
    #[case] loss: Loss,
    #[case] reason: UnknownReason,
) {
    let world = world!();
    let runtime = world.start().await;
    let (a, b, stopped) = (runtime.pod("a").await, runtime.pod("b").await, runtime.pod("stopped").await);
    let running = runtime.started(&a, "running", "exec sleep 1000").await;
    let created = runtime.created(&a, "created", "true").await;
    let ended = runtime.started(&b, "ended", "exit 7").await;
    assert_eq!(runtime.exit_of(&ended).await.code(), 7);
    runtime.stop_sandbox(&stopped, None).await.expect("stopped");
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    kill_all(&world).await;
    if loss != Loss::Processes {
        fs::remove_dir_all(world.path().join("state")).expect("wiped");
    }
    if loss == Loss::Reboot {
        pretend_reboot(&world);
    }

    let runtime = world.start().await;
    if loss == Loss::Reboot {
        let runs = |one: &ContainerSnapshot| one.record.phase == ContainerPhase::Running;
        assert!(!runtime.containers().iter().any(|one| runs(one)), "nobody is shown that anything runs");
        assert!(runtime.sandboxes().iter().all(|pod| pod.record.phase != SandboxPhase::Ready));
    }
    for container in [&running, &created] {
        let exit = runtime.exit_of(container).await;
        assert_eq!(exit.status, ExitStatus::Unknown { reason }, "{exit}");
    }
    assert_eq!(runtime.exit_of(&ended).await.code(), 7, "what was known stays known");
    for pod in [&a, &b] {
        until_phase(&runtime, pod, SandboxPhase::NotReady).await;
    }
    assert_eq!(runtime.sandbox(&stopped).expect("listed").record.phase, SandboxPhase::Stopped);
    assert_clean(&runtime).await;
    let counts = exits_journalled(&runtime).await;
    assert!([&running, &created, &ended].iter().all(|container| counts[*container] == 1), "{counts:?}");

    let refused = runtime.start_container(&created).await;
    refused.expect_err("it has ended");
    runtime.stop_sandbox(&a, None).await.expect("stopped");
    runtime.remove_container(&running, IfRunning::Refuse).await.expect("removed");
    for pod in [&a, &b, &stopped] {
        runtime.remove_sandbox(pod).await.expect("removed");
    }
    for name in ["a", "b", "stopped"] {
        let pod = runtime.pod(name).await;
        let again = runtime.started(&pod, "running", "exit 3").await;
        assert_eq!(runtime.exit_of(&again).await.code(), 3);
    }
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// Cases 10 and 30 (cd#13848, cri PR#884): one shim that did not answer kept a daemon from ever finishing its start.
#[tokio::test]
async fn one_stuck_shim_holds_up_nobody_and_heals_by_itself() {
    let world = world!();
    let mut daemon = Daemon::start(&world, &[]).await;
    let client = Client::connect(daemon.socket()).await.expect("connected");
    join_all((0..STUCK_PODS).map(|n| {
        let client = &client;
        async move {
            let pod = Reference(format!("p{n}"));
            let spec = SandboxSpec::new(pod.0.parse().expect("a name"));
            client.run_sandbox(spec).await.expect("runs");
            let container = client.create_container(pod, script_spec("c", "exec sleep 1000")).await;
            client
                .start_container(Reference(container.expect("created").to_string()))
                .await
                .expect("started");
        }
    }))
    .await;
    let pods = client.list_sandboxes().await.expect("listed");
    let stuck = pods.iter().find(|pod| pod.record.name().as_str() == "p0").expect("the first").record.clone();
    let shim = stuck.shim.clone().expect("a shim").process.pid;
    signal(shim, Signal::STOP);
    daemon.kill();

    // Here and not in a process of its own, so that it can be asked more closely.
    let runtime = wait::finish("it starts", world.start()).await;
    assert_eq!(runtime.sandboxes().len(), STUCK_PODS, "all are listed at once");
    let usable = pods.iter().map(|pod| &pod.record.id).filter(|id| **id != stuck.id);
    join_all(usable.map(|pod| {
        let runtime = &runtime;
        async move {
            let container = runtime.containers_of(pod).pop().expect("one").record.id.clone();
            assert_eq!(runtime.sh(&container, "echo hi").await.stdout, b"hi\n");
        }
    }))
    .await;
    until_phase(&runtime, &stuck.id, SandboxPhase::Unknown).await;
    let container = runtime.containers_of(&stuck.id).pop().expect("one").record.id.clone();
    wait::until("its container is unknown", || {
        (phase(&runtime, &container) == ContainerPhase::Unknown).then_some(())
    })
    .await;
    let called = runtime.exec_output(&container, mainstay::ExecSpec::new(["true"])).await;
    called.expect_err("nobody answers");
    let made = runtime.create_container(&stuck.id, script_spec("late", "true")).await;
    made.expect_err("nobody answers");
    assert_clean(&runtime).await;

    signal(shim, Signal::CONT);
    until_phase(&runtime, &stuck.id, SandboxPhase::Ready).await;
    wait::until("it runs", || (phase(&runtime, &container) == ContainerPhase::Running).then_some(())).await;
    assert_eq!(runtime.sh(&container, "echo hi").await.stdout, b"hi\n");
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// Case 13 (moby#43491, cd#3199, cd#13293): a killed shim left containers "running", processes alive, or state that piled up.
#[tokio::test]
async fn killed_shims_leave_nothing_round_after_round() {
    let world = world!();
    let mut runtime = world.start().await;
    for round in 0..SHIM_KILL_ROUNDS {
        let pod = runtime.pod("p").await;
        let mut containers = Vec::new();
        for n in 0..SHIM_KILL_CONTAINERS {
            let script = "setsid sleep 1000 & exec sleep 1000";
            containers.push(runtime.started(&pod, &format!("c{n}"), script).await);
        }
        let ended = runtime.started(&pod, "ended", "exit 5").await;
        let shim = shim_of(&runtime, &pod);
        let expected = match round % 2 {
            0 => {
                assert_eq!(runtime.exit_of(&ended).await.code(), 5);
                signal(shim, Signal::KILL);
                UnknownReason::ShimDied
            }
            // The same while nobody is there.
            _ => {
                assert_eq!(runtime.exit_of(&ended).await.code(), 5);
                runtime.close(Shutdown::LeaveRunning).await.expect("closed");
                signal(shim, Signal::KILL);
                wait::until("it is dead", || has_ended(shim).then_some(())).await;
                runtime = world.start().await;
                UnknownReason::LostWhileDown
            }
        };
        for container in &containers {
            let exit = runtime.exit_of(container).await;
            assert_eq!(exit.status, ExitStatus::Unknown { reason: expected }, "round {round}: {exit}");
        }
        assert_eq!(runtime.exit_of(&ended).await.code(), 5, "round {round}");
        until_phase(&runtime, &pod, SandboxPhase::NotReady).await;
        assert!(world.ledger().processes.is_empty(), "round {round}: {:#?}", world.ledger());
        assert_clean(&runtime).await;
        if round % 3 == 0 {
            runtime.stop_sandbox(&pod, None).await.expect("stopped");
        }
        runtime.remove_sandbox(&pod).await.expect("removed");
        world.assert_nothing_left().await;
    }
    world.finish(runtime).await;
}

/// How a store is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// It is full of rubbish.
    Corrupt,
    /// It is not there.
    Missing,
}

/// The store is gone while pods run: they run on, are adopted with all that was asked for, and what is lost is said.
#[rstest]
#[case(Lost::Corrupt)]
#[case(Lost::Missing)]
#[tokio::test]
async fn a_lost_store_costs_no_running_pod(#[case] lost: Lost) {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("web").await;
    let mut spec = script_spec("runs", "while :; do sleep 0.05; done");
    spec.process.env.insert("GREETING".to_owned(), "hello".to_owned());
    spec.labels.insert("team".to_owned(), "blue".to_owned());
    let runs = runtime.create_container(&pod, spec.clone()).await.expect("created");
    runtime.start_container(&runs).await.expect("started");
    let waits = runtime.created(&pod, "waits", "exit 4").await;
    let ended = runtime.started(&pod, "ended", "exit 6").await;
    assert_eq!(runtime.exit_of(&ended).await.code(), 6);
    let dead = runtime.pod("dead").await;
    let killed = runtime.started(&dead, "killed", "exec sleep 1000").await;
    let shim = shim_of(&runtime, &dead);
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    signal(shim, Signal::KILL);
    wait::until("it is dead", || has_ended(shim).then_some(())).await;
    lose(&world, lost);

    let runtime = world.start().await;
    let adopted = runtime.sandbox(&pod).expect("it is listed at once");
    assert_eq!(adopted.record.name().as_str(), "web");
    wait::until("it runs", || (phase(&runtime, &runs) == ContainerPhase::Running).then_some(())).await;
    assert_eq!(runtime.container(&runs).expect("listed").record.spec, spec, "all that was asked for");
    assert_eq!(runtime.sh(&runs, "echo $GREETING").await.stdout, b"hello\n");
    wait::until("the other waits", || (phase(&runtime, &waits) == ContainerPhase::Created).then_some(()))
        .await;
    runtime.start_container(&waits).await.expect("started");
    assert_eq!(runtime.exit_of(&waits).await.code(), 4);
    assert_eq!(runtime.exit_of(&ended).await.code(), 6, "its shim remembers");
    let exit = runtime.exit_of(&killed).await;
    assert_eq!(exit.status, ExitStatus::Unknown { reason: UnknownReason::LostWhileDown }, "{exit}");
    until_phase(&runtime, &dead, SandboxPhase::NotReady).await;
    assert_clean(&runtime).await;

    let mut said = Vec::new();
    let mut events = runtime.events(EventOptions { after: Seq(0), follow: Follow::No, subject: None });
    while let Some(event) = events.next_event().await.expect("the journal is read") {
        said.push(event.what);
    }
    let rebuilt = said.iter().filter(|what| **what == What::RecordRebuilt).count();
    assert_eq!(rebuilt, 6, "two pods and four containers: {said:?}");
    let aside = said.iter().find_map(|what| match what {
        What::StoreReplaced { moved_to } => Some(PathBuf::from(moved_to)),
        _ => None,
    });
    match lost {
        Lost::Corrupt => assert!(aside.expect("it is said where it is").exists()),
        Lost::Missing => assert_eq!(aside, None),
    }

    // It is in the store now: the next one needs no directories.
    let name_taken = runtime.run_sandbox(SandboxSpec {
        hostname: Some("x".into()),
        ..SandboxSpec::new("web".parse().expect("a name"))
    });
    name_taken.await.expect_err("the name is taken");
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    let runtime = world.start().await;
    wait::until("it runs", || (phase(&runtime, &runs) == ContainerPhase::Running).then_some(())).await;
    assert_eq!(runtime.sandboxes().len(), 2);
    runtime.remove_sandbox(&pod).await.expect("removed");
    runtime.pod("web").await;
    world.finish(runtime).await;
}

fn lose(world: &World, lost: Lost) {
    let file = |suffix: &str| world.path().join(format!("root/store.db{suffix}"));
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(file(suffix));
    }
    match lost {
        Lost::Corrupt => fs::write(file(""), [0x5a; 8_192]).expect("written"),
        Lost::Missing => fs::remove_file(file("")).expect("removed"),
    }
}

/// kill -9 of the daemon with all kinds of containers, again and again: they run on, exits come once and are true.
#[tokio::test]
async fn a_daemon_that_is_killed_costs_nothing() {
    let world = world!();
    let gate = world.path().join("gate");
    fs::create_dir(&gate).expect("made");
    let mut daemon = Daemon::start(&world, &[]).await;
    let client = Client::connect(daemon.socket()).await.expect("connected");
    client.run_sandbox(SandboxSpec::new("p".parse().expect("a name"))).await.expect("runs");
    let pod = || Reference("p".to_owned());
    let mut waits =
        script_spec("waits", &format!("until [ -e {}/open ]; do sleep 0.02; done; exit 42", gate.display()));
    waits.mounts.push(mainstay::Mount::bind(&gate, &gate, mainstay::Access::ReadOnly));
    let waits = client.create_container(pod(), waits).await.expect("created");
    client.start_container(Reference(waits.to_string())).await.expect("started");
    let runs = client.create_container(pod(), script_spec("runs", "exec sleep 1000")).await.expect("created");
    client.start_container(Reference(runs.to_string())).await.expect("started");
    drop(client);
    daemon.kill();
    let mut daemon = Daemon::start(&world, &[]).await;
    daemon.kill();
    fs::write(gate.join("open"), "").expect("written");

    let runtime = world.start().await;
    assert_eq!(runtime.exit_of(&waits).await.code(), 42);
    assert_eq!(runtime.sh(&runs, "echo hi").await.stdout, b"hi\n");
    assert_eq!(exits_journalled(&runtime).await[&waits], 1);
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// Case 3 (cd#10390): a container that ended while the daemon started stayed RUNNING, since its end was told to somebody who
/// did not know it yet. The daemon is killed over and over while containers end.
#[tokio::test]
async fn exits_while_the_daemon_starts_again_and_again_are_all_told() {
    let world = world!();
    let mut daemon = Daemon::start(&world, &[]).await;
    let client = Client::connect(daemon.socket()).await.expect("connected");
    client.run_sandbox(SandboxSpec::new("p".parse().expect("a name"))).await.expect("runs");
    let mut codes = BTreeMap::new();
    for n in 1..=ENDING_CONTAINERS {
        let script = format!("sleep {}.{}; exit {n}", n / 10, n % 10);
        let pod = Reference("p".to_owned());
        let made = client.create_container(pod, script_spec(&format!("c{n}"), &script)).await;
        codes.insert(made.expect("created"), u32::from(n));
    }
    for container in codes.keys() {
        client.start_container(Reference(container.to_string())).await.expect("started");
    }
    drop(client);
    let script = format!("sleep {}; exit 0", ENDING_CONTAINERS / 10);
    let mut clock = std::process::Command::new("sh").args(["-c", &script]).spawn().expect("started");
    while clock.try_wait().expect("our child").is_none() {
        daemon.kill();
        daemon = Daemon::start(&world, &[]).await;
    }
    daemon.kill();
    let runtime = world.start().await;
    for (container, code) in &codes {
        assert_eq!(runtime.exit_of(container).await.code(), *code);
    }
    let told = exits_journalled(&runtime).await;
    assert!(codes.keys().all(|container| told[container] == 1), "{told:?}");
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// Case 11 (cd#13784): whether a workload lived was guessed from something that it can change, the cgroup that it is in; a
/// healthy one was disowned, and a second copy started.
#[tokio::test]
async fn a_container_that_moves_to_a_cgroup_of_its_own_making_is_adopted() {
    let world = world!();
    let mut runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let script = "mkdir -p /mnt/a /mnt/b && mount -t cgroup2 a /mnt/a && mount -t cgroup -o memory b /mnt/b && \
                  mkdir /mnt/a/own /mnt/b/own && echo 0 >/mnt/a/own/cgroup.procs && echo 0 >/mnt/b/own/cgroup.procs && \
                  echo ready && exec sleep 1000 || exit 1";
    let mut spec = script_spec("c", script);
    spec.security.privilege = mainstay_messages::spec::Privilege::Privileged;
    let container = runtime.create_container(&pod, spec).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    let log = runtime.container(&container).expect("listed").record.log_path.clone();
    let moved = wait::until("it has moved, or cannot", || {
        let ended = phase(&runtime, &container) == ContainerPhase::Exited;
        let ready = fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"));
        (ended || ready).then_some(ready)
    })
    .await;
    if !moved {
        eprintln!("skipped: no v1 memory hierarchy beside a v2 tree here");
        return world.finish(runtime).await;
    }
    let process = runtime.container(&container).expect("listed").record.process.clone();
    for _ in 0..5 {
        runtime.close(Shutdown::LeaveRunning).await.expect("closed");
        runtime = world.start().await;
        wait::until("it runs", || (phase(&runtime, &container) == ContainerPhase::Running).then_some(()))
            .await;
        assert_eq!(runtime.container(&container).expect("listed").record.process, process);
        assert_eq!(runtime.sh(&container, "echo hi").await.stdout, b"hi\n");
    }
    assert_eq!(runtime.containers().len(), 1);
    let options = mainstay::StopOptions { signal: None, grace: Some(std::time::Duration::ZERO) };
    wait::finish("it is stopped", runtime.stop_container(&container, options)).await.expect("stopped");
    assert_eq!(runtime.exit_of(&container).await.code(), 137);
    assert!(has_ended(process.expect("it ran").pid));
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// tmpfiles cleaners and careless scripts: the state directory is wiped while its shims run, so that nobody can reach them
/// any more. They are listed, their names are not stuck, and removing them ends them.
#[tokio::test]
async fn shims_that_lost_their_sockets_are_listed_and_can_be_removed() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let other = runtime.started(&pod, "other", "exec sleep 1000").await;
    let seen = runtime.started(&pod, "seen", "trap 'exit 9' TERM; while :; do sleep 0.05; done").await;
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    fs::remove_dir_all(world.path().join("state")).expect("wiped");

    let runtime = world.start().await;
    until_phase(&runtime, &pod, SandboxPhase::Unknown).await;
    assert!(world.ledger().processes.len() >= 3, "nothing is ended that may be of use");
    let reason = runtime.sandbox(&pod).expect("listed").record.reason.clone().expect("it is said why");
    assert!(reason.contains("shim.sock is gone"), "{reason}");
    // Their ends are seen without the shim, and nobody waits for ever: field report of a `wait` that never came back.
    let pid = runtime.container(&seen).expect("listed").record.process.clone().expect("it runs").pid;
    signal(pid, Signal::TERM);
    assert_eq!(runtime.exit_of(&seen).await.code(), 9);
    wait::finish("it is removed", runtime.remove_container(&seen, IfRunning::Refuse)).await.expect("removed");
    wait::finish("it is removed", runtime.remove_container(&other, IfRunning::Kill)).await.expect("removed");
    assert_eq!(world.ledger().processes.len(), 1, "only the one that nobody touched");
    let stopped = runtime.stop_sandbox(&pod, Some(std::time::Duration::ZERO));
    wait::finish("the pod is stopped", stopped).await.expect("stopped");
    wait::finish("the pod is removed", runtime.remove_sandbox(&pod)).await.expect("removed");
    assert!(runtime.container(&container).is_err());
    let again = runtime.pod("p").await;
    assert_eq!(runtime.sandbox(&again).expect("listed").record.phase, SandboxPhase::Ready);
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}
