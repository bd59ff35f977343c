//! How the v2 controllers spell limits.
//!
//! Owns: file names and values of memory and cpu in v2, and the conversion of CPU shares to weights. Never: decides
//! whether a limit is valid, writes.

use crate::layout::HierarchyId;
use crate::limits::{CpuLimits, Idle, Limit, MEMORY_LIMIT, MEMORY_SWAP, MemoryLimits};
use crate::plan::{Absent, Plan, Setting, Step};

/// The smallest and largest CPU shares of v1.
const SHARES_RANGE: (u64, u64) = (2, 262_144);
/// The smallest and largest CPU weight of v2.
const WEIGHT_RANGE: (f64, f64) = (1.0, 10_000.0);

pub(crate) fn memory(plan: &mut Plan, hierarchy: HierarchyId, limits: &MemoryLimits) {
    if let Some(limit) = limits.limit {
        let setting =
            Setting::new(MEMORY_LIMIT, hierarchy, "memory.max", limit.v2(), "bytes, or -1 for no limit");
        plan.steps.push(Step::MemoryMaxV2 { setting, limit, check: limits.usage_check });
    }
    if let Some(swap) = limits.swap {
        // v1 and the OCI spec bound the sum, v2 bounds the swap by itself.
        let alone = match (swap, limits.limit) {
            (Limit::To(total), Some(Limit::To(memory))) => Limit::To(total.saturating_sub(memory)),
            _ => Limit::Unlimited,
        };
        let absent = match alone {
            Limit::To(0) | Limit::Unlimited => Absent::Warn("the kernel does not account swap"),
            Limit::To(_) => Absent::Refuse,
        };
        let expected = "bytes of memory and swap together, with swap accounting in the kernel";
        plan.write(
            Setting::new(MEMORY_SWAP, hierarchy, "memory.swap.max", alone.v2(), expected).absent(absent),
        );
    }
    if let Some(reservation) = limits.reservation {
        let field = "linux.resources.memory.reservation";
        plan.write(Setting::new(field, hierarchy, "memory.low", reservation.v2(), "bytes, or -1 for all"));
    }
}

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
        let expected = "1 to 10000 after conversion";
        plan.write(Setting::new(
            "linux.resources.cpu.shares",
            hierarchy,
            "cpu.weight",
            cpu_weight(shares),
            expected,
        ));
    }
    let expected = "a quota and a period of 1000 µs or more, and a burst within the quota";
    let mut settings = Vec::new();
    match (limits.quota, limits.period) {
        (Some(quota), period) => {
            // A quota alone keeps the period in force.
            let value = period.map_or(quota.v2(), |period| format!("{} {period}", quota.v2()));
            settings.push(Setting::new("linux.resources.cpu.quota", hierarchy, "cpu.max", value, expected));
        }
        (None, Some(period)) => {
            let setting = Setting::new("linux.resources.cpu.period", hierarchy, "cpu.max", period, expected);
            plan.steps.push(Step::CpuPeriodV2(setting));
        }
        (None, None) => {}
    }
    if let Some(burst) = limits.burst {
        settings.push(Setting::new("linux.resources.cpu.burst", hierarchy, "cpu.max.burst", burst, expected));
    }
    if !settings.is_empty() {
        plan.steps.push(Step::Interdependent(settings));
    }
}

/// The weight for v1 shares. The two scales have their defaults (1024 and 100) and their ends (2 and 262144; 1 and 10000)
/// at different places, so that a straight line through the ends would give a default container a weight of 39, less
/// than half of what the processes around it have. This is the curve through all three points, quadratic in the
/// logarithms, that Kubernetes and the OCI runtimes agreed on in 2025:
/// `log10(weight) = (l² + 125 l) / 612 - 7/34` with `l = log2(shares)`, rounded up.
pub(crate) fn cpu_weight(shares: u64) -> u64 {
    let (least, most) = SHARES_RANGE;
    let log = (shares.clamp(least, most) as f64).log2();
    let weight = 10f64.powf((log * log + 125.0 * log) / 612.0 - 7.0 / 34.0);
    // What floating point adds to a whole number must not be rounded up to the next.
    (weight - 1e-6).ceil().clamp(WEIGHT_RANGE.0, WEIGHT_RANGE.1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_keep_their_fixed_points_and_their_order() {
        assert_eq!(cpu_weight(0), 1);
        assert_eq!(cpu_weight(2), 1);
        assert_eq!(cpu_weight(1024), 100);
        assert_eq!(cpu_weight(262_144), 10_000);
        assert_eq!(cpu_weight(u64::MAX), 10_000);
        let weights: Vec<u64> = (1..=18).map(|bits| cpu_weight(1 << bits)).collect();
        assert!(weights.is_sorted_by(|a, b| a < b), "{weights:?}");
    }
}
