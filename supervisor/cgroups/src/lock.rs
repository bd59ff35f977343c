//! Whose a group is, across processes.
//!
//! An flock(2) on the directory of the group, which the kernel drops with its holder, however that ends. It is that of the
//! hierarchy which tracks processes, so that all who see the same cgroup file systems mean the same one. Nothing in the kernel
//! heeds it: it is an agreement between those who ask for it.
//!
//! Owns: taking the lock of a directory that is still there, and finding out who has it. Never: waits for it.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FlockOperation, OFlags, flock, fstat, major, minor};
use rustix::io::Errno;

use crate::controllers::Controller;
use crate::error::CgroupError;
use crate::group::Cgroup;
use crate::hierarchy::Node;
use crate::layout::Home;

/// How many may hold a lock at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// One.
    Exclusive,
    /// Any number, but none while somebody holds it alone.
    Shared,
}

/// The lock of a group, until it is dropped.
#[derive(Debug)]
pub struct GroupLock {
    directory: OwnedFd,
}

impl Cgroup {
    /// Takes the lock of the group, which must be there. [`CgroupError::Locked`] when others hold it,
    /// [`CgroupError::NotFound`] also when the group was removed at this moment.
    pub fn lock(&self, sharing: Sharing) -> Result<GroupLock, CgroupError> {
        let node = self.lock_node();
        let io = |errno| CgroupError::io("lock", node.dir(), errno);
        let gone = || CgroupError::NotFound { path: self.path().clone() };
        let directory = match node.open(OFlags::RDONLY) {
            Err(Errno::NOENT) => return Err(gone()),
            opened => opened.map_err(io)?,
        };
        let operation = match sharing {
            Sharing::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Sharing::Shared => FlockOperation::NonBlockingLockShared,
        };
        match flock(&directory, operation) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = holder_of(directory.as_fd());
                return Err(CgroupError::Locked { path: node.dir(), holder });
            }
            Err(errno) => return Err(io(errno)),
        }
        let lock = GroupLock { directory };
        match node.open(OFlags::PATH) {
            Ok(named)
                if inode(named.as_fd()).map_err(io)? == inode(lock.directory.as_fd()).map_err(io)? =>
            {
                Ok(lock)
            }
            Ok(_) | Err(Errno::NOENT) => Err(gone()),
            Err(errno) => Err(io(errno)),
        }
    }

    fn lock_node(&self) -> Node<'_> {
        let layout = self.layout();
        let home = [Controller::Freezer, Controller::Pids].into_iter().find_map(|one| layout.home(one));
        let tracking = home.map(|home| match home {
            Home::V1(id) | Home::V2(id) => id,
        });
        let id = layout.v2_tree().or(tracking).or_else(|| layout.ids().next());
        // A layout without any hierarchy is refused when it is detected.
        self.node(id.expect("a layout has a hierarchy"))
    }
}

impl Drop for GroupLock {
    fn drop(&mut self) {
        // Not only closed: a child that this process is just starting may have a copy of the descriptor.
        let _ = flock(&self.directory, FlockOperation::Unlock);
    }
}

/// The process that holds an flock(2) on a file or directory, as the kernel lists it. None when nobody does, or nobody that
/// this process can see.
pub fn holder_of(file: BorrowedFd<'_>) -> Option<u32> {
    let (device, inode) = inode(file).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    listed_holder(&locks, device, inode)
}

/// A row is `12: FLOCK  ADVISORY  WRITE 4711 00:1c:5678 0 EOF`, the device in hexadecimal (proc_locks(5)). The rows of those
/// who only wait have an arrow before the kind.
fn listed_holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    locks.lines().find_map(|row| {
        let mut words = row.split_ascii_whitespace().skip(1);
        let is_lock = words.next() == Some("FLOCK");
        let pid = words.nth(2)?.parse::<u32>().ok().filter(|pid| *pid != 0)?;
        (is_lock && words.next() == Some(place.as_str())).then_some(pid)
    })
}

fn inode(file: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn finds_the_holder_among_others() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:1c:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 00:1c:5679 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 13 00:1c:5678 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 14 00:1c:5678 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fe:00:9 0 EOF\n";
        assert_eq!(listed_holder(locks, makedev(0, 0x1c), 5678), Some(13));
        assert_eq!(listed_holder(locks, makedev(0, 0x1c), 5680), None);
        assert_eq!(listed_holder(locks, makedev(0xfe, 0), 9), None, "of another pid namespace");
    }
}
