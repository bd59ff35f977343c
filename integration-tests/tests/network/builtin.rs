//! The built-in network.

use mainstay::{Error, Network, Protocol, Rootfs, UserNamespace};
use mainstay_integration_tests::net::{HOST_V4, OUTSIDE_V4, OUTSIDE_V6};
use mainstay_integration_tests::{Shorthand, run as run_container, says, waiting};

use crate::stage;
use crate::stage::{addresses, files, inside, port, run, spec};

/// A run, an address, removed, and nothing is left.
#[tokio::test]
async fn pods_reach_one_another_the_world_and_by_their_ports_are_reached() {
    let stage = stage!();
    let runtime = stage.start().await;
    assert!(!stage.internet.links().contains(&"mainstay0".to_owned()), "no bridge before the first pod");
    let web = spec("web", |spec| {
        spec.ports = vec![port(Protocol::Tcp, 8080, 80), port(Protocol::Udp, 5353, 53)];
    });
    let (web, db) = (run(&runtime, web).await, run(&runtime, spec("db", |_| ())).await);
    assert_eq!(addresses(&web), ["10.89.0.2", "fd00:89::2"]);
    assert_eq!(addresses(&db), ["10.89.0.3", "fd00:89::3"]);
    let (web_inside, db_inside) = (inside(&web), inside(&db));

    let _servers = [web_inside.serve("0.0.0.0:80"), web_inside.serve("[::]:81")];
    let _udp = web_inside.serve_udp("0.0.0.0:53");
    let at = |text: &str| Some(text.parse().expect("an address"));
    assert_eq!(db_inside.call("10.89.0.2:80"), at("10.89.0.3"), "pod to pod");
    assert_eq!(db_inside.call("[fd00:89::2]:81"), at("fd00:89::3"), "the same with IPv6");
    assert_eq!(stage.internet.outside.call(&format!("{HOST_V4}:8080")), at(OUTSIDE_V4), "from outside");
    assert!(stage.internet.host.call("127.0.0.1:8080").is_some(), "from the host");
    assert_eq!(stage.internet.outside.call_udp(&format!("{HOST_V4}:5353")), at(OUTSIDE_V4));
    let _world = [
        stage.internet.outside.serve(&format!("{OUTSIDE_V4}:80")),
        stage.internet.outside.serve(&format!("[{OUTSIDE_V6}]:80")),
    ];
    assert_eq!(db_inside.call(&format!("{OUTSIDE_V4}:80")), at(HOST_V4), "with the host's address");
    assert!(db_inside.call(&format!("[{OUTSIDE_V6}]:80")).is_some());

    runtime.check_network(&web.record.id).await.expect("as it should be");
    runtime.network_status(Network::Default).await.expect("it is there");
    runtime.network_status(Network::Cni).await.expect_err("no list is configured");

    let taken = spec("other", |spec| spec.ports = vec![port(Protocol::Tcp, 8080, 1)]);
    let error = runtime.run_sandbox(taken).await.expect_err("taken");
    assert!(matches!(&error, Error::InvalidArgument { field, .. } if field == "ports"), "{error}");
    assert!(error.to_string().contains(web.record.id.as_str()), "{error}");

    runtime.remove_sandbox(&web.record.id).await.expect("removed");
    assert!(stage.internet.outside.cannot_call(&format!("{HOST_V4}:8080")), "the port is closed");
    stage.finish(runtime).await;
}

/// A pod's containers find themselves and their resolver, and a pod gets what it asks for.
#[tokio::test]
async fn containers_have_the_files_of_their_network() {
    let stage = stage!();
    let mut config = stage.config();
    config.network.dns = vec!["10.89.0.1".parse().expect("an address")];
    let runtime = mainstay::Runtime::start(config).await.expect("started");
    let pod = spec("web", |spec| {
        spec.hostname = Some("box".into());
        spec.ips = vec!["10.89.7.7".parse().expect("good")];
        spec.mac = Some("02:00:00:00:00:07".parse().expect("good"));
        spec.names.searches = vec!["example".into()];
    });
    let pod = run(&runtime, pod).await;
    let id = pod.record.id.clone();
    assert_eq!(addresses(&pod), ["10.89.7.7", "fd00:89::2"]);
    let container = run_container(&runtime, &id, waiting("c", |spec| spec.rootfs = Rootfs::Host)).await;
    let container = container.expect("it runs");
    let said = says(
        &runtime,
        &container,
        "hostname; cat /etc/resolv.conf; grep box /etc/hosts; cat /sys/class/net/eth0/address",
    )
    .await;
    let expected =
        "box\nnameserver 10.89.0.1\nsearch example\n10.89.7.7\tbox\nfd00:89::2\tbox\n02:00:00:00:00:07";
    assert_eq!(said, expected);
    let wrong = spec("late", |spec| spec.ips = vec!["10.89.7.7".parse().expect("good")]);
    let error = runtime.run_sandbox(wrong).await.expect_err("taken").to_string();
    assert!(error.starts_with("ips: "), "{error}");
    let wrong = spec("far", |spec| spec.ips = vec!["192.168.0.1".parse().expect("good")]);
    let error = runtime.run_sandbox(wrong).await.expect_err("of no range").to_string();
    assert!(error.starts_with("ips: "), "{error}");
    stage.finish(runtime).await;
}

/// The host's network is the host's, and a loopback is no more than that.
#[tokio::test]
async fn a_pod_may_have_the_hosts_network_or_a_loopback_alone() {
    let stage = stage!();
    let runtime = stage.start().await;
    let host = run(&runtime, spec("host", |spec| spec.network = Network::Host)).await;
    let none = run(&runtime, spec("none", |spec| spec.network = Network::None)).await;
    assert_eq!((addresses(&host), addresses(&none)), (vec![], vec![]));
    let on_host = run_container(&runtime, &host.record.id, waiting("c", |_| ())).await.expect("it runs");
    let alone = run_container(&runtime, &none.record.id, waiting("c", |_| ())).await.expect("it runs");
    assert!(says(&runtime, &on_host, "ip -o addr").await.contains(HOST_V4));
    let links = says(&runtime, &alone, "ip -o link").await;
    assert!(links.contains("lo:") && links.lines().count() == 1, "{links}");
    assert!(!stage.internet.links().contains(&"mainstay0".to_owned()), "nobody needed a bridge");
    stage.finish(runtime).await;
}

/// The root of a pod with a user namespace owns its network: it may change it from the inside.
#[tokio::test]
async fn the_root_of_a_user_namespace_owns_its_network() {
    let stage = stage!();
    let runtime = stage.start().await;
    let pod = spec("web", |spec| {
        spec.user_namespace = UserNamespace::Auto;
        spec.sysctls.insert("net.ipv4.ip_unprivileged_port_start".into(), "1".into());
    });
    let pod = run(&runtime, pod).await;
    let container = waiting("c", |spec| spec.security.capabilities_add = vec!["NET_ADMIN".into()]);
    let container = run_container(&runtime, &pod.record.id, container).await.expect("it runs");
    let said = says(&runtime, &container, "ip addr add 10.99.0.1/32 dev lo && ip -o -4 addr show").await;
    assert!(said.contains("10.99.0.1") && said.contains("10.89.0.2"), "{said}");
    let port = says(&runtime, &container, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start").await;
    assert_eq!(port, "1");
    let other = run(&runtime, spec("other", |_| ())).await;
    let _server = inside(&other).serve("0.0.0.0:80");
    assert!(inside(&pod).call("10.89.0.3:80").is_some());
    stage.finish(runtime).await;
}

/// An address is given back by a stop, and the pod that was stopped has none any more.
#[tokio::test]
async fn a_stopped_pod_has_given_its_address_back() {
    let stage = stage!();
    let runtime = stage.start().await;
    let pod = run(&runtime, spec("web", |_| ())).await;
    runtime.stop_sandbox(&pod.record.id, None).await.expect("stopped");
    let stopped = runtime.sandbox(&pod.record.id).expect("listed");
    assert_eq!(stopped.record.network, None);
    assert_eq!(files(&stage.path("root/network")), Vec::<String>::new());
    stage.finish(runtime).await;
}

/// Many at once get an address each.
#[tokio::test]
async fn pods_that_are_made_at_the_same_time_have_addresses_of_their_own() {
    const PODS: usize = 16;
    let stage = stage!();
    let runtime = stage.start().await;
    let names: Vec<_> = (0..PODS).map(|n| format!("p{n}")).collect();
    let made = futures::future::join_all(names.iter().map(|name| run(&runtime, spec(name, |_| ())))).await;
    let mut all: Vec<_> = made.iter().flat_map(|pod| addresses(pod)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 2 * PODS);
    let _ = runtime.pod("one-more").await;
    stage.finish(runtime).await;
}
