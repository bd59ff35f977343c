//! One group, in every hierarchy that it has a part in.
//!
//! Owns: making it, putting processes into it, listing and removing it. Never: remembers anything but its name.
//!
//! ```text
//!  open ──────────────► handle ──create──► exists ──apply/add──► populated ──kill──► empty ──remove──► gone
//!                         ▲                                                                            │
//!                         └────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Every operation may be repeated, and removing or killing what is not there succeeds. When `create` or `apply` fails
//! half way, [`Cgroup::remove`] is the undo.

mod apply;

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::LinuxResources;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::controllers::{Controller, Controllers};
use crate::error::{CgroupError, Warning};
use crate::hierarchy::{Made, Node, Version, keyed_number};
use crate::layout::{HierarchyId, Home, Layout};
use crate::path::CgroupPath;
use crate::processes::processes;
use crate::tree;

/// How often a group is tried to be made whose parent is removed meanwhile.
const MAKE_ATTEMPTS_MAX: usize = 4_096;

/// A handle on one group.
#[derive(Debug, Clone)]
pub struct Cgroup {
    layout: Layout,
    path: CgroupPath,
}

/// Whether anything runs in a group or below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupancy {
    /// No process, or no group at all.
    Empty,
    /// At least one process; one that was killed counts until it has died.
    Populated,
}

impl Cgroup {
    /// A handle without any effect; the group need not exist.
    pub fn open(layout: &Layout, path: &CgroupPath) -> Self {
        Cgroup { layout: layout.clone(), path: path.clone() }
    }

    /// Makes the group, and those above it, where it is needed: for tracking (the v2 tree; else the freezer or the pids
    /// hierarchy), for memory and CPU accounting, and for `needs` as [`Layout::check`] worked them out. What is there
    /// already is kept.
    ///
    /// In v2 a group that hands controllers down may hold no process itself, so a pod's own processes belong into a
    /// group beside those of its containers.
    pub fn create(layout: &Layout, path: &CgroupPath, needs: Controllers) -> Result<Self, CgroupError> {
        let group = Cgroup::open(layout, path);
        group.provide(needs.union(always_made(layout)))?;
        Ok(group)
    }

    /// The name of the group.
    pub fn path(&self) -> &CgroupPath {
        &self.path
    }

    /// Sets the limits, all those that are named and no other. Everything is checked before the first write, as
    /// [`Layout::check`] does; a hierarchy that the group has no part in yet is joined, with the processes it has. A group
    /// that exists nowhere is [`CgroupError::NotFound`]: an update that comes too late must not make it again.
    pub fn apply(&self, resources: &LinuxResources) -> Result<Vec<Warning>, CgroupError> {
        apply::apply(self, resources)
    }

    /// The group's directory in the v2 tree, for `clone3` with `CLONE_INTO_CGROUP`. `None` when there is no v2 tree, or
    /// the group is not in it.
    pub fn v2_dir(&self) -> Result<Option<OwnedFd>, CgroupError> {
        let Some(tree) = self.layout.v2_tree() else { return Ok(None) };
        let node = self.node(tree);
        match node.open(OFlags::PATH) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(CgroupError::io("open", node.dir(), errno)),
        }
    }

    /// The `cgroup.procs` files of the v1 hierarchies that the group has a part in. A process that was cloned into
    /// [`Cgroup::v2_dir`] is written to all of these.
    pub fn v1_procs(&self) -> Result<Vec<PathBuf>, CgroupError> {
        let mut files = Vec::new();
        for id in self.layout.ids().filter(|id| self.layout.hierarchy(*id).version == Version::V1) {
            if self.node(id).exists()? {
                files.push(self.node(id).file("cgroup.procs"));
            }
        }
        Ok(files)
    }

    /// Moves a process, with all of its threads, into the group in every hierarchy that the group has a part in.
    pub fn add(&self, pid: Pid) -> Result<(), CgroupError> {
        let mut joined = 0;
        for id in self.layout.ids() {
            joined += usize::from(self.join(id, pid)? == Made::New);
        }
        if joined == 0 {
            return Err(CgroupError::NotFound { path: self.path.clone() });
        }
        Ok(())
    }

    /// The processes in the group and in all groups below it, in any hierarchy. Processes outside of this process's pid
    /// namespace are not among them.
    pub fn pids(&self) -> Result<HashSet<Pid>, CgroupError> {
        let mut pids = HashSet::new();
        for id in self.layout.ids() {
            pids.extend(processes(self.node(id))?.pids);
        }
        Ok(pids)
    }

    /// Whether anything runs in the group. Costs one file on v2, where the kernel keeps count.
    pub fn occupancy(&self) -> Result<Occupancy, CgroupError> {
        for id in self.layout.ids() {
            let node = self.node(id);
            let populated = match node.hierarchy.version {
                Version::V2 => match node.read("cgroup.events") {
                    Ok(events) => keyed_number(&events, "populated") == Some(1),
                    Err(Errno::NOENT | Errno::NODEV) => false,
                    Err(errno) => return Err(CgroupError::io("read", node.file("cgroup.events"), errno)),
                },
                Version::V1 => {
                    let listed = processes(node)?;
                    !listed.pids.is_empty() || listed.outside > 0
                }
            };
            if populated {
                return Ok(Occupancy::Populated);
            }
        }
        Ok(Occupancy::Empty)
    }

    /// Removes the group and all groups below it from every hierarchy, going on past those that are busy.
    /// [`CgroupError::Busy`] means that a process is still in it, dying perhaps: kill, wait, and try again.
    pub fn remove(&self) -> Result<(), CgroupError> {
        self.remove_each(tree::remove)
    }

    /// Removes the group from every hierarchy in which no group is below it, so that a group that somebody is just making
    /// in it stays as it was made. [`CgroupError::Busy`] means that there is one, or a process.
    pub fn remove_childless(&self) -> Result<(), CgroupError> {
        self.remove_each(tree::remove_childless)
    }

    fn remove_each(&self, remove: impl Fn(Node<'_>) -> Result<(), CgroupError>) -> Result<(), CgroupError> {
        let mut failed = None;
        for id in self.layout.ids() {
            if let Err(error) = remove(self.node(id)) {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn node(&self, id: HierarchyId) -> Node<'_> {
        self.layout.hierarchy(id).node(self.path.relative())
    }

    /// Whether the group exists in any hierarchy.
    pub(crate) fn exists(&self) -> Result<bool, CgroupError> {
        for id in self.layout().ids() {
            if self.node(id).exists()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sees to it that the group exists in the hierarchies of these controllers, and that v2 hands them down to it. Answers
    /// with the hierarchies in which it was made just now.
    fn provide(&self, controllers: Controllers) -> Result<Vec<HierarchyId>, CgroupError> {
        let mut homes = BTreeSet::new();
        let mut handed_down = Controllers::NONE;
        for controller in controllers.iter() {
            match self.layout.home(controller) {
                Some(Home::V1(id)) => drop(homes.insert(id)),
                Some(Home::V2(id)) => {
                    homes.insert(id);
                    handed_down = handed_down.with(controller);
                }
                None => {}
            }
        }
        let mut made = Vec::new();
        for id in homes {
            if self.make(id)? == Made::New {
                made.push(id);
            }
            if self.layout.v2_tree() == Some(id) {
                self.hand_down(id, handed_down.intersection(self.layout.v2_controllers()))?;
            }
            if self.layout.home(Controller::Cpuset) == Some(Home::V1(id)) {
                self.fill_cpuset(id)?;
            }
        }
        Ok(made)
    }

    /// Makes the directory, and those above it only when they turn out to be missing. Whoever finds the one above empty may
    /// remove it between the two.
    fn make(&self, id: HierarchyId) -> Result<Made, CgroupError> {
        let node = self.node(id);
        for _ in 1..MAKE_ATTEMPTS_MAX {
            match node.make() {
                Err(Errno::NOENT) => {}
                other => return other.map_err(|errno| CgroupError::io("create", node.dir(), errno)),
            }
            for above in self.path.ancestors() {
                let above = node.hierarchy.node(above);
                match above.make() {
                    Err(Errno::NOENT) => break,
                    made => made.map_err(|errno| CgroupError::io("create", above.dir(), errno))?,
                };
            }
        }
        node.make().map_err(|errno| CgroupError::io("create", node.dir(), errno))
    }

    /// Enables v2 controllers on the way down to the group, unless it has them already.
    fn hand_down(&self, id: HierarchyId, wanted: Controllers) -> Result<(), CgroupError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let node = self.node(id);
        match node.read("cgroup.controllers") {
            Ok(listed) if has_all(&listed, wanted) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(CgroupError::io("read", node.file("cgroup.controllers"), errno)),
        }
        let command = wanted.iter().map(|c| format!("+{}", c.v2_name())).collect::<Vec<_>>().join(" ");
        let top = [Path::new(".")];
        for above in top.into_iter().chain(self.path.ancestors()) {
            let above = node.hierarchy.node(above);
            above.write("cgroup.subtree_control", &command).map_err(|errno| match errno {
                Errno::BUSY => {
                    CgroupError::InternalProcesses { path: above.dir(), controllers: command.clone() }
                }
                errno => CgroupError::io("write", above.file("cgroup.subtree_control"), errno),
            })?;
        }
        Ok(())
    }

    /// A new v1 cpuset has neither CPUs nor memory nodes, and takes no process until it has: they are copied from above. One
    /// that a crash left without them is completed too.
    fn fill_cpuset(&self, id: HierarchyId) -> Result<(), CgroupError> {
        let hierarchy = self.layout.hierarchy(id);
        let mut above = hierarchy.node(Path::new("."));
        for relative in self.path.ancestors().into_iter().chain([self.path.relative()]) {
            let node = hierarchy.node(relative);
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let read = |node: Node<'_>| {
                    node.read(file).map_err(|errno| CgroupError::io("read", node.file(file), errno))
                };
                if read(node)?.trim().is_empty() {
                    let inherited = read(above)?;
                    node.write(file, inherited.trim())
                        .map_err(|errno| CgroupError::io("write", node.file(file), errno))?;
                }
            }
            above = node;
        }
        Ok(())
    }

    /// `Already` when the group has no part in this hierarchy, so that there is nothing to join.
    fn join(&self, id: HierarchyId, pid: Pid) -> Result<Made, CgroupError> {
        let node = self.node(id);
        match node.write("cgroup.procs", &pid.as_raw_nonzero().to_string()) {
            Ok(()) => Ok(Made::New),
            Err(Errno::NOENT) => Ok(Made::Already),
            Err(errno) => Err(CgroupError::io("add a process to", node.file("cgroup.procs"), errno)),
        }
    }
}

/// The groups directly below `path`, in any hierarchy, by name. None when there is no such group.
pub fn list_children(layout: &Layout, path: &CgroupPath) -> Result<Vec<CgroupPath>, CgroupError> {
    let mut children = BTreeSet::new();
    for id in layout.ids() {
        let node = layout.hierarchy(id).node(path.relative());
        let io = |errno| CgroupError::io("list", node.dir(), errno);
        let dir = match node.open(OFlags::RDONLY) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(io(errno)),
        };
        for name in tree::groups_in(dir.as_fd()).map_err(io)? {
            children.insert(path.listed(OsStr::from_bytes(name.to_bytes())));
        }
    }
    Ok(children.into_iter().collect())
}

fn has_all(listed: &str, wanted: Controllers) -> bool {
    let has: Controllers = listed.split_whitespace().filter_map(Controller::from_v2_name).collect();
    has.contains_all(wanted)
}

/// What every group is made in: memory for its counters and OOM kills, and what tracks, freezes and accounts. Where the
/// v2 tree is, the last two are its own.
fn always_made(layout: &Layout) -> Controllers {
    let tracking =
        if layout.home(Controller::Freezer).is_some() { Controller::Freezer } else { Controller::Pids };
    let mut always = Controllers::NONE.with(Controller::Memory).with(Controller::Cpuacct).with(tracking);
    // On v2 the counter costs nothing once the group is there; on v1 it would be one more hierarchy to join.
    if matches!(layout.home(Controller::Pids), Some(Home::V2(_))) {
        always = always.with(Controller::Pids);
    }
    always
}
