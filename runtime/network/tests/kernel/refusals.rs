//! What is not ours is left alone, and what cannot work is refused with a sentence.

use std::process::Command;

use mainstay_network::{AttachSpec, NetworkError, Settings};

use crate::world::{Namespace, World, pod};

#[test]
fn a_strangers_bridge_is_refused_and_left_alone() {
    let Some(world) = World::new() else { return };
    world.host.ip("link add mainstay0 type bridge");
    let error = world.open_with(world.settings()).expect_err("refused");
    let text = error.to_string();
    assert!(
        text.starts_with("network.bridge: the link \"mainstay0\" exists and is not of this network"),
        "{text}"
    );
    assert!(world.links().contains(&"mainstay0".to_owned()));
    assert!(!world.host.ip("addr show mainstay0").contains("inet "));
}

/// Two runtimes on one machine, the second one with the defaults of the first.
#[test]
fn another_networks_bridge_and_table_are_refused() {
    let Some(world) = World::new() else { return };
    let _network = world.open();
    let range = |range: &str| Some(range.parse().expect("a range"));
    let other = || Settings {
        ipv4: range("10.90.0.0/16"),
        ipv6: None,
        ..Settings::new(world.directory.path().join("other"))
    };
    let error = world.open_with(other()).expect_err("refused");
    assert!(matches!(error, NetworkError::Foreign { key: "network.bridge", .. }), "{error}");
    let error = world.open_with(Settings { bridge: "other0".into(), ..other() }).expect_err("refused");
    assert!(matches!(error, NetworkError::Foreign { key: "network.table", .. }), "{error}");
    assert!(!world.links().contains(&"other0".to_owned()), "nothing was made");
    let second = Settings { bridge: "other0".into(), table: "other".into(), ..other() };
    let second = world.open_with(second).expect("a network of its own");
    second.remove().expect("removed");
    assert_eq!(world.links(), ["lo", "up0", "mainstay0"]);
}

#[test]
fn a_range_that_the_host_uses_is_refused() {
    let Some(world) = World::new() else { return };
    world.host.ip("route add 10.89.3.0/24 dev up0");
    let text = world.open_with(world.settings()).expect_err("refused").to_string();
    let expected = "network.ipv4: 10.89.0.0/16 overlaps the host's route 10.89.3.0/24 by up0";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(world.links(), ["lo", "up0"], "nothing was made");
    world.host.ip("route del 10.89.3.0/24 dev up0");
    world.host.ip("-6 route add fd00:89::/32 dev up0");
    let text = world.open_with(world.settings()).expect_err("refused").to_string();
    assert!(text.starts_with("network.ipv6: fd00:89::/64 overlaps"), "{text}");
}

#[test]
fn a_namespace_that_cannot_be_used_is_refused() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let attach = |netns| network.attach(&pod("one"), netns, &AttachSpec::default());
    let text = attach(world.host.fd()).expect_err("the host's own").to_string();
    assert!(text.starts_with("netns: it is the host's own"), "{text}");
    let file = tempfile::tempfile().expect("a file");
    let text = attach(std::os::fd::AsFd::as_fd(&file)).expect_err("a file").to_string();
    assert!(text.starts_with("netns: it is not a network namespace"), "{text}");
    let inside = Namespace::make();
    inside.ip("link add eth0 type bridge");
    let text = attach(inside.fd()).expect_err("taken").to_string();
    assert!(text.contains("has a link eth0 (bridge) that is not of this network"), "{text}");
    assert!(inside.ip("link show eth0").contains("eth0"), "left alone");
    network.detach(&pod("one")).expect("detached");
    world.assert_empty(&network);
}

#[test]
fn a_range_that_has_pods_cannot_be_changed() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside = Namespace::make();
    network.attach(&pod("one"), inside.fd(), &AttachSpec::default()).expect("attached");
    drop(network);
    let settings = Settings { ipv4: Some("10.77.0.0/16".parse().expect("a range")), ..world.settings() };
    let text = world.open_with(settings.clone()).expect_err("refused").to_string();
    assert!(text.contains("10.89.0.2, which pod one has"), "{text}");
    world.open().detach(&pod("one")).expect("detached");
    let network = world.open_with(settings).expect("opens");
    let shown = world.host.ip("addr show mainstay0");
    assert!(shown.contains("10.77.0.1/16") && !shown.contains("10.89.0.1"), "{shown}");
    world.assert_empty(&network);
}

#[test]
fn a_firewall_that_drops_is_named() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    assert_eq!(network.obstacles().expect("looked"), Vec::<String>::new());
    let set = world.host.run(|| Command::new("iptables").args(["-P", "FORWARD", "DROP"]).status());
    if !set.is_ok_and(|status| status.success()) {
        eprintln!("skipped the second half: iptables is not installed");
        return;
    }
    let obstacles = network.obstacles().expect("looked");
    assert_eq!(obstacles.len(), 1, "{obstacles:?}");
    assert!(obstacles[0].contains("ip filter FORWARD"), "{obstacles:?}");
}
