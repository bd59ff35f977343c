//! Files that are whole or not there.
//!
//! Owns: the way in which they are written, and that one process at a time does so in a directory. Never: knows what is in them.
//!
//! A disk may hang under any of it, so nobody who calls this holds a lock that others wait for.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::faults;

/// How the name of a file begins that is being written; a number follows, so that several can be at once.
const NEW: &str = ".new";
/// The name of the file whose lock is held as long as a directory is in use.
const LOCK: &str = ".lock";

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

/// The whole files of a claimed directory. What a process that was killed had not written to its end is removed.
pub(crate) fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if name.as_bytes().starts_with(NEW.as_bytes()) {
            fs::remove_file(&path)?;
        } else if name != LOCK {
            files.push(path);
        }
    }
    Ok(files)
}

/// Writes a file whole: after that it is the old one or the new one.
pub(crate) fn write_whole(directory: &Path, path: &Path, bytes: &[u8], end: Outlives) -> io::Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let new = directory.join(format!("{NEW}{}", WRITES.fetch_add(1, Ordering::Relaxed)));
    let written = write_and_rename(&new, path, bytes, end);
    if written.is_err() {
        // A file that nobody will ever look at; what is wrong with the disk is said already.
        let _ = fs::remove_file(&new);
    }
    written
}

fn write_and_rename(new: &Path, path: &Path, bytes: &[u8], end: Outlives) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(new)?;
    file.write_all(bytes)?;
    if end == Outlives::PowerCut {
        file.sync_data()?;
    }
    faults::reach("lease-file-written");
    fs::rename(new, path)
}
