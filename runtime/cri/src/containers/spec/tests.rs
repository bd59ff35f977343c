//! What becomes of each field, and what is said of one that is wrong.

#![allow(deprecated, reason = "older clients give a text in place of a profile")]

use mainstay::{
    Access, AppArmor, CpuTime, IdMapping, IdMappings, MissingSource, Mount, MountSource, NewPrivileges,
    Owners, Privilege, Propagation, Relabel, Restriction, Seccomp, Submounts, SupplementaryGroups, UNLIMITED,
    UserNamespace,
};
use mainstay_cri_api::security_profile::ProfileType;
use mainstay_cri_api::{
    Capability, CdiDevice, Int64Value, LinuxContainerResources, MountPropagation, SeLinuxOption,
    SecurityProfile,
};

use super::*;

fn pod() -> SandboxSpec {
    SandboxSpec::new("pod".parse().expect("a name"))
}

fn of_pod(config: &ContainerConfig, pod: &SandboxSpec) -> std::result::Result<ContainerSpec, String> {
    let profile_of = |path: &Path| match path.to_str() {
        Some("/good.json") => Ok("{}".to_owned()),
        _ => Err("it is not there".to_owned()),
    };
    let image = "sha256:1".parse().expect("a name");
    container_spec("c".parse().expect("a name"), config, pod, image, profile_of)
        .map_err(|failure| failure.to_string())
}

fn of(config: &ContainerConfig) -> ContainerSpec {
    of_pod(config, &pod()).expect("good")
}

fn with(change: impl FnOnce(&mut LinuxContainerSecurityContext)) -> ContainerConfig {
    let mut security = LinuxContainerSecurityContext::default();
    change(&mut security);
    let linux = LinuxContainerConfig { security_context: Some(security), resources: None };
    ContainerConfig { linux: Some(linux), ..ContainerConfig::default() }
}

fn mounting(mount: api::Mount) -> ContainerConfig {
    ContainerConfig { mounts: vec![mount], ..ContainerConfig::default() }
}

fn host(host_path: &str, container_path: &str) -> api::Mount {
    api::Mount { host_path: host_path.into(), container_path: container_path.into(), ..api::Mount::default() }
}

fn profile(kind: ProfileType, localhost_ref: &str) -> Option<SecurityProfile> {
    Some(SecurityProfile { profile_type: kind.into(), localhost_ref: localhost_ref.into() })
}

/// Fields are named as the interface has them, in the order in which kubelet's users look for them.
#[test]
fn what_is_wrong_is_named() {
    let id = |value| Some(Int64Value { value });
    let cases: Vec<(ContainerConfig, &str)> = vec![
        (with(|s| s.run_as_group = id(1)), "config.linux.security_context.run_as_group"),
        (with(|s| s.run_as_user = id(-1)), "config.linux.security_context.run_as_user: -1"),
        (with(|s| s.run_as_user = id(1 << 32)), "config.linux.security_context.run_as_user"),
        (with(|s| s.run_as_user = id(i64::from(u32::MAX))), "config.linux.security_context.run_as_user"),
        (
            with(|s| s.supplemental_groups = vec![1 << 40]),
            "config.linux.security_context.supplemental_groups",
        ),
        (
            with(|s| {
                s.run_as_user = id(1);
                s.run_as_username = "x".into();
            }),
            "config.linux.security_context.run_as_username",
        ),
        (with(|s| s.run_as_username = "x:y".into()), "config.linux.security_context.run_as_username"),
        (
            with(|s| s.seccomp = profile(ProfileType::Localhost, "/none")),
            "config.linux.security_context.seccomp",
        ),
        (with(|s| s.seccomp = profile(ProfileType::Localhost, "")), "config.linux.security_context.seccomp"),
        (with(|s| s.apparmor_profile = "what".into()), "config.linux.security_context.apparmor_profile"),
        (
            with(|s| s.seccomp = Some(SecurityProfile { profile_type: 9, localhost_ref: String::new() })),
            "config.linux.security_context.seccomp.profile_type: 9",
        ),
        (
            mounting(api::Mount { recursive_read_only: true, ..host("/a", "/b") }),
            "config.mounts[0].recursive_read_only",
        ),
        (
            mounting(api::Mount {
                recursive_read_only: true,
                readonly: true,
                propagation: MountPropagation::PropagationBidirectional.into(),
                ..host("/a", "/b")
            }),
            "config.mounts[0].recursive_read_only",
        ),
        (mounting(api::Mount { propagation: 7, ..host("/a", "/b") }), "config.mounts[0].propagation: 7"),
        (
            mounting(api::Mount {
                image: Some(api::ImageSpec { image: "box".into(), ..Default::default() }),
                ..host("/a", "/b")
            }),
            "config.mounts[0].host_path",
        ),
        (
            mounting(api::Mount {
                image: Some(api::ImageSpec { image: "box".into(), ..Default::default() }),
                ..host("", "/b")
            }),
            "config.mounts[0].readonly: false",
        ),
        (
            mounting(api::Mount { image_sub_path: "x".into(), ..host("", "/b") }),
            "config.mounts[0].image_sub_path",
        ),
        (
            mounting(api::Mount { mount_options: vec!["remount".into()], ..host("/a", "/b") }),
            "config.mounts[0].mount_options[0]",
        ),
        (
            ContainerConfig {
                envs: vec![KeyValue { key: "A".into(), value: vec![0xff] }],
                ..ContainerConfig::default()
            },
            "config.envs[\"A\"].value",
        ),
    ];
    for (config, field) in cases {
        let error = of_pod(&config, &pod()).expect_err("wrong");
        assert!(error.starts_with(field), "{error:?} does not start with {field:?}");
    }
}

#[test]
fn commands_go_before_those_of_the_image() {
    let config = ContainerConfig {
        command: vec!["sh".into()],
        args: vec!["-c".into(), "x".into()],
        envs: vec![KeyValue { key: "A".into(), value: b"1".to_vec() }],
        working_dir: "/w".into(),
        tty: true,
        stdin: true,
        stdin_once: true,
        stop_signal: api::Signal::Sigrtminplus3.into(),
        ..ContainerConfig::default()
    };
    let spec = of(&config);
    let Rootfs::Image(root) = &spec.rootfs else { panic!("{:?}", spec.rootfs) };
    assert_eq!(root.entrypoint.as_deref(), Some(["sh".to_owned()].as_slice()));
    assert_eq!(spec.process.command, ["-c", "x"]);
    assert_eq!(spec.process.env["A"], "1");
    assert_eq!(spec.process.workdir.as_deref(), Some(Path::new("/w")));
    assert!(matches!(spec.process.terminal, Terminal::Tty(_)));
    assert_eq!(spec.stdin, Stdin::Once);
    assert_eq!(spec.stop_signal, Some("RTMIN+3".parse().expect("a signal")));
    let usual = of(&ContainerConfig::default());
    let Rootfs::Image(root) = &usual.rootfs else { panic!("{:?}", usual.rootfs) };
    assert_eq!((&root.entrypoint, usual.stop_signal, usual.stdin), (&None, None, Stdin::Null));
}

/// kubelet gives weights, quotas and periods as they are to be written, and compares them with what it reads back.
#[test]
fn limits_are_exactly_what_is_given() {
    let limits = LinuxContainerResources {
        cpu_period: 50_000,
        cpu_quota: 12_345,
        cpu_shares: 1,
        memory_limit_in_bytes: 64 << 20,
        memory_swap_limit_in_bytes: -1,
        oom_score_adj: -998,
        cpuset_cpus: "0".into(),
        unified: [("memory.high".to_owned(), "1".to_owned())].into(),
        ..LinuxContainerResources::default()
    };
    let found = resources(&limits).expect("good");
    assert_eq!(found.cpu_time, Some(CpuTime { quota_us: 12_345, period_us: 50_000 }));
    assert_eq!(found.cpu_shares, Some(2), "the least that the kernel takes");
    assert_eq!((found.memory_bytes, found.memory_swap_bytes), (Some(64 << 20), Some(UNLIMITED)));
    assert_eq!((found.cpuset_cpus.as_deref(), found.cpuset_mems), (Some("0"), None));
    assert_eq!(found.unified["memory.high"], "1");
    assert_eq!(resources::oom_score(&limits).expect("good"), -998);
    let nothing = resources(&LinuxContainerResources { cpu_period: 100_000, ..Default::default() });
    assert_eq!(nothing.expect("good"), mainstay::Resources::default());
    let lifted = resources(&LinuxContainerResources { cpu_quota: -1, ..Default::default() }).expect("good");
    assert_eq!(lifted.cpu_time, Some(CpuTime::UNLIMITED));
    let swap_alone = LinuxContainerResources { memory_swap_limit_in_bytes: 5 << 20, ..Default::default() };
    assert_eq!(resources(&swap_alone).expect("good").memory_swap_bytes, None);
}

#[test]
fn users_and_groups_are_ids_or_names() {
    let id = |value| Some(Int64Value { value });
    let user = |change: fn(&mut LinuxContainerSecurityContext)| of(&with(change)).process.user;
    assert_eq!(user(|_| ()), None);
    assert_eq!(of(&with(|s| s.run_as_user = id(0))).process.user.as_deref(), Some("0"));
    let both = of(&with(|s| {
        s.run_as_username = "app".into();
        s.run_as_group = id(50);
        s.supplemental_groups = vec![7, 8];
        s.supplemental_groups_policy = 1;
        s.no_new_privs = true;
        s.readonly_rootfs = true;
    }));
    assert_eq!(both.process.user.as_deref(), Some("app:50"));
    assert_eq!(both.process.groups, [7, 8]);
    assert_eq!(both.security.supplementary_groups, SupplementaryGroups::Strict);
    assert_eq!(both.security.new_privileges, NewPrivileges::Forbidden);
    assert_eq!(both.security.root, Access::ReadOnly);
}

#[test]
fn profiles_are_those_of_the_fields_or_of_the_old_texts() {
    let seccomp = |config: ContainerConfig| of(&config).security.seccomp;
    assert_eq!(seccomp(ContainerConfig::default()), Seccomp::Unconfined);
    assert_eq!(seccomp(with(|_| ())), Seccomp::Unconfined);
    assert_eq!(seccomp(with(|s| s.seccomp = profile(ProfileType::RuntimeDefault, ""))), Seccomp::Default);
    assert_eq!(seccomp(with(|s| s.seccomp_profile_path = "runtime/default".into())), Seccomp::Default);
    let own = Seccomp::Profile { json: "{}".into() };
    assert_eq!(seccomp(with(|s| s.seccomp = profile(ProfileType::Localhost, "/good.json"))), own);
    assert_eq!(seccomp(with(|s| s.seccomp_profile_path = "localhost//good.json".into())), own);
    let apparmor = |config: ContainerConfig| of(&config).security.apparmor;
    let named = AppArmor::Profile { name: "p".into() };
    assert_eq!(apparmor(with(|s| s.apparmor = profile(ProfileType::Localhost, "localhost/p"))), named);
    assert_eq!(apparmor(with(|s| s.apparmor_profile = "localhost/p".into())), named);
    assert_eq!(apparmor(with(|s| s.apparmor_profile = "unconfined".into())), AppArmor::Unconfined);
    assert_eq!(apparmor(with(|_| ())), AppArmor::Default);
}

/// "runtime should ignore a seccomp profile … when privileged".
#[test]
fn a_privileged_container_has_no_filter_and_nothing_hidden() {
    let config = with(|s| {
        s.privileged = true;
        s.seccomp = profile(ProfileType::Localhost, "/good.json");
        s.masked_paths = vec!["/proc/kcore".into()];
        s.capabilities = Some(Capability { drop_capabilities: vec!["ALL".into()], ..Default::default() });
    });
    let security = of(&config).security;
    assert_eq!((security.privilege, security.seccomp), (Privilege::Privileged, Seccomp::Unconfined));
    assert!(security.capabilities_drop.is_empty());
    assert_eq!(security.masked_paths, None);
}

#[test]
fn confined_containers_have_what_is_said() {
    let security = of(&with(|s| {
        s.capabilities = Some(Capability {
            add_capabilities: vec!["NET_ADMIN".into()],
            drop_capabilities: vec!["ALL".into()],
            add_ambient_capabilities: vec!["CHOWN".into()],
        });
        s.selinux_options =
            Some(SeLinuxOption { r#type: "t".into(), level: "s0:c1".into(), ..SeLinuxOption::default() });
        s.readonly_paths = vec!["/proc/sys".into()];
    }))
    .security;
    assert_eq!(security.capabilities_add, ["NET_ADMIN"]);
    assert_eq!(security.capabilities_drop, ["ALL"]);
    assert_eq!(security.capabilities_ambient, ["CHOWN"]);
    assert_eq!(security.selinux.map(|label| label.to_string()).as_deref(), Some("::t:s0:c1"));
    assert_eq!(security.masked_paths, Some(Vec::new()));
    assert_eq!(security.readonly_paths, Some(vec!["/proc/sys".into()]));
    // Who says nothing of security at all gets what the core thinks right.
    assert_eq!(of(&ContainerConfig::default()).security.masked_paths, None);
}

#[test]
fn mounts_are_as_the_interface_means_them() {
    let of = |mount: api::Mount| of(&mounting(mount)).mounts.remove(0);
    let usual = of(host("/a", "/etc//hosts/"));
    let expected = Mount {
        missing: MissingSource::DirectoryMade,
        owners: Owners::Host,
        ..Mount::bind("/a", "/etc/hosts", Access::ReadWrite)
    };
    assert_eq!(usual, expected);
    assert_eq!(usual.target.as_os_str(), "/etc/hosts", "files of the runtime give way to the same words");
    let read_only = of(api::Mount { readonly: true, ..host("/a", "/b") });
    assert_eq!((read_only.access, read_only.submounts), (Access::ReadOnly, Submounts::AsOnHost));
    let all = of(api::Mount { readonly: true, recursive_read_only: true, ..host("/a", "/b") });
    assert_eq!((all.access, all.submounts), (Access::ReadOnly, Submounts::Alike));
    let with_more = of(api::Mount {
        selinux_relabel: true,
        propagation: MountPropagation::PropagationHostToContainer.into(),
        mount_options: vec!["noexec".into(), "nodev".into(), "ro".into()],
        ..host("/a", "/b")
    });
    assert_eq!((with_more.relabel, with_more.propagation), (Relabel::Shared, Propagation::Slave));
    assert_eq!(with_more.restrictions, [Restriction::NoExec, Restriction::NoDev].into());
    assert_eq!((with_more.access, with_more.submounts), (Access::ReadOnly, Submounts::AsOnHost));
    let image = of(api::Mount {
        image: Some(api::ImageSpec { image: "sha256:2".into(), ..Default::default() }),
        image_sub_path: "etc".into(),
        readonly: true,
        ..host("", "/b")
    });
    let MountSource::Image(image) = &image.source else { panic!("{image:?}") };
    assert_eq!((image.image.as_str(), image.sub_path.as_deref()), ("sha256:2", Some(Path::new("etc"))));
}

/// kubelet has no order; a volume inside another was hidden by it.
#[test]
fn outer_mounts_come_first() {
    let mounts = vec![host("/1", "/data/in/side"), host("/2", "/other"), host("/3", "/data")];
    let spec = of(&ContainerConfig { mounts, ..ContainerConfig::default() });
    let targets: Vec<_> = spec.mounts.iter().map(|mount| mount.target.to_str().expect("text")).collect();
    assert_eq!(targets, ["/other", "/data", "/data/in/side"]);
}

#[test]
fn owners_are_the_pods_or_given() {
    let range = |host_id| api::IdMapping { host_id, container_id: 0, length: 10 };
    let mapped = |host_id| api::Mount {
        uid_mappings: vec![range(host_id)],
        gid_mappings: vec![range(host_id)],
        ..host("/a", "/b")
    };
    let ids = |host| IdMappings::both([IdMapping { container: 0, host, size: 10 }]);
    let pod = SandboxSpec { user_namespace: UserNamespace::Mapped(ids(100)), ..pod() };
    let owners = |mount| of_pod(&mounting(mount), &pod).expect("good").mounts.remove(0).owners;
    assert_eq!(owners(mapped(100)), Owners::Mapped);
    assert_eq!(owners(mapped(200)), Owners::Given(ids(200)));
    assert_eq!(owners(host("/a", "/b")), Owners::Host);
}

#[test]
fn devices_are_where_they_are_said_to_be() {
    let config = ContainerConfig {
        devices: vec![
            api::Device {
                host_path: "/dev/fuse".into(),
                container_path: "/dev/f".into(),
                permissions: "r".into(),
            },
            api::Device { host_path: "/dev/null".into(), ..Default::default() },
        ],
        cdi_devices: vec![CdiDevice { name: "v.example/c=d".into() }],
        ..ContainerConfig::default()
    };
    let spec = of(&config);
    let seen: Vec<_> = spec
        .devices
        .iter()
        .map(|device| (device.target.as_deref().and_then(Path::to_str), device.access.as_str()))
        .collect();
    assert_eq!(seen, [(Some("/dev/f"), "r"), (Some("/dev/null"), "rwm")]);
    assert_eq!(spec.cdi_devices, ["v.example/c=d"]);
}

#[test]
fn processes_that_are_seen() {
    let target: mainstay::ContainerId = "box".parse().expect("an id");
    let pid = |mode: NamespaceMode, pod_has: PidMode| {
        let options = NamespaceOption { pid: mode.into(), target_id: "box".into(), ..Default::default() };
        let config = with(|s| s.namespace_options = Some(options));
        of_pod(&config, &SandboxSpec { pid: pod_has, ..pod() }).expect("good").pid
    };
    for pod_has in [PidMode::Container, PidMode::Pod, PidMode::Host] {
        assert_eq!(pid(NamespaceMode::Pod, pod_has), ContainerPid::Pod);
        let targeted = ContainerPid::Container { container: target.clone() };
        assert_eq!(pid(NamespaceMode::Target, pod_has), targeted);
    }
    assert_eq!(pid(NamespaceMode::Container, PidMode::Pod), ContainerPid::Own);
    assert_eq!(pid(NamespaceMode::Container, PidMode::Container), ContainerPid::Pod);
    assert_eq!(pid(NamespaceMode::Node, PidMode::Pod), ContainerPid::Host);
    assert_eq!(pid(NamespaceMode::Node, PidMode::Host), ContainerPid::Pod);
}
