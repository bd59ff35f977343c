//! Which devices of the host a container gets, and which it may use.

use mainstay_messages::spec::{ContainerSpec, DeviceKind, DeviceRule, IdMappings, Privilege};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};

use crate::host::HostFacts;

/// The nodes that are made in the container: all of the machine's for a privileged one, and those that the spec names.
///
/// In a user namespace a privileged container gets none but those: it is root there, and not on the host. A node keeps the host's
/// owner, and so its permissions: who may not open it on the host may not in the container.
pub(super) fn nodes(
    spec: &ContainerSpec,
    ids: Option<&IdMappings>,
    host: &HostFacts,
) -> Option<Vec<LinuxDevice>> {
    let all = spec.security.privilege == Privilege::Privileged && ids.is_none();
    let mut nodes = if all { host.devices.clone() } else { Vec::new() };
    for found in host.named_devices.iter().flatten() {
        let mut node = found.clone();
        if let Some(ids) = ids {
            let owner = ids.to_container(node.uid().unwrap_or(0), node.gid().unwrap_or(0));
            node.set_uid(owner.map(|(uid, _)| uid)).set_gid(owner.map(|(_, gid)| gid));
        }
        nodes.retain(|other| other.path() != node.path());
        nodes.push(node);
    }
    (!nodes.is_empty() || all).then_some(nodes)
}

/// What the container may do with the devices that its spec names, and with those of its rules.
pub(super) fn rules(spec: &ContainerSpec, host: &HostFacts) -> Vec<LinuxDeviceCgroup> {
    let named = spec
        .devices
        .iter()
        .zip(&host.named_devices)
        .flat_map(|(given, found)| found.iter().map(move |node| (given, node)))
        .map(|(given, node)| rule(node.typ(), Some(node.major()), Some(node.minor()), &given.access));
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
