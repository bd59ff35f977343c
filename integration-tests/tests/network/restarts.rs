//! What becomes of networks when the daemon, a shim, the store or the machine is gone.

use std::fs;
use std::time::Duration;

use mainstay::{Protocol, Runtime, SandboxPhase, SandboxSnapshot, Shutdown};
use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, wait};
use mainstay_messages::admin::{Object, Reference};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::UnshareFlags;

use crate::stage;
use crate::stage::{Stage, addresses, files, inside, port, run, spec};

async fn inspect(client: &Client, pod: &str) -> SandboxSnapshot {
    match client.inspect(Reference(pod.to_owned())).await.expect("listed") {
        Object::Sandbox { sandbox, .. } => sandbox,
        other => panic!("a pod: {other:?}"),
    }
}

fn kill_shim(pod: &SandboxSnapshot) {
    let shim = pod.record.shim.as_ref().expect("a shim").process.pid;
    kill_process(Pid::from_raw(shim.cast_signed()).expect("a process id"), Signal::KILL)
        .expect("it is there");
}

async fn until_phase(runtime: &Runtime, pod: &SandboxSnapshot, phase: SandboxPhase) {
    let id = &pod.record.id;
    wait::until("the phase of a pod", || {
        (runtime.sandbox(id).expect("listed").record.phase == phase).then_some(())
    })
    .await;
}

/// Case 46 and P5: the address of a pod is its own for as long as it is there, whatever becomes of the daemon.
#[tokio::test]
async fn a_killed_daemon_costs_no_address() {
    let stage = stage!();
    let config = stage.config();
    let mut daemon = Daemon::start_with(&stage.world, &config, &[]).await;
    let client = Client::connect(daemon.socket()).await.expect("it listens");
    let web = spec("web", |spec| spec.ports = vec![port(Protocol::Tcp, 8080, 80)]);
    client.run_sandbox(web).await.expect("a pod runs");
    let before = inspect(&client, "web").await;
    let _server = inside(&before).serve("0.0.0.0:80");
    for _ in 0..3 {
        daemon.kill();
        daemon = Daemon::start_with(&stage.world, &config, &[]).await;
        let client = Client::connect(daemon.socket()).await.expect("it listens");
        let after = inspect(&client, "web").await;
        assert_eq!(after.record.network, before.record.network);
        assert!(stage.internet.host.call("127.0.0.1:8080").is_some(), "its port leads there as before");
    }
    let client = Client::connect(daemon.socket()).await.expect("it listens");
    client.run_sandbox(spec("other", |_| ())).await.expect("a pod runs");
    assert_eq!(addresses(&inspect(&client, "other").await)[0], "10.89.0.3", "nobody gets another's address");
    for pod in ["web", "other"] {
        client.remove_sandbox(Reference(pod.to_owned())).await.expect("removed");
    }
    stage.assert_no_network_left().await;
    stage.world.assert_nothing_left().await;
}

/// What a store has lost that was set aside, the leases know.
#[tokio::test]
async fn a_lost_store_costs_no_address() {
    let stage = stage!();
    let runtime = stage.start().await;
    let pod = run(&runtime, spec("web", |_| ())).await;
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(stage.path(&format!("root/store.db{suffix}")));
    }
    let runtime = stage.start().await;
    until_phase(&runtime, &pod, SandboxPhase::Ready).await;
    assert_eq!(runtime.sandbox(&pod.record.id).expect("rebuilt").record.network, pod.record.network);
    stage.finish(runtime).await;
}

/// A pod whose shim died keeps its address until it is stopped, and its name does not lead to a stranger.
#[tokio::test]
async fn a_pod_that_lost_its_shim_is_given_back_when_it_is_stopped() {
    let stage = stage!();
    let runtime = stage.start().await;
    let pod = run(&runtime, spec("web", |spec| spec.ports = vec![port(Protocol::Tcp, 8080, 80)])).await;
    kill_shim(&pod);
    until_phase(&runtime, &pod, SandboxPhase::NotReady).await;
    assert_eq!(files(&stage.path("root/network")).len(), 1, "nobody else may have its address or port");
    assert_eq!(files(&stage.path("state/netns")), Vec::<String>::new());
    runtime.stop_sandbox(&pod.record.id, None).await.expect("stopped");
    assert_eq!(files(&stage.path("root/network")), Vec::<String>::new());
    stage.finish(runtime).await;
}

/// Case 17 (crio#1742, cri#948): after a reboot addresses were never freed, because the namespaces were gone. Here they are free
/// before anybody stops the pods, and rules that a wiped state directory has left go with the pods.
#[tokio::test]
async fn a_reboot_frees_addresses_without_a_namespace() {
    let stage = stage!();
    let runtime = stage.start().await;
    let pod = run(&runtime, spec("web", |spec| spec.ports = vec![port(Protocol::Tcp, 8080, 80)])).await;
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    kill_shim(&pod);
    forget_boot(&stage);
    let runtime = stage.start().await;
    until_phase(&runtime, &pod, SandboxPhase::NotReady).await;
    assert_eq!(runtime.sandbox(&pod.record.id).expect("listed").record.network, None);
    wait::until("the address is free", || files(&stage.path("root/network")).is_empty().then_some(())).await;
    let again = spec("again", |spec| spec.ports = vec![port(Protocol::Tcp, 8080, 80)]);
    let again = run(&runtime, again).await;
    let _server = inside(&again).serve("0.0.0.0:80");
    assert!(stage.internet.host.call("127.0.0.1:8080").is_some());
    stage.finish(runtime).await;
}

/// Wipes the state directory, and gives this thread, and those that it starts, a machine with another boot id.
fn forget_boot(stage: &Stage) {
    fs::remove_dir_all(stage.path("state")).expect("wiped");
    // SAFETY: this thread alone gets a mount namespace and a root of its own; no descriptor table or memory is split.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.expect("unshared");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private");
    let id = stage.path("boot_id");
    fs::write(&id, "00000000-1111-2222-3333-444444444444\n").expect("written");
    mount(&id, "/proc/sys/kernel/random/boot_id", "", MountFlags::BIND, None).expect("mounted");
}

/// Case 48 (cd#6143, cd#3667): names of namespaces could not be removed while a container had the mounts below them copied into
/// its own view of the host.
#[tokio::test]
async fn a_container_that_sees_the_hosts_run_directory_holds_no_network() {
    const PODS: usize = 10;
    let stage = stage!();
    let runtime = stage.start().await;
    let seer = run(&runtime, spec("seer", |_| ())).await;
    let first = run(&runtime, spec("first", |_| ())).await;
    let container = mainstay_integration_tests::waiting("c", |spec| {
        for (path, target) in [("/run".into(), "/host-run"), (stage.world.path().to_owned(), "/host-world")] {
            spec.mounts.push(mainstay::Mount::bind(path, target, mainstay::Access::ReadOnly));
        }
    });
    let container =
        mainstay_integration_tests::run(&runtime, &seer.record.id, container).await.expect("runs");
    runtime.remove_sandbox(&first.record.id).await.expect("removed");
    for n in 0..PODS {
        let pod = run(&runtime, spec(&format!("p{n}"), |_| ())).await;
        let removed = tokio::time::timeout(
            Duration::from_millis(wait::CONDITION_MS),
            runtime.remove_sandbox(&pod.record.id),
        );
        removed.await.expect("in time").expect("removed");
    }
    let mounts = mainstay_integration_tests::says(&runtime, &container, "cat /proc/self/mountinfo").await;
    assert!(!mounts.contains("nsfs"), "{mounts}");
    assert_eq!(files(&stage.path("state/netns")).len(), 1);
    stage.finish(runtime).await;
}
