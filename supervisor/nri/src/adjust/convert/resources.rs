//! Limits of a container that is being created.

use mainstay_messages::adjustment::{DeviceAccess, ResourceChange};
use mainstay_nri_api as api;

use super::{Result, check_entries, check_list_of_numbers, list, text};
use crate::adjust::error::{Fault, quoted};

/// The limits, each of them checked as far as it can be without the machine.
pub(super) fn limits(limits: &api::LinuxResources) -> Result<ResourceChange> {
    for (field, class) in [("blockio_class", &limits.blockio_class), ("rdt_class", &limits.rdt_class)] {
        // Without a class there is nothing to be taken away.
        if class.as_ref().is_some_and(|class| !class.value.is_empty()) {
            let field = format!("linux.resources.{field}");
            return Err(Fault::unsupported(field, "this runtime has no classes; give the limits themselves"));
        }
    }
    let memory = limits.memory.clone().unwrap_or_default();
    let cpu = limits.cpu.clone().unwrap_or_default();
    check_list_of_numbers("linux.resources.cpu.cpus", &cpu.cpus)?;
    check_list_of_numbers("linux.resources.cpu.mems", &cpu.mems)?;
    check_entries("linux.resources.hugepage_limits", limits.hugepage_limits.len())?;
    check_entries("linux.resources.unified", limits.unified.len())?;
    let signed = |value: &Option<api::OptionalInt64>| value.as_ref().map(|value| value.value);
    let unsigned = |value: &Option<api::OptionalUInt64>| value.as_ref().map(|value| value.value);
    // 0 is what is not given: no limit can be 0, and others read it so.
    let above_zero = |value: Option<i64>| value.filter(|value| *value != 0);
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    let unified = limits.unified.iter().map(|(file, value)| {
        let field = format!("linux.resources.unified[{}]", quoted(file));
        Ok((text(field.clone(), file)?, text(field, value)?))
    });
    Ok(ResourceChange {
        memory_limit: above_zero(signed(&memory.limit.into_option())),
        memory_reservation: above_zero(signed(&memory.reservation.into_option())),
        memory_swap: above_zero(signed(&memory.swap.into_option())),
        memory_kernel: above_zero(signed(&memory.kernel.into_option())),
        memory_kernel_tcp: above_zero(signed(&memory.kernel_tcp.into_option())),
        memory_swappiness: unsigned(&memory.swappiness.into_option()),
        disable_oom_killer: memory.disable_oom_killer.as_ref().map(|value| value.value),
        use_hierarchy: memory.use_hierarchy.as_ref().map(|value| value.value),
        cpu_shares: unsigned(&cpu.shares.into_option()).filter(|shares| *shares != 0),
        cpu_quota: above_zero(signed(&cpu.quota.into_option())),
        cpu_period: unsigned(&cpu.period.into_option()).filter(|period| *period != 0),
        cpu_realtime_runtime: signed(&cpu.realtime_runtime.into_option()),
        cpu_realtime_period: unsigned(&cpu.realtime_period.into_option()),
        cpuset_cpus: given(&cpu.cpus),
        cpuset_mems: given(&cpu.mems),
        pids: limits.pids.as_ref().map(|pids| pids.limit),
        hugepages: limits
            .hugepage_limits
            .iter()
            .map(|limit| Ok((text("linux.resources.hugepage_limits", &limit.page_size)?, limit.limit)))
            .collect::<Result<_>>()?,
        unified: unified.collect::<Result<_>>()?,
        device_rules: list("linux.resources.devices", &limits.devices, rule)?,
    })
}

fn rule(field: String, rule: &api::LinuxDeviceCgroup) -> Result<DeviceAccess> {
    let is_kind = matches!(rule.type_.as_str(), "" | "a" | "b" | "c");
    let is_access = !rule.access.is_empty()
        && rule.access.len() <= 3
        && rule.access.bytes().all(|byte| b"rwm".contains(&byte));
    if !is_kind || !is_access {
        let value = format!("{} with {}", quoted(&rule.type_), quoted(&rule.access));
        return Err(Fault::invalid(field, value, "a, b or c, with letters of rwm"));
    }
    Ok(DeviceAccess {
        allow: rule.allow,
        kind: rule.type_.clone(),
        major: rule.major.as_ref().map(|number| number.value),
        minor: rule.minor.as_ref().map(|number| number.value),
        access: rule.access.clone(),
    })
}
