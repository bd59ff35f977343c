//! The spec of a container against recorded ones, and what is refused.

use std::collections::BTreeMap;

use mainstay_messages::image::ImageId;
use mainstay_messages::record::ContainerRecord;
use mainstay_messages::spec::{
    ContainerPid, CpuTime, IdMapping, LayeredRoot, Mount, Network, Owners, PidMode, Propagation, Resources,
    Rlimit, Rootfs, Terminal, WindowSize,
};
use mainstay_messages::{ContainerSpec, Error, ExecSpec, SandboxSpec, Timestamp};
use oci_spec::runtime::{Capabilities, Capability};
use rstest::rstest;
use serde_json::Value;

use super::*;
use crate::paths::Directories;

mod adjusted;

fn host() -> HostFacts {
    HostFacts {
        capabilities: capabilities::from_mask((1 << 41) - 1),
        oom_score_floor: -1000,
        ..HostFacts::default()
    }
}

/// A host like a container or a test machine: no CAP_SYS_RESOURCE.
fn weak_host() -> HostFacts {
    let mut host = host();
    host.capabilities.remove(&Capability::SysResource);
    host.oom_score_floor = 100;
    host.hard_limits = BTreeMap::from([("NOFILE".to_owned(), 1024)]);
    host
}

fn pod() -> PodNamespaces {
    PodNamespaces {
        network: Some("/proc/7/fd/10".into()),
        ipc: Some("/proc/7/fd/11".into()),
        uts: Some("/proc/7/fd/12".into()),
        pid: None,
        user: None,
        ids: None,
        shm: Some("/run/m/p/pod/shm".into()),
    }
}

fn sandbox() -> SandboxRecord {
    let spec = SandboxSpec::new("web".parse().expect("a good name"));
    SandboxRecord::intent("pod".parse().expect("a good id"), spec, Timestamp(1))
}

fn container(change: impl FnOnce(&mut ContainerSpec)) -> ContainerRecord {
    let mut spec = ContainerSpec::new("server".parse().expect("a good name"), ["httpd", "-f"]);
    change(&mut spec);
    spec.check().expect("a spec as callers may give it");
    let (id, sandbox) = ("box".parse().expect("a good id"), "pod".parse().expect("a good id"));
    ContainerRecord::intent(id, sandbox, spec, "/log".into(), Timestamp(1))
}

fn spec_on(host: &HostFacts, record: &ContainerRecord) -> Result<Spec> {
    spec_in(&pod(), host, record)
}

fn spec_in(pod: &PodNamespaces, host: &HostFacts, record: &ContainerRecord) -> Result<Spec> {
    let layer = Directories::new("/run", "/lib").layer(&record.id);
    let around = Surroundings {
        layer: &layer,
        pod,
        host,
        oom_score: OomScorePolicy::Refuse,
        pod_cgroup: "/mainstay/pod",
        other_pid: None,
    };
    container_spec(record, &sandbox(), around)
}

fn spec(change: impl FnOnce(&mut ContainerSpec)) -> Result<Spec> {
    spec_on(&host(), &container(change))
}

/// The spec as JSON, with sets in order, and without the filter, which has tests of its own.
fn json(spec: &Spec) -> Value {
    let mut value = serde_json::to_value(spec).expect("writable");
    for set in value["process"]["capabilities"].as_object_mut().expect("sets").values_mut() {
        let names = set.as_array_mut().expect("a set");
        names.sort_by_key(|name| name.as_str().map(str::to_owned));
    }
    let linux = value["linux"].as_object_mut().expect("linux");
    linux.remove("seccomp");
    value
}

fn usual(_: &mut ContainerSpec) {}

fn with_everything(spec: &mut ContainerSpec) {
    spec.rootfs = Rootfs::CopyOnWrite { path: "/srv/root".into() };
    spec.process.env = BTreeMap::from([("PATH".into(), "/bin".into()), ("LANG".into(), "C".into())]);
    spec.process.workdir = Some("/srv".into());
    spec.process.user = Some("www-data:1000".into());
    spec.process.groups = vec![7, 8];
    spec.process.terminal = Terminal::Tty(WindowSize { rows: 40, columns: 120 });
    spec.mounts =
        vec![Mount::bind("/srv/data", "/data", Access::ReadOnly), Mount::tmpfs("/dev/shm", Some(4096))];
    spec.resources = Resources {
        memory_bytes: Some(64 << 20),
        cpu_time: Some(CpuTime::of_millis(1500)),
        cpu_shares: Some(512),
        cpuset_cpus: Some("0-1".into()),
        cpuset_mems: Some("0".into()),
        pids: Some(100),
        ..Resources::default()
    };
    spec.security.capabilities_drop = vec!["ALL".into()];
    spec.security.capabilities_add = vec!["net_admin".into(), "CAP_CHOWN".into()];
    spec.security.new_privileges = mainstay_messages::spec::NewPrivileges::Forbidden;
    spec.security.root = Access::ReadOnly;
    spec.security.masked_paths = Some(vec!["/proc/kcore".into()]);
    spec.security.readonly_paths = Some(Vec::new());
    spec.oom_score_adj = Some(500);
    spec.rlimits = vec![Rlimit { name: "NOFILE".into(), soft: 512, hard: 1024 }];
}

#[rstest]
#[case(usual, include_str!("tests/usual.json"))]
#[case(with_everything, include_str!("tests/with_everything.json"))]
fn is_as_recorded(#[case] change: fn(&mut ContainerSpec), #[case] recorded: &str) {
    let made = json(&spec(change).expect("good"));
    let recorded: Value = serde_json::from_str(recorded).expect("JSON");
    assert_eq!(made, recorded, "{}", serde_json::to_string_pretty(&made).expect("writable"));
}

#[test]
fn a_privileged_container_is_not_confined() {
    let spec = spec(|spec| spec.security.privilege = Privilege::Privileged).expect("good");
    let linux = spec.linux().as_ref().expect("linux");
    assert!(linux.seccomp().is_none());
    assert_eq!(linux.masked_paths().as_deref(), Some(&[][..]));
    let rules = linux.resources().as_ref().and_then(|r| r.devices().clone()).expect("rules");
    assert!(rules.len() == 1 && rules[0].allow() && rules[0].typ().is_none());
    let sets = spec.process().as_ref().and_then(|process| process.capabilities().clone()).expect("sets");
    assert_eq!(sets.permitted().as_ref().expect("a set").len(), 41);
}

/// A pod with a user namespace of `size` ids.
fn mapped_pod(size: u32) -> PodNamespaces {
    let ids = IdMappings::both([IdMapping { container: 0, host: 100_000, size }]);
    PodNamespaces { user: Some("/proc/7/fd/13".into()), ids: Some(ids), ..pod() }
}

#[test]
fn in_a_user_namespace_ids_and_mounts_are_mapped() {
    let kept = Mount { owners: Owners::Host, ..Mount::bind("/srv", "/kept", Access::ReadOnly) };
    let record =
        container(|spec| spec.mounts = vec![Mount::bind("/srv", "/data", Access::ReadWrite), kept.clone()]);
    let made = json(&spec_in(&mapped_pod(65_536), &host(), &record).expect("good"));
    let mapping = serde_json::json!([{ "containerID": 0, "hostID": 100_000, "size": 65_536 }]);
    assert_eq!((&made["linux"]["uidMappings"], &made["linux"]["gidMappings"]), (&mapping, &mapping));
    let namespaces = made["linux"]["namespaces"].as_array().expect("a list");
    assert!(namespaces.contains(&serde_json::json!({ "type": "user", "path": "/proc/7/fd/13" })));
    let options = |made: &Value, target: &str| {
        let mounts = made["mounts"].as_array().expect("a list");
        mounts.iter().find(|mount| mount["destination"] == target).expect("mounted")["options"].clone()
    };
    assert_eq!(options(&made, "/data"), serde_json::json!(["rbind", "rprivate", "rw", "ridmap"]));
    assert_eq!(options(&made, "/kept"), serde_json::json!(["rbind", "rprivate", "ro", "rro"]));
    let has_group =
        |made: &Value| options(made, "/dev/pts").as_array().expect("a list").contains(&"gid=5".into());
    assert!(has_group(&made));
    let made = json(&spec_in(&mapped_pod(5), &host(), &record).expect("good"));
    assert!(!has_group(&made), "there is no group 5");
    let shared = container(|spec| {
        spec.mounts =
            vec![Mount { propagation: Propagation::Shared, ..Mount::bind("/srv", "/a", Access::ReadWrite) }];
    });
    let refused = spec_in(&mapped_pod(10), &host(), &shared).expect_err("it would mount on the host");
    assert!(refused.to_string().starts_with("mounts[0].propagation"), "{refused}");
}

/// The root of a user namespace who may use any device is root on the host, by a node that an image brings.
#[test]
fn in_a_user_namespace_a_privileged_container_gets_no_devices_but_those_it_names() {
    let mut host = host();
    let node = |path: &str, gid: u32| {
        let mut node = oci_spec::runtime::LinuxDevice::default();
        node.set_path(path.into()).set_uid(Some(100_007)).set_gid(Some(gid));
        node
    };
    host.devices = vec![node("/dev/sda", 0)];
    host.named_devices = vec![vec![node("/dev/fuse", 100_008)], vec![node("/dev/dri", 44)]];
    let record = container(|spec| {
        spec.security.privilege = Privilege::Privileged;
        let device = |path: &str| mainstay_messages::spec::Device {
            path: path.into(),
            target: None,
            access: "rw".into(),
        };
        spec.devices = vec![device("/dev/fuse"), device("/dev/dri")];
    });
    let spec = spec_in(&mapped_pod(65_536), &host, &record).expect("good");
    let linux = spec.linux().as_ref().expect("linux");
    let devices = linux.devices().as_deref().expect("devices");
    let owners: Vec<_> = devices.iter().map(|device| (device.uid(), device.gid())).collect();
    assert_eq!(owners, [(Some(7), Some(8)), (None, None)], "an owner that is not mapped is the host's");
    let rules = linux.resources().as_ref().and_then(|r| r.devices().clone()).expect("rules");
    assert!(!rules.iter().any(|rule| rule.allow() && rule.typ().is_none()), "not all of them");
}

#[test]
fn a_confined_container_has_the_filter_unless_it_says_no() {
    let filter = |spec: Spec| spec.linux().as_ref().and_then(|linux| linux.seccomp().clone());
    assert!(filter(spec(usual).expect("good")).is_some());
    assert!(filter(spec(|spec| spec.security.seccomp = Seccomp::Unconfined).expect("good")).is_none());
}

#[rstest]
#[case(PidMode::Container, ContainerPid::Pod, None, Some(None))]
#[case(PidMode::Pod, ContainerPid::Pod, Some("/proc/7/fd/13"), Some(Some("/proc/7/fd/13")))]
#[case(PidMode::Host, ContainerPid::Pod, None, None)]
#[case(PidMode::Pod, ContainerPid::Own, Some("/proc/7/fd/13"), Some(None))]
#[case(PidMode::Pod, ContainerPid::Host, Some("/proc/7/fd/13"), None)]
#[case(PidMode::Host, ContainerPid::Own, None, Some(None))]
fn pid_namespaces(
    #[case] mode: PidMode,
    #[case] own: ContainerPid,
    #[case] held: Option<&str>,
    #[case] found: Option<Option<&str>>,
) {
    let pod = PodNamespaces { pid: held.map(Into::into), ..pod() };
    let list = namespaces::of(mode, &own, &pod, None);
    let pid = list.iter().find(|namespace| namespace.typ() == oci_spec::runtime::LinuxNamespaceType::Pid);
    assert_eq!(pid.map(|namespace| namespace.path().clone()), found.map(|path| path.map(Into::into)));
}

/// What the caller mounts may lie inside a volume, and a volume of `/etc` must not hide the files that the runtime puts there.
#[test]
fn volumes_come_before_the_files_of_the_runtime_and_the_mounts_of_the_caller() {
    let mut record =
        container(|spec| spec.mounts = vec![Mount::bind("/srv", "/data/inside", Access::ReadOnly)]);
    record.spec.rootfs = Rootfs::Layers(LayeredRoot {
        image: ImageId("sha256:1".to_owned()),
        layers: vec!["/l".into()],
        volumes: vec!["/data".into(), "/etc".into()],
    });
    let layer = Directories::new("/run", "/lib").layer(&record.id);
    let names = [NameFile { name: "hosts", target: "/etc/hosts", text: String::new() }];
    let ids = IdMapping { container: 0, host: 100_000, size: 65_536 };
    let ids = Some(IdMappings { uids: vec![ids], gids: vec![ids] });
    let (host, pod) = (host(), PodNamespaces { ids, ..pod() });
    let around = Surroundings {
        layer: &layer,
        pod: &pod,
        host: &host,
        oom_score: OomScorePolicy::Refuse,
        pod_cgroup: "/mainstay/pod",
        other_pid: None,
    };
    let mounts = mounts::of(&record.spec, around, &names);
    let own: Vec<_> = mounts.iter().map(|mount| mount.destination().display().to_string()).collect();
    assert!(own.ends_with(&["/data", "/etc", "/etc/hosts", "/data/inside"].map(str::to_owned)), "{own:?}");
    let volume = mounts.iter().find(|mount| mount.destination() == Path::new("/etc")).expect("there");
    assert_eq!(volume.source().as_deref(), Some(layer.volume(1).as_path()));
    let options = volume.options().clone().expect("some");
    assert_eq!(options, ["rbind", "rprivate", "rw", "ridmap"]);
}

/// A pod on the host's network has no network namespace to join, and must not get a new one.
#[test]
fn the_hosts_network_is_no_namespace() {
    let mut sandbox = sandbox();
    sandbox.spec.network = Network::Host;
    let (pod, host) = (PodNamespaces { network: None, ..pod() }, host());
    let record = container(usual);
    let layer = Directories::new("/run", "/lib").layer(&record.id);
    let around = Surroundings {
        layer: &layer,
        pod: &pod,
        host: &host,
        oom_score: OomScorePolicy::Clamp,
        pod_cgroup: "/mainstay/pod",
        other_pid: None,
    };
    let spec = container_spec(&record, &sandbox, around).expect("good");
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().clone()).expect("a list");
    assert!(
        namespaces.iter().all(|namespace| namespace.typ() != oci_spec::runtime::LinuxNamespaceType::Network)
    );
}

#[rstest]
#[case(&[], &[], &["CHOWN", "KILL"], &["SYS_ADMIN", "NET_ADMIN"])]
#[case(&["NET_ADMIN"], &["CHOWN"], &["NET_ADMIN", "KILL"], &["CHOWN"])]
#[case(&["ALL"], &["SYS_ADMIN"], &["NET_ADMIN", "BPF"], &["SYS_ADMIN"])]
#[case(&["chown"], &["all"], &["CHOWN"], &["KILL", "NET_RAW"])]
#[case(&["CHOWN"], &["CAP_CHOWN"], &["CHOWN"], &[])]
fn capabilities_are_added_and_dropped(
    #[case] add: &[&str],
    #[case] drop: &[&str],
    #[case] has: &[&str],
    #[case] lacks: &[&str],
) {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    let security =
        Security { capabilities_add: words(add), capabilities_drop: words(drop), ..Security::default() };
    let set = capabilities::of(&security, &host().capabilities).expect("good");
    let held = |name: &&str| set.iter().any(|capability| capability.to_string() == **name);
    assert!(has.iter().all(held) && !lacks.iter().any(held), "{set:?}");
}

#[test]
fn an_unknown_capability_is_named() {
    let error = spec(|spec| spec.security.capabilities_add = vec!["CHOWN".into(), "NET_ADMIM".into()]);
    let error = error.expect_err("a typing error");
    assert!(matches!(error, Error::InvalidArgument { .. }));
    let text = error.to_string();
    assert!(text.contains("capabilities_add[1]") && text.contains("NET_ADMIM"), "{text}");
}

#[rstest]
#[case(|spec: &mut ContainerSpec| spec.security.capabilities_add = vec!["SYS_RESOURCE".into()], "capabilities_add[0]")]
#[case(|spec: &mut ContainerSpec| spec.oom_score_adj = Some(0), "oom_score_adj")]
#[case(
    |spec: &mut ContainerSpec| spec.rlimits = vec![Rlimit { name: "NOFILE".into(), soft: 1, hard: 4096 }],
    "rlimits.NOFILE"
)]
fn what_the_machine_cannot_honour_is_refused(#[case] change: fn(&mut ContainerSpec), #[case] setting: &str) {
    let error = spec_on(&weak_host(), &container(change)).expect_err("not on this host");
    assert!(matches!(&error, Error::Unsupported { setting: named, .. } if named == setting), "{error}");
}

/// A machine without CAP_SYS_RESOURCE gave no container at all, since the default of 0 was below what it may set.
#[test]
fn defaults_are_what_the_machine_can_do() {
    let process =
        spec_on(&weak_host(), &container(usual)).expect("good").process().clone().expect("a process");
    assert_eq!(process.oom_score_adj(), Some(100));
    let held: Capabilities =
        process.capabilities().as_ref().and_then(|sets| sets.bounding().clone()).expect("a set");
    assert_eq!(held, capabilities::DEFAULT.into_iter().collect());
    let all = spec_on(&weak_host(), &container(|spec| spec.security.capabilities_add = vec!["ALL".into()]));
    assert!(all.is_ok(), "ALL is all that there is");
}

#[test]
fn an_exec_is_as_its_container_where_it_does_not_say() {
    let record = container(with_everything);
    let mut exec = ExecSpec::new(["id"]);
    exec.process.env = BTreeMap::from([("LANG".into(), "de".into())]);
    let process = exec_process(&record, &exec, &host(), OomScorePolicy::Refuse).expect("good");
    assert_eq!(process.cwd(), Path::new("/srv"));
    assert_eq!(process.user().username().as_deref(), Some("www-data:1000"));
    assert_eq!(process.user().additional_gids().as_deref(), Some(&[7, 8][..]));
    assert_eq!(process.env().as_deref(), Some(&["LANG=de".to_owned(), "PATH=/bin".to_owned()][..]));
    assert_eq!(process.terminal(), Some(false));
    assert_eq!(process.no_new_privileges(), Some(true));
    assert_eq!(process.oom_score_adj(), Some(500));

    exec.process.user = Some("0".into());
    exec.process.workdir = Some("/".into());
    let process = exec_process(&record, &exec, &host(), OomScorePolicy::Refuse).expect("good");
    assert_eq!(process.user().username().as_deref(), Some("0"));
    // The groups of another user are not root's.
    assert_eq!(process.user().additional_gids().as_deref(), Some(&[][..]));
    assert_eq!(process.cwd(), Path::new("/"));
}
