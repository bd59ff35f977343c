//! Limits, from the interface's words to the runtime's and back (pure).
//!
//! 0 and an empty text mean that nothing is said; a negative number lifts a limit.

use mainstay::{ContainerRecord, CpuTime, HugepageLimit, Resources, UNLIMITED};
use mainstay_cri_api as cri;
use mainstay_cri_api::LinuxContainerResources;

/// The weights that the kernel takes. kubelet computes some below and above.
const CPU_SHARES: (u64, u64) = (2, 262_144);

/// Limits as they are asked for.
pub(crate) fn limits(asked: &LinuxContainerResources) -> Resources {
    let period_us = u64::try_from(asked.cpu_period).ok().filter(|period| *period > 0);
    let cpu_time = amount(asked.cpu_quota)
        .map(|quota_us| CpuTime { quota_us, period_us: period_us.unwrap_or(CpuTime::PERIOD_DEFAULT_US) });
    let shares = u64::try_from(asked.cpu_shares).ok().filter(|shares| *shares > 0);
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let hugepages = asked
        .hugepage_limits
        .iter()
        .map(|limit| HugepageLimit { page_size: limit.page_size.clone(), bytes: limit.limit });
    Resources {
        memory_bytes: amount(asked.memory_limit_in_bytes),
        cpu_time,
        cpu_shares: shares.map(|shares| shares.clamp(CPU_SHARES.0, CPU_SHARES.1)),
        cpuset_cpus: text(&asked.cpuset_cpus),
        cpuset_mems: text(&asked.cpuset_mems),
        memory_swap_bytes: amount(asked.memory_swap_limit_in_bytes),
        hugepages: hugepages.collect(),
        unified: asked.unified.clone().into_iter().collect(),
        ..Resources::default()
    }
}

/// A change of limits that are in force. Memory that is given without swap takes along what swap there was beside it: the limit of both
/// together would be below that of memory alone otherwise. Swap without a limit stays so.
pub(crate) fn change(asked: &LinuxContainerResources, in_force: &Resources) -> Resources {
    let mut change = limits(asked);
    if change.memory_swap_bytes.is_none()
        && let (Some(memory), Some(before), Some(both)) =
            (change.memory_bytes, in_force.memory_bytes, in_force.memory_swap_bytes)
    {
        change.memory_swap_bytes = Some(match (memory, both) {
            (UNLIMITED, _) | (_, UNLIMITED) => UNLIMITED,
            (memory, both) => memory.saturating_add(both.saturating_sub(before)),
        });
    }
    if let (Some(time), Some(before)) = (&mut change.cpu_time, in_force.cpu_time)
        && asked.cpu_period <= 0
    {
        time.period_us = before.period_us;
    }
    change
}

/// The limits of a container that are in force.
pub(crate) fn shown(record: &ContainerRecord) -> cri::ContainerResources {
    let limits = record.limits();
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let bounded = |limit: Option<u64>| limit.filter(|limit| *limit != UNLIMITED).map_or(0, signed);
    let hugepages = limits
        .hugepages
        .iter()
        .map(|limit| cri::HugepageLimit { page_size: limit.page_size.clone(), limit: limit.bytes });
    let linux = LinuxContainerResources {
        cpu_period: limits.cpu_time.map_or(0, |time| signed(time.period_us)),
        cpu_quota: limits
            .cpu_time
            .map_or(0, |time| if time.quota_us == UNLIMITED { -1 } else { signed(time.quota_us) }),
        cpu_shares: limits.cpu_shares.map_or(0, signed),
        memory_limit_in_bytes: bounded(limits.memory_bytes),
        oom_score_adj: record.spec.oom_score_adj.map_or(0, i64::from),
        cpuset_cpus: limits.cpuset_cpus.clone().unwrap_or_default(),
        cpuset_mems: limits.cpuset_mems.clone().unwrap_or_default(),
        hugepage_limits: hugepages.collect(),
        unified: limits.unified.clone().into_iter().collect(),
        memory_swap_limit_in_bytes: bounded(limits.memory_swap_bytes),
    };
    cri::ContainerResources { linux: Some(linux), windows: None }
}

fn amount(value: i64) -> Option<u64> {
    match value {
        0 => None,
        value => Some(u64::try_from(value).unwrap_or(UNLIMITED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_is_nothing_and_negative_lifts() {
        assert_eq!(limits(&LinuxContainerResources::default()), Resources::default());
        let asked = LinuxContainerResources {
            cpu_quota: -1,
            cpu_shares: 1,
            memory_limit_in_bytes: -1,
            ..Default::default()
        };
        let found = limits(&asked);
        assert_eq!(found.cpu_time, Some(CpuTime { quota_us: UNLIMITED, period_us: 100_000 }));
        assert_eq!((found.cpu_shares, found.memory_bytes), (Some(2), Some(UNLIMITED)));
    }

    #[test]
    fn memory_takes_its_swap_along() {
        let in_force = Resources {
            memory_bytes: Some(100),
            memory_swap_bytes: Some(150),
            cpu_time: Some(CpuTime { quota_us: 5, period_us: 7 }),
            ..Resources::default()
        };
        let asked =
            LinuxContainerResources { memory_limit_in_bytes: 300, cpu_quota: 9, ..Default::default() };
        let found = change(&asked, &in_force);
        assert_eq!((found.memory_bytes, found.memory_swap_bytes), (Some(300), Some(350)));
        assert_eq!(found.cpu_time, Some(CpuTime { quota_us: 9, period_us: 7 }));
        let asked = LinuxContainerResources { memory_swap_limit_in_bytes: 300, ..asked };
        assert_eq!(change(&asked, &in_force).memory_swap_bytes, Some(300));
    }

    /// Less memory for a container whose swap had no limit got it one of 2^64 bytes less the difference.
    #[test]
    fn swap_without_a_limit_stays_so() {
        let in_force =
            Resources { memory_bytes: Some(100), memory_swap_bytes: Some(UNLIMITED), ..Resources::default() };
        for memory in [50, 300] {
            let asked = LinuxContainerResources { memory_limit_in_bytes: memory, ..Default::default() };
            assert_eq!(change(&asked, &in_force).memory_swap_bytes, Some(UNLIMITED));
        }
    }
}
