//! How this machine mounts its cgroup hierarchies.
//!
//! Owns: reading `/proc/self/mountinfo`, `/proc/cgroups` and `cgroup.controllers`, and the answer to "where does
//! this controller live". Never: assumes a mount point, makes or changes a group.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oci_spec::runtime::LinuxResources;
use rustix::io::Errno;

use crate::controllers::{Controller, Controllers};
use crate::error::CgroupError;
use crate::hierarchy::{Hierarchy, Version};
use crate::plan::Plan;

/// `statfs` type of a v1 hierarchy (linux/magic.h).
const CGROUP_SUPER_MAGIC: u64 = 0x27_e0eb;
/// `statfs` type of the v2 tree (linux/magic.h).
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// Which generations of cgroups are mounted. What a limit does depends on where its own controller is, so this is for
/// people and logs rather than for decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only v1 hierarchies.
    V1,
    /// Only the v2 tree, perhaps beside v1 hierarchies without a controller.
    V2,
    /// v1 hierarchies with controllers, and the v2 tree beside them.
    Hybrid,
}

/// The texts that a layout is read from.
#[derive(Debug, Clone, Copy, Default)]
pub struct LayoutSources<'a> {
    /// `/proc/self/mountinfo`.
    pub mountinfo: &'a str,
    /// `/proc/cgroups`; may be empty.
    pub proc_cgroups: &'a str,
    /// `cgroup.controllers` at the top of the v2 tree; empty without one.
    pub v2_controllers: &'a str,
}

/// The hierarchies of a machine. Cheap to clone; the mount points are opened at first use and kept open.
#[derive(Debug, Clone)]
pub struct Layout {
    hierarchies: Arc<[Hierarchy]>,
}

/// A place in [`Layout::hierarchies`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HierarchyId(usize);

/// Where a controller lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    V1(HierarchyId),
    V2(HierarchyId),
}

impl Layout {
    /// Reads the layout of this machine as this process sees it. Mounts that another mount hides are left out.
    pub fn detect() -> Result<Self, CgroupError> {
        let mountinfo = read_proc("/proc/self/mountinfo")?;
        // Gone from kernels without v1.
        let proc_cgroups = read_proc("/proc/cgroups").unwrap_or_default();
        let sources =
            LayoutSources { mountinfo: &mountinfo, proc_cgroups: &proc_cgroups, v2_controllers: "" };
        let mut found = mounted(&sources, is_visible);
        for hierarchy in found.iter_mut().filter(|hierarchy| hierarchy.version == Version::V2) {
            let file = hierarchy.mount_point.join("cgroup.controllers");
            let listed = hierarchy.node(Path::new(".")).read("cgroup.controllers");
            hierarchy.controllers =
                v2_controllers(&listed.map_err(|errno| CgroupError::io("read", file, errno))?);
        }
        Layout::from_hierarchies(found)
    }

    /// Reads a layout from texts alone.
    pub fn parse(sources: &LayoutSources<'_>) -> Result<Self, CgroupError> {
        Layout::from_hierarchies(mounted(sources, |_| true))
    }

    fn from_hierarchies(found: Vec<Hierarchy>) -> Result<Self, CgroupError> {
        if found.is_empty() {
            return Err(CgroupError::NotMounted);
        }
        Ok(Layout { hierarchies: found.into() })
    }

    /// The same layout with all mount points moved below `root`: another root directory, or a recorded tree.
    #[must_use]
    pub fn below(&self, root: &Path) -> Self {
        let moved = |hierarchy: &Hierarchy| {
            let inside = hierarchy.mount_point.strip_prefix("/").unwrap_or(&hierarchy.mount_point);
            hierarchy.moved_to(root.join(inside))
        };
        Layout { hierarchies: self.hierarchies.iter().map(moved).collect() }
    }

    /// Which generations are mounted.
    pub fn mode(&self) -> Mode {
        let v2 = self.v2_tree().is_some();
        let v1 = self.hierarchies.iter().any(|h| h.version == Version::V1 && !h.controllers.is_empty());
        match (v1, v2) {
            (true, true) => Mode::Hybrid,
            (false, true) => Mode::V2,
            (_, false) => Mode::V1,
        }
    }

    /// The controllers that can hold limits, in either generation. Freezing, CPU accounting and device rules count where
    /// the v2 tree does them without a controller.
    pub fn controllers(&self) -> Controllers {
        Controller::ALL.into_iter().filter(|controller| self.home(*controller).is_some()).collect()
    }

    /// Where the v2 tree is mounted.
    pub fn v2_mount_point(&self) -> Option<&Path> {
        self.v2_tree().map(|id| self.hierarchy(id).mount_point.as_path())
    }

    /// Where the v1 hierarchy of a controller is mounted.
    pub fn v1_mount_point(&self, controller: Controller) -> Option<&Path> {
        self.v1_hierarchy(controller).map(|id| self.hierarchy(id).mount_point.as_path())
    }

    /// Says whether these limits can be set on this machine, before anything is made: every value is valid, and
    /// every controller that they need is there. Answers with the controllers that
    /// [`Cgroup::create`](crate::Cgroup::create) has to provide for them. Zero means "not set" throughout.
    pub fn check(&self, resources: &LinuxResources) -> Result<Controllers, CgroupError> {
        Plan::new(self, resources).map(|plan| plan.needs)
    }

    /// Where a controller lives. What the v2 tree does by itself is left to it; device rules are cheaper in v1, where
    /// there is one.
    pub(crate) fn home(&self, controller: Controller) -> Option<Home> {
        let v1 = self.v1_hierarchy(controller).map(Home::V1);
        let v2 = self.v2_tree().map(Home::V2);
        match controller {
            Controller::Cpuacct | Controller::Freezer => v2.or(v1),
            Controller::Devices => v1.or(v2),
            _ => v1.or(v2.filter(|_| self.v2_controllers().contains(controller))),
        }
    }

    pub(crate) fn hierarchy(&self, id: HierarchyId) -> &Hierarchy {
        &self.hierarchies[id.0]
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = HierarchyId> + use<> {
        (0..self.hierarchies.len()).map(HierarchyId)
    }

    pub(crate) fn v2_tree(&self) -> Option<HierarchyId> {
        self.ids().find(|id| self.hierarchy(*id).version == Version::V2)
    }

    pub(crate) fn v1_hierarchy(&self, controller: Controller) -> Option<HierarchyId> {
        self.ids().find(|id| {
            let hierarchy = self.hierarchy(*id);
            hierarchy.version == Version::V1 && hierarchy.controllers.contains(controller)
        })
    }

    pub(crate) fn v2_controllers(&self) -> Controllers {
        self.v2_tree().map_or(Controllers::NONE, |id| self.hierarchy(id).controllers)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::V1 => "v1",
            Mode::V2 => "v2",
            Mode::Hybrid => "hybrid",
        })
    }
}

/// The hierarchies among the mounts, each once. The whole of a hierarchy is preferred to a part of it that was bound
/// elsewhere, and an older mount to a newer one.
fn mounted(sources: &LayoutSources<'_>, usable: impl Fn(&Hierarchy) -> bool) -> Vec<Hierarchy> {
    let disabled = disabled_controllers(sources.proc_cgroups);
    let mut mounts: Vec<Mount<'_>> = Vec::new();
    for mount in sources.mountinfo.lines().filter_map(Mount::parse) {
        // A later mount on the same directory hides the earlier one.
        mounts.retain(|earlier| earlier.point != mount.point);
        mounts.push(mount);
    }
    mounts.sort_by_key(|mount| mount.root != "/");
    let mut found: Vec<(&str, Hierarchy)> = Vec::new();
    for mount in mounts {
        let hierarchy = match mount.kind {
            "cgroup2" => Hierarchy::new(Version::V2, mount.point, v2_controllers(sources.v2_controllers)),
            "cgroup" => {
                let listed = mount.options.split(',').filter_map(Controller::from_v1_name);
                let enabled = listed.filter(|controller| !disabled.contains(*controller)).collect();
                Hierarchy::new(Version::V1, mount.point, enabled)
            }
            _ => continue,
        };
        if !found.iter().any(|(device, _)| *device == mount.device) && usable(&hierarchy) {
            found.push((mount.device, hierarchy));
        }
    }
    found.into_iter().map(|(_, hierarchy)| hierarchy).collect()
}

/// One line of mountinfo (proc_pid_mountinfo(5)): `36 35 98:0 /root /point opts tags... - type source super-options`.
struct Mount<'a> {
    device: &'a str,
    root: &'a str,
    point: PathBuf,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(2);
        let (device, root, point) = (mount.next()?, mount.next()?, mount.next()?);
        let mut file_system = file_system.split(' ');
        let (kind, _source, options) = (file_system.next()?, file_system.next()?, file_system.next()?);
        Some(Mount { device, root, point: unescape(point), kind, options })
    }
}

/// Undoes the octal escapes of mountinfo (`\040` for a space).
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes
            .get(at + 1..at + 4)
            .filter(|digits| bytes[at] == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        if let Some(digits) = octal {
            plain.push(
                digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
            );
            at += 4;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

/// Controllers that the kernel's command line switched off: the last column of `/proc/cgroups` is 0.
fn disabled_controllers(proc_cgroups: &str) -> Controllers {
    let off = |line: &str| {
        let mut columns = line.split_whitespace();
        let name = columns.next()?;
        (columns.nth(2)? == "0").then(|| Controller::from_v1_name(name)).flatten()
    };
    proc_cgroups.lines().filter(|line| !line.starts_with('#')).filter_map(off).collect()
}

fn v2_controllers(listed: &str) -> Controllers {
    listed.split_whitespace().filter_map(Controller::from_v2_name).collect()
}

/// Whether the mount point still leads to the hierarchy, and not to something mounted over a directory above it.
fn is_visible(hierarchy: &Hierarchy) -> bool {
    let wanted = match hierarchy.version {
        Version::V1 => CGROUP_SUPER_MAGIC,
        Version::V2 => CGROUP2_SUPER_MAGIC,
    };
    rustix::fs::statfs(&hierarchy.mount_point).is_ok_and(|found| found.f_type as u64 == wanted)
}

fn read_proc(path: &'static str) -> Result<String, CgroupError> {
    std::fs::read_to_string(path).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        CgroupError::io("read", path, errno)
    })
}

#[cfg(test)]
mod tests;
