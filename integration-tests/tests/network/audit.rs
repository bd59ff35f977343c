//! The audit of networks: every ghost and leak by its name, and nothing of others.

use std::fs;
use std::os::unix::fs::symlink;

use mainstay::{Deviation, Finding, Protocol, Repair, Runtime, Shutdown, ThingKind};
use mainstay_integration_tests::wait;
use rustix::process::{Pid, Signal, kill_process};

use crate::stage;
use crate::stage::{files, inside, port, run, spec};

async fn audit(runtime: &Runtime, repair: Repair) -> Vec<Finding> {
    wait::finish("an audit", runtime.audit(repair)).await.expect("the machine can be looked at")
}

fn kinds(findings: &[Finding], deviation: Deviation) -> Vec<ThingKind> {
    let mut kinds: Vec<_> = findings
        .iter()
        .filter(|finding| finding.deviation == deviation)
        .map(|finding| finding.kind)
        .collect();
    kinds.dedup();
    kinds
}

/// What a runtime has lost all knowledge of is found, whose it was, and removed; and nothing of others is.
#[tokio::test]
async fn leaks_of_a_network_are_found_by_name_and_removed() {
    let stage = stage!();
    let runtime = stage.start().await;
    let pod = run(&runtime, spec("web", |spec| spec.ports = vec![port(Protocol::Tcp, 8080, 80)])).await;
    let other = run(&runtime, spec("other", |_| ())).await;
    assert_eq!(audit(&runtime, Repair::No).await, []);
    // Somebody still uses the namespace, so that the link outlives the shim.
    let held = inside(&pod);
    let id = pod.record.id.clone();
    let name = pod.record.network.as_ref().expect("a network").namespace.clone();
    let leads_to = fs::read_link(&name).expect("a name");
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    let shim = pod.record.shim.as_ref().expect("a shim").process.pid;
    kill_process(Pid::from_raw(shim.cast_signed()).expect("an id"), Signal::KILL).expect("it is there");
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(stage.path(&format!("root/store.db{suffix}")));
    }
    fs::remove_dir_all(stage.path(&format!("state/p/{id}"))).expect("lost");
    let strangers = stage.path("state/netns/cni-1234");
    symlink(&leads_to, &strangers).expect("made");
    stage.internet.host.ip("link add ms0123456789abc type veth peer name stranger");
    let runtime = stage.start().await;
    let findings = audit(&runtime, Repair::No).await;
    let of_network = [
        ThingKind::FirewallRule,
        ThingKind::NetworkLink,
        ThingKind::BridgePort,
        ThingKind::NetworkNamespace,
        ThingKind::AddressLease,
    ];
    let found = kinds(&findings, Deviation::Leak);
    assert!(of_network.iter().all(|kind| found.contains(kind)), "{findings:#?}");
    assert!(findings.iter().all(|finding| finding.owner.sandbox.as_ref() == Some(&id)), "{findings:#?}");
    let lease = findings.iter().find(|finding| finding.kind == ThingKind::AddressLease).expect("found");
    assert!(lease.since.is_some(), "since when it is there");
    let findings = audit(&runtime, Repair::Yes).await;
    assert!(findings.iter().all(|finding| finding.outcome == Some(Ok(()))), "{findings:#?}");
    assert_eq!(audit(&runtime, Repair::No).await, []);
    assert_eq!(files(&stage.path("root/network")).len(), 1, "the other pod's is left alone");
    assert!(inside(&other).ip("addr show eth0").contains("10.89.0.3"));
    fs::remove_file(strangers).expect("a stranger's is left alone");
    stage.internet.host.ip("link del ms0123456789abc");
    drop(held);
    stage.finish(runtime).await;
}

/// After a restart a link or a rule that no file tells of was seen only once a pod had the network opened.
#[tokio::test]
async fn what_no_file_tells_of_is_found_before_the_network_is_opened() {
    let stage = stage!();
    let runtime = stage.start().await;
    let pod = run(&runtime, spec("web", |spec| spec.ports = vec![port(Protocol::Tcp, 8080, 80)])).await;
    let (held, id) = (inside(&pod), pod.record.id.clone());
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    let shim = pod.record.shim.as_ref().expect("a shim").process.pid;
    kill_process(Pid::from_raw(shim.cast_signed()).expect("an id"), Signal::KILL).expect("it is there");
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(stage.path(&format!("root/store.db{suffix}")));
    }
    fs::remove_dir_all(stage.path(&format!("state/p/{id}"))).expect("lost");
    fs::remove_file(stage.path(&format!("root/network/{id}"))).expect("lost");
    let runtime = stage.start().await;
    let found = kinds(&audit(&runtime, Repair::No).await, Deviation::Leak);
    for kind in [ThingKind::FirewallRule, ThingKind::NetworkLink, ThingKind::BridgePort] {
        assert!(found.contains(&kind), "{kind} in {found:?}");
    }
    let findings = audit(&runtime, Repair::Yes).await;
    assert!(findings.iter().all(|finding| finding.outcome == Some(Ok(()))), "{findings:#?}");
    assert_eq!(audit(&runtime, Repair::No).await, []);
    drop(held);
    stage.finish(runtime).await;
}

/// What a pod counts on and is not there is said, and made anew: `nft flush ruleset` is what restarting a firewall often does.
#[tokio::test]
async fn what_a_pod_has_lost_of_its_network_is_found_by_name() {
    let stage = stage!();
    let runtime = stage.start().await;
    let pod = run(&runtime, spec("web", |spec| spec.ports = vec![port(Protocol::Tcp, 8080, 80)])).await;
    inside(&pod).ip("link del eth0");
    stage.internet.host.run(|| {
        let flushed = std::process::Command::new("nft").args(["flush", "ruleset"]).status();
        assert!(flushed.is_ok_and(|status| status.success()), "nft runs");
    });
    fs::remove_file(&pod.record.network.as_ref().expect("a network").namespace).expect("removed");
    let findings = audit(&runtime, Repair::No).await;
    let expected =
        [ThingKind::FirewallRule, ThingKind::NetworkLink, ThingKind::BridgePort, ThingKind::NetworkNamespace];
    assert_eq!(kinds(&findings, Deviation::Ghost), expected, "{findings:#?}");
    let findings = audit(&runtime, Repair::Yes).await;
    assert!(findings.iter().all(|finding| finding.outcome == Some(Ok(()))), "{findings:#?}");
    assert_eq!(audit(&runtime, Repair::No).await, []);
    let _server = inside(&pod).serve("0.0.0.0:80");
    assert!(stage.internet.host.call("127.0.0.1:8080").is_some(), "as before");
    assert!(inside(&pod).ip("addr show eth0").contains("10.89.0.2"));
    stage.finish(runtime).await;
}
