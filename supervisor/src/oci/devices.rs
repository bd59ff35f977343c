//! Which devices of the host a container gets, and which it may use.

use std::path::Path;

use mainstay_messages::spec::{ContainerSpec, Device, DeviceKind, DeviceRule, Privilege};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};

use crate::host::HostFacts;

/// The nodes that are made in the container: all of the machine's for a privileged one, and those that the spec names.
pub(super) fn nodes(spec: &ContainerSpec, host: &HostFacts) -> Option<Vec<LinuxDevice>> {
    let mut nodes = match spec.security.privilege {
        Privilege::Privileged => host.devices.clone(),
        Privilege::Confined => Vec::new(),
    };
    for (given, found) in spec.devices.iter().zip(&host.named_devices) {
        let mut node = found.clone();
        node.set_path(target(given).to_owned());
        nodes.retain(|other| other.path() != node.path());
        nodes.push(node);
    }
    (!nodes.is_empty() || spec.security.privilege == Privilege::Privileged).then_some(nodes)
}

/// What the container may do with the devices that its spec names, and with those of its rules.
pub(super) fn rules(spec: &ContainerSpec, host: &HostFacts) -> Vec<LinuxDeviceCgroup> {
    let named = spec
        .devices
        .iter()
        .zip(&host.named_devices)
        .map(|(given, found)| rule(found.typ(), Some(found.major()), Some(found.minor()), &given.access));
    let general = spec.device_rules.iter().map(|given: &DeviceRule| {
        let kind = match given.kind {
            DeviceKind::All => LinuxDeviceType::A,
            DeviceKind::Character => LinuxDeviceType::C,
            DeviceKind::Block => LinuxDeviceType::B,
        };
        rule(kind, given.major.map(i64::from), given.minor.map(i64::from), &given.access)
    });
    named.chain(general).collect()
}

fn rule(kind: LinuxDeviceType, major: Option<i64>, minor: Option<i64>, access: &str) -> LinuxDeviceCgroup {
    let mut rule = LinuxDeviceCgroup::default();
    rule.set_allow(true)
        .set_typ(Some(kind))
        .set_major(major)
        .set_minor(minor)
        .set_access(Some(access.to_owned()));
    rule
}

fn target(device: &Device) -> &Path {
    device.target.as_deref().unwrap_or(&device.path)
}
