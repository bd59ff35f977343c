//! Which network is opened, and what becomes of one when the other cannot be used.

use std::fs;

use mainstay_messages::spec::Network as Kind;
use tempfile::TempDir;

use super::*;

fn pod(id: &str) -> SandboxId {
    id.parse().expect("an id")
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a file")).expect("made");
    fs::write(path, text).expect("written");
}

/// Networks of which the built-in one can never be opened, and CNI runs `true` as its only plugin.
fn networks(base: &TempDir) -> Networks {
    let mut config = Config::beside(base.path(), "test");
    config.network.mtu = 0;
    config.network.cni_conf_dir = base.path().join("conf");
    config.network.cni_cache_dir = base.path().join("cache");
    config.network.cni_plugin_dirs = vec!["/usr/bin".into(), "/bin".into()];
    let list = r#"{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "true"}]}"#;
    write(&base.path().join("conf/10-test.conflist"), list);
    Networks::new(&config, NamespaceNames::new(&base.path().join("netns"), &base.path().join("state")))
}

/// A disk that hung while one network was opened kept pods of the other from their end, which ask whether it is open.
#[test]
fn an_opening_that_hangs_keeps_nobody_from_asking_whether_it_is_open() {
    let lazy = Lazy::new((), "/nonexistent".into());
    let (release, hung) = std::sync::mpsc::channel::<()>();
    let (begun, begins) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let lazy = &lazy;
        let opening = scope.spawn(move || {
            lazy.get(|()| {
                begun.send(()).expect("somebody waits");
                hung.recv().map_err(|error| Error::internal("a test", error))
            })
        });
        begins.recv().expect("it begins");
        assert!(!lazy.is_open() && !lazy.is_in_use());
        release.send(()).expect("it hangs");
        opening.join().expect("no panic").expect("opened");
    });
    assert!(lazy.is_open());
}

/// An audit made the bridge, the table and the switches of a network that no pod had any more.
#[test]
fn a_look_opens_no_network_that_nobody_has() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped {}: only root may look at the firewall", module_path!());
        return;
    }
    let base = tempfile::tempdir().expect("a directory");
    let networks = networks(&base);
    for file in ["root/network/.lock", "root/network/.new", "root/cni/.lock"] {
        write(&base.path().join(file), "");
    }
    let found = networks.things();
    assert!(found.things.is_empty() && found.unseen.is_empty(), "{found:?}");
    networks.detach(&pod("aaaa"), None).expect("nothing to do");
    networks.remove_leak(&pod("aaaa"), None).expect("nothing to do");
    assert!(!networks.builtin.is_open() && !networks.cni.is_open());
}

/// A built-in network that cannot be used failed each audit, and kept pods of CNI from their end.
#[test]
fn a_network_that_cannot_be_used_does_not_end_the_other() {
    let base = tempfile::tempdir().expect("a directory");
    let networks = networks(&base);
    let one = pod("bbbb");
    write(&base.path().join("root/network/aaaa"), "a lease");
    // A record that is damaged stands for something that plugins hold, and this file's record is lost.
    write(&base.path().join("root/cni/bbbb"), "rubbish");
    let told = base.path().join("cache/results/lost-bbbb-eth0");
    let netns = networks.names.path(&one);
    write(&told, &format!(r#"{{"kind": "cniCacheV1", "containerId": "bbbb", "netns": {netns:?}}}"#));
    let found = networks.things();
    assert_eq!(found.unseen, [Kind::Builtin]);
    let kinds: Vec<_> = found.things.iter().map(|thing| thing.kind).collect();
    assert_eq!(kinds, [ThingKind::CniRecord, ThingKind::CniCache]);
    networks.detach(&pod("aaaa"), None).expect_err("its network cannot be used");
    networks.remove_leak(&one, None).expect("its network can be used");
    assert!(!networks.holds(&one) && !told.exists());
}

/// A question that was late opened the network again, and nobody closed it.
#[test]
fn nothing_opens_after_the_close() {
    let base = tempfile::tempdir().expect("a directory");
    let networks = networks(&base);
    networks.cni().expect("opens");
    networks.close();
    let refused = networks.cni().expect_err("closed").to_string();
    assert!(refused.contains("it was closed"), "{refused}");
    assert!(!networks.cni.is_open());
    networks.close();
}
