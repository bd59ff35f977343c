//! Limits as the OCI runtime spec writes them, checked and put into one shape for both generations.
//!
//! Owns: which values are valid, and that zero means "not set". Never: knows files or hierarchies.

use oci_spec::runtime::{LinuxCpu, LinuxHugepageLimit, LinuxMemory};

use crate::error::CgroupError;

/// The shortest CFS period that the kernel takes.
const CPU_PERIOD_MIN_US: u64 = 1_000;
/// The longest CFS period that the kernel takes.
const CPU_PERIOD_MAX_US: u64 = 1_000_000;
/// The smallest CFS quota that the kernel takes.
const CPU_QUOTA_MIN_US: u64 = 1_000;
/// The longest list of CPUs or nodes that is taken.
const CPU_LIST_MAX_BYTES: usize = 4096;

pub(crate) const MEMORY_LIMIT: &str = "linux.resources.memory.limit";
pub(crate) const MEMORY_SWAP: &str = "linux.resources.memory.swap";

/// A bound that may be lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Unlimited,
    To(u64),
}

/// Whether an update may go on although the kernel would have to kill to reach the new limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageCheck {
    /// Refuse when more is used than could be given back.
    Reclaimable,
    /// Refuse when more is used, given back or not (`checkBeforeUpdate`).
    Strict,
}

#[derive(Debug)]
pub(crate) struct MemoryLimits {
    pub limit: Option<Limit>,
    pub reservation: Option<Limit>,
    /// Memory and swap together.
    pub swap: Option<Limit>,
    pub usage_check: UsageCheck,
}

#[derive(Debug)]
pub(crate) struct CpuLimits {
    pub shares: Option<u64>,
    pub quota: Option<Limit>,
    pub period: Option<u64>,
    pub burst: Option<u64>,
    pub idle: Option<Idle>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    Yes,
    No,
}

impl Limit {
    /// 0 is "not set"; with `Negative::Unlimited` any negative number lifts the limit, else only -1 does.
    fn parse(field: &'static str, value: Option<i64>) -> Result<Option<Limit>, CgroupError> {
        match value {
            None | Some(0) => Ok(None),
            Some(-1) => Ok(Some(Limit::Unlimited)),
            Some(value) => match u64::try_from(value) {
                Ok(bound) => Ok(Some(Limit::To(bound))),
                Err(_) => Err(CgroupError::invalid(field, value, "a positive number, or -1 for no limit")),
            },
        }
    }

    pub fn v1(self) -> String {
        match self {
            Limit::Unlimited => "-1".to_owned(),
            Limit::To(bound) => bound.to_string(),
        }
    }

    pub fn v2(self) -> String {
        match self {
            Limit::Unlimited => "max".to_owned(),
            Limit::To(bound) => bound.to_string(),
        }
    }
}

impl MemoryLimits {
    pub fn parse(memory: &LinuxMemory) -> Result<Self, CgroupError> {
        let limit = Limit::parse(MEMORY_LIMIT, memory.limit())?;
        let reservation = Limit::parse("linux.resources.memory.reservation", memory.reservation())?;
        let swap = Limit::parse(MEMORY_SWAP, memory.swap())?;
        if let Some(Limit::To(total)) = swap {
            match limit {
                Some(Limit::To(bytes)) if bytes <= total => {}
                Some(Limit::To(_)) => {
                    let expected = "at least memory.limit, because it counts memory and swap together";
                    return Err(CgroupError::invalid(MEMORY_SWAP, total, expected));
                }
                Some(Limit::Unlimited) | None => {
                    return Err(CgroupError::invalid(MEMORY_SWAP, total, "a memory.limit beside it"));
                }
            }
        }
        let usage_check = match memory.check_before_update() {
            Some(true) => UsageCheck::Strict,
            Some(false) | None => UsageCheck::Reclaimable,
        };
        Ok(MemoryLimits { limit, reservation, swap, usage_check })
    }

    pub fn is_set(&self) -> bool {
        self.limit.is_some() || self.reservation.is_some() || self.swap.is_some()
    }
}

impl CpuLimits {
    pub fn parse(cpu: &LinuxCpu) -> Result<Self, CgroupError> {
        // Whatever is negative lifts the quota, as kubelet and the kernel have it.
        let quota = match cpu.quota() {
            None | Some(0) => None,
            Some(quota) => match u64::try_from(quota) {
                Err(_) => Some(Limit::Unlimited),
                Ok(us) if us >= CPU_QUOTA_MIN_US => Some(Limit::To(us)),
                Ok(us) => {
                    let expected = "at least 1000 (µs of CPU time per period), or -1 for no limit";
                    return Err(CgroupError::invalid("linux.resources.cpu.quota", us, expected));
                }
            },
        };
        let period = cpu.period().filter(|period| *period != 0);
        if let Some(us) = period.filter(|us| !(CPU_PERIOD_MIN_US..=CPU_PERIOD_MAX_US).contains(us)) {
            return Err(CgroupError::invalid("linux.resources.cpu.period", us, "1000 to 1000000 (µs)"));
        }
        let idle = match cpu.idle() {
            None => None,
            Some(0) => Some(Idle::No),
            Some(1) => Some(Idle::Yes),
            Some(other) => return Err(CgroupError::invalid("linux.resources.cpu.idle", other, "0 or 1")),
        };
        let set = |value: Option<u64>| value.filter(|value| *value != 0);
        Ok(CpuLimits { shares: set(cpu.shares()), quota, period, burst: set(cpu.burst()), idle })
    }

    /// `idle: 0` is what every group starts with, so it alone needs no controller.
    pub fn is_set(&self) -> bool {
        self.shares.is_some()
            || self.quota.is_some()
            || self.period.is_some()
            || self.burst.is_some()
            || self.idle == Some(Idle::Yes)
    }
}

/// A list such as `0-3,8`. The empty text is "not set".
pub(crate) fn cpu_list(field: &'static str, list: Option<&str>) -> Result<Option<String>, CgroupError> {
    let Some(list) = list.map(str::trim).filter(|list| !list.is_empty()) else { return Ok(None) };
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((number(first), number(last)), (Some(first), Some(last)) if first <= last)
    };
    if list.len() > CPU_LIST_MAX_BYTES || !list.split(',').all(range) {
        return Err(CgroupError::invalid(field, list, "numbers and ranges, such as \"0-3,8\""));
    }
    Ok(Some(list.to_owned()))
}

/// Digits alone: `parse` would take a sign too.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Any negative number lifts the limit; 0 is "not set".
pub(crate) fn pids(limit: i64) -> Option<Limit> {
    match limit {
        0 => None,
        limit => Some(u64::try_from(limit).map_or(Limit::Unlimited, Limit::To)),
    }
}

/// A size name of the kernel's files (`2MB`, `1GB`) and its bound, which here may be 0.
pub(crate) fn huge_pages(index: usize, limit: &LinuxHugepageLimit) -> Result<(&str, Limit), CgroupError> {
    let size = limit.page_size().as_str();
    let digits = size.strip_suffix("KB").or(size.strip_suffix("MB")).or(size.strip_suffix("GB"));
    if digits.and_then(number).is_none_or(|number| number == 0) {
        let field = format!("linux.resources.hugepageLimits[{index}].pageSize");
        return Err(CgroupError::invalid(field, size, "a number and KB, MB or GB, such as \"2MB\""));
    }
    Ok((size, u64::try_from(limit.limit()).map_or(Limit::Unlimited, Limit::To)))
}

#[cfg(test)]
mod tests;
