//! What pods and containers use, as monitoring asks for it: of many at once, and read from the kernel alone, so that no shim
//! and no actor holds it up.

use actix::Message;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::{ContainerId, SandboxId};
use crate::process::ProcessIdentity;
use crate::supervisor::DiskUsage;
use crate::time::Timestamp;

/// Measure pods and their containers. What is gone by then is left out.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Vec<PodUsage>>")]
pub struct MeasureUsage {
    /// Which.
    pub pods: Vec<PodToMeasure>,
    /// How much of each.
    pub depth: Depth,
}

/// A pod to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodToMeasure {
    /// Which.
    pub id: SandboxId,
    /// Whether the pod itself is measured.
    pub scope: Scope,
    /// Its containers, with the PID 1 of those that have one.
    pub containers: Vec<(ContainerId, Option<ProcessIdentity>)>,
}

/// Whether a pod itself is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The pod, with its network, and its containers.
    Whole,
    /// Its containers alone.
    ContainersAlone,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What cgroups count, and how many processes a pod has.
    Basic,
    /// Also what processes have open. It looks at each of them.
    Full,
}

/// What a pod uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUsage {
    /// Which pod.
    pub id: SandboxId,
    /// All its containers together; none where that was not asked for, or there is no cgroup.
    pub group: Option<GroupUsage>,
    /// Its network interfaces, in the kernel's order, and without the loopback. None in a pod on the host's network.
    pub interfaces: Vec<InterfaceUsage>,
    /// Its containers that have a cgroup.
    pub containers: Vec<ContainerUsage>,
}

/// What a container uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUsage {
    /// Which container.
    pub id: ContainerId,
    /// Its cgroup.
    pub group: GroupUsage,
    /// How many files its PID 1 may have open.
    pub open_files_limit: Option<u64>,
    /// What it has on the disk, as it was last counted.
    pub disk: Option<DiskSample>,
}

/// What a container had on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSample {
    /// When.
    pub at: Timestamp,
    /// What.
    pub usage: DiskUsage,
}

/// What a cgroup uses. What the machine cannot tell, or was not asked for, is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupUsage {
    /// When it was measured.
    pub at: Timestamp,
    /// CPU time.
    pub cpu: CpuUsage,
    /// Memory.
    pub memory: MemoryUsage,
    /// How long its tasks waited for disks.
    pub io_pressure: Option<Pressure>,
    /// Disks, each for itself.
    pub disks: Vec<DiskIo>,
    /// Huge pages, by their size.
    pub hugepages: Vec<HugepageUse>,
    /// Its processes.
    pub processes: Option<ProcessCounts>,
    /// Processes and threads, as the kernel counts them against the limit.
    pub tasks: Option<u64>,
    /// The limit.
    pub tasks_limit: Option<u64>,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: Option<u64>,
}

/// CPU time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUsage {
    /// Since the start.
    pub usage_ns: Option<u64>,
    /// Of it, in user mode.
    pub user_ns: Option<u64>,
    /// Of it, in the kernel.
    pub system_ns: Option<u64>,
    /// In a second, since it was measured before: 1,000,000,000 is one CPU. None the first time.
    pub nano_cores: Option<u64>,
    /// Periods of a quota that passed.
    pub periods: Option<u64>,
    /// Of them, those in which it was held back.
    pub throttled_periods: Option<u64>,
    /// How long it was held back.
    pub throttled_ns: Option<u64>,
    /// How long its tasks waited.
    pub pressure: Option<Pressure>,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUsage {
    /// In use, with the page cache.
    pub usage: Option<u64>,
    /// In use without the page cache that has not been used lately.
    pub working_set: Option<u64>,
    /// Anonymous memory.
    pub rss: Option<u64>,
    /// The limit.
    pub limit: Option<u64>,
    /// The most that was ever in use.
    pub max_usage: Option<u64>,
    /// Page faults.
    pub page_faults: Option<u64>,
    /// Of them, those that had to read from a disk.
    pub major_page_faults: Option<u64>,
    /// Swap in use.
    pub swap: Option<u64>,
    /// The limit of swap alone.
    pub swap_limit: Option<u64>,
    /// The page cache.
    pub cache: Option<u64>,
    /// Of it, what is mapped.
    pub mapped_file: Option<u64>,
    /// Memory of the kernel.
    pub kernel: Option<u64>,
    /// How often it came to its limit.
    pub limit_hits: Option<u64>,
    /// How long its tasks waited.
    pub pressure: Option<Pressure>,
}

/// Pressure stall information of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// While at least one task waited.
    pub some: Stall,
    /// While all that could have run waited.
    pub full: Stall,
}

/// How long tasks waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugepageUse {
    /// The size as the kernel names it: `2MB`.
    pub page_size: String,
    /// Bytes in use.
    pub bytes: u64,
    /// The most that were ever in use, where the kernel counts that.
    pub max_bytes: Option<u64>,
}

/// The processes of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCounts {
    /// How many there are.
    pub processes: u64,
    /// What they have, where each was looked at.
    pub holdings: Option<Holdings>,
}

/// What processes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// Threads.
    pub threads: u64,
    /// Open files of all kinds.
    pub descriptors: u64,
    /// Of them, sockets.
    pub sockets: u64,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceUsage {
    /// Its name in the pod.
    pub name: String,
    /// When it was looked at.
    pub at: Timestamp,
    /// What came in.
    pub received: Traffic,
    /// What went out.
    pub sent: Traffic,
}

/// One direction of a network interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that were damaged.
    pub errors: u64,
    /// Packets that were thrown away.
    pub dropped: u64,
}
