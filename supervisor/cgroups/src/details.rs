//! What else a group uses, beside [`Stats`]: what monitoring asks for, and a runtime does without.
//!
//! Owns: reading pressure, the parts of memory, disks one by one and huge pages, of either generation, into one shape. Never:
//! computes rates or keeps earlier values.

use std::collections::HashSet;

use rustix::process::Pid;

use crate::controllers::Controller;
use crate::error::CgroupError;
use crate::group::Cgroup;
use crate::hierarchy::{Node, Version, keyed_number};
use crate::layout::Home;
use crate::processes::processes;
use crate::stats::{V1_UNLIMITED_MIN_BYTES, number, text};

/// The most disks that are told apart in one group.
pub const DISKS_MAX: usize = 256;

/// Counters of a group beside [`crate::Stats`]. `None`, or nothing, is what the layout, the kernel or the controllers of this
/// group cannot tell. Counters include the groups below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// How long its tasks waited for CPU time.
    pub cpu_pressure: Option<Pressure>,
    /// How long they waited for memory.
    pub memory_pressure: Option<Pressure>,
    /// How long they waited for disks.
    pub io_pressure: Option<Pressure>,
    /// The page cache, in bytes.
    pub memory_cache: Option<u64>,
    /// Of it, what is mapped.
    pub memory_mapped_file: Option<u64>,
    /// Memory of the kernel, in bytes.
    pub memory_kernel: Option<u64>,
    /// How often it came to its memory limit.
    pub memory_limit_hits: Option<u64>,
    /// The bound of swap alone, in bytes; `None` also when there is none.
    pub swap_limit: Option<u64>,
    /// Disks, each for itself; at most [`DISKS_MAX`].
    pub disks: Vec<DiskIo>,
    /// Huge pages, by their size.
    pub hugepages: Vec<HugepageUse>,
}

/// Pressure stall information of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// While at least one task waited.
    pub some: Stall,
    /// While all that could have run waited.
    pub full: Stall,
}

/// How long tasks waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stall {
    /// In all, in nanoseconds.
    pub total_ns: u64,
    /// The part of the last 10 seconds, in hundredths of a percent.
    pub avg10: u32,
    /// Of the last minute.
    pub avg60: u32,
    /// Of the last five minutes.
    pub avg300: u32,
}

/// What went to and from one disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskIo {
    /// The number of its driver.
    pub major: u32,
    /// Its number there.
    pub minor: u32,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Huge pages of one size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HugepageUse {
    /// The size as the kernel names it: `2MB`.
    pub page_size: String,
    /// Bytes in use.
    pub bytes: u64,
    /// The most that were ever in use, where the kernel counts that (v1).
    pub max_bytes: Option<u64>,
}

impl Cgroup {
    /// The processes in the group and in all groups below it, in the hierarchy that tracks them: cheaper than
    /// [`Cgroup::pids`], which finds also those that were moved out of that one.
    pub fn members(&self) -> Result<HashSet<Pid>, CgroupError> {
        let tracking =
            self.layout().home(Controller::Freezer).or_else(|| self.layout().home(Controller::Pids));
        match tracking {
            Some(Home::V1(id) | Home::V2(id)) => Ok(processes(self.node(id))?.pids),
            None => self.pids(),
        }
    }

    /// Reads all that there is. A group that exists nowhere has nothing.
    pub fn details(&self) -> Result<Details, CgroupError> {
        let mut details = Details::default();
        if let Some(tree) = self.layout().v2_tree() {
            let node = self.node(tree);
            details.cpu_pressure = pressure(node, "cpu.pressure")?;
            details.memory_pressure = pressure(node, "memory.pressure")?;
            details.io_pressure = pressure(node, "io.pressure")?;
        }
        self.read_memory_parts(&mut details)?;
        details.disks = self.disks()?;
        details.hugepages = self.hugepages()?;
        Ok(details)
    }

    fn read_memory_parts(&self, details: &mut Details) -> Result<(), CgroupError> {
        let Some((node, home)) = self.home_node(Controller::Memory) else { return Ok(()) };
        let stat = text(node, "memory.stat")?.unwrap_or_default();
        let of = |key| keyed_number(&stat, key);
        match home {
            Home::V2(_) => {
                details.memory_cache = of("file");
                details.memory_mapped_file = of("file_mapped");
                // Since 5.18; before that, of its parts those that count.
                let parts = || Some(of("slab")? + of("kernel_stack").unwrap_or(0));
                details.memory_kernel = of("kernel").or_else(parts);
                details.memory_limit_hits =
                    text(node, "memory.events")?.and_then(|events| keyed_number(&events, "max"));
                details.swap_limit = number(node, "memory.swap.max")?;
            }
            Home::V1(_) => {
                details.memory_cache = of("total_cache");
                details.memory_mapped_file = of("total_mapped_file");
                details.memory_kernel = number(node, "memory.kmem.usage_in_bytes")?;
                details.memory_limit_hits = number(node, "memory.failcnt")?;
                let bounded =
                    |file| number(node, file).map(|n| n.filter(|bytes| *bytes < V1_UNLIMITED_MIN_BYTES));
                let memory = bounded("memory.limit_in_bytes")?;
                let both = bounded("memory.memsw.limit_in_bytes")?;
                details.swap_limit = both.zip(memory).map(|(both, memory)| both.saturating_sub(memory));
            }
        }
        Ok(())
    }

    fn disks(&self) -> Result<Vec<DiskIo>, CgroupError> {
        let mut disks = Vec::new();
        match self.home_node(Controller::Io) {
            Some((node, Home::V2(_))) => {
                // `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6`, one line for each disk.
                for line in text(node, "io.stat")?.unwrap_or_default().lines() {
                    let mut words = line.split_whitespace();
                    let Some(disk) = words.next().and_then(|id| disk(&mut disks, id)) else { continue };
                    for (key, value) in words.filter_map(|word| word.split_once('=')) {
                        let value = value.parse().unwrap_or(0);
                        match key {
                            "rbytes" => disk.read_bytes = value,
                            "wbytes" => disk.write_bytes = value,
                            "rios" => disk.reads = value,
                            "wios" => disk.writes = value,
                            _ => {}
                        }
                    }
                }
            }
            Some((node, Home::V1(_))) => {
                let bytes: Counts = |disk| (&mut disk.read_bytes, &mut disk.write_bytes);
                v1_io(node, "blkio.throttle.io_service_bytes_recursive", &mut disks, bytes)?;
                let times: Counts = |disk| (&mut disk.reads, &mut disk.writes);
                v1_io(node, "blkio.throttle.io_serviced_recursive", &mut disks, times)?;
            }
            None => {}
        }
        Ok(disks)
    }

    fn hugepages(&self) -> Result<Vec<HugepageUse>, CgroupError> {
        let Some((node, _)) = self.home_node(Controller::Hugetlb) else { return Ok(Vec::new()) };
        let (current, most) = match node.hierarchy.version {
            Version::V2 => ("current", None),
            Version::V1 => ("usage_in_bytes", Some("max_usage_in_bytes")),
        };
        let mut found = Vec::new();
        for page_size in page_sizes(node, current) {
            let Some(bytes) = number(node, &format!("hugetlb.{page_size}.{current}"))? else { continue };
            let max_bytes = match most {
                Some(most) => number(node, &format!("hugetlb.{page_size}.{most}"))?,
                None => None,
            };
            found.push(HugepageUse { page_size, bytes, max_bytes });
        }
        Ok(found)
    }
}

/// The sizes of huge pages for which the group has a file of this kind. One that is just removed has none.
fn page_sizes(node: Node<'_>, kind: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(node.dir()) else { return Vec::new() };
    let size = |name: String| {
        let size = name.strip_prefix("hugetlb.")?.strip_suffix(kind)?.strip_suffix('.')?;
        (!size.contains('.')).then(|| size.to_owned())
    };
    let mut sizes: Vec<_> =
        entries.flatten().filter_map(|entry| size(entry.file_name().into_string().ok()?)).collect();
    sizes.sort();
    sizes
}

/// What of a disk a file counts: reads and writes.
type Counts = fn(&mut DiskIo) -> (&mut u64, &mut u64);

/// `8:0 Read 1`, one line for each disk and direction, and a total.
fn v1_io(node: Node<'_>, file: &str, disks: &mut Vec<DiskIo>, counts: Counts) -> Result<(), CgroupError> {
    for line in text(node, file)?.unwrap_or_default().lines() {
        let mut words = line.split_whitespace();
        let (Some(id), Some(direction), Some(value)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let (Some(disk), Ok(value)) = (disk(disks, id), value.parse()) else { continue };
        let (reads, writes) = counts(disk);
        match direction {
            "Read" => *reads = value,
            "Write" => *writes = value,
            _ => {}
        }
    }
    Ok(())
}

/// The disk with a number as in `8:0`; none when there are too many.
fn disk<'a>(disks: &'a mut Vec<DiskIo>, id: &str) -> Option<&'a mut DiskIo> {
    let (major, minor) = id.split_once(':')?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    let known = disks.iter().position(|disk| (disk.major, disk.minor) == (major, minor));
    let place = match known {
        Some(place) => place,
        None if disks.len() < DISKS_MAX => {
            disks.push(DiskIo { major, minor, ..DiskIo::default() });
            disks.len() - 1
        }
        None => return None,
    };
    disks.get_mut(place)
}

/// Kernels that do not count pressure have the file all the same, and refuse to read it.
fn pressure(node: Node<'_>, file: &str) -> Result<Option<Pressure>, CgroupError> {
    let Some(text) = text(node, file)? else { return Ok(None) };
    let line = |kind: &str| text.lines().find_map(|line| stall(line.strip_prefix(kind)?.strip_prefix(' ')?));
    Ok(line("some").map(|some| Pressure { some, full: line("full").unwrap_or_default() }))
}

/// `avg10=0.12 avg60=0.00 avg300=0.00 total=345`, the total in microseconds.
fn stall(line: &str) -> Option<Stall> {
    let mut stall = Stall::default();
    for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
        match key {
            "avg10" => stall.avg10 = hundredths(value)?,
            "avg60" => stall.avg60 = hundredths(value)?,
            "avg300" => stall.avg300 = hundredths(value)?,
            "total" => stall.total_ns = value.parse::<u64>().ok()?.saturating_mul(1_000),
            _ => {}
        }
    }
    Some(stall)
}

/// `98.17` as 9817.
fn hundredths(value: &str) -> Option<u32> {
    let (whole, part) = value.split_once('.')?;
    let part: u32 = part.get(..2)?.parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(part)
}
