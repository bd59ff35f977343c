//! What a runtime may leak, counted from the kernel and not from what the runtime believes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What is there that belongs to one world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// cgroup directories of its cgroup and below, in every hierarchy.
    pub cgroups: BTreeSet<PathBuf>,
    /// Processes in them.
    pub processes: BTreeSet<u32>,
    /// Shims whose directory is below its own.
    pub shims: BTreeSet<u32>,
    /// Zygotes of its runtimes, and shims that were forked just now and still look like them.
    pub zygotes: BTreeSet<u32>,
    /// Mounts below its directory in this process's mount namespace.
    pub mounts: BTreeSet<String>,
    /// Pods' directories, what plugins were told of them, layers, log directories, names of network namespaces, leases and records
    /// of networks.
    pub directories: BTreeSet<PathBuf>,
}

impl Ledger {
    /// Counts.
    pub fn take(directory: &Path, cgroup: &str) -> Self {
        let mut ledger = Self::default();
        for top in cgroup_tops(cgroup) {
            collect_cgroups(&top, &mut ledger);
        }
        for (pid, role) in shims(directory) {
            match role {
                Role::Shim => ledger.shims.insert(pid),
                Role::Zygote => ledger.zygotes.insert(pid),
            };
        }
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let prefix = directory.to_string_lossy().into_owned();
        ledger.mounts.extend(mountinfo.lines().filter(|line| line.contains(&prefix)).map(str::to_owned));
        for kind in
            ["state/p", "state/nri", "root/layers", "root/logs", "state/netns", "root/network", "root/cni"]
        {
            // What was being written by one that was killed goes when the directory is next opened.
            let is_kept = |path: &PathBuf| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name == ".lock" || name.starts_with(".new")
            };
            ledger
                .directories
                .extend(entries(&directory.join(kind)).into_iter().filter(|path| !is_kept(path)));
        }
        ledger
    }
}

enum Role {
    Shim,
    Zygote,
}

/// Shims and zygotes that were started with a directory below `directory`, zombies left out.
fn shims(directory: &Path) -> Vec<(u32, Role)> {
    let below = directory.to_string_lossy().into_owned();
    let role = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let rest = line.strip_prefix("mainstay-shim\0").filter(|rest| rest.contains(&below))?;
        Some((pid, if rest.starts_with("--zygote-fd") { Role::Zygote } else { Role::Shim }))
    };
    let pids =
        entries(Path::new("/proc")).into_iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    pids.filter_map(role).collect()
}

/// The directory of a cgroup in each hierarchy that has it.
pub fn cgroup_tops(cgroup: &str) -> Vec<PathBuf> {
    let name = cgroup.trim_start_matches('/');
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut tops: Vec<_> = mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .filter_map(|line| line.split(' ').nth(4))
        .map(|mount| Path::new(mount).join(name))
        .filter(|path| path.is_dir())
        .collect();
    tops.sort();
    tops.dedup();
    tops
}

fn collect_cgroups(directory: &Path, ledger: &mut Ledger) {
    let procs = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    ledger.processes.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
    for child in entries(directory).into_iter().filter(|path| path.is_dir()) {
        collect_cgroups(&child, ledger);
    }
    ledger.cgroups.insert(directory.to_path_buf());
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
