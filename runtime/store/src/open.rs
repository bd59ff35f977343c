//! Opening the database file: whose it is, whether it is sound, which version; and a fresh one in place of a
//! damaged one.
//!
//! ```text
//!            not ours, newer schema, no access
//!   file ───────────────────────────────────────► refused, untouched
//!    │  not a database, or damaged
//!    ├──────────────► set aside ──► fresh ──┐
//!    └─ sound ──► migrated ─────────────────┴──► in use
//! ```
//!
//! How sound is sound enough? The tables of records are read through at each start: they are small. A full
//! `PRAGMA quick_check` takes seconds for a long journal, so it is made only where there is a reason for doubt:
//! after the machine went down with the store open, and when the last run saw damage. A killed process is no
//! reason, because the page cache outlives it.
//!
//! Numbers of the journal must not be used twice, and those of a damaged store cannot be trusted. So a journal
//! that follows a damaged one counts on from the milliseconds since 1970, which no journal reaches by
//! counting: subscribers see a gap, never an old number with a new meaning.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::aside;
use crate::error::{StoreError, is_damage};
use crate::schema::{self, Ownership};

/// The write-ahead log is cut back to this size after a checkpoint, in bytes.
const WAL_SIZE_KEPT_MAX: i64 = 4 * 1024 * 1024;

/// Pages of the database that a connection keeps in memory, in KiB. SQLite's own 2 MiB for each connection are a fifth of what a daemon
/// may take in all; what is not kept is read again from memory of the kernel.
const PAGES_CACHED_KIB: i64 = 512;

/// Prepared statements that a connection keeps; there are fewer different ones.
const STATEMENTS_CACHED_MAX: usize = 32;

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    /// The connection that may write.
    pub(crate) connection: Connection,
    /// The number of the last fact ever written.
    pub(crate) last_seq: u64,
    /// The boot id of the run before this one.
    pub(crate) previous_boot_id: Option<String>,
    /// Where a damaged predecessor was moved to.
    pub(crate) set_aside: Option<PathBuf>,
}

/// Why a file is not used as it is.
enum Fault {
    /// It is damaged: set it aside.
    Damaged(String),
    /// It must not be touched.
    Refused(StoreError),
}

/// What the `state` row says at the start.
struct State {
    last_seq: u64,
    boot_id: Option<String>,
    condition: String,
}

/// Opens the database at `path`; the caller holds its lock.
pub(crate) fn open(path: &Path, boot_id: &str, busy_timeout: Duration) -> Result<Database, StoreError> {
    let file_error =
        |operation| move |source: io::Error| StoreError::File { path: path.to_owned(), operation, source };
    let damage = if aside::is_orphaned(path).map_err(file_error("looking at it"))? {
        "its main file is gone and the write-ahead log is still there".to_owned()
    } else {
        match open_file(path, boot_id, busy_timeout) {
            Ok(database) => return Ok(database),
            Err(Fault::Refused(error)) => return Err(error),
            Err(Fault::Damaged(reason)) => reason,
        }
    };
    let moved = aside::set_aside(path).map_err(file_error("setting it aside"))?;
    tracing::error!(path = %path.display(), moved_to = %moved.display(), reason = damage,
        "the store is damaged and was set aside; a fresh one takes its place");
    match open_file(path, boot_id, busy_timeout) {
        Ok(database) => Ok(Database { set_aside: Some(moved), ..database }),
        Err(Fault::Refused(error)) => Err(error),
        Err(Fault::Damaged(reason)) => Err(StoreError::File {
            path: path.to_owned(),
            operation: "making a fresh one",
            source: io::Error::new(io::ErrorKind::InvalidData, reason),
        }),
    }
}

/// A second connection, for reading alone.
pub(crate) fn open_reader(path: &Path, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let open = || {
        let connection = connect(path, busy_timeout)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    open().map_err(|source| StoreError::Open { path: path.to_owned(), source })
}

fn open_file(path: &Path, boot_id: &str, busy_timeout: Duration) -> Result<Database, Fault> {
    create_private(path)?;
    let file_fault = |error| Fault::of_file(path, error);
    let content_fault = |error| Fault::of_content(path, error);
    let mut connection = connect(path, busy_timeout).map_err(file_fault)?;
    let version = match schema::ownership(&connection).map_err(file_fault)? {
        Ownership::Empty => 0,
        Ownership::Ours { version } => version,
        Ownership::Newer { version } => {
            let (path, known) = (path.to_owned(), schema::VERSION);
            return Err(Fault::Refused(StoreError::NewerSchema { path, found: version, known }));
        }
        Ownership::Foreign { application_id } => {
            return Err(Fault::Refused(StoreError::Foreign { path: path.to_owned(), application_id }));
        }
    };
    configure(&connection).map_err(file_fault)?;
    let first_seq = if version == 0 { first_seq(path)? } else { 0 };
    schema::migrate(&mut connection, version, first_seq).map_err(file_fault)?;
    let state = read_state(&connection).map_err(content_fault)?;
    if is_doubtful(&state, boot_id) {
        quick_check(&connection).map_err(content_fault)?.map_err(Fault::Damaged)?;
    }
    let last_seq = read_through(&connection, state.last_seq).map_err(content_fault)?;
    Ok(Database { connection, last_seq, previous_boot_id: state.boot_id, set_aside: None })
}

/// Makes an empty file that only its owner can read: environments of containers are in it. SQLite gives its
/// log the same mode.
fn create_private(path: &Path) -> Result<(), Fault> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(drop).map_err(
        |source| {
            Fault::Refused(StoreError::File {
                path: path.to_owned(),
                operation: "opening or creating it",
                source,
            })
        },
    )
}

fn connect(path: &Path, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy_timeout)?;
    // Closing leaves the log and its index where they are: a damaged store is set aside as it was found, and a
    // sound one can be opened again on a disk that has no room for new files.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED_MAX);
    // Below zero it is a number of KiB, above it one of pages.
    connection.pragma_update(None, "cache_size", -PAGES_CACHED_KIB)?;
    Ok(connection)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update_and_check(None, "journal_size_limit", WAL_SIZE_KEPT_MAX, |_| Ok(()))
}

fn first_seq(path: &Path) -> Result<u64, Fault> {
    let follows_a_damaged_one = aside::has_predecessor(path).map_err(|source| {
        Fault::Refused(StoreError::File { path: path.to_owned(), operation: "listing its directory", source })
    })?;
    if !follows_a_damaged_one {
        return Ok(0);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Milliseconds fit for hundreds of millions of years.
    Ok(since.as_millis() as u64)
}

fn read_state(connection: &Connection) -> rusqlite::Result<State> {
    connection.query_row("SELECT last_seq, boot_id, condition FROM state", (), |row| {
        Ok(State {
            last_seq: row.get::<_, i64>(0)?.cast_unsigned(),
            boot_id: row.get(1)?,
            condition: row.get(2)?,
        })
    })
}

fn is_doubtful(state: &State, boot_id: &str) -> bool {
    match state.condition.as_str() {
        "closed" => false,
        "open" => state.boot_id.as_deref() != Some(boot_id),
        _ => true,
    }
}

fn quick_check(connection: &Connection) -> rusqlite::Result<Result<(), String>> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    Ok(if verdict == "ok" { Ok(()) } else { Err(verdict) })
}

/// Reads all records and the end of the journal; answers the number of the last fact.
fn read_through(connection: &Connection, recorded: u64) -> rusqlite::Result<u64> {
    for table in ["sandboxes", "containers"] {
        let query = format!("SELECT ifnull(sum(length(body)), 0) FROM {table}");
        connection.query_row(&query, (), |row| row.get::<_, i64>(0))?;
    }
    let newest: Option<i64> = connection.query_row("SELECT max(seq) FROM events", (), |row| row.get(0))?;
    Ok(recorded.max(newest.unwrap_or(0).cast_unsigned()))
}

impl Fault {
    /// A failure that says nothing about the content unless SQLite says so.
    fn of_file(path: &Path, error: rusqlite::Error) -> Self {
        if is_damage(&error) {
            Self::Damaged(error.to_string())
        } else {
            Self::Refused(StoreError::Open { path: path.to_owned(), source: error })
        }
    }

    /// A failure to read what is in every file of ours of this version: a table, column, row or type that is
    /// missing is damage too.
    fn of_content(path: &Path, error: rusqlite::Error) -> Self {
        let is_statement_wrong =
            error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_ERROR);
        match error {
            rusqlite::Error::QueryReturnedNoRows
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..) => Self::Damaged(error.to_string()),
            _ if is_statement_wrong => Self::Damaged(error.to_string()),
            _ => Self::of_file(path, error),
        }
    }
}
