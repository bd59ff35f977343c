//! What plugins have changed of a container, put into its OCI spec.
//!
//! Everything in an [`Adjustment`] is put in, or refused by name; what only the launcher can find out, it refuses itself. Never:
//! decides who may change what (that is the NRI adapter's).

mod process;
mod resources;

use std::path::{Path, PathBuf};

use mainstay_messages::adjustment::{Adjustment, DeviceChange, DeviceNode, Hook, Hooks, MountChange};
use mainstay_messages::spec::IdMappings;
use mainstay_messages::{Error, Result};
use oci_spec::runtime::{
    self as oci, Linux, LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType, LinuxNamespaceType, LinuxNetDevice,
    Mount, Spec,
};

use super::Surroundings;

pub(super) use process::{adjust as adjust_process, environment};

/// The nodes that the launcher makes in every container.
const NODES_OF_ALL: [&str; 6] =
    ["/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];

/// Puts an adjustment into a spec that was made without it. The filter and the annotations are in it already.
pub(super) fn apply(spec: &mut Spec, adjustment: &Adjustment, around: Surroundings<'_>) -> Result<()> {
    let process = spec.process_mut().as_mut();
    let process = process.ok_or_else(|| Error::internal("a container's spec", "it has no process"))?;
    adjust_process(process, adjustment, around.host, around.oom_score)?;
    process.set_env(Some(environment(process.env().as_deref().unwrap_or_default(), &adjustment.env)));
    if let Some(args) = &adjustment.args {
        process.set_args(Some(args.clone()));
    }
    add_hooks(spec, &adjustment.hooks);
    for edits in &around.host.cdi {
        edits.apply(spec, around.pod.ids.as_ref());
    }
    change_mounts(spec, &adjustment.mounts, around.pod.ids.as_ref())?;
    change_namespaces(spec, adjustment)?;
    let linux = linux_of(spec);
    change_devices(linux, &adjustment.devices, around.pod.ids.as_ref())?;
    resources::change(linux.resources_mut().get_or_insert_default(), &adjustment.resources);
    let sysctls = linux.sysctl_mut().get_or_insert_default();
    for (key, value) in &adjustment.sysctls {
        match value {
            Some(value) => drop(sysctls.insert(key.clone(), value.clone())),
            None => drop(sysctls.remove(key)),
        }
    }
    let devices = adjustment.net_devices.iter().map(|(host, name)| {
        let mut device = LinuxNetDevice::default();
        device.set_name(Some(name.clone()));
        (host.clone(), device)
    });
    linux.set_net_devices(Some(devices.collect()).filter(|_| !adjustment.net_devices.is_empty()));
    linux.set_memory_policy(adjustment.memory_policy.as_ref().map(process::memory_policy).transpose()?);
    Ok(())
}

fn linux_of(spec: &mut Spec) -> &mut Linux {
    spec.linux_mut().get_or_insert_default()
}

fn add_hooks(spec: &mut Spec, hooks: &Hooks) {
    if *hooks == Hooks::default() {
        return;
    }
    let all = |hooks: &[Hook]| Some(hooks.iter().map(hook).collect::<Vec<_>>()).filter(|all| !all.is_empty());
    let mut added = oci::Hooks::default();
    #[allow(deprecated, reason = "hooks of the old kind are still in use")]
    added.set_prestart(all(&hooks.prestart));
    added
        .set_create_runtime(all(&hooks.create_runtime))
        .set_create_container(all(&hooks.create_container))
        .set_start_container(all(&hooks.start_container))
        .set_poststart(all(&hooks.poststart))
        .set_poststop(all(&hooks.poststop));
    spec.set_hooks(Some(added));
}

fn hook(from: &Hook) -> oci::Hook {
    let mut hook = oci::Hook::default();
    hook.set_path(from.path.clone())
        .set_args((!from.args.is_empty()).then(|| from.args.clone()))
        .set_env(Some(from.env.clone()))
        .set_timeout(from.timeout_s.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX)));
    hook
}

/// Changed mounts are in the order of their depth, so that none is hidden by one that is made after it.
fn change_mounts(spec: &mut Spec, changes: &[MountChange], ids: Option<&IdMappings>) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let mounts = spec.mounts_mut().get_or_insert_default();
    for change in changes {
        let (MountChange::Remove { destination } | MountChange::Put { destination, .. }) = change;
        mounts.retain(|mount| mount.destination() != destination);
        if let MountChange::Put { kind, source, options, .. } = change {
            let is_shared = |option: &&String| matches!(option.as_str(), "shared" | "rshared");
            if let Some(option) = options.iter().find(is_shared).filter(|_| ids.is_some()) {
                let field = format!("mounts[{destination:?}].options");
                let expected = "private or slave, in a pod with a user namespace";
                return Err(Error::invalid(field, option, expected));
            }
            let mut mount = Mount::default();
            mount
                .set_destination(destination.clone())
                .set_typ(Some(kind.clone()))
                .set_source(Some(PathBuf::from(source)))
                .set_options(Some(options.clone()));
            mounts.push(mount);
        }
    }
    mounts.sort_by_key(|mount| depth(mount.destination()));
    let propagation = |option: &str| {
        changes.iter().any(|change| match change {
            MountChange::Put { options, .. } => options.iter().any(|given| given == option),
            MountChange::Remove { .. } => false,
        })
    };
    // Mounts of the host reach the container through its root alone where that follows the host.
    let root = match () {
        () if propagation("rshared") => Some("rshared"),
        () if propagation("rslave") => Some("rslave"),
        () => None,
    };
    if let Some(root) = root {
        linux_of(spec).set_rootfs_propagation(Some(root.to_owned()));
    }
    Ok(())
}

fn depth(path: &Path) -> usize {
    path.components().count()
}

fn change_namespaces(spec: &mut Spec, adjustment: &Adjustment) -> Result<()> {
    for (kind, path) in &adjustment.namespaces {
        let typ = LinuxNamespaceType::try_from(kind.as_str()).map_err(|_| {
            Error::invalid("linux.namespaces", format!("{kind:?}"), "a kind of namespace as OCI names it")
        })?;
        let all = linux_of(spec).namespaces_mut().get_or_insert_default();
        all.retain(|namespace| namespace.typ() != typ);
        if let Some(path) = path {
            let mut namespace = oci::LinuxNamespace::default();
            namespace.set_typ(typ).set_path((!path.is_empty()).then(|| PathBuf::from(path)));
            all.push(namespace);
        }
        // A name is set in a namespace of the container's own or its pod's, and in nobody else's.
        let is_foreign = path.as_ref().is_none_or(|path| !path.is_empty());
        if typ == LinuxNamespaceType::Uts && is_foreign {
            spec.set_hostname(None);
        }
    }
    Ok(())
}

fn change_devices(linux: &mut Linux, changes: &[DeviceChange], ids: Option<&IdMappings>) -> Result<()> {
    for change in changes {
        let nodes = linux.devices_mut().get_or_insert_default();
        match change {
            DeviceChange::Remove { path } => {
                if NODES_OF_ALL.iter().any(|own| path == Path::new(own)) {
                    return Err(Error::Unsupported {
                        setting: format!("linux.devices[{path:?}]"),
                        reason: "every container has this one".to_owned(),
                    });
                }
                let gone: Vec<LinuxDevice> = nodes.extract_if(.., |node| node.path() == path).collect();
                let rules = linux.resources_mut().get_or_insert_default().devices_mut();
                // Rules of whole kinds of devices stay.
                rules.get_or_insert_default().retain(|rule| {
                    !gone.iter().any(|node| {
                        rule.typ() == Some(node.typ())
                            && (rule.major(), rule.minor()) == (Some(node.major()), Some(node.minor()))
                    })
                });
            }
            DeviceChange::Put(node) => {
                nodes.retain(|other| *other.path() != node.path);
                nodes.push(device(node, ids)?);
                if node.kind != "p" {
                    let rules = linux.resources_mut().get_or_insert_default().devices_mut();
                    rules.get_or_insert_default().push(rule(node));
                }
            }
        }
    }
    Ok(())
}

fn kind(node: &DeviceNode) -> LinuxDeviceType {
    match node.kind.as_str() {
        "b" => LinuxDeviceType::B,
        "p" => LinuxDeviceType::P,
        "u" => LinuxDeviceType::U,
        _ => LinuxDeviceType::C,
    }
}

/// The owner is one of the container's ids, as OCI counts it: its root, where the plugin does not say who.
fn device(node: &DeviceNode, ids: Option<&IdMappings>) -> Result<LinuxDevice> {
    let (uid, gid) = (node.uid.unwrap_or(0), node.gid.unwrap_or(0));
    if ids.is_some_and(|ids| ids.to_host(uid, gid).is_none()) {
        let field = format!("linux.devices[{:?}].uid", node.path);
        return Err(Error::invalid(field, format!("{uid}:{gid}"), "ids of the pod's user namespace"));
    }
    let mut device = LinuxDevice::default();
    device
        .set_path(node.path.clone())
        .set_typ(kind(node))
        .set_major(node.major)
        .set_minor(node.minor)
        .set_file_mode(node.mode)
        .set_uid(Some(uid))
        .set_gid(Some(gid));
    Ok(device)
}

/// What may be done with a device follows from its node's permissions: what nobody may do by those is not allowed either.
fn rule(node: &DeviceNode) -> LinuxDeviceCgroup {
    let mode = node.mode.unwrap_or(0o666);
    let letters = [("r", mode & 0o444 != 0), ("w", mode & 0o222 != 0), ("m", true)];
    let access: String =
        letters.iter().filter(|(_, is_allowed)| *is_allowed).map(|(letter, _)| *letter).collect();
    let mut rule = LinuxDeviceCgroup::default();
    rule.set_allow(true)
        .set_typ(
            Some(kind(node)).map(|kind| if kind == LinuxDeviceType::U { LinuxDeviceType::C } else { kind }),
        )
        .set_major(Some(node.major))
        .set_minor(Some(node.minor))
        .set_access(Some(access));
    rule
}
