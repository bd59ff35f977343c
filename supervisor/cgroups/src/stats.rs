//! What a group uses.
//!
//! Owns: reading the counters of either generation into one shape. Never: computes rates or keeps earlier values.

use rustix::io::Errno;

use crate::controllers::Controller;
use crate::error::CgroupError;
use crate::group::Cgroup;
use crate::hierarchy::{Node, keyed_number};
use crate::layout::Home;
use crate::tree;

/// v1 shows "no limit" as the largest number of whole pages, whose size depends on the machine: anything from here on is
/// no limit.
pub(crate) const V1_UNLIMITED_MIN_BYTES: u64 = i64::MAX as u64 - 0xff_ffff;
const NS_PER_US: u64 = 1_000;

/// The counters of a group. `None` is what the layout, the kernel or the controllers of this group cannot tell. Counters
/// include the groups below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// CPU time used, in nanoseconds.
    pub cpu_usage_ns: Option<u64>,
    /// Of it, in user mode.
    pub cpu_user_ns: Option<u64>,
    /// Of it, in the kernel.
    pub cpu_system_ns: Option<u64>,
    /// Periods of a CPU quota that passed.
    pub cpu_periods: Option<u64>,
    /// Of them, those in which the group was held back.
    pub cpu_throttled_periods: Option<u64>,
    /// How long it was held back, in nanoseconds.
    pub cpu_throttled_ns: Option<u64>,
    /// Memory in use, in bytes, page cache included.
    pub memory_usage: Option<u64>,
    /// Memory in use without the page cache that has not been used lately, which is given back first.
    pub memory_working_set: Option<u64>,
    /// Anonymous memory, in bytes.
    pub memory_rss: Option<u64>,
    /// The bound; `None` also when there is none.
    pub memory_limit: Option<u64>,
    /// The most that was ever in use (v2: since 5.19).
    pub memory_max_usage: Option<u64>,
    /// Swap in use, in bytes.
    pub memory_swap: Option<u64>,
    /// Page faults.
    pub memory_page_faults: Option<u64>,
    /// Page faults that had to read from a disk.
    pub memory_major_page_faults: Option<u64>,
    /// Tasks.
    pub pids_current: Option<u64>,
    /// Their bound; `None` also when there is none.
    pub pids_limit: Option<u64>,
    /// Bytes read from block devices.
    pub io_read_bytes: Option<u64>,
    /// Bytes written to block devices.
    pub io_write_bytes: Option<u64>,
    /// Processes that the OOM killer ended.
    pub oom_kills: Option<u64>,
}

impl Cgroup {
    /// Reads all counters that there are. A group that exists nowhere is [`CgroupError::NotFound`].
    pub fn stats(&self) -> Result<Stats, CgroupError> {
        let mut stats = Stats::default();
        self.read_cpu(&mut stats)?;
        self.read_memory(&mut stats)?;
        if let Some((node, _)) = self.home_node(Controller::Pids) {
            stats.pids_current = number(node, "pids.current")?;
            stats.pids_limit = number(node, "pids.max")?;
        }
        self.read_io(&mut stats)?;
        stats.oom_kills = self.oom_kills()?;
        if stats == Stats::default() && !self.exists()? {
            return Err(CgroupError::NotFound { path: self.path().clone() });
        }
        Ok(stats)
    }

    /// How many processes of the group, and of the groups below it, the OOM killer has ended. `None` without a memory
    /// controller or group. On v1, which counts each group by itself, the kills of a group that was removed are forgotten.
    pub fn oom_kills(&self) -> Result<Option<u64>, CgroupError> {
        match self.home_node(Controller::Memory) {
            None => Ok(None),
            Some((node, Home::V2(_))) => {
                Ok(text(node, "memory.events")?.and_then(|events| keyed_number(&events, "oom_kill")))
            }
            Some((node, Home::V1(_))) => {
                let mut kills = None;
                tree::walk(node, |dir| {
                    match crate::hierarchy::read_at(dir, "memory.oom_control") {
                        Ok(control) => kills = sum(kills, keyed_number(&control, "oom_kill")),
                        Err(Errno::NOENT | Errno::NODEV) => {}
                        Err(errno) => {
                            return Err(CgroupError::io("read memory.oom_control in", node.dir(), errno));
                        }
                    }
                    Ok(())
                })?;
                Ok(kills)
            }
        }
    }

    fn read_cpu(&self, stats: &mut Stats) -> Result<(), CgroupError> {
        match self.home_node(Controller::Cpuacct) {
            Some((node, Home::V2(_))) => {
                if let Some(stat) = text(node, "cpu.stat")? {
                    let ns = |key| keyed_number(&stat, key).map(|us| us.saturating_mul(NS_PER_US));
                    stats.cpu_usage_ns = ns("usage_usec");
                    stats.cpu_user_ns = ns("user_usec");
                    stats.cpu_system_ns = ns("system_usec");
                    stats.cpu_periods = keyed_number(&stat, "nr_periods");
                    stats.cpu_throttled_periods = keyed_number(&stat, "nr_throttled");
                    stats.cpu_throttled_ns = ns("throttled_usec");
                }
            }
            Some((node, Home::V1(_))) => {
                stats.cpu_usage_ns = number(node, "cpuacct.usage")?;
                stats.cpu_user_ns = number(node, "cpuacct.usage_user")?;
                stats.cpu_system_ns = number(node, "cpuacct.usage_sys")?;
            }
            None => {}
        }
        if let Some((node, Home::V1(_))) = self.home_node(Controller::Cpu)
            && let Some(stat) = text(node, "cpu.stat")?
        {
            stats.cpu_periods = keyed_number(&stat, "nr_periods");
            stats.cpu_throttled_periods = keyed_number(&stat, "nr_throttled");
            stats.cpu_throttled_ns = keyed_number(&stat, "throttled_time");
        }
        Ok(())
    }

    fn read_memory(&self, stats: &mut Stats) -> Result<(), CgroupError> {
        let Some((node, home)) = self.home_node(Controller::Memory) else { return Ok(()) };
        let names = match home {
            Home::V1(_) => &MEMORY_V1,
            Home::V2(_) => &MEMORY_V2,
        };
        stats.memory_usage = number(node, names.usage)?;
        stats.memory_max_usage = number(node, names.peak)?;
        stats.memory_limit = number(node, names.limit)?.filter(|bytes| *bytes < V1_UNLIMITED_MIN_BYTES);
        stats.memory_swap = match home {
            Home::V2(_) => number(node, "memory.swap.current")?,
            Home::V1(_) => {
                let both = number(node, "memory.memsw.usage_in_bytes")?;
                both.zip(stats.memory_usage).map(|(both, memory)| both.saturating_sub(memory))
            }
        };
        let Some(stat) = text(node, "memory.stat")? else { return Ok(()) };
        stats.memory_rss = keyed_number(&stat, names.anonymous);
        stats.memory_page_faults = keyed_number(&stat, names.faults);
        stats.memory_major_page_faults = keyed_number(&stat, names.major_faults);
        let idle = keyed_number(&stat, names.inactive_file);
        stats.memory_working_set =
            stats.memory_usage.zip(idle).map(|(usage, idle)| usage.saturating_sub(idle));
        Ok(())
    }

    fn read_io(&self, stats: &mut Stats) -> Result<(), CgroupError> {
        match self.home_node(Controller::Io) {
            Some((node, Home::V2(_))) => {
                // `8:0 rbytes=1 wbytes=2 rios=3 …`, one line for each disk.
                if let Some(stat) = text(node, "io.stat")? {
                    let total = |key: &str| {
                        let values = stat
                            .split_whitespace()
                            .filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
                        Some(values.filter_map(|value| value.parse::<u64>().ok()).sum())
                    };
                    stats.io_read_bytes = total("rbytes");
                    stats.io_write_bytes = total("wbytes");
                }
            }
            Some((node, Home::V1(_))) => {
                // `8:0 Read 1`, one line for each disk and direction, and a total.
                if let Some(stat) = text(node, "blkio.throttle.io_service_bytes_recursive")? {
                    let total = |direction: &str| {
                        let lines = stat.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
                        let matching = lines.filter(|words| words.len() == 3 && words[1] == direction);
                        Some(matching.filter_map(|words| words[2].parse::<u64>().ok()).sum())
                    };
                    stats.io_read_bytes = total("Read");
                    stats.io_write_bytes = total("Write");
                }
            }
            None => {}
        }
        Ok(())
    }

    pub(crate) fn home_node(&self, controller: Controller) -> Option<(Node<'_>, Home)> {
        let home = self.layout().home(controller)?;
        let (Home::V1(id) | Home::V2(id)) = home;
        Some((self.node(id), home))
    }
}

struct MemoryNames {
    usage: &'static str,
    peak: &'static str,
    limit: &'static str,
    anonymous: &'static str,
    inactive_file: &'static str,
    faults: &'static str,
    major_faults: &'static str,
}

/// v1 counts a group by itself, and with the groups below it under `total_`.
const MEMORY_V1: MemoryNames = MemoryNames {
    usage: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    limit: "memory.limit_in_bytes",
    anonymous: "total_rss",
    inactive_file: "total_inactive_file",
    faults: "total_pgfault",
    major_faults: "total_pgmajfault",
};

const MEMORY_V2: MemoryNames = MemoryNames {
    usage: "memory.current",
    peak: "memory.peak",
    limit: "memory.max",
    anonymous: "anon",
    inactive_file: "inactive_file",
    faults: "pgfault",
    major_faults: "pgmajfault",
};

/// A file that the group, its controllers or the kernel do not have, or that was removed while it was read, tells nothing.
pub(crate) fn text(node: Node<'_>, file: &str) -> Result<Option<String>, CgroupError> {
    match node.read(file) {
        Ok(text) => Ok(Some(text)),
        Err(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(CgroupError::io("read", node.file(file), errno)),
    }
}

pub(crate) fn number(node: Node<'_>, file: &str) -> Result<Option<u64>, CgroupError> {
    Ok(text(node, file)?.and_then(|text| text.split_whitespace().next()?.parse().ok()))
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (None, None) => None,
        (one, other) => Some(one.unwrap_or(0) + other.unwrap_or(0)),
    }
}
