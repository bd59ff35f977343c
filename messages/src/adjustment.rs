//! What plugins have changed of a container before it was made, as the runtime keeps and applies it.
//!
//! It stands beside the [`ContainerSpec`](crate::spec::ContainerSpec), which stays what the caller asked for: the container is
//! the spec with this on top. Names are those of the OCI runtime specification where it has any. Only the NRI adapter makes one,
//! from what it has checked; all that is in one can be honoured or is refused by name when the container is made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::spec::{CpuTime, Resources, Rlimit, UNLIMITED};

/// The largest adjustment, in bytes as plugins sent it, all of them together.
pub const ADJUSTMENT_LENGTH_MAX: usize = 1_048_576;

/// Changes of a container. Where a value is an `Option` in a map, none means that the entry is taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Adjustment {
    /// Annotations.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Mounts, by where they are in the container; at most one entry for each place.
    pub mounts: Vec<MountChange>,
    /// Environment variables; at most one entry for each name. New ones come in this order.
    pub env: Vec<(String, Option<String>)>,
    /// Program and arguments, in place of those of the spec.
    pub args: Option<Vec<String>>,
    /// Hooks to run beside others.
    pub hooks: Hooks,
    /// Resource limits (setrlimit), in place of those of the same name.
    pub rlimits: Vec<Rlimit>,
    /// Devices by their names in the Container Device Interface, as in `vendor.com/class=device`.
    pub cdi_devices: Vec<String>,
    /// Device nodes; at most one entry for each path in the container.
    pub devices: Vec<DeviceChange>,
    /// Limits by cgroup.
    pub resources: ResourceChange,
    /// `oom_score_adj`.
    pub oom_score_adj: Option<i32>,
    /// Priority at disks.
    pub io_priority: Option<IoPriority>,
    /// The system call filter, as JSON of OCI's `linux.seccomp`.
    pub seccomp: Option<String>,
    /// Namespaces by their kind as OCI names it (`network`, `ipc`, …): a path to join, empty for a new one.
    pub namespaces: BTreeMap<String, Option<String>>,
    /// Kernel parameters.
    pub sysctls: BTreeMap<String, Option<String>>,
    /// Network devices of the host that are moved into the container: what they are called there.
    pub net_devices: BTreeMap<String, String>,
    /// CPU scheduler.
    pub scheduler: Option<Scheduler>,
    /// Where memory comes from.
    pub memory_policy: Option<MemoryPolicy>,
}

/// A change of one mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountChange {
    /// Nothing is mounted there.
    Remove {
        /// Where, in the container.
        destination: PathBuf,
    },
    /// This is mounted, in place of what was to be there.
    Put {
        /// Where, in the container.
        destination: PathBuf,
        /// The type of file system; `bind`, or empty, for a path of the host.
        kind: String,
        /// What.
        source: String,
        /// How, as mount(8) says it.
        options: Vec<String>,
    },
}

/// A change of one device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceChange {
    /// There is none.
    Remove {
        /// Its path in the container.
        path: PathBuf,
    },
    /// There is this one, and it may be used.
    Put(DeviceNode),
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// Its path in the container.
    pub path: PathBuf,
    /// `c`, `b`, `u` or `p`.
    pub kind: String,
    /// Its major number.
    pub major: i64,
    /// Its minor number.
    pub minor: i64,
    /// Its permissions.
    pub mode: Option<u32>,
    /// Its owner.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
}

/// Hooks, by when they run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hooks {
    /// On the host, before `create_runtime`.
    pub prestart: Vec<Hook>,
    /// On the host, when everything is mounted and the root is not entered.
    pub create_runtime: Vec<Hook>,
    /// In the container's namespaces, before the root is entered.
    pub create_container: Vec<Hook>,
    /// In the container, before its program runs.
    pub start_container: Vec<Hook>,
    /// On the host, when the program runs.
    pub poststart: Vec<Hook>,
    /// On the host, when the container is deleted.
    pub poststop: Vec<Hook>,
}

/// A program to run at a certain point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Absolute path.
    pub path: PathBuf,
    /// Its arguments, its own name among them.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<String>,
    /// How long it may take, in seconds.
    pub timeout_s: Option<u64>,
}

/// Limits by cgroup, as OCI's `linux.resources` has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceChange {
    /// Memory, in bytes; -1 is no limit.
    pub memory_limit: Option<i64>,
    /// Memory that is left to it when memory is short, in bytes.
    pub memory_reservation: Option<i64>,
    /// Memory and swap together, in bytes.
    pub memory_swap: Option<i64>,
    /// Memory of the kernel, in bytes.
    pub memory_kernel: Option<i64>,
    /// Memory of TCP buffers, in bytes.
    pub memory_kernel_tcp: Option<i64>,
    /// 0 to 100.
    pub memory_swappiness: Option<u64>,
    /// Whether the out-of-memory killer is off.
    pub disable_oom_killer: Option<bool>,
    /// Whether groups below count.
    pub use_hierarchy: Option<bool>,
    /// Weight at the CPU, in the unit of cgroup v1.
    pub cpu_shares: Option<u64>,
    /// CPU time in a period, in microseconds; -1 is no limit.
    pub cpu_quota: Option<i64>,
    /// The period, in microseconds.
    pub cpu_period: Option<u64>,
    /// Real-time CPU time in a period, in microseconds.
    pub cpu_realtime_runtime: Option<i64>,
    /// The period of that, in microseconds.
    pub cpu_realtime_period: Option<u64>,
    /// The CPUs that it may run on.
    pub cpuset_cpus: Option<String>,
    /// The memory nodes that it may use.
    pub cpuset_mems: Option<String>,
    /// Tasks; -1 is no limit.
    pub pids: Option<i64>,
    /// Huge pages: their size, and bytes.
    pub hugepages: BTreeMap<String, u64>,
    /// Files of cgroup v2.
    pub unified: BTreeMap<String, String>,
    /// Devices that it may use, or not, after all other rules.
    pub device_rules: Vec<DeviceAccess>,
}

/// A rule about devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAccess {
    /// Whether it allows or forbids.
    pub allow: bool,
    /// `a`, `b` or `c`; `a` when empty.
    pub kind: String,
    /// The major number; any when not given.
    pub major: Option<i64>,
    /// The minor number; any when not given.
    pub minor: Option<i64>,
    /// Letters of `rwm`.
    pub access: String,
}

/// Priority at disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPriority {
    /// As OCI names it: `IOPRIO_CLASS_BE`.
    pub class: String,
    /// 0 to 7.
    pub priority: i32,
}

/// CPU scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    /// As OCI names it: `SCHED_OTHER`.
    pub policy: String,
    /// -20 to 19.
    pub nice: i32,
    /// 1 to 99 for the real-time policies, else 0.
    pub priority: i32,
    /// As OCI names them: `SCHED_FLAG_RESET_ON_FORK`.
    pub flags: Vec<String>,
    /// Of `SCHED_DEADLINE`, in nanoseconds.
    pub runtime: u64,
    /// Of `SCHED_DEADLINE`, in nanoseconds.
    pub deadline: u64,
    /// Of `SCHED_DEADLINE`, in nanoseconds.
    pub period: u64,
}

/// Where memory comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPolicy {
    /// As OCI names it: `MPOL_BIND`.
    pub mode: String,
    /// A list of nodes, as in `0-2,4`.
    pub nodes: String,
    /// As OCI names them: `MPOL_F_STATIC_NODES`.
    pub flags: Vec<String>,
}

impl Adjustment {
    /// Whether it changes anything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it has a say about what is mounted at a place in the container.
    pub fn changes_mount(&self, target: &Path) -> bool {
        self.mounts.iter().any(|change| match change {
            MountChange::Remove { destination } | MountChange::Put { destination, .. } => {
                destination == target
            }
        })
    }

    /// Annotations with the changes.
    #[must_use]
    pub fn annotations_of(&self, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut all = own.clone();
        for (key, value) in &self.annotations {
            match value {
                Some(value) => drop(all.insert(key.clone(), value.clone())),
                None => drop(all.remove(key)),
            }
        }
        all
    }
}

impl ResourceChange {
    /// The limits that a container has with it that was to have `own`: what readers see, and what later changes start from.
    #[must_use]
    pub fn limits_of(&self, own: &Resources) -> Resources {
        own.changed_by(&self.as_limits(own)).in_force()
    }

    /// What of it [`Resources`] can say.
    fn as_limits(&self, own: &Resources) -> Resources {
        let bound = |value: Option<i64>| value.map(|value| u64::try_from(value).unwrap_or(UNLIMITED));
        Resources {
            memory_bytes: bound(self.memory_limit),
            // The sum that was asked for has the old limit in it.
            memory_swap_bytes: bound(self.memory_swap)
                .or_else(|| own.memory_swap_bytes.and(bound(self.memory_limit))),
            memory_reservation_bytes: bound(self.memory_reservation),
            cpu_time: self.cpu_time(own),
            cpu_shares: self.cpu_shares,
            cpuset_cpus: self.cpuset_cpus.clone(),
            cpuset_mems: self.cpuset_mems.clone(),
            pids: bound(self.pids),
            hugepages: self
                .hugepages
                .iter()
                .map(|(page_size, bytes)| crate::spec::HugepageLimit {
                    page_size: page_size.clone(),
                    bytes: *bytes,
                })
                .collect(),
            ..Resources::default()
        }
    }

    fn cpu_time(&self, own: &Resources) -> Option<CpuTime> {
        let before = own.cpu_time;
        let period_us = self.cpu_period.filter(|period| *period > 0);
        let quota_us = match (self.cpu_quota, period_us) {
            (None, None) => return None,
            (Some(quota), _) => u64::try_from(quota).unwrap_or(UNLIMITED),
            (None, Some(_)) => before?.quota_us,
        };
        let period_us = period_us.or(before.map(|time| time.period_us)).unwrap_or(CpuTime::PERIOD_DEFAULT_US);
        Some(CpuTime { quota_us, period_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ContainerRecord;

    #[test]
    fn annotations_come_and_go() {
        let own = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let adjustment = Adjustment {
            annotations: BTreeMap::from([("a".to_owned(), None), ("c".to_owned(), Some("3".to_owned()))]),
            ..Adjustment::default()
        };
        let all = adjustment.annotations_of(&own);
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [("b".into(), "2".into()), ("c".into(), "3".into())]);
    }

    #[test]
    fn limits_are_those_of_the_spec_with_the_changes() {
        let own = Resources {
            memory_bytes: Some(64 << 20),
            memory_swap_bytes: Some(128 << 20),
            cpu_time: Some(CpuTime::of_millis(500)),
            pids: Some(7),
            ..Resources::default()
        };
        let change = ResourceChange {
            memory_limit: Some(32 << 20),
            cpu_quota: Some(20_000),
            cpu_period: Some(10_000),
            pids: Some(-1),
            ..ResourceChange::default()
        };
        let now = change.limits_of(&own);
        assert_eq!((now.memory_bytes, now.memory_swap_bytes), (Some(32 << 20), Some(32 << 20)));
        let two = CpuTime { quota_us: 20_000, period_us: 10_000 };
        assert_eq!((now.cpu_time, now.pids), (Some(two), None));
        let other_period = ResourceChange { cpu_period: Some(50_000), ..ResourceChange::default() };
        let one = CpuTime { quota_us: 50_000, period_us: 50_000 };
        assert_eq!(other_period.limits_of(&own).cpu_time, Some(one));
    }

    #[test]
    fn a_record_is_adjusted_once() {
        let mut spec = crate::ContainerSpec::new("c".parse().expect("a name"), ["true"]);
        spec.resources.cpu_time = Some(CpuTime::of_millis(500));
        let ids = ("c".parse().expect("an id"), "p".parse().expect("an id"));
        let record = ContainerRecord::intent(ids.0, ids.1, spec, "/log".into(), crate::Timestamp(1));
        let mut adjustment = Adjustment::default();
        adjustment.resources.cpu_period = Some(50_000);
        let mut record = record.adjusted(adjustment.clone());
        assert_eq!(record.limits().cpu_time, Some(CpuTime { quota_us: 50_000, period_us: 50_000 }));
        record.limits = Some(Resources { cpu_time: Some(CpuTime::of_millis(250)), ..Resources::default() });
        assert_eq!(record.adjusted(adjustment).limits().cpu_time, Some(CpuTime::of_millis(250)));
    }

    #[test]
    fn it_is_read_from_a_record_that_has_less() {
        let read: Adjustment = serde_json::from_str(r#"{"args": ["sh"]}"#).expect("readable");
        assert_eq!(read.args.as_deref(), Some(["sh".to_owned()].as_slice()));
        assert!(!read.is_empty() && Adjustment::default().is_empty());
    }
}
