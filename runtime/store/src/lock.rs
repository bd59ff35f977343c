//! The lock that keeps a second process away from a store.
//!
//! An exclusive flock(2) on a file beside the store, which holds the owner's process id for the error message
//! of whoever comes second. The kernel drops the lock with the owner, however it ends; the file stays, because
//! removing it would let two processes lock two files of one name.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::StoreError;

/// The longest process id in decimal, with its line end, in bytes.
const PID_TEXT_LENGTH_MAX: u64 = 11;

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct StoreLock {
    _file: File,
}

impl StoreLock {
    /// Takes the lock of the store at `store`, without waiting.
    pub(crate) fn acquire(store: &Path) -> Result<Self, StoreError> {
        let path = lock_path(store);
        let fault = |source: io::Error| StoreError::Lock { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(fault)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StoreError::Locked { path: store.to_owned(), holder: holder(&file) });
            }
            Err(errno) => return Err(fault(errno.into())),
        }
        // A full disk must not keep the runtime from starting: the text only helps an error message.
        if let Err(error) = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())) {
            tracing::warn!(path = %path.display(), %error, "the process id was not written to the lock file");
        }
        Ok(Self { _file: file })
    }
}

fn lock_path(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn holder(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_TEXT_LENGTH_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
