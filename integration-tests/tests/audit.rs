//! The audit on real processes: every ghost and leak by its name, nothing that is being made or removed, and a repair that
//! leaves the machine as if nothing had been.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use futures::future::join_all;
use mainstay::{
    ContainerId, ContainerPhase, Deviation, Finding, IfRunning, Leak, Remedy, Repair, Runtime, SandboxId,
    SandboxPhase, Shutdown, ThingKind,
};
use mainstay_integration_tests::{Daemon, Shorthand, World, wait, world};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};

/// Rounds of lives beside which audits are made.
const BUSY_ROUNDS: usize = 6;
/// Lives at the same time.
const BUSY_PODS: usize = 4;

async fn audit(runtime: &Runtime, repair: Repair) -> Vec<Finding> {
    wait::finish("an audit", runtime.audit(repair)).await.expect("the machine can be looked at")
}

async fn assert_clean(runtime: &Runtime) {
    let findings = audit(runtime, Repair::No).await;
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Repairs, and sees that all of it worked and that it stays so.
async fn assert_repairs(runtime: &Runtime) {
    let findings = audit(runtime, Repair::Yes).await;
    assert!(findings.iter().all(|finding| finding.outcome == Some(Ok(()))), "{findings:#?}");
    assert_clean(runtime).await;
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a process id"), signal).expect("it is there");
}

fn shim_of(runtime: &Runtime, pod: &SandboxId) -> u32 {
    runtime.sandbox(pod).expect("listed").record.shim.clone().expect("a shim").process.pid
}

fn init_of(runtime: &Runtime, container: &ContainerId) -> u32 {
    runtime.container(container).expect("listed").record.process.clone().expect("a process").pid
}

fn kinds(findings: &[Finding]) -> Vec<ThingKind> {
    let mut kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
    kinds.dedup();
    kinds
}

/// Moves the store and its log away, so that the next runtime on these directories knows of nothing. What is left of
/// pods' own records is taken too, where a leak is wanted and no recovery.
fn forget(world: &World, keep: Keep) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(world.path().join(format!("root/store.db{suffix}")));
    }
    if keep == Keep::Nothing {
        for pod in fs::read_dir(world.path().join("state/p")).expect("pods").flatten() {
            fs::remove_file(pod.path().join("pod.json")).expect("its record");
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    RecordsOfPods,
    Nothing,
}

#[tokio::test]
async fn what_is_as_it_should_be_is_clean_in_every_phase() {
    let world = world!();
    let runtime = world.start().await;
    assert_clean(&runtime).await;
    let pod = runtime.pod("p").await;
    assert_clean(&runtime).await;
    let created = runtime.created(&pod, "created", "true").await;
    let running = runtime.started(&pod, "running", "sleep 1000 & exec sleep 1000").await;
    let ended = runtime.started(&pod, "ended", "exit 3").await;
    runtime.exit_of(&ended).await;
    assert_clean(&runtime).await;
    runtime.sh(&running, "sleep 0.01").await;
    assert_clean(&runtime).await;
    runtime.remove_container(&created, IfRunning::Refuse).await.expect("removed");
    assert_clean(&runtime).await;
    let lost = runtime.pod("lost").await;
    runtime.started(&lost, "c", "exec sleep 1000").await;
    signal(shim_of(&runtime, &lost), Signal::KILL);
    wait::until("the pod is not ready", || {
        (runtime.sandbox(&lost).ok()?.record.phase == SandboxPhase::NotReady).then_some(())
    })
    .await;
    assert_clean(&runtime).await;
    runtime.stop_sandbox(&pod, Some(std::time::Duration::ZERO)).await.expect("stopped");
    assert_clean(&runtime).await;
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    let runtime = world.start().await;
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// An audit beside work that comes and goes has nothing to say, however often it looks.
#[tokio::test]
async fn nothing_that_comes_and_goes_is_a_finding() {
    let world = world!();
    let runtime = world.start().await;
    let lives = join_all((0..BUSY_PODS).map(|n| {
        let runtime = runtime.clone();
        async move {
            for round in 0..BUSY_ROUNDS {
                let pod = runtime.pod(&format!("p{n}")).await;
                let ends = runtime.started(&pod, "ends", "exit 0").await;
                let stays = runtime.started(&pod, "stays", "exec sleep 1000").await;
                runtime.exit_of(&ends).await;
                if round % 2 == 0 {
                    runtime.remove_container(&stays, IfRunning::Kill).await.expect("removed");
                }
                runtime.remove_sandbox(&pod).await.expect("removed");
            }
        }
    }));
    let mut lives = std::pin::pin!(lives);
    loop {
        tokio::select! {
            _ = &mut lives => break,
            findings = audit(&runtime, Repair::No) => assert!(findings.is_empty(), "{findings:#?}"),
        }
    }
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// cd#13293 and its like: state of shims that nobody knows piles up. A store that was lost with the records beside the
/// pods leaves a shim, processes, cgroups, directories, sockets, a layer and a log.
#[tokio::test]
async fn a_pod_that_nobody_knows_is_named_and_ended() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let runs = runtime.started(&pod, "runs", "echo hi; exec sleep 1000").await;
    let ended = runtime.started(&pod, "ended", "exit 3").await;
    runtime.exit_of(&ended).await;
    let (shim, init) = (shim_of(&runtime, &pod), init_of(&runtime, &runs));
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    forget(&world, Keep::Nothing);

    let runtime = world.start().await;
    assert!(runtime.sandboxes().is_empty(), "nothing tells of it");
    let findings = audit(&runtime, Repair::No).await;
    assert!(findings.iter().all(|finding| finding.deviation == Deviation::Leak), "{findings:#?}");
    let expected = [
        ThingKind::Shim,
        ThingKind::Process,
        ThingKind::Cgroup,
        ThingKind::NetworkNamespace,
        ThingKind::PodDirectory,
        ThingKind::Socket,
        ThingKind::Bundle,
        ThingKind::ExitRecord,
        ThingKind::Layer,
        ThingKind::Log,
        ThingKind::LogDirectory,
    ];
    assert_eq!(kinds(&findings), expected, "{findings:#?}");
    assert_eq!(findings[0].pid, Some(shim));
    assert!(findings.iter().any(|f| f.kind == ThingKind::Process && f.pid == Some(init)), "{findings:#?}");
    let whose = |f: &Finding| f.owner.sandbox.as_ref() == Some(&pod) || f.kind == ThingKind::Layer;
    assert!(findings.iter().all(whose), "{findings:#?}");
    assert!(findings.iter().filter(|f| f.kind != ThingKind::Cgroup).all(|f| f.since.is_some()));

    assert_repairs(&runtime).await;
    world.assert_nothing_left().await;
    runtime.pod("p").await;
    world.finish(runtime).await;
}

/// A container that its shim has and the store has not: it is killed and removed, and its neighbour never notices.
#[tokio::test]
async fn a_leaked_container_is_removed_beside_others_that_run() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    // The store goes back to when there was no container yet.
    let store = |name: &str| world.path().join("root").join(name);
    let files = ["store.db", "store.db-wal"];
    for file in files {
        let _ = fs::copy(store(file), world.path().join(file));
    }
    let runtime = world.start().await;
    let leaked = runtime.started(&pod, "leaked", "exec sleep 1000").await;
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    for file in files {
        let _ = fs::remove_file(store(file));
        let _ = fs::copy(world.path().join(file), store(file));
    }
    let _ = fs::remove_file(store("store.db-shm"));
    fs::remove_file(world.path().join(format!("state/p/{pod}/c/{leaked}/container.json")))
        .expect("its record");

    let runtime = world.start().await;
    let neighbour = runtime.started(&pod, "neighbour", "exec sleep 1000").await;
    let findings = audit(&runtime, Repair::No).await;
    assert!(!findings.is_empty());
    assert!(
        findings.iter().all(|finding| finding.owner.container.as_ref() == Some(&leaked)),
        "{findings:#?}"
    );
    assert_repairs(&runtime).await;
    assert_eq!(runtime.sh(&neighbour, "echo hi").await.stdout, b"hi\n");
    world.finish(runtime).await;
}

/// Two launches of one pod: a second shim of the same directory, started by hand.
#[tokio::test]
async fn a_second_shim_is_killed_and_the_first_lives_on() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let directory = world.path().join("state/p").join(pod.as_str());
    // What makes a shim is its command line; a sleeper with the same one is as good.
    let mut second = std::os::unix::process::CommandExt::arg0(&mut Command::new("sh"), "mainstay-shim")
        .args(["-c", "read line", "--sandbox", pod.as_str(), "--dir"])
        .arg(&directory)
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    let seen = || async { audit(&runtime, Repair::No).await };
    wait::until_async("the second shim has its command line", async || !seen().await.is_empty()).await;
    let findings = seen().await;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!((findings[0].kind, findings[0].pid), (ThingKind::Shim, Some(second.id())));
    let findings = audit(&runtime, Repair::Yes).await;
    // The supervisor, which is in this process here, has reaped it, or it is reaped now.
    let _ = second.wait();
    assert_eq!(findings[0].outcome, Some(Ok(())), "{findings:#?}");
    assert_eq!(runtime.sh(&container, "echo hi").await.stdout, b"hi\n");
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// A PID 1 that is dead while the store says Running: its shim is stopped and reaps nothing. A repair asks the kernel how the
/// process ended, and writes down the true code; what the shim says when it goes on is nothing new.
#[tokio::test]
async fn a_dead_process_behind_a_stopped_shim_is_a_ghost_until_it_is_settled() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let (shim, init) = (shim_of(&runtime, &pod), init_of(&runtime, &container));
    signal(shim, Signal::STOP);
    signal(init, Signal::KILL);
    wait::until_async("it is dead", async || !audit(&runtime, Repair::No).await.is_empty()).await;
    let findings = audit(&runtime, Repair::Yes).await;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!((findings[0].deviation, findings[0].kind), (Deviation::Ghost, ThingKind::Process));
    assert_eq!(findings[0].pid, Some(init));
    assert_eq!(findings[0].outcome, Some(Ok(())), "the kernel knows: {findings:#?}");
    assert_eq!(runtime.exit_of(&container).await.code(), 137, "the true code, not an invented one");
    signal(shim, Signal::CONT);
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// Somebody wiped the state directory under a running pod: its files are missed by name, and removing the pod works.
#[tokio::test]
async fn files_that_were_wiped_are_missed_by_name() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    fs::remove_dir_all(world.path().join("state/p").join(pod.as_str())).expect("wiped");
    let findings = audit(&runtime, Repair::Yes).await;
    assert!(findings.iter().all(|finding| finding.deviation == Deviation::Ghost), "{findings:#?}");
    assert_eq!(kinds(&findings), [ThingKind::PodDirectory, ThingKind::Socket, ThingKind::Bundle]);
    assert!(findings.iter().all(|finding| finding.outcome.is_none()), "nothing can be conjured up");
    runtime.remove_sandbox(&pod).await.expect("removed");
    assert!(runtime.container(&container).is_err());
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// A mount in a directory that is removed: the removal went into it, and emptied what was mounted there.
#[tokio::test]
async fn a_leaked_mount_is_taken_away_and_what_it_shows_is_kept() {
    let world = world!();
    let runtime = world.start().await;
    let precious = world.path().join("precious");
    fs::create_dir(&precious).expect("made");
    fs::write(precious.join("data"), "kept").expect("written");
    let pod: SandboxId = "feedfeedfeedfeedfeedfeedfeedfeed".parse().expect("an id");
    let bundle = world.path().join(format!("state/p/{pod}/c/cafecafecafecafecafecafecafecafe"));
    let points = [bundle.join("root a"), world.path().join("root/layers/cafecafecafecafecafecafecafecafe/x")];
    for point in &points {
        fs::create_dir_all(point).expect("made");
        mount(&precious, point, "", MountFlags::BIND, None).expect("mounted");
    }
    // On top of the first.
    mount("none", &points[0], "tmpfs", MountFlags::empty(), None).expect("mounted");
    let findings = audit(&runtime, Repair::No).await;
    let mounts: Vec<_> = findings.iter().filter(|finding| finding.kind == ThingKind::Mount).collect();
    assert_eq!(mounts.len(), 3, "{findings:#?}");
    assert!(mounts.iter().any(|finding| Path::new(&finding.place) == points[0]), "{findings:#?}");
    assert_repairs(&runtime).await;
    assert_eq!(fs::read(precious.join("data")).expect("still there"), b"kept");
    world.finish(runtime).await;
}

/// The same with a mount in a container that is removed the usual way.
#[tokio::test]
async fn removing_a_container_never_empties_what_is_mounted_in_its_layer() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    let precious = world.path().join("precious");
    fs::create_dir(&precious).expect("made");
    fs::write(precious.join("data"), "kept").expect("written");
    let point = world.path().join(format!("root/layers/{container}/upper/mnt"));
    fs::create_dir_all(&point).expect("made");
    mount(&precious, &point, "", MountFlags::BIND, None).expect("mounted");
    runtime.remove_container(&container, IfRunning::Kill).await.expect("removed");
    assert_eq!(fs::read(precious.join("data")).expect("still there"), b"kept");
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// What is not ours is named, and never touched.
#[tokio::test]
async fn strangers_are_left_alone() {
    let world = world!();
    let runtime = world.start().await;
    let (notes, log) =
        (world.path().join("state/p/my notes"), world.path().join("root/logs/README.txt (old)"));
    fs::write(&notes, "important").expect("written");
    fs::create_dir(&log).expect("made");
    let findings = audit(&runtime, Repair::Yes).await;
    assert_eq!(kinds(&findings), [ThingKind::Stranger], "{findings:#?}");
    assert!(findings.iter().all(|finding| finding.outcome.is_none()));
    assert!(findings.iter().all(|finding| matches!(finding.remedy, Remedy::ByHand { .. })));
    assert!(notes.exists() && log.exists());
    fs::remove_file(notes).expect("removed");
    fs::remove_dir(log).expect("removed");
    world.finish(runtime).await;
}

/// The directories of pods say what the store has lost: nothing of it is a leak then.
#[tokio::test]
async fn a_lost_store_alone_leaks_nothing() {
    let world = world!();
    let runtime = world.start().await;
    let pod = runtime.pod("p").await;
    let container = runtime.started(&pod, "c", "exec sleep 1000").await;
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    forget(&world, Keep::RecordsOfPods);
    let runtime = world.start().await;
    wait::until("the container is adopted", || {
        (runtime.container(&container).ok()?.record.phase == ContainerPhase::Running).then_some(())
    })
    .await;
    assert_clean(&runtime).await;
    assert_eq!(runtime.sh(&container, "echo hi").await.stdout, b"hi\n");
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_layer_and_a_log_without_a_container_are_removed() {
    let world = world!();
    let runtime = world.start().await;
    let (layers, logs) = (world.path().join("root/layers"), world.path().join("root/logs"));
    fs::create_dir_all(layers.join("0123/upper")).expect("made");
    fs::create_dir_all(logs.join("beef")).expect("made");
    fs::create_dir_all(logs.join("empty")).expect("made");
    fs::write(logs.join("beef/0123.log"), "x").expect("written");
    let findings = audit(&runtime, Repair::No).await;
    let layer = Remedy::Remove(Leak::Layer { container: "0123".parse().expect("an id") });
    assert!(findings.iter().any(|finding| finding.remedy == layer), "{findings:#?}");
    assert_repairs(&runtime).await;
    world.finish(runtime).await;
}

/// As operators use it: tables and JSON, and a status that scripts can count on.
#[tokio::test]
async fn the_command_says_what_it_finds_by_its_status_too() {
    let world = world!();
    let daemon = Daemon::start(&world, &[]).await;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(world.program());
        let output =
            command.args(arguments).env("MAINSTAY_SOCKET", daemon.socket()).output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        (output.status.code(), text(&output.stdout))
    };
    assert_eq!(
        run(&["audit"]),
        (Some(0), "clean: nothing is left over, and nothing is missing\n".to_owned())
    );
    let layer = world.path().join("root/layers/0123");
    fs::create_dir(&layer).expect("made");
    let (status, table) = run(&["audit"]);
    assert_eq!(status, Some(1), "{table}");
    assert!(table.contains(layer.to_str().expect("text")) && table.contains("remove the layer"), "{table}");
    let (status, json) = run(&["audit", "--json", "--repair"]);
    assert_eq!(status, Some(0), "{json}");
    let json: serde_json::Value = serde_json::from_str(&json).expect("a document");
    assert_eq!((&json[0]["deviation"], &json[0]["what"]), (&"leak".into(), &"layer".into()), "{json}");
    assert_eq!((&json[0]["container"], &json[0]["repaired"]), (&"0123".into(), &true.into()), "{json}");
    assert!(!layer.exists());
    assert_eq!(run(&["audit", "--json"]), (Some(0), "[]\n".to_owned()));
    let stranger = world.path().join("state/p/my notes");
    fs::write(&stranger, "").expect("written");
    assert_eq!(run(&["audit", "--repair"]).0, Some(1), "what is left to people is left");
    fs::remove_file(stranger).expect("removed");
    drop(daemon);
    let runtime = world.start().await;
    world.finish(runtime).await;
}
