//! Repeated, restarted, at once, without a namespace: nothing is lost and nothing is left.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use mainstay_network::{AttachSpec, Fault, Holdings, Network, NetworkError, Protocol, Settings};

use crate::world::{HOST_V4, Namespace, World, mapping, pod};

const PODS: usize = 100;
const CALLERS: usize = 8;

fn with_port() -> AttachSpec {
    AttachSpec { ports: vec![mapping(Protocol::Tcp, 8080, 80)], ..AttachSpec::default() }
}

#[test]
fn a_repeated_attach_gives_the_same_also_in_a_new_namespace() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let (first, second) = (Namespace::make(), Namespace::make());
    let attachment = network.attach(&pod("one"), first.fd(), &with_port()).expect("attached");
    let before = network.list().expect("listed");
    let links = world.host.ip("-o link");
    assert_eq!(network.attach(&pod("one"), first.fd(), &with_port()).expect("again"), attachment);
    assert_eq!(world.host.ip("-o link"), links, "the pair is the same");
    assert_eq!(network.list().expect("listed").rules.len(), before.rules.len());
    assert_eq!(network.attach(&pod("one"), second.fd(), &with_port()).expect("elsewhere"), attachment);
    assert!(!first.ip("link").contains("eth0"), "it moved");
    let _server = second.serve("[::]:80");
    assert!(world.outside.call(&format!("{HOST_V4}:8080")).is_some());
    assert_eq!(network.attached(&pod("one")), Some(attachment));
    let other = network.attach(&pod("one"), second.fd(), &AttachSpec::default()).expect_err("other ports");
    assert!(matches!(other, NetworkError::Differs { what: "ports", .. }), "{other}");
}

#[test]
fn a_pod_whose_namespace_is_gone_is_detached() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside = Namespace::make();
    network.attach(&pod("one"), inside.fd(), &with_port()).expect("attached");
    drop(inside);
    network.detach(&pod("one")).expect("detached");
    network.detach(&pod("one")).expect("again");
    network.detach(&pod("never-was")).expect("nothing to do");
    world.assert_empty(&network);
}

/// Pods keep their addresses byte for byte, their connections and their ports, whatever becomes of the daemon.
#[test]
fn a_restart_changes_nothing() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside = Namespace::make();
    let attachment = network.attach(&pod("one"), inside.fd(), &with_port()).expect("attached");
    let _server = inside.serve("[::]:80");
    let lease = world.directory.path().join("leases/one");
    let bytes = std::fs::read(&lease).expect("readable");
    let pod_before = inside.ip("-o addr show scope global");
    drop(network);
    let port = format!("{HOST_V4}:8080");
    assert!(world.outside.call(&port).is_some(), "without a daemon");
    let network = world.open();
    assert!(network.sysctl_changes().is_empty(), "{:?}", network.sysctl_changes());
    assert!(world.outside.call(&port).is_some());
    assert_eq!(std::fs::read(&lease).expect("readable"), bytes);
    assert_eq!(inside.ip("-o addr show scope global"), pod_before);
    assert_eq!(network.attached(&pod("one")), Some(attachment));
    assert_eq!(network.check(&pod("one")).expect("checked"), []);
}

/// What others did to a pod's things is seen by a check, and an attach mends it.
#[test]
fn what_was_taken_away_is_seen_and_mended() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside = Namespace::make();
    let attachment = network.attach(&pod("one"), inside.fd(), &with_port()).expect("attached");
    let faults = || network.check(&pod("one")).expect("checked");
    world.host.ip(&format!("link set {} nomaster", attachment.host_link));
    assert_eq!(faults(), [Fault::NotAPort { name: attachment.host_link.clone() }]);
    world.host.ip("link del mainstay0");
    world.host.ip(&format!("link del {}", attachment.host_link));
    assert_eq!(faults(), [Fault::NoBridge, Fault::NoLink { name: attachment.host_link.clone() }]);
    network.attach(&pod("one"), inside.fd(), &with_port()).expect("mended");
    assert_eq!(faults(), []);
    let _server = inside.serve("[::]:80");
    assert!(world.outside.call(&format!("{HOST_V4}:8080")).is_some());
    assert!(world.host.call("127.0.0.1:8080").is_some(), "the switches of the bridge are back");
    assert_eq!(network.check(&pod("two")).expect("checked"), [Fault::NoLease]);
}

/// A lost lease must not make a pod's link and rules anonymous: both still say whose they are, and are cleaned up by that.
#[test]
fn things_without_a_lease_are_named_and_go() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside = Namespace::make();
    network.attach(&pod("lost"), inside.fd(), &with_port()).expect("attached");
    drop(network);
    std::fs::remove_file(world.directory.path().join("leases/lost")).expect("removed");
    let network = world.open();
    world.host.ip("link add foreign0 type veth peer name foreign1");
    world.host.ip("link set foreign0 master mainstay0");
    let holdings = network.list().expect("listed");
    assert_eq!(holdings.strangers, ["foreign0"]);
    assert_eq!(holdings.leaked_links().map(|link| link.pod.clone()).collect::<Vec<_>>(), [Some(pod("lost"))]);
    assert_eq!(holdings.leaked_rules().count(), 2);
    network.detach(&pod("lost")).expect("detached");
    assert!(world.links().contains(&"foreign0".to_owned()), "not ours");
    world.host.ip("link del foreign0");
    world.assert_empty(&network);
}

/// 20 retries of a pod whose attach fails held 20 addresses in the field (containerd 5768). Here it is one, and it is
/// visible until the pod is detached.
#[test]
fn a_pod_that_fails_again_and_again_holds_one_address() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside = Namespace::make();
    inside.ip("link add eth0 type bridge");
    for _ in 0..20 {
        network.attach(&pod("one"), inside.fd(), &with_port()).expect_err("eth0 is taken");
        assert_eq!(network.list().expect("listed").leases.len(), 1);
    }
    network.detach(&pod("one")).expect("detached");
    world.assert_empty(&network);
}

#[test]
fn a_hundred_pods_at_once_leave_nothing() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let namespaces: Vec<_> = (0..PODS).map(|_| Namespace::make()).collect();
    let next = Mutex::new(0..PODS);
    let times = Mutex::new((Vec::new(), Vec::new()));
    let ips = Mutex::new(BTreeSet::new());
    let each = |work: &(dyn Fn(usize) + Sync)| {
        *next.lock().expect("whole") = 0..PODS;
        thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    loop {
                        let taken = next.lock().expect("whole").next();
                        let Some(number) = taken else { return };
                        work(number);
                    }
                });
            }
        });
    };
    each(&|number| {
        let ports = vec![mapping(Protocol::Tcp, 10_000 + number as u16, 80)];
        let spec = AttachSpec { ports, ..AttachSpec::default() };
        let begun = Instant::now();
        let made = network.attach(&pod(&format!("pod-{number}")), namespaces[number].fd(), &spec);
        times.lock().expect("whole").0.push(begun.elapsed());
        let made = made.expect("attached");
        for address in made.ips {
            assert!(ips.lock().expect("whole").insert(address.ip.addr()), "given twice: {address:?}");
        }
    });
    let holdings = network.list().expect("listed");
    assert_eq!((holdings.leases.len(), holdings.links.len(), holdings.rules.len()), (PODS, PODS, 2 * PODS));
    each(&|number| {
        let begun = Instant::now();
        network.detach(&pod(&format!("pod-{number}"))).expect("detached");
        times.lock().expect("whole").1.push(begun.elapsed());
    });
    world.assert_empty(&network);
    let (attaches, detaches) = times.into_inner().expect("whole");
    eprintln!("{CALLERS} callers: attach {}, detach {}", median(attaches), median(detaches));
}

/// Not a limit that is checked, only said: machines differ.
#[test]
fn the_time_of_one_attach_is_said() {
    let Some(world) = World::new() else { return };
    let network = world.open_with(Settings { ipv6: None, ..world.settings() }).expect("opens");
    let (mut plain, mut ported, mut detached) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..20 {
        let inside = Namespace::make();
        let (spec, times) = match number % 2 {
            0 => (AttachSpec::default(), &mut plain),
            _ => (with_port(), &mut ported),
        };
        let begun = Instant::now();
        network.attach(&pod("one"), inside.fd(), &spec).expect("attached");
        times.push(begun.elapsed());
        let begun = Instant::now();
        network.detach(&pod("one")).expect("detached");
        detached.push(begun.elapsed());
    }
    let (plain, ported, detached) = (median(plain), median(ported), median(detached));
    eprintln!("alone: attach {plain}, with a port {ported}, detach {detached}");
}

fn median(mut times: Vec<Duration>) -> String {
    times.sort();
    format!("p50 {:?} max {:?}", times[times.len() / 2], times[times.len() - 1])
}

/// After a restart a link or a rule without the file of a pod was seen only when the next pod had the network opened.
#[test]
fn a_look_without_opening_sees_what_no_file_tells_of_and_changes_nothing() {
    let Some(world) = World::new() else { return };
    let settings = world.settings();
    let look = || world.host.run(|| Network::look(&settings)).expect("looked");
    assert_eq!(look(), Holdings::default());
    assert_eq!(world.links(), ["lo", "up0"], "a look makes nothing");
    let network = world.open();
    let inside = Namespace::make();
    network.attach(&pod("one"), inside.fd(), &with_port()).expect("attached");
    drop(network);
    std::fs::remove_file(settings.directory.join("one")).expect("lost");
    let found = look();
    assert_eq!(found.leaked_links().map(|link| link.pod.clone()).collect::<Vec<_>>(), [Some(pod("one"))]);
    assert!(
        found.leaked_rules().count() > 0 && found.leaked_rules().all(|rule| rule.pod == Some(pod("one")))
    );
    assert!(found.has_of(&pod("one")) && !found.has_of(&pod("two")));
    assert_eq!(look(), found, "a look changes nothing");
    // Another runtime's, by its directory.
    let others = Settings { directory: "/nonexistent".into(), ..settings.clone() };
    let seen = world.host.run(|| Network::look(&others)).expect("looked");
    assert_eq!(seen, Holdings::default(), "what is another's is not ours");
    let network = world.open();
    network.detach(&pod("one")).expect("detached");
    world.assert_empty(&network);
}
