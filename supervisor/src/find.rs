//! Finding shims that no record leads to: started by a runtime that was killed before it could write down what it had
//! started.
//!
//! Owns: recognising them by their command line. Never: signals one.

use std::fs;
use std::os::unix::fs::MetadataExt;

use mainstay_messages::{ProcessIdentity, SandboxId};

use crate::identity::{identity_of, parent_of};
use crate::paths::Directories;
use crate::sealed::SHIM_NAME;

/// A shim that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundShim {
    /// The pod that it says it is for.
    pub sandbox: SandboxId,
    /// Its process.
    pub process: ProcessIdentity,
}

/// All shims that run with directories of ours, one for each pod.
///
/// A process that a shim has forked looks like it until it executes its own program; of those of one pod the oldest is
/// the shim.
pub fn find_shims(directories: &Directories) -> Vec<FoundShim> {
    let mut found = look_alikes(directories);
    found.dedup_by(|later, first| later.sandbox == first.sandbox);
    found
}

/// All shims that run with directories of ours, more than one for a pod if there are: what looks like a shim and was not
/// forked by another one of the same pod.
pub(crate) fn find_all_shims(directories: &Directories) -> Vec<FoundShim> {
    let found = look_alikes(directories);
    let forked = |shim: &FoundShim| {
        let parent = parent_of(shim.process.pid);
        found.iter().any(|other| other.sandbox == shim.sandbox && Some(other.process.pid) == parent)
    };
    found.iter().filter(|shim| !forked(shim)).cloned().collect()
}

/// Everything that looks like a shim of ours, by pod, the oldest first.
fn look_alikes(directories: &Directories) -> Vec<FoundShim> {
    let mut found: Vec<FoundShim> = processes().filter_map(|pid| recognise(directories, pid)).collect();
    found.sort_by(|a, b| {
        (&a.sandbox, a.process.start_ticks, a.process.pid).cmp(&(
            &b.sandbox,
            b.process.start_ticks,
            b.process.pid,
        ))
    });
    found
}

/// The shim of one pod.
pub fn find_shim(directories: &Directories, sandbox: &SandboxId) -> Option<ProcessIdentity> {
    find_shims(directories).into_iter().find(|shim| shim.sandbox == *sandbox).map(|shim| shim.process)
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn recognise(directories: &Directories, pid: u32) -> Option<FoundShim> {
    // The identity comes first: if the number passed to another process since, the command line is that one's.
    let process = identity_of(pid).ok()?;
    let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return None;
    }
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let (sandbox, directory) = parse(&command)?;
    let ours = directories.pod(&sandbox).to_str() == Some(directory.as_str());
    let same = identity_of(pid).is_ok_and(|now| now == process);
    (ours && same).then_some(FoundShim { sandbox, process })
}

/// Pod and directory in a command line of a shim.
fn parse(command: &[u8]) -> Option<(SandboxId, String)> {
    let mut words = command.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    if words.next()? != SHIM_NAME {
        return None;
    }
    let words: Vec<String> = words.map(|word| word.into_owned()).collect();
    let value = |option: &str| words.windows(2).find(|pair| pair[0] == option).map(|pair| pair[1].clone());
    Some((value("--sandbox")?.parse().ok()?, value("--dir")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_only_shims() {
        let line = b"mainstay-shim\0--sandbox\0pod\0--dir\0/run/m/p/pod\0--cgroup\0/mainstay/pod\0";
        let (sandbox, directory) = parse(line).expect("a shim");
        assert_eq!((sandbox.as_str(), directory.as_str()), ("pod", "/run/m/p/pod"));
        for other in
            [&b"sh\0-c\0mainstay-shim --sandbox pod"[..], b"", b"mainstay-shim\0--sandbox\0../x\0--dir\0/"]
        {
            assert!(parse(other).is_none());
        }
    }

    #[test]
    fn finds_none_where_there_is_none() {
        assert!(find_shims(&Directories::new("/nonexistent/state", "/nonexistent/root")).is_empty());
    }
}
