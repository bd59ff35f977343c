//! Killing all that runs in a group.
//!
//! Owns: reaching every process, in groups that a container made itself too, however fast they fork, and no stranger.
//! Never: waits for a process to die; [`Cgroup::occupancy`] tells when all have.
//!
//! On a v2 tree the kernel does it in one write (`cgroup.kill`, 5.14). Then, and where that is not to be had, the
//! remaining hierarchies are gone through in rounds: freeze, list, kill what is listed, thaw, until a listing was
//! complete.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::controllers::Controller;
use crate::error::CgroupError;
use crate::freezer::FreezerState;
use crate::group::Cgroup;
use crate::hierarchy::{Node, Version};
use crate::layout::{HierarchyId, Home};
use crate::processes::processes;

/// The most rounds of one call. Two are usual; more are needed only against a group that forks and cannot be frozen.
pub const KILL_ROUNDS_MAX: usize = 32;
/// How many processes are held by a descriptor at the same time.
const PIDFDS_MAX: usize = 128;

/// What [`Cgroup::kill`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KillReport {
    /// The means.
    pub method: KillMethod,
    /// Processes that were signalled one by one. Those that `cgroup.kill` reached are not counted.
    pub signalled: usize,
    /// How it ended.
    pub outcome: KillOutcome,
}

/// The means of killing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillMethod {
    /// The group does not exist, so nothing was to be done.
    NothingThere,
    /// The kernel killed the whole v2 group.
    CgroupKill,
    /// Each process was signalled.
    Signals,
}

/// How far a kill got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillOutcome {
    /// Every process has its SIGKILL. It may take a while to die.
    AllSignalled,
    /// So many processes were still appearing after [`KILL_ROUNDS_MAX`] rounds, or belong to a pid namespace that cannot
    /// be seen from here. Call again.
    Remaining(usize),
}

impl Cgroup {
    /// Sends SIGKILL to all processes in the group and in the groups below it. A group that does not exist is killed
    /// already. Thaws a frozen group, so that its processes can die.
    pub fn kill(&self) -> Result<KillReport, CgroupError> {
        let mut report =
            KillReport { method: KillMethod::NothingThere, signalled: 0, outcome: KillOutcome::AllSignalled };
        let mut remaining = 0;
        for id in self.layout().ids() {
            let node = self.node(id);
            if node.hierarchy.version == Version::V2 {
                match node.write("cgroup.kill", "1") {
                    Ok(()) => {
                        report.method = KillMethod::CgroupKill;
                        continue;
                    }
                    // An older kernel, a threaded group, or no group: the rounds tell which.
                    Err(Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV) => {}
                    Err(errno) => return Err(CgroupError::io("write", node.file("cgroup.kill"), errno)),
                }
            }
            if !node.exists()? {
                continue;
            }
            if report.method == KillMethod::NothingThere {
                report.method = KillMethod::Signals;
            }
            let rounds = self.kill_in_rounds(id)?;
            report.signalled += rounds.signalled;
            remaining += rounds.remaining;
        }
        if remaining > 0 {
            report.outcome = KillOutcome::Remaining(remaining);
        }
        Ok(report)
    }

    fn kill_in_rounds(&self, id: HierarchyId) -> Result<Rounds, CgroupError> {
        let node = self.node(id);
        let mut signalled = HashSet::new();
        for _ in 0..KILL_ROUNDS_MAX {
            let round = self.kill_round(id, &mut signalled)?;
            if round.complete {
                return Ok(Rounds { signalled: signalled.len(), remaining: round.outside });
            }
        }
        let last = processes(node)?;
        let new = last.pids.difference(&signalled).count();
        Ok(Rounds { signalled: signalled.len(), remaining: new + last.outside })
    }

    /// One round. It is complete when nothing can have been missed: the group was frozen while it was listed, or the list
    /// named nobody new.
    fn kill_round(&self, id: HierarchyId, signalled: &mut HashSet<Pid>) -> Result<Round, CgroupError> {
        let node = self.node(id);
        let can_freeze =
            matches!(self.layout().home(Controller::Freezer), Some(Home::V1(f) | Home::V2(f)) if f == id);
        let frozen = can_freeze
            && self.freeze().is_ok()
            && self.freezer_state().is_ok_and(|s| s == FreezerState::Frozen);
        let listed = processes(node).and_then(|listed| {
            let new: Vec<Pid> = listed.pids.difference(signalled).copied().collect();
            signal_members(node, &listed.pids)?;
            signalled.extend(listed.pids);
            Ok(Round { complete: frozen || new.is_empty(), outside: listed.outside })
        });
        // Also after a failure: what was killed while frozen dies only when it is thawed.
        self.thaw_everywhere();
        listed
    }

    /// The v1 freezer may hold the group although the v2 tree is the one that freezes here; that it cannot be thawed shows as
    /// processes that do not die.
    fn thaw_everywhere(&self) {
        let _ = self.thaw();
        if let Some(id) = self.layout().v1_hierarchy(Controller::Freezer) {
            let _ = self.node(id).write("freezer.state", "THAWED");
        }
    }
}

struct Rounds {
    signalled: usize,
    remaining: usize,
}

struct Round {
    complete: bool,
    outside: usize,
}

/// Kills the listed processes, but no stranger that was given the number of one that ended since: a descriptor is opened for
/// each number, and used only if the group still lists that number afterwards. Whoever has the number then is a member; if the
/// descriptor's process is alive it is that one, and if it is not, the signal goes nowhere.
fn signal_members(node: Node<'_>, pids: &HashSet<Pid>) -> Result<(), CgroupError> {
    let pids: Vec<Pid> = pids.iter().copied().collect();
    for batch in pids.chunks(PIDFDS_MAX) {
        let mut held: Vec<(Pid, OwnedFd)> = Vec::with_capacity(batch.len());
        for pid in batch {
            match pidfd_open(*pid, PidfdFlags::empty()) {
                Ok(pidfd) => held.push((*pid, pidfd)),
                Err(Errno::SRCH) => {}
                Err(errno) => return Err(CgroupError::io("open a process of", node.dir(), errno)),
            }
        }
        let members = processes(node)?.pids;
        for (_, pidfd) in held.iter().filter(|(pid, _)| members.contains(pid)) {
            match pidfd_send_signal(pidfd, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(CgroupError::io("kill a process of", node.dir(), errno)),
            }
        }
    }
    Ok(())
}
