//! Files that are whole or not there.
//!
//! Owns: the way in which they are written, and that one process at a time does so in a directory. Never: knows what is in them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::faults;

/// The name of a file that is being written. One at a time in a directory.
pub(crate) const NEW: &str = ".new";

/// The name of the file whose lock is held as long as a directory is in use.
pub(crate) const LOCK: &str = ".lock";

/// A directory that no other process has until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim(File);

impl Drop for Claim {
    fn drop(&mut self) {
        // Not only closed: a plugin that this process is just starting may have a copy of the descriptor.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Makes a directory unless it is there, and keeps every other process from it until the claim is dropped. None when
/// another process has it.
pub(crate) fn claim(directory: &Path) -> io::Result<Option<Claim>> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(LOCK);
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Claim(lock))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// What a file must be whole after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlives {
    /// The end of this program, however that comes.
    Kill,
    /// The end of the machine as well. It takes milliseconds.
    PowerCut,
}

/// Writes a file whole: after that it is the old one or the new one.
pub(crate) fn write_whole(directory: &Path, path: &Path, bytes: &[u8], end: Outlives) -> io::Result<()> {
    let new = directory.join(NEW);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    if end == Outlives::PowerCut {
        file.sync_data()?;
    }
    faults::reach("lease-file-written");
    fs::rename(&new, path)
}
