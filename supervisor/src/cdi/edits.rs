//! What a CDI file changes of a container.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use mainstay_messages::spec::IdMappings;
use mainstay_messages::{Error, Result};
use oci_spec::runtime::{
    Hook, Hooks, LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType, LinuxNetDevice, Mount, Spec,
};
use serde::Deserialize;

/// Changes, as the file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Edits {
    env: Vec<String>,
    device_nodes: Vec<DeviceNode>,
    net_devices: Vec<NetDevice>,
    mounts: Vec<BindMount>,
    hooks: Vec<EditHook>,
    #[serde(rename = "additionalGids")]
    additional_gids: Vec<u32>,
    intel_rdt: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeviceNode {
    path: PathBuf,
    host_path: Option<PathBuf>,
    #[serde(rename = "type")]
    kind: Option<String>,
    major: Option<i64>,
    minor: Option<i64>,
    file_mode: Option<u32>,
    permissions: Option<String>,
    uid: Option<u32>,
    gid: Option<u32>,
    /// That of the machine's node, as the host counts it, where the file left that to the machine.
    #[serde(skip)]
    host_owner: Option<(u32, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetDevice {
    host_interface_name: String,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindMount {
    host_path: PathBuf,
    container_path: PathBuf,
    #[serde(default)]
    options: Vec<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditHook {
    hook_name: String,
    path: PathBuf,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    timeout: Option<i64>,
}

const HOOK_NAMES: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

impl DeviceNode {
    /// Its owner as the container counts it. What the file says is meant so; the machine's owner stays who it is, and with it
    /// who may do what: the root of a user namespace does not get what is the machine's root's.
    fn owner(&self, ids: Option<&IdMappings>) -> Option<(u32, u32)> {
        if self.uid.is_none() && self.gid.is_none() {
            let (uid, gid) = self.host_owner?;
            return ids.map_or(Some((uid, gid)), |ids| ids.to_container(uid, gid));
        }
        Some((self.uid.unwrap_or(0), self.gid.unwrap_or(0)))
    }
}

impl Edits {
    /// Refuses what cannot be done.
    pub(super) fn check(&self) -> Result<()> {
        if self.intel_rdt.is_some() {
            let reason = "this runtime does not set Intel RDT".to_owned();
            return Err(Error::Unsupported { setting: "CDI_devices: intelRdt".to_owned(), reason });
        }
        if let Some(entry) = self.env.iter().find(|entry| !entry.contains('=')) {
            return Err(Error::invalid("CDI_devices: env", format!("{entry:?}"), "NAME=VALUE"));
        }
        match self.hooks.iter().find(|hook| !HOOK_NAMES.contains(&hook.hook_name.as_str())) {
            None => Ok(()),
            Some(hook) => {
                let expected = format!("one of {}", HOOK_NAMES.join(", "));
                Err(Error::invalid("CDI_devices: hookName", format!("{:?}", hook.hook_name), expected))
            }
        }
    }

    /// Looks up what the file leaves to the machine: kind and numbers of a device.
    pub(super) fn complete(&mut self) -> Result<()> {
        for node in &mut self.device_nodes {
            if node.kind.is_some() && node.major.is_some() && node.minor.is_some() {
                continue;
            }
            let host = node.host_path.as_ref().unwrap_or(&node.path);
            let refuse = |why: String| Error::invalid("CDI_devices: deviceNodes", format!("{host:?}"), why);
            let found =
                fs::metadata(host).map_err(|error| refuse(format!("a device that is there ({error})")))?;
            let kind = match found.file_type() {
                kind if kind.is_block_device() => "b",
                kind if kind.is_char_device() => "c",
                kind if kind.is_fifo() => "p",
                _ => return Err(refuse("a device".to_owned())),
            };
            node.kind.get_or_insert_with(|| kind.to_owned());
            node.major.get_or_insert(i64::from(rustix::fs::major(found.rdev())));
            node.minor.get_or_insert(i64::from(rustix::fs::minor(found.rdev())));
            node.file_mode.get_or_insert(found.mode() & 0o777);
            node.host_owner = Some((found.uid(), found.gid()));
        }
        Ok(())
    }

    /// Puts the changes into a spec. In a pod with a user namespace `ids` are its ids.
    pub(crate) fn apply(&self, spec: &mut Spec, ids: Option<&IdMappings>) {
        if let Some(process) = spec.process_mut() {
            let env = process.env_mut().get_or_insert_default();
            for entry in &self.env {
                let name = entry.split_once('=').map_or(entry.as_str(), |(name, _)| name);
                env.retain(|other| other.split_once('=').is_none_or(|(other, _)| other != name));
                env.push(entry.clone());
            }
            if !self.additional_gids.is_empty() {
                let mut groups = process.user().additional_gids().clone().unwrap_or_default();
                groups.extend(&self.additional_gids);
                groups.sort_unstable();
                groups.dedup();
                process.user_mut().set_additional_gids(Some(groups));
            }
        }
        let mounts = spec.mounts_mut().get_or_insert_default();
        for edit in &self.mounts {
            mounts.retain(|mount| *mount.destination() != edit.container_path);
            let mut mount = Mount::default();
            mount
                .set_destination(edit.container_path.clone())
                .set_source(Some(edit.host_path.clone()))
                .set_typ(Some(edit.kind.clone().unwrap_or_else(|| "bind".to_owned())))
                .set_options(Some(edit.options.clone()));
            mounts.push(mount);
        }
        if !self.mounts.is_empty() {
            mounts.sort_by_key(|mount| mount.destination().components().count());
        }
        self.add_devices(spec, ids);
        self.hooks.iter().for_each(|hook| add_hook(spec, hook));
    }

    fn add_devices(&self, spec: &mut Spec, ids: Option<&IdMappings>) {
        let linux = spec.linux_mut().get_or_insert_default();
        for node in &self.device_nodes {
            let kind = match node.kind.as_deref() {
                Some("b") => LinuxDeviceType::B,
                Some("p") => LinuxDeviceType::P,
                _ => LinuxDeviceType::C,
            };
            // Both are known by now.
            let (major, minor) = (node.major.unwrap_or_default(), node.minor.unwrap_or_default());
            let owner = node.owner(ids);
            let mut device = LinuxDevice::default();
            device
                .set_path(node.path.clone())
                .set_typ(kind)
                .set_major(major)
                .set_minor(minor)
                .set_file_mode(node.file_mode)
                .set_uid(owner.map(|(uid, _)| uid))
                .set_gid(owner.map(|(_, gid)| gid));
            let nodes = linux.devices_mut().get_or_insert_default();
            nodes.retain(|other| *other.path() != node.path);
            nodes.push(device);
            if kind != LinuxDeviceType::P {
                let access =
                    node.permissions.as_deref().filter(|letters| !letters.is_empty()).unwrap_or("rwm");
                let mut rule = LinuxDeviceCgroup::default();
                rule.set_allow(true)
                    .set_typ(Some(kind))
                    .set_major(Some(major))
                    .set_minor(Some(minor))
                    .set_access(Some(access.to_owned()));
                let rules = linux.resources_mut().get_or_insert_default().devices_mut();
                rules.get_or_insert_default().push(rule);
            }
        }
        for edit in &self.net_devices {
            let mut device = LinuxNetDevice::default();
            device.set_name(Some(edit.name.clone()));
            let all = linux.net_devices_mut().get_or_insert_default();
            all.insert(edit.host_interface_name.clone(), device);
        }
    }
}

fn add_hook(spec: &mut Spec, edit: &EditHook) {
    let mut hook = Hook::default();
    hook.set_path(edit.path.clone())
        .set_args((!edit.args.is_empty()).then(|| edit.args.clone()))
        .set_env(Some(edit.env.clone()))
        .set_timeout(edit.timeout);
    let hooks: &mut Hooks = spec.hooks_mut().get_or_insert_default();
    #[allow(deprecated, reason = "hooks of the old kind are still in use")]
    let list = match edit.hook_name.as_str() {
        "prestart" => hooks.prestart_mut(),
        "createRuntime" => hooks.create_runtime_mut(),
        "createContainer" => hooks.create_container_mut(),
        "startContainer" => hooks.start_container_mut(),
        "poststart" => hooks.poststart_mut(),
        _ => hooks.poststop_mut(),
    };
    list.get_or_insert_default().push(hook);
}
