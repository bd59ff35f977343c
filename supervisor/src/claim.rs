//! What belongs to one runtime alone: its state directory, and the cgroup above those of its pods.
//!
//! Two runtimes with a directory or cgroup in common would adopt, kill and remove each other's pods. So each takes two locks
//! before it looks at anything: one on a file of the state directory, one on the cgroup (both flock(2), which the kernel drops
//! with the process). They are closed on exec: no shim holds them, and a runtime that was killed can be started again at once.
//!
//! Owns: the locks, making the cgroup, and removing it, once no pod is in it, while it is still locked. Never: looks at a pod.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mainstay_cgroups::{Cgroup, CgroupError, CgroupPath, Controllers, GroupLock, Layout, Sharing, holder_of};
use mainstay_messages::{Error, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use crate::cgroup;
use crate::paths::Directories;
use crate::settings::SupervisorSettings;

/// How long a runtime waits for one before it to let go, in milliseconds: one that was killed may still be dying, or what it
/// left behind may still be cleared away.
pub const CLAIM_WAIT_MS: u64 = 3_000;
/// Time between two tries, in milliseconds.
const CLAIM_POLL_MS: u64 = 10;
/// The mode of the lock file.
const LOCK_FILE_MODE: u32 = 0o600;

/// The right to a state directory and a cgroup, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    group: Cgroup,
    _cgroup: GroupLock,
    _state: StateLock,
}

/// Why a try was in vain.
enum Refused {
    /// Somebody has it, for now perhaps.
    Taken(Option<u32>),
    Failed(Error),
}

impl Claim {
    /// Checks the settings, makes the directories and the cgroup, and takes both.
    ///
    /// # Errors
    /// Those of [`SupervisorSettings::check`], and [`Error::Unavailable`] with the directory or cgroup that another runtime
    /// has, and the process that it is.
    pub fn take(settings: &SupervisorSettings) -> Result<Self> {
        settings.check()?;
        let state = StateLock::take(&settings.directories())?;
        let layout = Layout::detect().map_err(|error| Error::unavailable("cgroups", error))?;
        let group = Cgroup::open(&layout, &settings.cgroup_parent()?);
        let lock = patiently(|| own(&layout, &group)).map_err(|refused| match refused {
            Refused::Failed(error) => error,
            Refused::Taken(holder) => taken(format!("the cgroup {}", group.path()), holder, "cgroup_parent"),
        })?;
        Ok(Self { group, _cgroup: lock, _state: state })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        match self.group.remove_childless() {
            Ok(()) | Err(CgroupError::Busy { .. }) => {}
            Err(error) => tracing::warn!(%error, "the cgroup above the pods stays"),
        }
    }
}

/// Kills and removes what a runtime that was killed has left in its cgroup, and the cgroup.
///
/// # Errors
/// When a runtime has it, or what is in it cannot be killed.
pub fn clear_cgroup(cgroup_parent: &str) -> Result<()> {
    let path = CgroupPath::parse(cgroup_parent);
    let path = path
        .map_err(|error| Error::invalid("cgroup_parent", format!("{cgroup_parent:?}"), error.to_string()))?;
    let layout = Layout::detect().map_err(|error| Error::unavailable("cgroups", error))?;
    let group = Cgroup::open(&layout, &path);
    let locked = match group.lock(Sharing::Shared) {
        // Other hierarchies may have a part of it all the same.
        Err(CgroupError::NotFound { .. }) => None,
        locked => Some(locked.map_err(cgroup::error)?),
    };
    let removed = cgroup::remove(&group);
    drop(locked);
    removed
}

/// Makes the cgroup and locks it. Whoever had it before removes it as the last thing.
fn own(layout: &Layout, group: &Cgroup) -> Result<GroupLock, Refused> {
    // On a machine, or in a container, where cgroups can only be read, this is where it shows.
    let made = Cgroup::create(layout, group.path(), Controllers::NONE);
    match made.and_then(|group| group.lock(Sharing::Exclusive)) {
        Err(CgroupError::Locked { holder, .. }) => Err(Refused::Taken(holder)),
        Err(CgroupError::NotFound { .. }) => Err(Refused::Taken(None)),
        locked => locked.map_err(|error| Refused::Failed(cgroup::error(error))),
    }
}

fn patiently<T>(mut attempt: impl FnMut() -> Result<T, Refused>) -> Result<T, Refused> {
    let deadline = Instant::now() + Duration::from_millis(CLAIM_WAIT_MS);
    loop {
        match attempt() {
            Err(Refused::Taken(_)) if Instant::now() < deadline => {
                sleep(Duration::from_millis(CLAIM_POLL_MS))
            }
            outcome => return outcome,
        }
    }
}

fn taken(what: String, holder: Option<u32>, setting: &str) -> Error {
    let who = holder.map_or("another runtime".to_owned(), |pid| format!("the runtime of process {pid}"));
    Error::unavailable(what, format!("it belongs to {who}; end that one, or choose another {setting}"))
}

/// The lock of a state directory.
#[derive(Debug)]
struct StateLock(File);

impl StateLock {
    fn take(directories: &Directories) -> Result<Self> {
        let path = directories.lock();
        patiently(|| Self::attempt(&path)).map_err(|refused| match refused {
            Refused::Failed(error) => error,
            Refused::Taken(holder) => {
                let state = path.parent().unwrap_or(&path).display();
                taken(format!("the state directory {state}"), holder, "state_dir")
            }
        })
    }

    /// Opened for reading: where the file is there already, neither a full disk nor one that is read-only matters.
    fn attempt(path: &Path) -> Result<Self, Refused> {
        let failed = |errno: Errno| {
            let error = Error::unavailable(format!("the lock {}", path.display()), io::Error::from(errno));
            Refused::Failed(error)
        };
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(LOCK_FILE_MODE)).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file.into())),
            Err(Errno::WOULDBLOCK) => Err(Refused::Taken(holder_of(file.as_fd()))),
            Err(errno) => Err(failed(errno)),
        }
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // Not only closed: a child that this process is just starting may have a copy of the descriptor.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests;
