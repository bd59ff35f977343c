//! Pods and containers as plugins see them, from our records. What only the machine knows comes as [`PodFacts`].
//!
//! The mounts, devices and namespaces that every container gets are not listed: only what was asked for, and what plugins changed.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use mainstay_messages::ExitStatus;
use mainstay_messages::adjustment::{Adjustment, DeviceChange, DeviceNode, MountChange};
use mainstay_messages::network::PodNetwork;
use mainstay_messages::process::OomVerdict;
use mainstay_messages::record::{ContainerPhase, ContainerRecord, Paused, SandboxRecord};
use mainstay_messages::spec::{
    Access, ImageMount, LayeredMount, Mount, MountSource, Propagation, Rootfs, Seccomp, Submounts,
};
use mainstay_nri_api as api;
use mainstay_nri_api::{ContainerState, MessageField, OptionalFileMode, OptionalInt, OptionalUInt32};

use super::limits::described_limits;

/// The kind of a network namespace, as OCI names it.
const NETWORK_NAMESPACE: &str = "network";
/// The label that names a pod's Kubernetes namespace.
const NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
/// The label that has a pod's Kubernetes uid.
const UID_LABEL: &str = "io.kubernetes.pod.uid";

/// What a runtime knows of a pod beside its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its cgroup, as in `/mainstay/<pod>`.
    pub cgroup: String,
    /// Its addresses.
    pub ips: Vec<String>,
    /// Its namespaces by their kind as OCI names it, as paths.
    pub namespaces: BTreeMap<String, String>,
    /// The Kubernetes namespace, where there is one.
    pub namespace: String,
    /// The Kubernetes uid, where there is one.
    pub uid: String,
}

impl PodFacts {
    /// What follows from a pod's record, and its cgroup. The network is that of the record: none before it is made.
    pub fn of(record: &SandboxRecord, cgroup: String) -> Self {
        let network = record.network.as_ref();
        let path = |network: &PodNetwork| network.namespace.to_string_lossy().into_owned();
        let label = |key: &str| record.spec.labels.get(key).cloned().unwrap_or_default();
        let identity = record.spec.identity.as_ref();
        Self {
            cgroup,
            ips: network.iter().flat_map(|network| &network.ips).map(|own| own.ip.to_string()).collect(),
            namespaces: network
                .map(|network| (NETWORK_NAMESPACE.to_owned(), path(network)))
                .into_iter()
                .collect(),
            namespace: identity.map_or_else(|| label(NAMESPACE_LABEL), |known| known.namespace.clone()),
            uid: identity.map_or_else(|| label(UID_LABEL), |known| known.uid.clone()),
        }
    }
}

/// A pod.
pub fn pod(record: &SandboxRecord, facts: &PodFacts) -> api::PodSandbox {
    let namespaces = facts.namespaces.iter().map(|(kind, path)| api::LinuxNamespace {
        type_: kind.clone(),
        path: path.clone(),
        ..Default::default()
    });
    let limits = described_limits(&record.spec.resources);
    let linux = api::LinuxPodSandbox {
        pod_resources: MessageField::some(limits.clone()),
        cgroup_parent: match &record.spec.cgroup_parent {
            Some(parent) => parent.to_string(),
            None => facts.cgroup.clone(),
        },
        cgroups_path: facts.cgroup.clone(),
        namespaces: namespaces.collect(),
        resources: MessageField::some(limits),
        ..Default::default()
    };
    api::PodSandbox {
        id: record.id.as_str().to_owned(),
        name: match &record.spec.identity {
            Some(identity) => identity.name.clone(),
            None => record.name().as_str().to_owned(),
        },
        uid: facts.uid.clone(),
        namespace: facts.namespace.clone(),
        labels: map(&record.spec.labels),
        annotations: map(&record.spec.annotations),
        linux: MessageField::some(linux),
        pid: record.shim.as_ref().map_or(0, |shim| shim.process.pid),
        ips: facts.ips.clone(),
        ..Default::default()
    }
}

/// A container, with what plugins have changed of it.
pub fn container(record: &ContainerRecord, facts: &PodFacts) -> api::Container {
    let none = Adjustment::default();
    let adjustment = record.adjustment.as_deref().unwrap_or(&none);
    let spec = &record.spec;
    let exit = record.exit.as_ref();
    let image = match &spec.rootfs {
        Rootfs::Image(root) => root.image.to_string(),
        Rootfs::Layers(root) => root.image.to_string(),
        Rootfs::Host | Rootfs::Directory { .. } | Rootfs::CopyOnWrite { .. } => String::new(),
    };
    api::Container {
        id: record.id.as_str().to_owned(),
        pod_sandbox_id: record.sandbox.as_str().to_owned(),
        name: match &spec.identity {
            Some(identity) => identity.name.clone(),
            None => record.name().as_str().to_owned(),
        },
        state: state(record).into(),
        labels: map(&spec.labels),
        annotations: record.annotations().into_iter().collect(),
        args: adjustment.args.clone().unwrap_or_else(|| spec.process.command.clone()),
        env: env(&spec.process.env, adjustment),
        mounts: mounts(&spec.mounts, adjustment),
        hooks: MessageField::some(hooks(adjustment)),
        linux: MessageField::some(linux(record, adjustment, facts)),
        pid: record.process.as_ref().map_or(0, |process| process.pid),
        rlimits: rlimits(record, adjustment),
        created_at: nanos(Some(record.created_at.0)),
        started_at: nanos(record.started_at.map(|time| time.0)),
        finished_at: nanos(exit.map(|exit| exit.at.0)),
        exit_code: exit.map_or(0, |exit| i32::try_from(exit.code()).unwrap_or(i32::MAX)),
        status_reason: exit.map_or_else(String::new, |exit| match (&exit.status, exit.oom) {
            (_, OomVerdict::Killed) => "OOMKilled".to_owned(),
            (ExitStatus::Exited { code: 0 }, _) => "Completed".to_owned(),
            _ => "Error".to_owned(),
        }),
        status_message: exit.map_or_else(String::new, ToString::to_string),
        cdi_devices: adjustment
            .cdi_devices
            .iter()
            .map(|name| api::CDIDevice { name: name.clone(), ..Default::default() })
            .collect(),
        user: user(record),
        image: (!image.is_empty()).then(|| api::Image { name: image, ..Default::default() }).into(),
        ..Default::default()
    }
}

fn state(record: &ContainerRecord) -> ContainerState {
    match (record.phase, record.paused) {
        (ContainerPhase::Running | ContainerPhase::Stopping, Paused::Yes) => ContainerState::CONTAINER_PAUSED,
        (ContainerPhase::Running | ContainerPhase::Stopping, Paused::No) => ContainerState::CONTAINER_RUNNING,
        (ContainerPhase::Creating | ContainerPhase::Created | ContainerPhase::Starting, _) => {
            ContainerState::CONTAINER_CREATED
        }
        (ContainerPhase::Exited | ContainerPhase::Removing, _) => ContainerState::CONTAINER_STOPPED,
        (ContainerPhase::Unknown, _) => ContainerState::CONTAINER_UNKNOWN,
    }
}

fn map(own: &BTreeMap<String, String>) -> HashMap<String, String> {
    own.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn nanos(time: Option<u64>) -> i64 {
    time.map_or(0, |time| i64::try_from(time).unwrap_or(i64::MAX))
}

fn env(own: &BTreeMap<String, String>, adjustment: &Adjustment) -> Vec<String> {
    let is_changed = |name: &String| adjustment.env.iter().any(|(changed, _)| changed == name);
    let kept =
        own.iter().filter(|(name, _)| !is_changed(name)).map(|(name, value)| format!("{name}={value}"));
    let set = adjustment.env.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
    kept.chain(set).collect()
}

fn mounts(own: &[Mount], adjustment: &Adjustment) -> Vec<api::Mount> {
    let kept = own.iter().filter(|mount| !adjustment.changes_mount(&mount.target)).map(own_mount);
    let set = adjustment.mounts.iter().filter_map(|change| match change {
        MountChange::Remove { .. } => None,
        MountChange::Put { destination, kind, source, options } => Some(api::Mount {
            destination: text(destination),
            type_: kind.clone(),
            source: source.clone(),
            options: options.clone(),
            ..Default::default()
        }),
    });
    kept.chain(set).collect()
}

fn own_mount(mount: &Mount) -> api::Mount {
    let (kind, source, mut options) = match &mount.source {
        MountSource::Bind { path } => {
            let propagation = match mount.propagation {
                Propagation::Private => "rprivate",
                Propagation::Slave => "rslave",
                Propagation::Shared => "rshared",
            };
            let bind = if mount.submounts == Submounts::Absent { "bind" } else { "rbind" };
            ("bind", text(path), vec![bind.to_owned(), propagation.to_owned()])
        }
        MountSource::Image(ImageMount { image, .. }) => ("image", image.to_string(), Vec::new()),
        MountSource::Layers(LayeredMount { image, .. }) => ("image", image.to_string(), Vec::new()),
        MountSource::Tmpfs { size_bytes } => {
            ("tmpfs", "tmpfs".to_owned(), size_bytes.iter().map(|size| format!("size={size}")).collect())
        }
    };
    let of_image = matches!(mount.source, MountSource::Image(_) | MountSource::Layers(_));
    options.push(if of_image || mount.access == Access::ReadOnly { "ro" } else { "rw" }.to_owned());
    api::Mount {
        destination: text(&mount.target),
        type_: kind.to_owned(),
        source,
        options,
        ..Default::default()
    }
}

fn hooks(adjustment: &Adjustment) -> api::Hooks {
    let all = |hooks: &[mainstay_messages::adjustment::Hook]| -> Vec<api::Hook> {
        let hook = |hook: &mainstay_messages::adjustment::Hook| api::Hook {
            path: text(&hook.path),
            args: hook.args.clone(),
            env: hook.env.clone(),
            timeout: hook
                .timeout_s
                .map(|value| OptionalInt {
                    value: i64::try_from(value).unwrap_or(i64::MAX),
                    ..Default::default()
                })
                .into(),
            ..Default::default()
        };
        hooks.iter().map(hook).collect()
    };
    let hooks = &adjustment.hooks;
    api::Hooks {
        prestart: all(&hooks.prestart),
        create_runtime: all(&hooks.create_runtime),
        create_container: all(&hooks.create_container),
        start_container: all(&hooks.start_container),
        poststart: all(&hooks.poststart),
        poststop: all(&hooks.poststop),
        ..Default::default()
    }
}

fn rlimits(record: &ContainerRecord, adjustment: &Adjustment) -> Vec<api::POSIXRlimit> {
    let is_changed = |name: &String| adjustment.rlimits.iter().any(|changed| changed.name == *name);
    let kept = record.spec.rlimits.iter().filter(|limit| !is_changed(&limit.name));
    let limits = kept.chain(&adjustment.rlimits).map(|limit| api::POSIXRlimit {
        type_: format!("RLIMIT_{}", limit.name),
        soft: limit.soft,
        hard: limit.hard,
        ..Default::default()
    });
    limits.collect()
}

/// Known before the container's files are read where it is a number.
fn user(record: &ContainerRecord) -> MessageField<api::User> {
    let process = &record.spec.process;
    let text = process.user.as_deref().unwrap_or("0");
    let (user, group) = text.split_once(':').unwrap_or((text, "0"));
    let (Ok(uid), Ok(gid)) = (user.parse(), group.parse()) else { return MessageField::none() };
    MessageField::some(api::User { uid, gid, additional_gids: process.groups.clone(), ..Default::default() })
}

fn linux(record: &ContainerRecord, adjustment: &Adjustment, facts: &PodFacts) -> api::LinuxContainer {
    let own = facts.namespaces.iter().filter(|(kind, _)| !adjustment.namespaces.contains_key(*kind));
    let changed = adjustment.namespaces.iter().filter_map(|(kind, path)| Some((kind, path.as_ref()?)));
    let namespaces = own.chain(changed).map(|(kind, path)| api::LinuxNamespace {
        type_: kind.clone(),
        path: path.clone(),
        ..Default::default()
    });
    let devices = adjustment.devices.iter().filter_map(|change| match change {
        DeviceChange::Remove { .. } => None,
        DeviceChange::Put(node) => Some(device(node)),
    });
    let mut resources = described_limits(record.limits());
    resources.unified = map(&adjustment.resources.unified);
    let score = adjustment.oom_score_adj.or(record.spec.oom_score_adj);
    use api::security_profile::ProfileType;
    let (profile_type, localhost_ref) = match record.spec.security.seccomp {
        Seccomp::Default => (ProfileType::RUNTIME_DEFAULT, ""),
        Seccomp::Unconfined => (ProfileType::UNCONFINED, ""),
        Seccomp::Profile { .. } => (ProfileType::LOCALHOST, "given"),
    };
    let seccomp_profile = api::SecurityProfile {
        profile_type: profile_type.into(),
        localhost_ref: localhost_ref.to_owned(),
        ..Default::default()
    };
    let sysctl = adjustment.sysctls.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
    let net_devices = adjustment
        .net_devices
        .iter()
        .map(|(host, name)| (host.clone(), api::LinuxNetDevice { name: name.clone(), ..Default::default() }));
    api::LinuxContainer {
        namespaces: namespaces.collect(),
        devices: devices.collect(),
        resources: MessageField::some(resources),
        oom_score_adj: score
            .map(|score| OptionalInt { value: i64::from(score), ..Default::default() })
            .into(),
        cgroups_path: format!("{}/{}", facts.cgroup, record.id.as_str()),
        seccomp_profile: MessageField::some(seccomp_profile),
        sysctl: sysctl.collect(),
        net_devices: net_devices.collect(),
        ..Default::default()
    }
}

fn device(node: &DeviceNode) -> api::LinuxDevice {
    let id = |id: Option<u32>| -> MessageField<OptionalUInt32> {
        id.map(|value| OptionalUInt32 { value, ..Default::default() }).into()
    };
    api::LinuxDevice {
        path: text(&node.path),
        type_: node.kind.clone(),
        major: node.major,
        minor: node.minor,
        file_mode: node.mode.map(|value| OptionalFileMode { value, ..Default::default() }).into(),
        uid: id(node.uid),
        gid: id(node.gid),
        ..Default::default()
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
