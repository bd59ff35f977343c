//! What plugins have changed of a container's limits.

use mainstay_messages::adjustment::{DeviceAccess, ResourceChange};
use oci_spec::runtime::{
    LinuxCpu, LinuxDeviceCgroup, LinuxDeviceType, LinuxHugepageLimitBuilder, LinuxMemory, LinuxPids,
    LinuxResources,
};

pub(super) fn change(limits: &mut LinuxResources, change: &ResourceChange) {
    let memory = memory(limits.memory().unwrap_or_default(), change);
    limits.set_memory(Some(memory).filter(|memory| *memory != LinuxMemory::default()));
    let cpu = cpu(limits.cpu().clone().unwrap_or_default(), change);
    limits.set_cpu(Some(cpu).filter(|cpu| *cpu != LinuxCpu::default()));
    if let Some(limit) = change.pids {
        let mut pids = LinuxPids::default();
        pids.set_limit(limit);
        limits.set_pids(Some(pids));
    }
    if !change.hugepages.is_empty() {
        let all = limits.hugepage_limits_mut().get_or_insert_default();
        all.retain(|limit| !change.hugepages.contains_key(limit.page_size()));
        all.extend(change.hugepages.iter().map(|(page_size, bytes)| {
            let built = LinuxHugepageLimitBuilder::default()
                .page_size(page_size.clone())
                .limit(i64::try_from(*bytes).unwrap_or(i64::MAX))
                .build();
            // Building fails only where a field is missing.
            built.expect("both fields are given")
        }));
    }
    if !change.unified.is_empty() {
        let files = change.unified.iter().map(|(file, value)| (file.clone(), value.clone()));
        limits.unified_mut().get_or_insert_default().extend(files);
    }
    if !change.device_rules.is_empty() {
        let rules = limits.devices_mut().get_or_insert_default();
        rules.extend(change.device_rules.iter().map(rule));
    }
}

fn memory(own: LinuxMemory, change: &ResourceChange) -> LinuxMemory {
    let mut memory = own;
    // The sum that was asked for has the old limit in it.
    let swap = change.memory_swap.or_else(|| own.swap().and(change.memory_limit)).or(own.swap());
    memory
        .set_limit(change.memory_limit.or(own.limit()))
        .set_reservation(change.memory_reservation.or(own.reservation()))
        .set_swap(swap)
        .set_kernel(change.memory_kernel.or(own.kernel()))
        .set_kernel_tcp(change.memory_kernel_tcp.or(own.kernel_tcp()))
        .set_swappiness(change.memory_swappiness.or(own.swappiness()))
        .set_disable_oom_killer(change.disable_oom_killer.or(own.disable_oom_killer()))
        .set_use_hierarchy(change.use_hierarchy.or(own.use_hierarchy()));
    memory
}

fn cpu(own: LinuxCpu, change: &ResourceChange) -> LinuxCpu {
    let mut cpu = own.clone();
    cpu.set_shares(change.cpu_shares.or(own.shares()))
        .set_quota(change.cpu_quota.or(own.quota()))
        .set_period(change.cpu_period.or(own.period()))
        .set_realtime_runtime(change.cpu_realtime_runtime.or(own.realtime_runtime()))
        .set_realtime_period(change.cpu_realtime_period.or(own.realtime_period()));
    if let Some(cpus) = &change.cpuset_cpus {
        cpu.set_cpus(Some(cpus.clone()));
    }
    if let Some(mems) = &change.cpuset_mems {
        cpu.set_mems(Some(mems.clone()));
    }
    cpu
}

fn rule(from: &DeviceAccess) -> LinuxDeviceCgroup {
    let kind = match from.kind.as_str() {
        "b" => LinuxDeviceType::B,
        "c" => LinuxDeviceType::C,
        _ => LinuxDeviceType::A,
    };
    let mut rule = LinuxDeviceCgroup::default();
    rule.set_allow(from.allow)
        .set_typ(Some(kind))
        .set_major(from.major)
        .set_minor(from.minor)
        .set_access(Some(from.access.clone()));
    rule
}
