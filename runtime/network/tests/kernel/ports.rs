//! Ports of the host lead into pods, for everyone.

use mainstay_network::{AttachSpec, PortMapping, Protocol};

use crate::world::{HOST_V4, HOST_V6, Namespace, OUTSIDE_V4, World, mapping, pod};

#[test]
fn a_port_leads_into_the_pod_from_everywhere() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let (one, two) = (Namespace::make(), Namespace::make());
    let spec = AttachSpec { ports: vec![mapping(Protocol::Tcp, 8080, 80)], ..AttachSpec::default() };
    network.attach(&pod("one"), one.fd(), &spec).expect("attached");
    network.attach(&pod("two"), two.fd(), &AttachSpec::default()).expect("attached");
    let _server = one.serve("[::]:80");
    let (v4, v6) = (format!("{HOST_V4}:8080"), format!("[{HOST_V6}]:8080"));
    let seen = world.outside.call(&v4).expect("from outside").to_string();
    assert!(seen.ends_with(OUTSIDE_V4), "{seen}: the pod sees who calls");
    for address in [v4.as_str(), v6.as_str(), "127.0.0.1:8080", "10.89.0.1:8080"] {
        assert!(world.host.call(address).is_some(), "the host calls {address}");
    }
    assert!(world.outside.call(&v6).is_some(), "from outside by IPv6");
    for address in [&v4, &v6] {
        assert!(one.call(address).is_some(), "the pod calls itself as {address}");
        assert!(two.call(address).is_some(), "another pod calls {address}");
    }
    network.detach(&pod("one")).expect("detached");
    assert!(world.outside.cannot_call(&v4) && world.host.cannot_call("127.0.0.1:8080"));
}

#[test]
fn the_address_of_the_host_and_the_protocol_tell_ports_apart() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let (one, two) = (Namespace::make(), Namespace::make());
    let only_loopback = PortMapping {
        host_ip: Some("127.0.0.1".parse().expect("an address")),
        ..mapping(Protocol::Tcp, 8080, 80)
    };
    let ports = vec![only_loopback, mapping(Protocol::Udp, 5353, 53), mapping(Protocol::Sctp, 8080, 80)];
    let spec = AttachSpec { ports, ..AttachSpec::default() };
    network.attach(&pod("one"), one.fd(), &spec).expect("attached");
    assert_eq!(
        network.list().expect("listed").rules.len(),
        5,
        "one for loopback, the others for two families"
    );
    let _server = one.serve("0.0.0.0:80");
    assert!(world.host.call("127.0.0.1:8080").is_some());
    assert!(world.outside.cannot_call(&format!("{HOST_V4}:8080")));

    let service = one.udp("0.0.0.0:53");
    let client = world.outside.udp("0.0.0.0:0");
    client.send_to(b"who", format!("{HOST_V4}:5353")).expect("sent");
    let mut buffer = [0; 16];
    let (length, from) = service.recv_from(&mut buffer).expect("arrived");
    assert_eq!(&buffer[..length], b"who");
    service.send_to(b"me", from).expect("sent");
    let (length, from) = client.recv_from(&mut buffer).expect("answered");
    assert_eq!((&buffer[..length], from.to_string()), (&b"me"[..], format!("{HOST_V4}:5353")));

    let clash = AttachSpec { ports: vec![mapping(Protocol::Udp, 5353, 1)], ..AttachSpec::default() };
    let error = network.attach(&pod("two"), two.fd(), &clash).expect_err("taken").to_string();
    assert!(error.contains("host port 5353/udp is mapped to pod one"), "{error}");
    network.detach(&pod("two")).expect("nothing was made");
    network.detach(&pod("one")).expect("detached");
    world.assert_empty(&network);
}

/// Letting the host use a port as 127.0.0.1 lets the kernel take packets for that address from pods as well, and with
/// that a pod reached what listened on the host's loopback alone (CVE-2020-8558 was of this kind).
#[test]
fn a_pod_does_not_reach_the_hosts_loopback() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside = Namespace::make();
    network.attach(&pod("one"), inside.fd(), &AttachSpec::default()).expect("attached");
    let service = world.host.udp("127.0.0.1:4444");
    service.set_nonblocking(true).expect("a socket");
    let reachable = world.host.udp("10.89.0.1:4445");
    // The pod is root in its namespace, and sends such packets to the gateway.
    inside.ip("addr del 127.0.0.1/8 dev lo");
    inside.ip("route add 127.0.0.1/32 via 10.89.0.1 dev eth0 src 10.89.0.2");
    inside.run(|| {
        let route = std::path::Path::new("/proc/sys/net/ipv4/conf/eth0/route_localnet");
        std::fs::write(route, "1").expect("written");
    });
    let client = inside.udp("10.89.0.2:0");
    client.send_to(b"x", "127.0.0.1:4444").expect("sent");
    // What was sent later has arrived: so has, or never will, what was sent before.
    client.send_to(b"y", "10.89.0.1:4445").expect("sent");
    reachable.recv_from(&mut [0; 4]).expect("arrived");
    let error = service.recv_from(&mut [0; 4]).expect_err("the guard drops it");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

/// A client that never stops sending kept its flow, and with it its way to a pod that was gone: the pod's successor at the
/// same port of the host never heard of it. Nor did a pod whose client had begun before it came.
#[test]
fn a_udp_client_finds_the_next_pod_at_the_same_port() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let client = world.outside.udp(&format!("{OUTSIDE_V4}:7777"));
    let send = || client.send_to(b"who", format!("{HOST_V4}:5353")).map(drop);
    send().expect("sent to nobody");
    let spec = AttachSpec { ports: vec![mapping(Protocol::Udp, 5353, 53)], ..AttachSpec::default() };
    for name in ["one", "two"] {
        let inside = Namespace::make();
        network.attach(&pod(name), inside.fd(), &spec).expect("attached");
        let service = inside.udp("0.0.0.0:53");
        // The answer to what was sent before is an error that the next call tells.
        crate::world::until("sent", || send().is_ok());
        let (length, _) = service.recv_from(&mut [0; 16]).unwrap_or_else(|e| panic!("{name} hears: {e}"));
        assert_eq!(length, 3);
        network.detach(&pod(name)).expect("detached");
    }
}

#[test]
fn as_many_ports_as_a_pod_may_have() {
    let Some(world) = World::new() else { return };
    let network = world.open();
    let inside = Namespace::make();
    let all = (0..mainstay_network::PORTS_MAX as u16).map(|n| mapping(Protocol::Tcp, 20_000 + n, 1 + n));
    let spec = AttachSpec { ports: all.collect(), ..AttachSpec::default() };
    network.attach(&pod("one"), inside.fd(), &spec).expect("attached");
    network.attach(&pod("one"), inside.fd(), &spec).expect("again");
    assert_eq!(network.check(&pod("one")).expect("checked"), []);
    let _server = inside.serve("0.0.0.0:1024");
    assert!(world.outside.call(&format!("{HOST_V4}:21023")).is_some(), "the last one works");
    network.detach(&pod("one")).expect("detached");
    world.assert_empty(&network);
}
