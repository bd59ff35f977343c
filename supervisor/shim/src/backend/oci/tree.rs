//! A process with everything that it has started.
//!
//! Owns: finding and killing it. A runtime starts processes that start others, some of which leave it for the container: those
//! are killed by the container's cgroup. Never: signals by number: each is held by descriptor before it is known to be a child.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mainstay_messages::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::identity::{parent_of, send_signal};

/// The most processes of a tree. A runtime has a handful.
const TREE_MAX: usize = 1_024;
/// How often a tree is looked through for processes that were started meanwhile.
const ROUNDS_MAX: usize = 8;

/// Kills a child of this process and all its descendants. First it is stopped, so that it starts nothing more.
pub(super) fn kill(root: Pid, root_fd: BorrowedFd<'_>) {
    /// SIGSTOP.
    const STOP: Signal = Signal(19);
    // It may have ended, and is a zombie then.
    let _ = send_signal(root_fd, STOP);
    let mut tree: Vec<(Pid, OwnedFd)> = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let before = tree.len();
        let known: Vec<Pid> = [root].into_iter().chain(tree.iter().map(|(pid, _)| *pid)).collect();
        for parent in &known {
            for child in children(*parent) {
                if known.contains(&child) || tree.len() >= TREE_MAX {
                    continue;
                }
                let Ok(pidfd) = pidfd_open(child, PidfdFlags::empty()) else { continue };
                if parent_of(child) == Some(*parent) && !tree.iter().any(|(pid, _)| *pid == child) {
                    let _ = send_signal(pidfd.as_fd(), STOP);
                    tree.push((child, pidfd));
                }
            }
        }
        if tree.len() == before {
            break;
        }
    }
    for (_, pidfd) in tree.iter().rev() {
        // Ended already is as good.
        let _ = send_signal(pidfd.as_fd(), Signal::KILL);
    }
    let _ = send_signal(root_fd, Signal::KILL);
}

/// The children of all threads of a process.
fn children(parent: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", parent.as_raw_nonzero());
    let threads = std::fs::read_dir(tasks).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            let numbers = list.split_whitespace().filter_map(|word| word.parse().ok());
            numbers.filter_map(Pid::from_raw).collect::<Vec<_>>()
        })
        .collect()
}
