//! Setting a damaged store aside: renamed with a time stamp, never deleted, never opened again by us.
//!
//! The main file is renamed first. A crash between the renames leaves a write-ahead log without its main file;
//! [`is_orphaned`] finds it at the next start, before SQLite would delete it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mainstay_messages::Timestamp;

/// What SQLite adds to a database's name for the database itself, its write-ahead log and the log's index.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];
/// What stands between the store's name and the time stamp.
const ASIDE_INFIX: &str = ".damaged-";

/// Renames the store's files and answers the new name of the main one.
pub(crate) fn set_aside(store: &Path) -> io::Result<PathBuf> {
    let stamp = Timestamp::from_system(SystemTime::now()).to_string().replace(':', "-");
    let target = with_suffix(store, &format!("{ASIDE_INFIX}{stamp}"));
    for suffix in SUFFIXES {
        match fs::rename(with_suffix(store, suffix), with_suffix(&target, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    File::open(directory(store))?.sync_all()?;
    Ok(target)
}

/// Whether there is a write-ahead log without the database that it belongs to.
pub(crate) fn is_orphaned(store: &Path) -> io::Result<bool> {
    Ok(length(store)? == 0 && length(&with_suffix(store, "-wal"))? > 0)
}

/// Whether a store of this name was set aside before.
pub(crate) fn has_predecessor(store: &Path) -> io::Result<bool> {
    let mut prefix = store.file_name().map(OsString::from).unwrap_or_default();
    prefix.push(ASIDE_INFIX);
    for entry in fs::read_dir(directory(store))? {
        if entry?.file_name().as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn length(path: &Path) -> io::Result<u64> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

fn directory(store: &Path) -> &Path {
    match store.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
