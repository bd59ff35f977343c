//! Control groups: makes them, limits them, reads them, kills what is in them, removes them.
//!
//! Owns: finding out how the machine mounts its hierarchies ([`Layout`]), the names of groups
//! ([`CgroupPath`]), and everything that is written to or read from one group ([`Cgroup`]).
//!
//! Never: decides what a container's limits are, waits for processes to end (killing is a request,
//! [`Cgroup::occupancy`] tells when it is done), starts threads, logs, or assumes a mount point.
//!
//! | layout | tracking, killing, freezing, CPU time | limits |
//! |---|---|---|
//! | v2 | the one tree | the one tree; devices by a BPF program |
//! | hybrid | the v2 tree | each controller where the machine has it, v1 as a rule |
//! | v1 | freezer (or pids) | v1 |
//!
//! A group is only made in the hierarchies that its limits need. [`Cgroup`] holds no state beside
//! its name: what exists is asked of the kernel each time, so a handle made by [`Cgroup::open`] after
//! a restart is as good as the one that made the group.
//!
//! ```no_run
//! use mainstay_cgroups::{Cgroup, CgroupPath, Layout};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let resources = oci_spec::runtime::LinuxResources::default();
//! let layout = Layout::detect()?;
//! let needs = layout.check(&resources)?;
//! let path = CgroupPath::parse("/mainstay/sandbox-1/web")?;
//! let group = Cgroup::create(&layout, &path, needs)?;
//! group.apply(&resources)?;
//! group.kill()?;
//! group.remove()?;
//! # Ok(())
//! # }
//! ```

mod blkio;
mod controllers;
mod details;
mod devices;
mod error;
mod freezer;
mod group;
mod hierarchy;
mod kill;
mod layout;
mod limits;
mod lock;
mod oom;
mod path;
mod plan;
mod processes;
mod stats;
mod tree;
mod v1;
mod v2;

pub use controllers::{Controller, Controllers};
pub use details::{DISKS_MAX, Details, DiskIo, HugepageUse, Pressure, Stall};
pub use devices::default_device_rules;
pub use error::{CgroupError, FieldName, Warning};
pub use freezer::FreezerState;
pub use group::{Cgroup, Occupancy, list_children};
pub use kill::{KILL_ROUNDS_MAX, KillMethod, KillOutcome, KillReport};
pub use layout::{Layout, LayoutSources, Mode};
pub use lock::{GroupLock, Sharing, holder_of};
pub use path::{CgroupPath, GROUP_DEPTH_MAX, GROUP_NAME_MAX_BYTES, PathError};
pub use stats::Stats;
