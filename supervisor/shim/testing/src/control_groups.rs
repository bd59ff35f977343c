//! The cgroup that a container's spec names, in whatever hierarchies there are. Owns: its directories. Never: sets a limit.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// Whether a cgroup of version 1 has no processors yet, which nobody has set here.
fn takes_nobody(path: &Path) -> bool {
    let is_v1 = !path.join("cgroup.controllers").exists();
    is_v1 && std::fs::read_to_string(path.join("cpuset.cpus")).is_ok_and(|cpus| cpus.trim().is_empty())
}

/// Directories of one cgroup, one in each hierarchy.
#[derive(Clone, Debug, Default)]
pub struct ControlGroup(Vec<PathBuf>);

impl ControlGroup {
    /// That of the spec of a bundle; nowhere if it names none.
    pub fn of(bundle: &Path) -> Self {
        let path = crate::container::spec_of(bundle)
            .ok()
            .and_then(|spec| spec.pointer("/linux/cgroupsPath")?.as_str().map(str::to_owned));
        let Some(path) = path else { return Self::default() };
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut tops: Vec<_> = mounts
            .lines()
            .filter(|line| line.contains(" - cgroup"))
            .filter_map(|line| line.split(' ').nth(4))
            .map(|mount| Path::new(mount).join(path.trim_start_matches('/')))
            .collect();
        tops.sort();
        tops.dedup();
        Self(tops)
    }

    /// Makes it and opens the files by which a process enters it.
    pub fn enter(&self) -> io::Result<Vec<File>> {
        self.0
            .iter()
            .filter_map(|path| match std::fs::create_dir_all(path) {
                Ok(()) if takes_nobody(path) => None,
                Ok(()) => Some(OpenOptions::new().write(true).open(path.join("cgroup.procs"))),
                Err(error) => Some(Err(error)),
            })
            .collect()
    }

    /// The processes in it.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self
            .0
            .iter()
            .flat_map(|path| {
                let text = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
                text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>()
            })
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Sends a signal to all of them.
    pub fn signal(&self, signal: Signal) {
        for pid in self.pids() {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                // It may just have ended.
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// Removes it; what is busy stays.
    pub fn remove(&self) {
        for path in &self.0 {
            let _ = std::fs::remove_dir(path);
        }
    }
}
