//! Limits by cgroup.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// As a value of a limit: no limit. To be given where a limit is to be lifted from a container that runs.
pub const UNLIMITED: u64 = u64::MAX;
/// The most devices that have limits of their own.
pub const BLOCK_DEVICES_MAX: usize = 256;
/// The most sizes of huge pages that have a limit.
pub const HUGEPAGE_SIZES_MAX: usize = 16;

/// The most files of cgroup v2 that are written.
pub const UNIFIED_MAX: usize = 256;
/// The longest name, and the longest value, of such a file, in bytes.
pub const UNIFIED_LENGTH_MAX: usize = 4_096;

/// Limits by cgroup. What is not given is not limited; in a change of limits, it stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Memory, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// CPU time.
    #[serde(default)]
    pub cpu_time: Option<CpuTime>,
    /// Weight against others when CPU time is short, in the unit of cgroup v1 (2 to 262144, 1024 is usual).
    #[serde(default)]
    pub cpu_shares: Option<u64>,
    /// The CPUs it may run on, as in `0-2,4`.
    #[serde(default)]
    pub cpuset_cpus: Option<String>,
    /// The memory nodes it may use, as in `0,1`.
    #[serde(default)]
    pub cpuset_mems: Option<String>,
    /// Tasks (processes and threads).
    #[serde(default)]
    pub pids: Option<u64>,
    /// Memory and swap together, in bytes; not below `memory_bytes`, which must be given beside it.
    #[serde(default)]
    pub memory_swap_bytes: Option<u64>,
    /// Memory that is left to it when memory is short, in bytes; not above `memory_bytes`.
    #[serde(default)]
    pub memory_reservation_bytes: Option<u64>,
    /// Huge pages, by their size.
    #[serde(default)]
    pub hugepages: Vec<HugepageLimit>,
    /// Disks.
    #[serde(default)]
    pub block_io: BlockIo,
    /// Files of cgroup v2 and what is written to them, as in `memory.high`. They come last, and need a machine with cgroup v2.
    #[serde(default)]
    pub unified: BTreeMap<String, String>,
}

/// CPU time: so much in every period, of all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// How much, in microseconds; [`UNLIMITED`] lifts the limit.
    pub quota_us: u64,
    /// The period, in microseconds.
    pub period_us: u64,
}

/// What whoever planned a pod says that it takes. Plugins are told of it, and nothing is limited by it: sums over containers
/// leave out those without a limit, which such a limit would then hold down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodPlan {
    /// What it takes beside its containers.
    #[serde(default)]
    pub overhead: Resources,
    /// What its containers take together.
    #[serde(default)]
    pub containers: Resources,
}

impl PodPlan {
    /// This plan with what `change` says in place of its own.
    #[must_use]
    pub fn changed_by(&self, change: &PodPlan) -> PodPlan {
        PodPlan {
            overhead: self.overhead.changed_by(&change.overhead).in_force(),
            containers: self.containers.changed_by(&change.containers).in_force(),
        }
    }
}

/// A limit on huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugepageLimit {
    /// The size as the kernel names it: `2MB`, `1GB`.
    pub page_size: String,
    /// The most bytes in such pages.
    pub bytes: u64,
}

/// Limits on disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockIo {
    /// Weight against others when a disk is busy, 10 to 1000.
    #[serde(default)]
    pub weight: Option<u16>,
    /// Limits for single disks.
    #[serde(default)]
    pub devices: Vec<BlockDeviceLimit>,
}

/// Limits for one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDeviceLimit {
    /// Its node on the host, as in `/dev/sda`: a whole disk.
    pub path: PathBuf,
    /// Weight against others, 10 to 1000.
    #[serde(default)]
    pub weight: Option<u16>,
    /// Bytes read in a second.
    #[serde(default)]
    pub read_bps: Option<u64>,
    /// Bytes written in a second.
    #[serde(default)]
    pub write_bps: Option<u64>,
    /// Reads in a second.
    #[serde(default)]
    pub read_iops: Option<u64>,
    /// Writes in a second.
    #[serde(default)]
    pub write_iops: Option<u64>,
}

impl Resources {
    /// These limits with those of `change` in place of its own.
    #[must_use]
    pub fn changed_by(&self, change: &Resources) -> Resources {
        let Resources {
            memory_bytes,
            cpu_time,
            cpu_shares,
            cpuset_cpus,
            cpuset_mems,
            pids,
            memory_swap_bytes,
            memory_reservation_bytes,
            hugepages,
            block_io,
            unified,
        } = change.clone();
        let keep_sizes = |old: &&HugepageLimit| !hugepages.iter().any(|new| new.page_size == old.page_size);
        Resources {
            memory_bytes: memory_bytes.or(self.memory_bytes),
            cpu_time: cpu_time.or(self.cpu_time),
            cpu_shares: cpu_shares.or(self.cpu_shares),
            cpuset_cpus: cpuset_cpus.or_else(|| self.cpuset_cpus.clone()),
            cpuset_mems: cpuset_mems.or_else(|| self.cpuset_mems.clone()),
            pids: pids.or(self.pids),
            memory_swap_bytes: memory_swap_bytes.or(self.memory_swap_bytes),
            memory_reservation_bytes: memory_reservation_bytes.or(self.memory_reservation_bytes),
            hugepages: self.hugepages.iter().filter(keep_sizes).chain(&hugepages).cloned().collect(),
            block_io: self.block_io.changed_by(&block_io),
            unified: self.unified.clone().into_iter().chain(unified).collect(),
        }
    }

    /// What brings a container back to these limits after it was given `tried`, or a part of it. Weights, lists of CPUs and files
    /// of cgroup v2 that were not limited before stay as they were tried: what the kernel's own were is not known here.
    #[must_use]
    pub fn restoring(&self, tried: &Resources) -> Resources {
        let lifted = |limit: Option<u64>| limit.map(|_| UNLIMITED);
        let lift = Resources {
            memory_bytes: lifted(tried.memory_bytes),
            cpu_time: tried.cpu_time.map(|time| CpuTime { quota_us: UNLIMITED, ..time }),
            pids: lifted(tried.pids),
            memory_swap_bytes: lifted(tried.memory_swap_bytes),
            memory_reservation_bytes: lifted(tried.memory_reservation_bytes),
            hugepages: tried
                .hugepages
                .iter()
                .map(|limit| HugepageLimit { bytes: UNLIMITED, ..limit.clone() })
                .collect(),
            ..Resources::default()
        };
        lift.changed_by(self)
    }

    /// The limits that a container has afterwards: what was lifted is not given.
    #[must_use]
    pub fn in_force(mut self) -> Resources {
        let limits = [
            &mut self.memory_bytes,
            &mut self.pids,
            &mut self.memory_swap_bytes,
            &mut self.memory_reservation_bytes,
        ];
        for limit in limits {
            *limit = limit.filter(|value| *value != UNLIMITED);
        }
        self.cpu_time = self.cpu_time.filter(|time| time.quota_us != UNLIMITED);
        self.hugepages.retain(|limit| limit.bytes != UNLIMITED);
        for device in &mut self.block_io.devices {
            for rate in device.rates_mut() {
                *rate = rate.filter(|value| *value != UNLIMITED);
            }
        }
        self.block_io
            .devices
            .retain(|device| device.weight.is_some() || device.rates().iter().any(Option::is_some));
        self
    }
}

impl CpuTime {
    /// The period that is usual, which is the kernel's, in microseconds.
    pub const PERIOD_DEFAULT_US: u64 = 100_000;
    /// What lifts a limit.
    pub const UNLIMITED: Self = Self { quota_us: UNLIMITED, period_us: Self::PERIOD_DEFAULT_US };

    /// Thousandths of a CPU, in the usual period: 1500 is one and a half.
    pub fn of_millis(millis: u64) -> Self {
        let quota_us = match millis {
            UNLIMITED => UNLIMITED,
            millis => millis.saturating_mul(Self::PERIOD_DEFAULT_US / 1_000),
        };
        Self { quota_us, period_us: Self::PERIOD_DEFAULT_US }
    }
}

impl BlockIo {
    fn changed_by(&self, change: &BlockIo) -> BlockIo {
        let mut devices = self.devices.clone();
        for new in &change.devices {
            match devices.iter_mut().find(|old| old.path == new.path) {
                Some(old) => {
                    old.weight = new.weight.or(old.weight);
                    for (old, new) in old.rates_mut().into_iter().zip(new.rates()) {
                        *old = new.or(*old);
                    }
                }
                None => devices.push(new.clone()),
            }
        }
        BlockIo { weight: change.weight.or(self.weight), devices }
    }
}

impl BlockDeviceLimit {
    /// A device without limits.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            weight: None,
            read_bps: None,
            write_bps: None,
            read_iops: None,
            write_iops: None,
        }
    }

    /// Its four rates.
    pub fn rates(&self) -> [Option<u64>; 4] {
        [self.read_bps, self.write_bps, self.read_iops, self.write_iops]
    }

    fn rates_mut(&mut self) -> [&mut Option<u64>; 4] {
        [&mut self.read_bps, &mut self.write_bps, &mut self.read_iops, &mut self.write_iops]
    }
}
