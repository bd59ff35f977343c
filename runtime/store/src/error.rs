//! Why a store cannot be opened, and how a failure of SQLite reads to a caller of an open one.

use std::io;
use std::path::PathBuf;

use mainstay_messages::Error;
use mainstay_messages::shortage::Shortage;
use rusqlite::{Connection, ErrorCode};
use thiserror::Error as ThisError;

/// Why a store cannot be opened.
#[derive(Debug, ThisError)]
pub enum StoreError {
    /// Another process has it open.
    #[error("store {}: {} has it open; stop that process first or choose another root", .path.display(), holder_text(.holder))]
    Locked {
        /// The store.
        path: PathBuf,
        /// The process id of the one who has it, as that one wrote it down.
        holder: Option<u32>,
    },
    /// A newer program wrote it.
    #[error("store {}: its schema version is {found}, this program knows versions up to {known}; use the newer program", .path.display())]
    NewerSchema {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// A sound database of some other program.
    #[error("store {}: it is a database of another program (application id {application_id:#010x}); choose another path", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its application id.
        application_id: u32,
    },
    /// The lock file cannot be used.
    #[error("store {}: the lock file cannot be used", .path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file cannot be created or renamed.
    #[error("store {}: {operation} failed", .path.display())]
    File {
        /// The store.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// SQLite cannot use the file, and not because the file is damaged.
    #[error("store {}: it cannot be opened", .path.display())]
    Open {
        /// The store.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// A thread cannot be started.
    #[error("store {}: its {thread} thread cannot be started", .path.display())]
    Thread {
        /// The store.
        path: PathBuf,
        /// Which thread.
        thread: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn holder_text(holder: &Option<u32>) -> String {
    match holder {
        Some(pid) => format!("process {pid}"),
        None => "another process".into(),
    }
}

/// A failure of SQLite as callers of an open store see it: which file, and what its operator can do.
pub(crate) fn unavailable(store: &Connection, error: &rusqlite::Error) -> Error {
    let what = format!("store {}", store.path().unwrap_or_default());
    match shortage(error) {
        Some(shortage) => Error::unavailable(what, format_args!("{error}; {}", shortage.remedy())),
        None => Error::unavailable(what, error),
    }
}

/// What the machine is short of, as far as SQLite says.
fn shortage(error: &rusqlite::Error) -> Option<Shortage> {
    match error.sqlite_error_code()? {
        ErrorCode::DiskFull => Some(Shortage::Space),
        ErrorCode::ReadOnly => Some(Shortage::Writable),
        // What a disk answers that fails may look like anything.
        ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt => Some(Shortage::Disk),
        _ => None,
    }
}

/// Whether a failure means that the file itself is damaged.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
