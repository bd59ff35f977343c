//! A daemon inside this command, for `run` without one: its directories are of its own, and nothing is left
//! of them. Only images outlive it: they are where a daemon of the same configuration has them.
//!
//! A command that was killed cannot tidy up: what it has started does, as far as it was not killed too. For the rest each
//! directory is locked for as long as its command lives, and the next command that runs embedded removes those that
//! nobody holds any more, with what is in the cgroup of the same name.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use mainstay::ImageSettings;
use mainstay::daemon::{self, PrivateDaemon};
use rustix::fs::FlockOperation;

use crate::failure::{Failure, Result};
use crate::naming::random_hex;

/// Where the directories may lie, the best place first.
const BASES: [&str; 4] = ["/var/lib", "/var/tmp", "/tmp", "/run"];
/// How the names of the directories begin.
const PREFIX: &str = "mainstay-run-";
/// How often a place is tried anew when another command removed it before it was locked.
const CLAIM_ATTEMPTS_MAX: usize = 8;
/// statfs(2): an overlay file system, which cannot be the upper layer of another one.
const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;

/// A daemon inside this command.
#[derive(Debug)]
pub struct Embedded {
    daemon: PrivateDaemon,
    /// Held until the directory is gone.
    _claim: Claim,
}

/// A locked directory.
#[derive(Debug)]
struct Claim {
    path: PathBuf,
    _lock: File,
}

impl Embedded {
    /// Starts the daemon. Its images are those of the machine, and stay.
    pub async fn start(images: ImageSettings) -> Result<Self> {
        let base = base().ok_or_else(|| {
            let places = BASES.join(", ");
            let reason = io::Error::other("none of them can hold an overlay's changes");
            Failure::machine(format!("a directory for writable layers in {places}"), reason)
        })?;
        sweep(base);
        let claim =
            claim(base).map_err(|e| Failure::machine(format!("a directory in {}", base.display()), e))?;
        let started = daemon::private(&claim.path, &cgroup_of(&claim.path), images).await;
        match started {
            Ok(daemon) => Ok(Self { daemon, _claim: claim }),
            Err(error) => {
                // What could not be started may have left files, and the error that counts is the first.
                let _ = std::fs::remove_dir_all(&claim.path);
                Err(error.into())
            }
        }
    }

    /// The socket of its admin RPC.
    pub fn socket(&self) -> &Path {
        self.daemon.socket()
    }

    /// Stops and removes all that it has, and its directories.
    pub async fn close(self) -> Result<()> {
        Ok(self.daemon.close().await?)
    }
}

/// The first place that is there and not an overlay itself.
fn base() -> Option<&'static Path> {
    BASES.into_iter().map(Path::new).find(|base| {
        rustix::fs::statfs(*base).is_ok_and(|fs| u64::try_from(fs.f_type) != Ok(OVERLAYFS_SUPER_MAGIC))
    })
}

/// Makes a directory and locks it.
fn claim(base: &Path) -> io::Result<Claim> {
    for _ in 0..CLAIM_ATTEMPTS_MAX {
        let path = base.join(format!("{PREFIX}{}", random_hex()?));
        DirBuilder::new().mode(0o700).create(&path)?;
        // Between the two lines somebody who sweeps may have taken it for one that was left.
        match lock(&path) {
            Ok(Some(lock)) => return Ok(Claim { path, _lock: lock }),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("other commands removed it each time"))
}

/// Locks a directory; none when somebody else has, or when it is not the one under this name any more.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let directory = File::open(path)?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let (held, named) = (directory.metadata()?, std::fs::symlink_metadata(path)?);
    let same = held.is_dir() && (held.dev(), held.ino()) == (named.dev(), named.ino());
    Ok(same.then_some(directory))
}

/// Ends and removes what is left of commands that were killed. What cannot be removed is left for the next one.
fn sweep(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    let ours = rustix::process::geteuid().as_raw();
    for entry in entries.flatten() {
        let named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // In a directory that all may write to, somebody else could have put one there.
        let owned = || entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == ours);
        if named
            && owned()
            && let Ok(Some(_lock)) = lock(&entry.path())
        {
            let _ = daemon::clear_private(&entry.path(), &cgroup_of(&entry.path()));
        }
    }
}

/// The cgroup of a daemon, which is called as its directory is.
fn cgroup_of(directory: &Path) -> String {
    format!("/{}", directory.file_name().unwrap_or_default().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory for one test, removed with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("cli-test-{}", random_hex().expect("random bytes")));
            std::fs::create_dir(&path).expect("a new directory");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// kill -9 of `mainstay run` left the writable layer of its container on the disk for ever.
    #[test]
    fn what_a_killed_command_left_is_removed_and_what_a_living_one_has_is_not() {
        let scratch = Scratch::new();
        let living = claim(&scratch.0).expect("claimed");
        let killed = claim(&scratch.0).expect("claimed").path;
        std::fs::create_dir_all(killed.join("root/layers")).expect("a left layer");
        let strange = scratch.0.join("something-else");
        std::fs::create_dir(&strange).expect("a directory of somebody");
        sweep(&scratch.0);
        assert!(living.path.exists() && strange.exists());
        assert!(!killed.exists());
    }

    #[test]
    fn a_claim_is_private() {
        let scratch = Scratch::new();
        let claim = claim(&scratch.0).expect("claimed");
        assert_eq!(claim.path.metadata().expect("there").mode() & 0o777, 0o700);
        assert!(lock(&claim.path).expect("readable").is_none());
    }
}
