//! The cgroups of a runtime that is measured, as the kernel has them.
//!
//! Owns: looking into every hierarchy, of either version. Never: asks the runtime, which is what is doubted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel shows cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The directories of a cgroup, in all hierarchies in which it may be.
pub fn tops(cgroup: &str) -> io::Result<Vec<PathBuf>> {
    let name = cgroup.trim_start_matches('/');
    let hierarchies = fs::read_dir(CGROUPS)?.flatten().map(|entry| entry.path().join(name));
    Ok(hierarchies.chain([Path::new(CGROUPS).join(name)]).collect())
}

/// The processes in a cgroup and below it, in whatever hierarchy; none where it is not there.
pub fn processes(cgroup: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    tops(cgroup)?.iter().for_each(|top| collect(top, &mut found));
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn collect(directory: &Path, found: &mut Vec<u32>) {
    let procs = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    found.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
    let below = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    below.filter(|path| path.is_dir()).for_each(|path| collect(&path, found));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_has_no_processes() {
        assert_eq!(processes("/mainstay-no-such-cgroup").ok(), Some(Vec::new()));
    }

    #[test]
    fn a_process_is_found_in_its_cgroup() {
        let own = fs::read_to_string("/proc/self/cgroup").expect("readable");
        let path = own.lines().find_map(|line| line.rsplit(':').next()).expect("in a cgroup");
        assert!(processes(path).expect("readable").contains(&std::process::id()), "{path}");
    }
}
