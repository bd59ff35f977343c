//! The processes of a group.
//!
//! Owns: listing them, in groups that a container made or made threaded too. Never: signals them.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::error::CgroupError;
use crate::hierarchy::{Hierarchy, Node, Version, read_at};
use crate::tree;

/// What was listed in one hierarchy.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub pids: HashSet<Pid>,
    /// Processes that this process's pid namespace does not see; the kernel lists them as 0.
    pub outside: usize,
}

/// The processes of a group and of those below it, in one hierarchy.
pub(crate) fn processes(top: Node<'_>) -> Result<Listed, CgroupError> {
    let mut listed = Listed::default();
    tree::walk(top, |dir| {
        let text = match process_list(dir, top.hierarchy) {
            Ok(text) => text,
            // Removed while we were here.
            Err(Errno::NOENT | Errno::NODEV) => return Ok(()),
            Err(errno) => return Err(CgroupError::io("list the processes in", top.dir(), errno)),
        };
        for number in text.lines().filter_map(|line| line.parse::<i32>().ok()) {
            match Pid::from_raw(number) {
                Some(pid) => drop(listed.pids.insert(pid)),
                None => listed.outside += 1,
            }
        }
        Ok(())
    })?;
    Ok(listed)
}

/// A v2 group that was made threaded does not list processes, only threads: a container that may write to its own group
/// could hide there. So its threads are listed, by the process that each belongs to.
fn process_list(dir: BorrowedFd<'_>, hierarchy: &Hierarchy) -> Result<String, Errno> {
    match read_at(dir, "cgroup.procs") {
        Err(Errno::OPNOTSUPP) if hierarchy.version == Version::V2 => {}
        other => return other,
    }
    let threads = read_at(dir, "cgroup.threads")?;
    let leaders: BTreeSet<String> = threads.lines().filter_map(leader).collect();
    Ok(leaders.into_iter().collect::<Vec<_>>().join("\n"))
}

/// The process of a thread; `None` when it has ended.
fn leader(thread: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")).map(|leader| leader.trim().to_owned())
}
