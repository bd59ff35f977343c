use super::*;

fn config() -> PodSandboxConfig {
    PodSandboxConfig {
        metadata: Some(api::PodSandboxMetadata {
            name: "web-0".to_owned(),
            uid: "u".to_owned(),
            namespace: "shop".to_owned(),
            attempt: 1,
        }),
        ..PodSandboxConfig::default()
    }
}

fn namespaces(change: impl FnOnce(&mut NamespaceOption)) -> PodSandboxConfig {
    let mut options = NamespaceOption::default();
    change(&mut options);
    let security_context =
        Some(api::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() });
    PodSandboxConfig {
        linux: Some(LinuxPodSandboxConfig { security_context, ..LinuxPodSandboxConfig::default() }),
        ..config()
    }
}

fn refused(config: &PodSandboxConfig) -> String {
    spec(config, "").expect_err("refused").to_string()
}

#[test]
fn a_pod_that_says_nothing_shares_what_the_interface_says_it_does() {
    let spec = spec(&config(), "").expect("good");
    assert_eq!(spec.name.as_str(), "web-0_shop_u_1");
    assert_eq!(spec.hostname.as_deref(), Some("web-0"));
    assert_eq!((spec.network, spec.pid, spec.ipc), (Network::Default, PidMode::Pod, IpcMode::Pod));
    assert_eq!(spec.user_namespace, UserNamespace::Host);
    assert!(spec.notes.is_empty());
    assert_eq!(spec.check(), Ok(()));
}

#[test]
fn what_is_the_nodes_is_the_hosts() {
    let asked = namespaces(|options| {
        options.set_network(NamespaceMode::Node);
        options.set_pid(NamespaceMode::Node);
        options.set_ipc(NamespaceMode::Node);
    });
    let spec = spec(&PodSandboxConfig { hostname: "x".to_owned(), ..asked }, "").expect("good");
    assert_eq!((spec.network, spec.pid, spec.ipc), (Network::Host, PidMode::Host, IpcMode::Host));
    assert_eq!(spec.hostname, None, "the host's name goes with its network");
}

#[test]
fn a_user_namespace_comes_with_its_ids() {
    let asked = namespaces(|options| {
        let mapping = api::IdMapping { host_id: 65_536, container_id: 0, length: 65_536 };
        options.set_pid(NamespaceMode::Container);
        options.userns_options =
            Some(api::UserNamespace { uids: vec![mapping], gids: vec![mapping], ..Default::default() });
    });
    let mapping = IdMapping { container: 0, host: 65_536, size: 65_536 };
    let spec = spec(&asked, "").expect("good");
    assert_eq!(spec.user_namespace, UserNamespace::Mapped(IdMappings::both([mapping])));
}

#[test]
fn only_ports_of_the_host_are_mapped() {
    let port = |host_port, host_ip: &str| api::PortMapping {
        container_port: 80,
        host_port,
        host_ip: host_ip.to_owned(),
        ..api::PortMapping::default()
    };
    let port_mappings = vec![port(0, ""), port(8080, ""), port(8081, "0.0.0.0"), port(8082, "10.0.0.1")];
    let spec = spec(&PodSandboxConfig { port_mappings, ..config() }, "").expect("good");
    let shown: Vec<_> = spec.ports.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["8080:80/tcp", "8081:80/tcp", "10.0.0.1:8082:80/tcp"]);
    let bad = PodSandboxConfig { port_mappings: vec![port(70_000, "")], ..config() };
    assert!(refused(&bad).starts_with("config.port_mappings[0].host_port: 70000"), "{}", refused(&bad));
}

#[test]
fn what_the_runtime_has_no_word_for_is_noted() {
    let security_context = Some(api::LinuxSandboxSecurityContext { privileged: true, ..Default::default() });
    let linux = LinuxPodSandboxConfig {
        security_context,
        cgroup_parent: "kubepods-pod1.slice".to_owned(),
        ..LinuxPodSandboxConfig::default()
    };
    let asked =
        PodSandboxConfig { linux: Some(linux), log_directory: "/var/log/pods/1".to_owned(), ..config() };
    let spec = spec(&asked, "other").expect("good");
    assert_eq!(spec.handler, Some("other".parse().expect("a name")));
    let expected = [(notes::LOG_DIRECTORY, "/var/log/pods/1"), (notes::PRIVILEGED, "yes")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(spec.notes, BTreeMap::from(expected));
    let parent = spec.cgroup_parent.expect("given").to_string();
    assert_eq!(parent, "/kubepods.slice/kubepods-pod1.slice");
}

/// kubelet passes on the host's own name servers under `dnsPolicy: Default`; one in a zone had every pod refused.
#[test]
fn a_name_server_in_a_zone_is_kept_as_it_came() {
    let dns = api::DnsConfig { servers: vec!["fe80::1%eth0".to_owned()], ..Default::default() };
    let spec = spec(&PodSandboxConfig { dns_config: Some(dns), ..config() }, "").expect("good");
    assert_eq!(spec.names.servers[0].as_str(), "fe80::1%eth0");
    assert_eq!(spec.check(), Ok(()));
}

#[test]
fn a_refusal_names_its_field() {
    let nameless = PodSandboxConfig::default();
    assert!(refused(&nameless).starts_with("config.metadata: "), "{}", refused(&nameless));
    let target = namespaces(|options| options.set_pid(NamespaceMode::Target));
    assert!(refused(&target).contains("namespace_options.pid: TARGET"), "{}", refused(&target));
    let dns = api::DnsConfig { servers: vec!["dns".to_owned()], ..Default::default() };
    let dns = PodSandboxConfig { dns_config: Some(dns), ..config() };
    assert!(refused(&dns).starts_with("config.dns_config.servers[0]: \"dns\""), "{}", refused(&dns));
    let linux = LinuxPodSandboxConfig { cgroup_parent: "../x".to_owned(), ..Default::default() };
    let parent = PodSandboxConfig { linux: Some(linux), ..config() };
    assert!(refused(&parent).starts_with("cgroup_parent: "), "{}", refused(&parent));
}
