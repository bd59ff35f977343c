//! Packets go where they should.

use mainstay_network::{AttachSpec, Masquerade, Settings};

use crate::world::{HOST_V4, HOST_V6, Namespace, OUTSIDE_V4, OUTSIDE_V6, World, pod};

#[test]
fn pods_reach_each_other_and_themselves() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let (one, two) = (Namespace::make(), Namespace::make());
    let first = network.attach(&pod("one"), one.fd(), &AttachSpec::default()).expect("attached");
    let second = network.attach(&pod("two"), two.fd(), &AttachSpec::default()).expect("attached");
    let ips = |attachment: &mainstay_network::Attachment| -> Vec<String> {
        attachment.ips.iter().map(|address| address.ip.to_string()).collect()
    };
    assert_eq!(ips(&first), ["10.89.0.2/16", "fd00:89::2/64"]);
    assert_eq!(ips(&second), ["10.89.0.3/16", "fd00:89::3/64"]);
    let servers = [two.serve("0.0.0.0:80"), two.serve("[::]:81")];
    assert_eq!(one.call("10.89.0.3:80").expect("answered").to_string(), "10.89.0.2");
    assert_eq!(one.call("[fd00:89::3]:81").expect("answered").to_string(), "fd00:89::2");
    assert_eq!(two.call("127.0.0.1:80").expect("loopback is up").to_string(), "127.0.0.1");
    assert_eq!(world.host.call("10.89.0.3:80").expect("answered").to_string(), "10.89.0.1");
    drop(servers);
    for name in ["one", "two"] {
        assert_eq!(network.check(&pod(name)).expect("checked"), []);
        network.detach(&pod(name)).expect("detached");
    }
    world.assert_empty(&network);
    network.remove().expect("removed");
    assert_eq!(world.links(), ["lo", "up0"]);
}

#[test]
fn the_world_outside_sees_the_hosts_address() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside = Namespace::make();
    network.attach(&pod("one"), inside.fd(), &AttachSpec::default()).expect("attached");
    let _servers = [world.outside.serve("0.0.0.0:80"), world.outside.serve("[::]:81")];
    let seen = inside.call(&format!("{OUTSIDE_V4}:80")).expect("answered");
    assert_eq!(seen.to_string(), HOST_V4);
    let seen = inside.call(&format!("[{OUTSIDE_V6}]:81")).expect("answered");
    assert_eq!(seen.to_string(), HOST_V6);
}

#[test]
fn without_masquerade_it_sees_the_pod() {
    let Some(world) = World::new() else { return };
    let settings = Settings { masquerade: Masquerade::Off, ..world.settings() };
    let network = world.open_with(settings).expect("opens");
    world.outside.ip(&format!("route add 10.89.0.0/16 via {HOST_V4}"));
    let inside = Namespace::make();
    network.attach(&pod("one"), inside.fd(), &AttachSpec::default()).expect("attached");
    let _server = world.outside.serve("0.0.0.0:80");
    let seen = inside.call(&format!("{OUTSIDE_V4}:80")).expect("answered");
    assert_eq!(seen.to_string(), "10.89.0.2");
}

/// The bridge took over the Ethernet address of its lowest port, so that pods lost their gateway for a while whenever
/// another pod came or went.
#[test]
fn the_gateway_keeps_its_ethernet_address() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let address =
        || world.host.ip("-o link show mainstay0").split("link/ether ").nth(1).map(|s| s[..17].to_owned());
    let before = address();
    assert_eq!(before.as_deref(), Some("0a:58:0a:59:00:01"));
    let inside = Namespace::make();
    network.attach(&pod("one"), inside.fd(), &AttachSpec::default()).expect("attached");
    assert_eq!(address(), before);
    network.detach(&pod("one")).expect("detached");
    assert_eq!(address(), before);
}

#[test]
fn a_pod_gets_what_it_asks_for() {
    let Some(world) = World::new() else { return };
    let network = world.open_with(Settings { mtu: 1_400, ..world.settings() }).expect("opens");
    let inside = Namespace::make();
    let mac = mainstay_network::Mac([2, 0, 0, 1, 2, 3]);
    let ips = vec!["10.89.7.7".parse().expect("an address")];
    let spec = AttachSpec { mac: Some(mac), ips, ports: Vec::new() };
    let attachment = network.attach(&pod("one"), inside.fd(), &spec).expect("attached");
    assert_eq!(attachment.mac, mac);
    assert_eq!(attachment.ips[0].ip.to_string(), "10.89.7.7/16");
    let shown = inside.ip("addr show eth0");
    for part in
        ["mtu 1400", "02:00:00:01:02:03", "inet 10.89.7.7/16 brd 10.89.255.255", "inet6 fd00:89::2/64"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(inside.ip("route").contains("default via 10.89.0.1 dev eth0"));
    assert!(inside.ip("-6 route").contains("default via fd00:89::1 dev eth0"));
}
