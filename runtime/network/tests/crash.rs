//! Killed between any two steps, the network leaves nothing that a detach does not take back, and nothing in the way of a
//! repeated attach.
//!
//! In the field an address and a namespace leaked with each retry until the range was empty (containerd 5768, 12130): the
//! plugin had made them and the record of it was written afterwards. Here the program starts itself as a child that kills
//! itself with SIGKILL at a place; then the parent looks, detaches and looks again, and does the same with a repetition first.

mod world;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use mainstay_network::faults::{KILL_AT, PLACES};
use mainstay_network::{AttachSpec, Network, Protocol, Settings};

use world::{HOST_V4, Namespace, World, mapping, pod};

/// Set in the child: the namespace of the pod.
const CHILD: &str = "NETWORK_CRASH_CHILD";
/// Set in the child: the directory of the leases.
const LEASES: &str = "NETWORK_CRASH_LEASES";

fn main() {
    match std::env::var(CHILD) {
        Ok(netns) => child(&netns),
        Err(_) => parent(),
    }
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
            let inside = Namespace::new();
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
