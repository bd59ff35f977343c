//! Limits, as the OCI spec has them.

use mainstay_cgroups::default_device_rules;
use mainstay_messages::spec::{Privilege, Resources};
use oci_spec::runtime::{LinuxCpu, LinuxDeviceCgroup, LinuxMemory, LinuxPids, LinuxResources};

/// The period that CPU quotas are for, in microseconds: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// The limits of a container, with its device rules.
pub fn container_resources(resources: &Resources, privilege: Privilege) -> LinuxResources {
    let mut limits = pod_resources(resources);
    limits.set_devices(Some(match privilege {
        Privilege::Confined => default_device_rules(),
        Privilege::Privileged => vec![all_devices()],
    }));
    limits
}

/// The limits of a pod. It has no device rules: they are each container's.
pub fn pod_resources(resources: &Resources) -> LinuxResources {
    let mut limits = LinuxResources::default();
    limits
        .set_memory(resources.memory_bytes.map(memory))
        .set_cpu(cpu(resources))
        .set_pids(resources.pids.map(pids));
    limits
}

fn memory(bytes: u64) -> LinuxMemory {
    let mut memory = LinuxMemory::default();
    memory.set_limit(Some(saturated(bytes)));
    memory
}

fn cpu(resources: &Resources) -> Option<LinuxCpu> {
    let mut cpu = LinuxCpu::default();
    if let Some(millis) = resources.cpu_millis {
        cpu.set_period(Some(CPU_PERIOD_US))
            .set_quota(Some(saturated(millis.saturating_mul(CPU_PERIOD_US / 1_000))));
    }
    cpu.set_shares(resources.cpu_shares)
        .set_cpus(resources.cpuset_cpus.clone())
        .set_mems(resources.cpuset_mems.clone());
    (cpu != LinuxCpu::default()).then_some(cpu)
}

fn pids(limit: u64) -> LinuxPids {
    let mut pids = LinuxPids::default();
    pids.set_limit(saturated(limit));
    pids
}

fn all_devices() -> LinuxDeviceCgroup {
    let mut rule = LinuxDeviceCgroup::default();
    rule.set_allow(true).set_access(Some("rwm".to_owned()));
    rule
}

/// OCI has signed limits; what does not fit is more than any machine has.
fn saturated(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
