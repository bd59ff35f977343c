//! A disk that hangs while the file of one pod is written or removed holds up that pod alone.
//!
//! Leases were written under the one lock of their ledger, and records of CNI under theirs: while a disk hung under one of them
//! no other pod could be detached, and the audit did not come to its end. One test, because its hanging place is the process's.

mod world;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use mainstay_network::cni::{Cni, CniError, CniRequest, CniSettings};
use mainstay_network::faults::Hang;
use mainstay_network::{AttachSpec, NetworkError};

use world::{Namespace, PATIENCE_MS, World, pod, until};

#[test]
fn a_disk_that_hangs_under_one_pod_holds_up_no_other() {
    a_hung_record();
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside: [_; 3] = std::array::from_fn(|_| Namespace::make());
    let attach = |name: &str, index: usize| {
        let spec = AttachSpec::default();
        network.attach(&pod(name), inside[index].fd(), &spec)
    };
    let first = attach("first", 0).expect("attached");

    // While a lease is written.
    thread::scope(|scope| {
        let hang = Hang::at("lease-file-written");
        let hung = scope.spawn(|| attach("hung", 1));
        until("one hangs in its lease", || hang.has_somebody());
        let holdings = network.list().expect("a look waits for no disk");
        assert_eq!(holdings.leases.len(), 1);
        assert_eq!(network.attached(&pod("first")), Some(first.clone()));
        let other = attach("other", 2).expect("another pod's lease is written beside it");
        assert!(matches!(network.detach(&pod("hung")), Err(NetworkError::Busy { .. })), "it has its turn");
        network.detach(&pod("first")).expect("another pod is detached");
        drop(hang);
        let hung = hung.join().expect("no panic").expect("it comes to its end");
        assert_ne!(hung.ips[0].ip, other.ips[0].ip, "what was promised was not given away");
    });

    // While one is removed: what it held is not free before it is gone.
    thread::scope(|scope| {
        let held = network.attached(&pod("hung")).expect("attached").ips[0].ip.addr();
        let hang = Hang::at("lease-file-going");
        let hung = scope.spawn(|| network.detach(&pod("hung")));
        until("one hangs in the removal of its lease", || hang.has_somebody());
        assert_eq!(network.list().expect("listed").leases.len(), 2);
        let wanted = AttachSpec { ips: vec![held], ..AttachSpec::default() };
        let taken = network.attach(&pod("first"), inside[0].fd(), &wanted).expect_err("not free yet");
        assert!(matches!(taken, NetworkError::AddressTaken { .. }), "{taken}");
        drop(hang);
        hung.join().expect("no panic").expect("it comes to its end");
        network.attach(&pod("first"), inside[0].fd(), &wanted).expect("it is free now");
    });
    for name in ["first", "other"] {
        network.detach(&pod(name)).expect("detached");
    }
    world.assert_empty(&network);
}

fn a_hung_record() {
    let bench = tempfile::tempdir().expect("a directory");
    let path = |name: &str| bench.path().join(name);
    fs::create_dir(path("conf")).expect("made");
    fs::create_dir(path("bin")).expect("made");
    let list = r#"{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "nothing"}]}"#;
    fs::write(path("conf/10-test.conflist"), list).expect("written");
    fs::write(path("bin/nothing"), "#!/bin/sh\necho '{\"cniVersion\": \"1.0.0\"}'\n").expect("written");
    fs::set_permissions(path("bin/nothing"), fs::Permissions::from_mode(0o755)).expect("set");
    let settings = CniSettings {
        conf_dir: path("conf"),
        plugin_dirs: vec![path("bin")],
        directory: path("records"),
        cache_dir: path("cache"),
        timeout: Duration::from_millis(PATIENCE_MS),
        chain_timeout: Duration::from_millis(PATIENCE_MS),
    };
    let cni = Cni::open(settings).expect("opens");
    let attach = |name: &str| cni.attach(&pod(name), Path::new("/proc/self/ns/net"), &CniRequest::default());
    attach("first").expect("attached");
    thread::scope(|scope| {
        let hang = Hang::at("lease-file-written");
        let hung = scope.spawn(|| attach("hung"));
        until("one hangs in its record", || hang.has_somebody());
        assert_eq!(cni.list().len(), 1, "a look waits for no disk");
        attach("other").expect("another pod's record is written beside it");
        assert!(matches!(cni.detach(&pod("hung"), None), Err(CniError::Busy { .. })), "it has its turn");
        cni.detach(&pod("first"), None).expect("another pod is detached");
        drop(hang);
        hung.join().expect("no panic").expect("it comes to its end");
    });
    assert_eq!(cni.list().len(), 2);
}
