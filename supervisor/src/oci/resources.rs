//! Limits, as the OCI spec has them.

use std::collections::{BTreeMap, HashMap};

use mainstay_cgroups::default_device_rules;
use mainstay_messages::spec::{
    BlockDeviceLimit, BlockIo, ContainerSpec, HugepageLimit, IdMappings, Privilege, Resources, UNLIMITED,
};
use oci_spec::runtime::{
    LinuxBlockIo, LinuxCpu, LinuxDeviceCgroup, LinuxHugepageLimit, LinuxHugepageLimitBuilder, LinuxMemory,
    LinuxPids, LinuxResources, LinuxThrottleDevice, LinuxThrottleDeviceBuilder, LinuxWeightDevice,
    LinuxWeightDeviceBuilder,
};

use super::devices;
use crate::disks::DiskNumbers;
use crate::host::HostFacts;

/// How the OCI spec says that there is no limit.
const OCI_UNLIMITED: i64 = -1;

/// The limits of a container, with its device rules.
pub fn container_resources(
    spec: &ContainerSpec,
    ids: Option<&IdMappings>,
    host: &HostFacts,
) -> LinuxResources {
    let mut limits = pod_resources(&spec.resources, &host.disks);
    let mut rules = match (spec.security.privilege, ids) {
        // An image may hold nodes of any device, and the root of a user namespace is not to reach the host by one.
        (Privilege::Confined, _) | (Privilege::Privileged, Some(_)) => default_device_rules(),
        (Privilege::Privileged, None) => vec![all_devices()],
    };
    rules.extend(devices::rules(spec, host));
    limits.set_devices(Some(rules));
    limits
}

/// The limits of a pod, or of a container that runs already. There are no device rules among them. A disk without a number
/// is left out.
pub fn pod_resources(resources: &Resources, disks: &DiskNumbers) -> LinuxResources {
    let mut limits = LinuxResources::default();
    limits
        .set_memory(memory(resources))
        .set_cpu(cpu(resources))
        .set_pids(resources.pids.map(pids))
        .set_hugepage_limits(hugepages(&resources.hugepages))
        .set_block_io(block_io(&resources.block_io, disks))
        .set_unified(unified(&resources.unified));
    limits
}

fn memory(resources: &Resources) -> Option<LinuxMemory> {
    let mut memory = LinuxMemory::default();
    memory
        .set_limit(resources.memory_bytes.map(bound))
        .set_swap(resources.memory_swap_bytes.map(bound))
        .set_reservation(resources.memory_reservation_bytes.map(bound));
    (memory != LinuxMemory::default()).then_some(memory)
}

fn cpu(resources: &Resources) -> Option<LinuxCpu> {
    let mut cpu = LinuxCpu::default();
    if let Some(time) = resources.cpu_time {
        cpu.set_period(Some(time.period_us)).set_quota(Some(bound(time.quota_us)));
    }
    cpu.set_shares(resources.cpu_shares)
        .set_cpus(resources.cpuset_cpus.clone())
        .set_mems(resources.cpuset_mems.clone());
    (cpu != LinuxCpu::default()).then_some(cpu)
}

fn unified(files: &BTreeMap<String, String>) -> Option<HashMap<String, String>> {
    (!files.is_empty()).then(|| files.clone().into_iter().collect())
}

fn pids(limit: u64) -> LinuxPids {
    let mut pids = LinuxPids::default();
    pids.set_limit(bound(limit));
    pids
}

fn hugepages(limits: &[HugepageLimit]) -> Option<Vec<LinuxHugepageLimit>> {
    let limit = |limit: &HugepageLimit| {
        let built = LinuxHugepageLimitBuilder::default()
            .page_size(limit.page_size.clone())
            .limit(bound(limit.bytes))
            .build();
        // Building fails only where a field is missing.
        built.expect("both fields are given")
    };
    (!limits.is_empty()).then(|| limits.iter().map(limit).collect())
}

fn block_io(limits: &BlockIo, disks: &DiskNumbers) -> Option<LinuxBlockIo> {
    let numbered: Vec<(&BlockDeviceLimit, (i64, i64))> = limits
        .devices
        .iter()
        .filter_map(|device| {
            let (major, minor) = disks.get(&device.path)?;
            Some((device, (i64::from(*major), i64::from(*minor))))
        })
        .collect();
    let throttles = |which: usize| -> Option<Vec<LinuxThrottleDevice>> {
        let devices = numbered.iter().filter_map(|(device, (major, minor))| {
            // A rate of nothing lifts the limit.
            let rate = match device.rates()[which]? {
                UNLIMITED => 0,
                rate => rate,
            };
            let built = LinuxThrottleDeviceBuilder::default().major(*major).minor(*minor).rate(rate).build();
            // Building fails only where a field is missing.
            Some(built.expect("all fields are given"))
        });
        Some(devices.collect()).filter(|devices: &Vec<_>| !devices.is_empty())
    };
    let weights: Vec<LinuxWeightDevice> = numbered
        .iter()
        .filter_map(|(device, (major, minor))| {
            let weight = device.weight?;
            let built =
                LinuxWeightDeviceBuilder::default().major(*major).minor(*minor).weight(weight).build();
            // Building fails only where a field is missing.
            Some(built.expect("all fields are given"))
        })
        .collect();
    let mut io = LinuxBlockIo::default();
    io.set_weight(limits.weight)
        .set_weight_device((!weights.is_empty()).then_some(weights))
        .set_throttle_read_bps_device(throttles(0))
        .set_throttle_write_bps_device(throttles(1))
        .set_throttle_read_iops_device(throttles(2))
        .set_throttle_write_iops_device(throttles(3));
    (io != LinuxBlockIo::default()).then_some(io)
}

fn all_devices() -> LinuxDeviceCgroup {
    let mut rule = LinuxDeviceCgroup::default();
    rule.set_allow(true).set_access(Some("rwm".to_owned()));
    rule
}

/// OCI has signed limits; what does not fit is more than any machine has.
fn bound(value: u64) -> i64 {
    match value {
        UNLIMITED => OCI_UNLIMITED,
        value => i64::try_from(value).unwrap_or(i64::MAX),
    }
}
