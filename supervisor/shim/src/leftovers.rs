//! What is left when a supervisor is gone that its shims were not to outlive, and who clears it away.
//!
//! Each of its shims ends its own pod. The zygote ends the pods whose shims were killed as well: it reads the end of its
//! socket when the supervisor ends, however that does. Whoever of them is the last removes the cgroup above the pods, and the
//! directory that was to be thrown away. A process that was killed together with all shims and the zygote leaves its cgroup
//! and directory to the next command that looks for such (its containers end with their shim).
//!
//! | killed with the supervisor | what is left |
//! |---|---|
//! | nobody, the zygote, or shims | nothing |
//! | the zygote and shims | cgroups without a process, and directories, of the pods of those shims |
//!
//! Owns: the order of the clearing, and that nothing is taken from a runtime that came after. Never: waits long.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mainstay_cgroups::{Cgroup, CgroupError, CgroupPath, GroupLock, Layout, Sharing, list_children};

/// The option with the state directory of the supervisor, so that its zygote can be told from others.
pub const STATE_OPTION: &str = "--state-dir";
/// The option with the cgroup above the pods, for a zygote that clears it.
pub const CGROUP_OPTION: &str = "--clear-cgroup";
/// The option with the directory that is thrown away when everything has ended.
pub const THROW_AWAY_OPTION: &str = "--throw-away";
/// How long the clearing may take, in milliseconds. What cannot be killed within it stays.
const CLEAR_MS: u64 = 10_000;
/// Time between two tries, in milliseconds.
const CLEAR_POLL_MS: u64 = 5;
/// The directory of the pods in the state directory.
const PODS: &str = "p";

/// What a supervisor would leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leftovers {
    cgroup: CgroupPath,
    pods: PathBuf,
    throw_away: Option<PathBuf>,
}

impl Leftovers {
    /// Those that a zygote is told of.
    pub(crate) fn parse(arguments: &[OsString]) -> Option<Self> {
        let value = |option: &str| {
            let words = arguments.windows(2).find(|words| words[0] == option)?;
            Some(words[1].clone())
        };
        Some(Self {
            cgroup: CgroupPath::parse(value(CGROUP_OPTION)?.to_str()?).ok()?,
            pods: Path::new(&value(STATE_OPTION)?).join(PODS),
            throw_away: value(THROW_AWAY_OPTION).map(PathBuf::from),
        })
    }

    /// Ends and removes all of it, together with the shims that are left. Blocks.
    pub(crate) fn clear(&self) {
        let Ok(layout) = Layout::detect() else { return };
        let deadline = Instant::now() + Duration::from_millis(CLEAR_MS);
        let group = Cgroup::open(&layout, &self.cgroup);
        match group.lock(Sharing::Shared) {
            Ok(lock) => {
                // Pods that a runtime makes that comes after are not among them.
                let directories = entries(&self.pods);
                for pod in list_children(&layout, &self.cgroup).unwrap_or_default() {
                    remove(&Cgroup::open(&layout, &pod), deadline);
                }
                directories.iter().for_each(|directory| remove_directory(directory, deadline));
                if remove_parent(&group, lock) == Parent::Gone {
                    self.throw_away(deadline);
                }
            }
            // The shims have ended all of it.
            Err(CgroupError::NotFound { .. }) => self.throw_away(deadline),
            // It is a new runtime's, or cannot be read.
            Err(_) => {}
        }
    }

    fn throw_away(&self, deadline: Instant) {
        if let Some(directory) = &self.throw_away {
            remove_directory(directory, deadline);
        }
    }
}

/// Removes the cgroup above a pod that has just ended, and with it, as the last one, the directory that is to be thrown away.
pub(crate) fn leave(layout: &Layout, pod: &CgroupPath, throw_away: Option<&Path>) {
    let Some(above) = pod.parent() else { return };
    let group = Cgroup::open(layout, &above);
    let parent = match group.lock(Sharing::Shared) {
        Ok(lock) => remove_parent(&group, lock),
        Err(CgroupError::NotFound { .. }) => Parent::Gone,
        // It is a new runtime's, or cannot be read.
        Err(_) => Parent::Stays,
    };
    if let (Parent::Gone, Some(directory)) = (parent, throw_away) {
        remove_directory(directory, Instant::now() + Duration::from_millis(CLEAR_MS));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    Gone,
    Stays,
}

/// The lock shows that no runtime has it.
fn remove_parent(group: &Cgroup, _lock: GroupLock) -> Parent {
    match group.remove_childless() {
        Ok(()) => Parent::Gone,
        Err(_) => Parent::Stays,
    }
}

/// Kills what is in a group and removes it.
fn remove(group: &Cgroup, deadline: Instant) {
    // Others remove it at the same time.
    let _ = group.kill();
    while group.remove().is_err() && Instant::now() < deadline {
        sleep(Duration::from_millis(CLEAR_POLL_MS));
        let _ = group.kill();
    }
}

/// Removes a directory that others may still write to, or remove as well.
fn remove_directory(directory: &Path, deadline: Instant) {
    loop {
        // What is mounted in it is somebody else's.
        match crate::delete::remove_own(directory) {
            Ok(()) if !directory.exists() => return,
            _ if Instant::now() < deadline => sleep(Duration::from_millis(CLEAR_POLL_MS)),
            _ => return,
        }
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_zygote_that_is_told_clears() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let outlived = "--zygote-fd 3 --state-dir /run/m";
        assert_eq!(Leftovers::parse(&words(outlived)), None);
        let leftovers = Leftovers::parse(&words(&format!("{outlived} --clear-cgroup /m"))).expect("told");
        assert_eq!((leftovers.pods.as_path(), &leftovers.throw_away), (Path::new("/run/m/p"), &None));
        let all = format!("{outlived} --clear-cgroup /m --throw-away /tmp/m");
        let leftovers = Leftovers::parse(&words(&all)).expect("told");
        assert_eq!(leftovers.throw_away.as_deref(), Some(Path::new("/tmp/m")));
    }
}
