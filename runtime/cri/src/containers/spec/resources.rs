//! Limits. In the interface nothing is 0, and no limit is negative.

use std::collections::BTreeMap;

use mainstay::{CpuTime, HugepageLimit, Resources, UNLIMITED};
use mainstay_cri_api::LinuxContainerResources;

use crate::failure::{Failure, Result};

/// The least and the greatest weight that the kernel takes, which greater and smaller ones are taken for.
const CPU_SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;

/// The limits that the interface gives, in those of the core; for a new container, or as a change for one that runs.
pub(crate) fn resources(limits: &LinuxContainerResources) -> Result<Resources> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let memory_bytes = bound(limits.memory_limit_in_bytes);
    Ok(Resources {
        memory_bytes,
        // It counts both together, and says nothing without a limit of memory.
        memory_swap_bytes: bound(limits.memory_swap_limit_in_bytes).filter(|_| memory_bytes.is_some()),
        cpu_time: cpu_time(limits)?,
        cpu_shares: u64::try_from(limits.cpu_shares)
            .ok()
            .filter(|shares| *shares > 0)
            .map(|shares| shares.clamp(*CPU_SHARES.start(), *CPU_SHARES.end())),
        cpuset_cpus: text(&limits.cpuset_cpus),
        cpuset_mems: text(&limits.cpuset_mems),
        hugepages: limits
            .hugepage_limits
            .iter()
            .map(|limit| HugepageLimit { page_size: limit.page_size.clone(), bytes: limit.limit })
            .collect(),
        unified: limits.unified.clone().into_iter().collect::<BTreeMap<_, _>>(),
        ..Resources::default()
    })
}

/// The score that the kernel chooses its victims by.
pub(super) fn oom_score(limits: &LinuxContainerResources) -> Result<i32> {
    i32::try_from(limits.oom_score_adj).map_err(|_| {
        let field = "config.linux.resources.oom_score_adj";
        Failure::invalid(field, limits.oom_score_adj.to_string(), "a number from -1000 to 1000")
    })
}

/// Exactly what is given: kubelet compares it with what it reads back.
fn cpu_time(limits: &LinuxContainerResources) -> Result<Option<CpuTime>> {
    let period_us = match u64::try_from(limits.cpu_period) {
        Ok(0) => CpuTime::PERIOD_DEFAULT_US,
        Ok(period) => period,
        Err(_) => {
            let field = "config.linux.resources.cpu_period";
            return Err(Failure::invalid(field, limits.cpu_period.to_string(), "a period in microseconds"));
        }
    };
    Ok(bound(limits.cpu_quota).map(|quota_us| CpuTime { quota_us, period_us }))
}

fn bound(limit: i64) -> Option<u64> {
    match limit {
        0 => None,
        limit => Some(u64::try_from(limit).unwrap_or(UNLIMITED)),
    }
}
