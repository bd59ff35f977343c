//! How a container looks up names of hosts: the files that are laid over its `/etc/resolv.conf` and `/etc/hosts`.
//!
//! | | what the pod's spec gives | nothing given, on the host's network | else |
//! |---|---|---|---|
//! | resolv.conf | its servers, searches and options; the host's servers when it gives none | the host's | the root's own |
//! | hosts | the pod's own names and the given ones; beside the host's on its network | the host's | the root's own |
//!
//! A container on the host's own root has the host's files as it is.

use std::fmt::Write;

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
    let resolver = if pod.spec.names.has_resolver() {
        Some(resolver(pod, host))
    } else {
        host.resolver.clone().filter(|_| sees_host)
    };
    let hosts = match (pod.spec.names.hosts.is_empty(), sees_host) {
        (false, _) => Some(hosts(pod, host)),
        (true, true) => host.hosts.clone(),
        (true, false) => None,
    };
    let files = [("resolv.conf", "/etc/resolv.conf", resolver), ("hosts", "/etc/hosts", hosts)];
    let taken = |target: &str| record.spec.mounts.iter().any(|mount| mount.target.as_os_str() == target);
    let files = files.into_iter().filter(|(_, target, _)| !taken(target));
    files.filter_map(|(name, target, text)| Some(NameFile { name, target, text: text? })).collect()
}

fn resolver(pod: &SandboxRecord, host: &HostFacts) -> String {
    let names = &pod.spec.names;
    let mut text = String::new();
    if names.servers.is_empty() {
        let lines = host.resolver.as_deref().unwrap_or_default().lines();
        for line in lines.filter(|line| line.split_whitespace().next() == Some("nameserver")) {
            line_of(&mut text, format_args!("{line}"));
        }
    }
    for server in &names.servers {
        line_of(&mut text, format_args!("nameserver {server}"));
    }
    for (word, list) in [("search", &names.searches), ("options", &names.options)] {
        if !list.is_empty() {
            line_of(&mut text, format_args!("{word} {}", list.join(" ")));
        }
    }
    text
}

fn hosts(pod: &SandboxRecord, host: &HostFacts) -> String {
    let mut text = String::new();
    match pod.spec.network {
        Network::Host => {
            for line in host.hosts.as_deref().unwrap_or_default().lines() {
                line_of(&mut text, format_args!("{line}"));
            }
        }
        Network::Private => {
            line_of(&mut text, format_args!("127.0.0.1\tlocalhost"));
            line_of(&mut text, format_args!("::1\tlocalhost ip6-localhost ip6-loopback"));
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
            spec.names.servers = vec!["10.0.0.1".parse().expect("good"), "fd00::1".parse().expect("good")];
            spec.names.searches = vec!["a.b".into(), "b".into()];
            spec.names.options = vec!["ndots:2".into()];
            spec.names.hosts =
                vec![HostEntry { name: "db".into(), address: "10.0.0.7".parse().expect("good") }];
        });
        let mut record = container(Rootfs::Host);
        let files = texts(&record, &given);
        let resolver = "nameserver 10.0.0.1\nnameserver fd00::1\nsearch a.b b\noptions ndots:2\n";
        let hosts =
            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tweb\n10.0.0.7\tdb\n";
        assert_eq!(files, [("resolv.conf", resolver.to_owned()), ("hosts", hosts.to_owned())]);
        record.spec.mounts.push(Mount::bind("/x", "/etc/hosts", Access::ReadOnly));
        assert_eq!(texts(&record, &given).len(), 1);
    }

    #[test]
    fn without_servers_of_its_own_a_pod_asks_the_hosts() {
        let given = pod(|spec| spec.names.searches = vec!["a".into()]);
        let files = texts(&container(Rootfs::Host), &given);
        assert_eq!(files, [("resolv.conf", "nameserver 9.9.9.9\nsearch a\n".to_owned())]);
    }
}
