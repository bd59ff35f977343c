//! Walks over the groups below a group, which a container may have made itself, as many and as deep as it liked.
//!
//! Owns: visiting and removing them with two descriptors at most, however deep the tree, and a bound on their
//! number. Never: follows a link or leaves the tree.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::CgroupError;
use crate::hierarchy::{EntryName, Node};

/// The most groups that one walk visits.
pub(crate) const TREE_GROUPS_MAX: usize = 65_536;
/// The link count of a directory without directories in it. A file system that does not count links so says 1.
const LEAF_LINKS: u64 = 2;

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Calls `visit` with the group and every group below it, parents first. Groups that vanish meanwhile are passed over,
/// the top included.
pub(crate) fn walk(
    top: Node<'_>,
    mut visit: impl FnMut(BorrowedFd<'_>) -> Result<(), CgroupError>,
) -> Result<(), CgroupError> {
    let io = |errno| CgroupError::io("walk", top.dir(), errno);
    let mut here = match top.open(OFlags::RDONLY) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(io(errno)),
    };
    visit(here.as_fd())?;
    let mut visited = 1;
    // What is left to visit at each level; `here` is the directory that the last list belongs to.
    let mut waiting = vec![groups_in(here.as_fd()).map_err(io)?];
    while let Some(level) = waiting.last_mut() {
        let Some(name) = level.pop() else {
            waiting.pop();
            if !waiting.is_empty() {
                here = parent(here.as_fd()).map_err(io)?;
            }
            continue;
        };
        let child = match rustix::fs::openat(&here, name.as_c_str(), OPEN_DIR, Mode::empty()) {
            Ok(child) => child,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(io(errno)),
        };
        visited += 1;
        if visited > TREE_GROUPS_MAX {
            return Err(CgroupError::TreeTooLarge { path: top.dir(), limit: TREE_GROUPS_MAX });
        }
        visit(child.as_fd())?;
        waiting.push(groups_in(child.as_fd()).map_err(io)?);
        here = child;
    }
    Ok(())
}

/// Removes the group and every group below it, children first. A group that is not there is removed already.
pub(crate) fn remove(top: Node<'_>) -> Result<(), CgroupError> {
    let io = |errno| CgroupError::io("remove", top.dir(), errno);
    let root = top.hierarchy.root().map_err(io)?;
    // The usual case, one call: nothing is below it.
    match remove_dir(root, top.relative).map_err(io)? {
        Removal::Gone => return Ok(()),
        Removal::Busy => {}
    }
    if remove_below(top)? == Removal::Gone && remove_dir(root, top.relative).map_err(io)? == Removal::Gone {
        return Ok(());
    }
    Err(CgroupError::Busy { path: top.dir() })
}

/// Removes the group if there is none below it. A group that is not there is removed already.
pub(crate) fn remove_childless(top: Node<'_>) -> Result<(), CgroupError> {
    let io = |errno| CgroupError::io("remove", top.dir(), errno);
    match remove_dir(top.hierarchy.root().map_err(io)?, top.relative).map_err(io)? {
        Removal::Gone => Ok(()),
        Removal::Busy => Err(CgroupError::Busy { path: top.dir() }),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    Gone,
    Busy,
}

fn remove_below(top: Node<'_>) -> Result<Removal, CgroupError> {
    let io = |errno| CgroupError::io("remove the groups in", top.dir(), errno);
    let mut here = match top.open(OFlags::RDONLY) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(Removal::Gone),
        Err(errno) => return Err(io(errno)),
    };
    let mut visited = 0;
    let mut outcome = Removal::Gone;
    let mut waiting = vec![(EntryName::default(), groups_in(here.as_fd()).map_err(io)?)];
    while let Some((_, level)) = waiting.last_mut() {
        if let Some(name) = level.pop() {
            visited += 1;
            if visited > TREE_GROUPS_MAX {
                return Err(CgroupError::TreeTooLarge { path: top.dir(), limit: TREE_GROUPS_MAX });
            }
            match rustix::fs::openat(&here, name.as_c_str(), OPEN_DIR, Mode::empty()) {
                Ok(child) => {
                    waiting.push((name, groups_in(child.as_fd()).map_err(io)?));
                    here = child;
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(io(errno)),
            }
            continue;
        }
        // Everything in `here` has been tried: go up and remove it, unless it is the top.
        if let Some((name, _)) = waiting.pop()
            && !waiting.is_empty()
        {
            here = parent(here.as_fd()).map_err(io)?;
            if remove_dir(here.as_fd(), name.as_c_str()).map_err(io)? == Removal::Busy {
                outcome = Removal::Busy;
            }
        }
    }
    Ok(outcome)
}

fn remove_dir(dir: BorrowedFd<'_>, path: impl rustix::path::Arg) -> Result<Removal, Errno> {
    match rustix::fs::unlinkat(dir, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(Removal::Gone),
        Err(Errno::BUSY | Errno::NOTEMPTY) => Ok(Removal::Busy),
        Err(errno) => Err(errno),
    }
}

/// The groups directly in a directory. A leaf, the usual case, is told by its link count without a listing.
pub(crate) fn groups_in(dir: BorrowedFd<'_>) -> Result<Vec<EntryName>, Errno> {
    if rustix::fs::fstat(dir)?.st_nlink as u64 == LEAF_LINKS {
        return Ok(Vec::new());
    }
    let mut groups = Vec::new();
    let mut entries = match Dir::read_from(dir) {
        Ok(entries) => entries,
        Err(Errno::NOENT) => return Ok(groups),
        Err(errno) => return Err(errno),
    };
    while let Some(entry) = entries.read() {
        match entry {
            Ok(entry) => {
                let name = entry.file_name();
                if entry.file_type() == FileType::Directory && name != c"." && name != c".." {
                    groups.push(name.to_owned());
                }
            }
            // The directory was removed while it was read.
            Err(Errno::NOENT) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(groups)
}

/// A cgroup directory cannot be moved to another place, so `..` is where the walk came from.
fn parent(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, c"..", OPEN_DIR, Mode::empty())
}
