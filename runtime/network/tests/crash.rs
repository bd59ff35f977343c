//! Killed between any two steps, the network leaves nothing that a detach does not take back, and nothing in the way of a
//! repeated attach.
//!
//! In the field an address and a namespace leaked with each retry until the range was empty (containerd 5768, 12130): the
//! plugin had made them and the record of it was written afterwards. Here the program starts itself as a child that kills
//! itself with SIGKILL at a place; then the parent looks, detaches and looks again, and does the same with a repetition first.

mod world;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use mainstay_network::cni::{Cni, CniError, CniRequest, CniResult, CniSettings};
use mainstay_network::faults::{KILL_AT, PLACES};
use mainstay_network::{AttachSpec, Network, Protocol, Settings};

use world::{HOST_V4, Namespace, World, mapping, pod};

/// Set in the child: the namespace of the pod.
const CHILD: &str = "NETWORK_CRASH_CHILD";
/// Set in the child: the directory of the leases.
const LEASES: &str = "NETWORK_CRASH_LEASES";

/// Set in the child: the directory of a CNI list and its plugin.
const PLUGINS: &str = "NETWORK_CRASH_PLUGINS";

fn main() {
    match (std::env::var(CHILD), std::env::var(PLUGINS)) {
        (Ok(netns), _) => child(&netns),
        (_, Ok(directory)) => drop(attach_by_plugin(&open_plugins(directory.as_ref()))),
        _ => {
            parent();
            killed_while_a_plugin_runs();
        }
    }
}

fn open_plugins(directory: &Path) -> Cni {
    let path = |name: &str| directory.join(name);
    let settings = CniSettings {
        conf_dir: path("conf"),
        plugin_dirs: vec![path("bin")],
        directory: path("records"),
        cache_dir: path("cache"),
        timeout: Duration::from_millis(world::PATIENCE_MS),
        chain_timeout: Duration::from_millis(world::PATIENCE_MS),
    };
    Cni::open(settings).expect("opens")
}

fn attach_by_plugin(cni: &Cni) -> Result<CniResult, CniError> {
    cni.attach(&pod("one"), Path::new("/proc/self/ns/nothing"), &CniRequest::default())
}

/// The plugin has made something, and the daemon dies before it hears of it. The record was there before, so that DEL
/// is run by the next one; and ADD is not, on top of what there is.
fn killed_while_a_plugin_runs() {
    let bench = tempfile::tempdir().expect("a directory");
    let path = |name: &str| bench.path().join(name);
    fs::create_dir(path("conf")).expect("made");
    fs::create_dir(path("bin")).expect("made");
    let list = r#"{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "slow"}]}"#;
    fs::write(path("conf/10-test.conflist"), list).expect("written");
    // ADD ends when it is allowed to, so that no process outlives the test.
    let script = format!(
        "#!/bin/sh\ncd {}\nif [ $CNI_COMMAND = ADD ]; then mkdir made; while [ ! -e go ]; do sleep 0.01; done; touch over\n\
         else rmdir made; fi\necho '{{}}'\n",
        bench.path().display()
    );
    fs::write(path("bin/slow"), script).expect("written");
    fs::set_permissions(path("bin/slow"), fs::Permissions::from_mode(0o755)).expect("set");
    let mut child = Command::new(std::env::current_exe().expect("known"))
        .env(PLUGINS, bench.path())
        .spawn()
        .expect("started");
    world::until("the plugin runs", || path("made").exists());
    child.kill().expect("killed");
    child.wait().expect("reaped");
    fs::write(path("go"), "").expect("written");
    world::until("the plugin has ended", || path("over").exists());
    let cni = open_plugins(bench.path());
    assert_eq!(cni.list().len(), 1, "the record was there before the plugin ran");
    assert!(matches!(attach_by_plugin(&cni), Err(CniError::Unfinished { .. })));
    cni.detach(&pod("one"), None).expect("detached");
    assert!(!path("made").exists() && cni.list().is_empty());
    attach_by_plugin(&cni).expect("it can begin anew");
    cni.detach(&pod("one"), None).expect("detached");
    println!("killed while a plugin ran: nothing is left");
}

fn settings(directory: &str) -> Settings {
    Settings { ipv6: Some("fd00:89::/64".parse().expect("a range")), ..Settings::new(directory) }
}

fn spec() -> AttachSpec {
    AttachSpec { ports: vec![mapping(Protocol::Tcp, 8080, 80)], ..AttachSpec::default() }
}

/// Attaches and detaches, in the namespace in which it was started.
fn child(netns: &str) {
    use std::os::fd::AsFd;
    let netns = std::fs::File::open(netns).expect("the pod's namespace");
    let network = Network::open(settings(&std::env::var(LEASES).expect("set"))).expect("opens");
    network.attach(&pod("one"), netns.as_fd(), &spec()).expect("attached");
    network.detach(&pod("one")).expect("detached");
}

fn run_child(world: &World, inside: &Namespace, place: &str) -> ExitStatus {
    world.host.run(|| {
        Command::new(std::env::current_exe().expect("known"))
            .env(CHILD, inside.path())
            .env(LEASES, world.settings().directory)
            .env(KILL_AT, place)
            .status()
            .expect("started")
    })
}

fn parent() {
    let mut rounds = 0;
    for place in PLACES {
        for repeat in [false, true] {
            let Some(world) = World::new() else { return };
            let inside = Namespace::make();
            let status = run_child(&world, &inside, place);
            assert_eq!(status.signal(), Some(9), "{place} is reached");
            let network = world.open();
            // Whatever is there has a lease that was there first (P3).
            let holdings = network.list().expect("listed");
            assert_eq!(
                holdings.leaked_links().count() + holdings.leaked_rules().count(),
                0,
                "{place}: {holdings:?}"
            );
            assert_eq!(
                (holdings.unreadable.len(), holdings.strangers.len()),
                (0, 0),
                "{place}: {holdings:?}"
            );
            if repeat {
                let made = network.attach(&pod("one"), inside.fd(), &spec()).expect("repeated");
                assert_eq!(network.check(&pod("one")).expect("checked"), [], "{place}");
                assert_eq!(made.ips[0].ip.to_string(), "10.89.0.2/16", "{place}: one address, however often");
                let _server = inside.serve("[::]:80");
                assert!(world.outside.call(&format!("{HOST_V4}:8080")).is_some(), "{place}: packets go in");
            }
            // An operator's reboot of the pod in the middle: the namespace goes first every other time.
            if repeat {
                drop(inside);
            }
            network.detach(&pod("one")).expect("detached");
            world.assert_empty(&network);
            network.remove().expect("removed");
            assert_eq!(world.links(), ["lo", "up0"], "{place}");
            rounds += 1;
        }
    }
    println!("killed {rounds} times, at {} places: nothing is left", PLACES.len());
}
