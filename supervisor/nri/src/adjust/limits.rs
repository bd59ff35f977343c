//! Limits, between NRI and our own: those of a container that runs.

use mainstay_messages::spec::{CpuTime, HugepageLimit as OwnHugepageLimit, Resources, UNLIMITED};
use mainstay_nri_api::{
    HugepageLimit, LinuxCPU, LinuxMemory, LinuxPids, LinuxResources, MessageField, OptionalInt64,
    OptionalUInt64,
};

use super::convert::{check_entries, check_list_of_numbers};
use super::error::Fault;

/// Our limits as plugins see them.
pub fn described_limits(own: &Resources) -> LinuxResources {
    let signed = |value: u64| match value {
        UNLIMITED => -1,
        value => i64::try_from(value).unwrap_or(i64::MAX),
    };
    let number = |value: Option<u64>| -> MessageField<OptionalInt64> {
        value.map(|value| OptionalInt64 { value: signed(value), ..Default::default() }).into()
    };
    let unsigned = |value: Option<u64>| -> MessageField<OptionalUInt64> {
        value.map(|value| OptionalUInt64 { value, ..Default::default() }).into()
    };
    let hugepage = |limit: &OwnHugepageLimit| HugepageLimit {
        page_size: limit.page_size.clone(),
        limit: limit.bytes,
        ..Default::default()
    };
    LinuxResources {
        memory: MessageField::some(LinuxMemory {
            limit: number(own.memory_bytes),
            reservation: number(own.memory_reservation_bytes),
            swap: number(own.memory_swap_bytes),
            ..Default::default()
        }),
        cpu: MessageField::some(LinuxCPU {
            shares: unsigned(own.cpu_shares),
            quota: number(own.cpu_time.map(|time| time.quota_us)),
            period: unsigned(own.cpu_time.map(|time| time.period_us)),
            cpus: own.cpuset_cpus.clone().unwrap_or_default(),
            mems: own.cpuset_mems.clone().unwrap_or_default(),
            ..Default::default()
        }),
        hugepage_limits: own.hugepages.iter().map(hugepage).collect(),
        pids: own.pids.map(|limit| LinuxPids { limit: signed(limit), ..Default::default() }).into(),
        unified: own.unified.clone().into_iter().collect(),
        ..Default::default()
    }
}

/// Limits of NRI as our own, for a container that runs; what is not given stays as it is.
///
/// # Errors
/// [`Fault`]: what is wrong, or what cannot be changed of a container that runs.
pub(super) fn limits(limits: &LinuxResources) -> Result<Resources, Fault> {
    let (memory, cpu) = (limits.memory.clone().unwrap_or_default(), limits.cpu.clone().unwrap_or_default());
    refuse_others(limits, &memory, &cpu)?;
    check_list_of_numbers("linux.resources.cpu.cpus", &cpu.cpus)?;
    check_list_of_numbers("linux.resources.cpu.mems", &cpu.mems)?;
    check_entries("linux.resources.hugepage_limits", limits.hugepage_limits.len())?;
    let given = |text: String| (!text.is_empty()).then_some(text);
    let hugepage =
        |limit: &HugepageLimit| OwnHugepageLimit { page_size: limit.page_size.clone(), bytes: limit.limit };
    let resources = Resources {
        memory_bytes: memory.limit.as_ref().map(|limit| bound(limit.value)),
        memory_reservation_bytes: memory.reservation.as_ref().map(|limit| bound(limit.value)),
        memory_swap_bytes: memory.swap.as_ref().map(|limit| bound(limit.value)),
        cpu_time: cpu_time(&cpu)?,
        cpu_shares: cpu.shares.as_ref().map(|shares| shares.value),
        cpuset_cpus: given(cpu.cpus),
        cpuset_mems: given(cpu.mems),
        pids: limits.pids.as_ref().map(|pids| bound(pids.limit)),
        hugepages: limits.hugepage_limits.iter().map(hugepage).collect(),
        ..Resources::default()
    };
    Ok(resources)
}

fn refuse_others(limits: &LinuxResources, memory: &LinuxMemory, cpu: &LinuxCPU) -> Result<(), Fault> {
    let others = [
        ("memory.kernel", memory.kernel.is_some()),
        ("memory.kernel_tcp", memory.kernel_tcp.is_some()),
        ("memory.swappiness", memory.swappiness.is_some()),
        ("memory.disable_oom_killer", memory.disable_oom_killer.is_some()),
        ("memory.use_hierarchy", memory.use_hierarchy.is_some()),
        ("cpu.realtime_runtime", cpu.realtime_runtime.is_some()),
        ("cpu.realtime_period", cpu.realtime_period.is_some()),
        ("unified", !limits.unified.is_empty()),
        ("blockio_class", limits.blockio_class.is_some()),
        ("rdt_class", limits.rdt_class.is_some()),
        ("devices", !limits.devices.is_empty()),
    ];
    match others.into_iter().find(|(_, is_set)| *is_set) {
        None => Ok(()),
        Some((field, _)) => {
            let reason = "it is set when a container is created, and stays as long as that runs";
            Err(Fault::unsupported(format!("linux.resources.{field}"), reason))
        }
    }
}

fn cpu_time(cpu: &LinuxCPU) -> Result<Option<CpuTime>, Fault> {
    let period = cpu.period.as_ref().map(|period| period.value).filter(|period| *period != 0);
    match (cpu.quota.as_ref().map(|quota| quota.value), period) {
        (None, None) => Ok(None),
        // 0 is what is not given, as Go has it.
        (Some(0), _) => Ok(None),
        (None, Some(period)) => {
            let expected = "a quota beside it";
            Err(Fault::invalid("linux.resources.cpu.period", period.to_string(), expected))
        }
        (Some(quota), period) => {
            let period_us = period.unwrap_or(CpuTime::PERIOD_DEFAULT_US);
            Ok(Some(CpuTime { quota_us: bound(quota), period_us }))
        }
    }
}

/// Negative is no limit.
fn bound(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(UNLIMITED)
}
