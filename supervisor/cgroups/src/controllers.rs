//! The kernel's resource controllers, by name and as a set.
//!
//! Owns: their names in v1 and v2. Never: knows where they are mounted.

use std::fmt;

/// One resource controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Controller {
    /// CPU time: shares and quota.
    Cpu,
    /// CPU accounting of v1; part of the core in v2.
    Cpuacct,
    /// Which CPUs and memory nodes.
    Cpuset,
    /// Memory and swap.
    Memory,
    /// The number of tasks.
    Pids,
    /// Access to device nodes; in v2 a BPF program.
    Devices,
    /// Freezing; part of the core in v2.
    Freezer,
    /// Block devices: `blkio` in v1, `io` in v2.
    Io,
    /// Huge pages.
    Hugetlb,
    /// Class ids of packets, v1 only.
    NetCls,
    /// Priorities of packets, v1 only.
    NetPrio,
    /// RDMA handles and objects.
    Rdma,
    /// Profiling; never limited here, but it is mounted beside the others.
    PerfEvent,
    /// Scalar resources of v2.
    Misc,
}

/// A set of controllers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Controllers(u16);

impl Controller {
    /// All of them.
    pub const ALL: [Controller; 14] = [
        Controller::Cpu,
        Controller::Cpuacct,
        Controller::Cpuset,
        Controller::Memory,
        Controller::Pids,
        Controller::Devices,
        Controller::Freezer,
        Controller::Io,
        Controller::Hugetlb,
        Controller::NetCls,
        Controller::NetPrio,
        Controller::Rdma,
        Controller::PerfEvent,
        Controller::Misc,
    ];

    /// The name in mount options and `/proc/cgroups`.
    pub fn v1_name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Cpuacct => "cpuacct",
            Controller::Cpuset => "cpuset",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Devices => "devices",
            Controller::Freezer => "freezer",
            Controller::Io => "blkio",
            Controller::Hugetlb => "hugetlb",
            Controller::NetCls => "net_cls",
            Controller::NetPrio => "net_prio",
            Controller::Rdma => "rdma",
            Controller::PerfEvent => "perf_event",
            Controller::Misc => "misc",
        }
    }

    /// The name in `cgroup.controllers`.
    pub fn v2_name(self) -> &'static str {
        match self {
            Controller::Io => "io",
            other => other.v1_name(),
        }
    }

    pub(crate) fn from_v1_name(name: &str) -> Option<Self> {
        Controller::ALL.into_iter().find(|controller| controller.v1_name() == name)
    }

    pub(crate) fn from_v2_name(name: &str) -> Option<Self> {
        Controller::ALL.into_iter().find(|controller| controller.v2_name() == name)
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.v1_name())
    }
}

impl Controllers {
    /// No controller.
    pub const NONE: Controllers = Controllers(0);

    /// This set and one more.
    #[must_use]
    pub const fn with(self, controller: Controller) -> Self {
        Controllers(self.0 | 1 << controller as u16)
    }

    /// This set without one.
    #[must_use]
    pub const fn without(self, controller: Controller) -> Self {
        Controllers(self.0 & !(1 << controller as u16))
    }

    /// What is in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Controllers(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Controllers(self.0 & other.0)
    }

    /// Whether `controller` is in the set.
    pub const fn contains(self, controller: Controller) -> bool {
        self.0 & 1 << controller as u16 != 0
    }

    /// Whether all of `other` is in the set.
    pub const fn contains_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members, in the order of [`Controller::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Controller> {
        Controller::ALL.into_iter().filter(move |controller| self.contains(*controller))
    }
}

impl FromIterator<Controller> for Controllers {
    fn from_iter<T: IntoIterator<Item = Controller>>(controllers: T) -> Self {
        controllers.into_iter().fold(Controllers::NONE, Controllers::with)
    }
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Controller::v1_name)).finish()
    }
}
