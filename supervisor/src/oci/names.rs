//! How a container looks up names of hosts, and what its own is: the files that are laid over its `/etc/resolv.conf`, `/etc/hosts` and,
//! in a container of an image with a host name of its pod's, `/etc/hostname`.
//!
//! | | what the pod's spec gives | nothing given, on the host's network | nothing given, with addresses of its own | else |
//! |---|---|---|---|---|
//! | resolv.conf | its servers, searches and options; the network's, or else the host's, servers when it gives none | the host's | the network's, or else the host's that can be reached from the pod | the root's own |
//! | hosts | the pod's own names and the given ones; beside the host's on its network | the host's | the pod's own names | the root's own |
//!
//! A container on the host's own root and network has the host's files as it is.

use std::fmt::Write;
use std::net::IpAddr;

use mainstay_messages::network::PodNetwork;
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::spec::{Network, Rootfs};

use crate::host::HostFacts;

/// A file that is made for one container, in its bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFile {
    /// Its name in the bundle.
    pub name: &'static str,
    /// Where it is in the container.
    pub target: &'static str,
    /// What is in it.
    pub text: String,
}

/// The files of a container. Where it mounts something of its own at their place, they are not made.
pub fn name_files(record: &ContainerRecord, pod: &SandboxRecord, host: &HostFacts) -> Vec<NameFile> {
    let sees_host = pod.spec.network == Network::Host && record.spec.rootfs != Rootfs::Host;
    let resolver = match &pod.network {
        Some(network) => Some(resolver(pod, &network_resolver(network, host))),
        None if pod.spec.names.has_resolver() => Some(resolver(pod, &of_host_servers(host))),
        None => host.resolver.clone().filter(|_| sees_host),
    };
    let hosts = match (&pod.network, pod.spec.names.hosts.is_empty(), sees_host) {
        (Some(_), ..) | (None, false, _) => Some(hosts(pod, host)),
        (None, true, true) => host.hosts.clone(),
        (None, true, false) => None,
    };
    // A directory that is used as it is has a name of its own, and so has the host's root.
    let named = pod.spec.network != Network::Host && matches!(record.spec.rootfs, Rootfs::Layers(_));
    let hostname = named.then(|| format!("{}\n", pod.spec.hostname()));
    let files = [
        ("resolv.conf", "/etc/resolv.conf", resolver),
        ("hosts", "/etc/hosts", hosts),
        ("hostname", "/etc/hostname", hostname),
    ];
    let taken = |target: &str| record.spec.mounts.iter().any(|mount| mount.target.as_os_str() == target);
    let files = files.into_iter().filter(|(_, target, _)| !taken(target));
    files.filter_map(|(name, target, text)| Some(NameFile { name, target, text: text? })).collect()
}

/// Whom a resolver asks, and for what, as the words of resolv.conf(5).
#[derive(Debug, Default)]
struct Resolver {
    servers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

impl Resolver {
    fn parse(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(str::to_owned);
            match words.next().as_deref() {
                Some("nameserver") => resolver.servers.extend(words.next()),
                // The last one counts.
                Some("search" | "domain") => resolver.searches = words.collect(),
                Some("options") => resolver.options.extend(words),
                _ => {}
            }
        }
        resolver
    }
}

/// The host's servers alone: what else its file says is the host's own business.
fn of_host_servers(host: &HostFacts) -> Resolver {
    let servers = Resolver::parse(host.resolver.as_deref().unwrap_or_default()).servers;
    Resolver { servers, ..Resolver::default() }
}

/// What a pod with addresses of its own asks when its spec does not say: what its network says, and where that is nothing,
/// what the host asks. A service on the host's loopback cannot be reached from there; then it is those whom the service asks.
fn network_resolver(network: &PodNetwork, host: &HostFacts) -> Resolver {
    let dns = &network.dns;
    if !dns.servers.is_empty() {
        let servers = dns.servers.iter().map(ToString::to_string).collect();
        return Resolver { servers, searches: dns.searches.clone(), options: dns.options.clone() };
    }
    let reachable = |text: &Option<String>| {
        let mut resolver = Resolver::parse(text.as_deref().unwrap_or_default());
        let of = |server: &str| server.split('%').next().and_then(|address| address.parse().ok());
        resolver.servers.retain(|server| !of(server).is_some_and(|ip: IpAddr| ip.is_loopback()));
        resolver
    };
    let own = reachable(&host.resolver);
    let mut resolver = if own.servers.is_empty() { reachable(&host.uplink_resolver) } else { own };
    if !dns.searches.is_empty() {
        resolver.searches.clone_from(&dns.searches);
    }
    resolver.options.extend(dns.options.iter().cloned());
    resolver
}

/// The file of a resolver: what the pod's spec gives, and `other` for what it does not.
fn resolver(pod: &SandboxRecord, other: &Resolver) -> String {
    let names = &pod.spec.names;
    let given: Vec<_> = names.servers.iter().map(ToString::to_string).collect();
    let or = |given: &[String], other: &[String]| {
        if given.is_empty() { other.to_vec() } else { given.to_vec() }
    };
    let mut text = String::new();
    for server in or(&given, &other.servers) {
        line_of(&mut text, format_args!("nameserver {server}"));
    }
    for (word, list) in
        [("search", or(&names.searches, &other.searches)), ("options", or(&names.options, &other.options))]
    {
        if !list.is_empty() {
            line_of(&mut text, format_args!("{word} {}", list.join(" ")));
        }
    }
    text
}

fn hosts(pod: &SandboxRecord, host: &HostFacts) -> String {
    let mut text = String::new();
    if pod.spec.network == Network::Host {
        for line in host.hosts.as_deref().unwrap_or_default().lines() {
            line_of(&mut text, format_args!("{line}"));
        }
    } else {
        line_of(&mut text, format_args!("127.0.0.1\tlocalhost"));
        line_of(&mut text, format_args!("::1\tlocalhost ip6-localhost ip6-loopback"));
        let own = pod.network.iter().flat_map(|network| &network.ips);
        for address in own {
            line_of(&mut text, format_args!("{}\t{}", address.ip, pod.spec.hostname()));
        }
        if pod.network.as_ref().is_none_or(|network| network.ips.is_empty()) {
            line_of(&mut text, format_args!("127.0.1.1\t{}", pod.spec.hostname()));
        }
    }
    for entry in &pod.spec.names.hosts {
        line_of(&mut text, format_args!("{}\t{}", entry.address, entry.name));
    }
    text
}

fn line_of(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use mainstay_messages::network::{NetworkDns, PodAddress};
    use mainstay_messages::spec::{Access, HostEntry, Mount};
    use mainstay_messages::{ContainerSpec, SandboxSpec, Timestamp};

    use super::*;

    fn pod(change: impl FnOnce(&mut SandboxSpec)) -> SandboxRecord {
        let mut spec = SandboxSpec::new("web".parse().expect("a good name"));
        change(&mut spec);
        SandboxRecord::intent("pod".parse().expect("a good id"), spec, Timestamp(1))
    }

    fn container(rootfs: Rootfs) -> ContainerRecord {
        let mut spec = ContainerSpec::new("c".parse().expect("a good name"), ["true"]);
        spec.rootfs = rootfs;
        let (id, sandbox) = ("box".parse().expect("a good id"), "pod".parse().expect("a good id"));
        ContainerRecord::intent(id, sandbox, spec, "/log".into(), Timestamp(1))
    }

    fn host() -> HostFacts {
        HostFacts {
            resolver: Some("# by hand\nnameserver 9.9.9.9\nsearch home\n".to_owned()),
            hosts: Some("127.0.0.1 localhost\n".to_owned()),
            ..HostFacts::default()
        }
    }

    fn texts(record: &ContainerRecord, pod: &SandboxRecord) -> Vec<(&'static str, String)> {
        name_files(record, pod, &host()).into_iter().map(|file| (file.name, file.text)).collect()
    }

    fn directory() -> Rootfs {
        Rootfs::Directory { path: "/srv".into() }
    }

    #[test]
    fn nothing_given_leaves_the_roots_own_but_on_the_hosts_network() {
        let private = pod(|_| ());
        assert_eq!(texts(&container(directory()), &private), []);
        let shared = pod(|spec| spec.network = Network::Host);
        assert_eq!(texts(&container(Rootfs::Host), &shared), []);
        let files = texts(&container(directory()), &shared);
        assert_eq!(files.len(), 2);
        assert!(files[0].1.contains("search home") && files[1].1.contains("localhost"));
    }

    #[test]
    fn what_is_given_is_written_and_mounts_of_the_container_win() {
        let given = pod(|spec| {
            spec.names.servers =
                ["10.0.0.1", "fe80::1%eth0"].map(|server| server.parse().expect("good")).into();
            spec.names.searches = vec!["a.b".into(), "b".into()];
            spec.names.options = vec!["ndots:2".into()];
            spec.names.hosts =
                vec![HostEntry { name: "db".into(), address: "10.0.0.7".parse().expect("good") }];
        });
        let mut record = container(Rootfs::Host);
        let files = texts(&record, &given);
        let resolver = "nameserver 10.0.0.1\nnameserver fe80::1%eth0\nsearch a.b b\noptions ndots:2\n";
        let hosts =
            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tweb\n10.0.0.7\tdb\n";
        assert_eq!(files, [("resolv.conf", resolver.to_owned()), ("hosts", hosts.to_owned())]);
        record.spec.mounts.push(Mount::bind("/x", "/etc/hosts", Access::ReadOnly));
        assert_eq!(texts(&record, &given).len(), 1);
    }

    fn attached(servers: &[&str]) -> SandboxRecord {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut pod = pod(|spec| spec.network = Network::Builtin);
        let address = |text, prefix| PodAddress { ip: ip(text), prefix, gateway: None };
        pod.network = Some(PodNetwork {
            name: "builtin".into(),
            namespace: "/run/netns/x".into(),
            link: "eth0".into(),
            ips: vec![address("10.89.0.2", 16), address("fd00::2", 64)],
            mac: None,
            mtu: None,
            dns: NetworkDns {
                servers: servers.iter().map(|server| ip(server)).collect(),
                ..NetworkDns::default()
            },
        });
        pod
    }

    #[test]
    fn a_pod_with_addresses_finds_itself_and_asks_whom_its_network_says() {
        let files = texts(&container(Rootfs::Host), &attached(&["10.89.0.1"]));
        let hosts =
            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n10.89.0.2\tweb\nfd00::2\tweb\n";
        let resolver = "nameserver 10.89.0.1\n".to_owned();
        assert_eq!(files, [("resolv.conf", resolver), ("hosts", hosts.to_owned())]);
        let files = texts(&container(Rootfs::Host), &attached(&[]));
        assert_eq!(files[0].1, "nameserver 9.9.9.9\nsearch home\n", "what the host asks");
    }

    /// A pod got the address of the host's systemd-resolved, 127.0.0.53, which in the pod is the pod itself.
    #[test]
    fn a_service_on_the_hosts_loopback_is_not_given_to_a_pod() {
        let local = HostFacts {
            resolver: Some("nameserver 127.0.0.53\nnameserver ::1\noptions edns0\nsearch a\n".into()),
            uplink_resolver: Some("nameserver 192.0.2.7\nsearch b\n".into()),
            ..HostFacts::default()
        };
        let files = name_files(&container(directory()), &attached(&[]), &local);
        assert_eq!(files[0].text, "nameserver 192.0.2.7\nsearch b\n");
    }

    #[test]
    fn without_servers_of_its_own_a_pod_asks_the_hosts() {
        let given = pod(|spec| spec.names.searches = vec!["a".into()]);
        let files = texts(&container(Rootfs::Host), &given);
        assert_eq!(files, [("resolv.conf", "nameserver 9.9.9.9\nsearch a\n".to_owned())]);
    }
}
