//! How the v1 controllers spell limits.
//!
//! Owns: file names and values of memory and cpu in v1. Never: decides whether a limit is valid, writes.

use crate::layout::HierarchyId;
use crate::limits::{CpuLimits, Idle, Limit, MEMORY_LIMIT, MEMORY_SWAP, MemoryLimits};
use crate::plan::{Absent, Plan, Setting, Step};

pub(crate) const LIMIT_FILE: &str = "memory.limit_in_bytes";
pub(crate) const MEMORY_AND_SWAP_FILE: &str = "memory.memsw.limit_in_bytes";
pub(crate) const USAGE_FILE: &str = "memory.usage_in_bytes";

/// The kernel keeps limit <= limit of memory and swap at every moment, and refuses a write that would break it with
/// EINVAL; which of the two goes first depends on the values in force.
pub(crate) fn memory(plan: &mut Plan, hierarchy: HierarchyId, limits: &MemoryLimits) {
    let limit = limits.limit.map(|limit| {
        Setting::new(
            MEMORY_LIMIT,
            hierarchy,
            LIMIT_FILE,
            limit.v1(),
            "bytes, above what the kernel needs, or -1 for no limit",
        )
    });
    let swap = limits.swap.map(|swap| {
        let absent = if Some(swap) == limits.limit || swap == Limit::Unlimited {
            Absent::Warn("the kernel does not account swap")
        } else {
            Absent::Refuse
        };
        let expected = "bytes of memory and swap together, with swap accounting in the kernel";
        Setting::new(MEMORY_SWAP, hierarchy, MEMORY_AND_SWAP_FILE, swap.v1(), expected).absent(absent)
    });
    match (limit, swap) {
        (Some(limit), Some(swap)) => plan.steps.push(Step::Interdependent(vec![limit, swap])),
        (Some(limit), None) => plan.steps.push(Step::MemoryLimitV1(limit)),
        (None, Some(swap)) => plan.write(swap),
        (None, None) => {}
    }
    if let Some(reservation) = limits.reservation {
        let field = "linux.resources.memory.reservation";
        plan.write(Setting::new(
            field,
            hierarchy,
            "memory.soft_limit_in_bytes",
            reservation.v1(),
            "bytes, or -1 for none",
        ));
    }
}

/// Period, quota and burst are checked against each other, and quota/period against the group above.
pub(crate) fn cpu(plan: &mut Plan, hierarchy: HierarchyId, limits: &CpuLimits) {
    if let Some(idle) = limits.idle {
        let value = if idle == Idle::Yes { 1 } else { 0 };
        let absent = if idle == Idle::Yes { Absent::Refuse } else { Absent::Skip };
        let expected = "a kernel that knows idle groups (5.15)";
        plan.write(
            Setting::new("linux.resources.cpu.idle", hierarchy, "cpu.idle", value, expected).absent(absent),
        );
    }
    // An idle group has the least weight there is, and the kernel refuses another.
    if let Some(shares) = limits.shares.filter(|_| limits.idle != Some(Idle::Yes)) {
        plan.write(Setting::new(
            "linux.resources.cpu.shares",
            hierarchy,
            "cpu.shares",
            shares,
            "2 to 262144",
        ));
    }
    let bandwidth = "a share of the CPUs that the group above has, and a burst within the quota";
    let settings = [
        ("linux.resources.cpu.period", "cpu.cfs_period_us", limits.period.map(|us| us.to_string())),
        ("linux.resources.cpu.quota", "cpu.cfs_quota_us", limits.quota.map(Limit::v1)),
        ("linux.resources.cpu.burst", "cpu.cfs_burst_us", limits.burst.map(|us| us.to_string())),
    ];
    let settings: Vec<Setting> = settings
        .into_iter()
        .filter_map(|(field, file, value)| Some(Setting::new(field, hierarchy, file, value?, bandwidth)))
        .collect();
    if !settings.is_empty() {
        plan.steps.push(Step::Interdependent(settings));
    }
}
