//! Opening the file of the records: whose it is, whether it is sound, and a fresh one in place of a damaged one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mainstay_messages::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};

use crate::error::{ImagesError, Result};
use crate::records::{Boot, Found, rows};
use crate::settings::{Settings, Tenure};

/// `MSIM` in ASCII: file(1) and we know the file by it.
const APPLICATION_ID: u32 = u32::from_be_bytes(*b"MSIM");
/// What leads from one version to the next; the first one starts at an empty database. A migration that was released is
/// never changed; a new one is added behind it.
const MIGRATIONS: [&str; 1] = [include_str!("schema/v1.sql")];
/// The version that this program writes.
const VERSION: u32 = MIGRATIONS.len() as u32;
/// The write-ahead log is cut back to this size after a checkpoint, in bytes.
const WAL_SIZE_KEPT_MAX: i64 = 4 << 20;
/// Prepared statements that are kept; there are fewer different ones.
const STATEMENTS_CACHED_MAX: usize = 32;
/// What SQLite adds to a database's name for the database itself, its write-ahead log and the log's index.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// What is read of who has the lock, in bytes.
const HOLDER_LENGTH_MAX: u64 = 32;
/// Behind the process id of one who lets go soon.
const IN_TURN: &str = " in turn";

/// The lock that keeps a second process away: flock(2), which the kernel drops with its owner.
pub(crate) struct RootLock {
    _file: File,
}

/// Why a file is not used as it is.
enum Fault {
    Damaged(String),
    Refused(ImagesError),
}

impl RootLock {
    pub(crate) fn acquire(root: &Path, tenure: Tenure) -> Result<Self> {
        let path = root.join("images.lock");
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = open.map_err(ImagesError::file(format!("opening {}", path.display())))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // What cannot be read is not known, and the lock is taken all the same.
                let _ = file.take(HOLDER_LENGTH_MAX).read_to_string(&mut text);
                let (holder, tenure) = holder_in(&text);
                return Err(ImagesError::Locked { root: root.to_owned(), holder, tenure });
            }
            Err(error) => {
                return Err(ImagesError::file(format!("locking {}", path.display()))(error.into()));
            }
        }
        // A full disk must not keep the runtime from starting: the text only helps an error message.
        if let Err(error) = file.set_len(0).and_then(|()| file.write_all(holder_text(tenure).as_bytes())) {
            tracing::warn!(path = %path.display(), %error, "the process id was not written to the lock file");
        }
        Ok(Self { _file: file })
    }
}

/// Who has the lock, as it is written in its file: the process id, and `in turn` when it lets go soon.
fn holder_text(tenure: Tenure) -> String {
    let pid = std::process::id();
    match tenure {
        Tenure::Kept => format!("{pid}\n"),
        Tenure::InTurn => format!("{pid}{IN_TURN}\n"),
    }
}

/// Who that is. One who has the lock and has not written it down yet is not known, and may let go soon.
fn holder_in(text: &str) -> (Option<u32>, Tenure) {
    let line = text.strip_suffix('\n').unwrap_or_default();
    match line.strip_suffix(IN_TURN) {
        Some(pid) => (pid.parse().ok(), Tenure::InTurn),
        None => line.parse().map_or((None, Tenure::InTurn), |pid| (Some(pid), Tenure::Kept)),
    }
}

/// Opens the records; the caller holds the lock.
pub(crate) fn open(path: &Path, settings: &Settings) -> Result<(Connection, Found)> {
    let reason = match open_file(path, settings) {
        Ok((connection, boot)) => return Ok((connection, Found { set_aside: None, boot })),
        Err(Fault::Refused(error)) => return Err(error),
        Err(Fault::Damaged(reason)) => reason,
    };
    let moved = set_aside(path).map_err(ImagesError::file(format!("setting {} aside", path.display())))?;
    tracing::error!(path = %path.display(), moved_to = %moved.display(), reason,
        "the records of images are damaged and were set aside; fresh ones take their place");
    match open_file(path, settings) {
        Ok((connection, boot)) => Ok((connection, Found { set_aside: Some(moved), boot })),
        Err(Fault::Refused(error)) => Err(error),
        Err(Fault::Damaged(reason)) => {
            let source = io::Error::new(io::ErrorKind::InvalidData, reason);
            Err(ImagesError::File { operation: format!("making a fresh {}", path.display()), source })
        }
    }
}

fn open_file(path: &Path, settings: &Settings) -> Result<(Connection, Boot), Fault> {
    let orphaned = length(path) == 0 && length(&with_suffix(path, "-wal")) > 0;
    if orphaned {
        return Err(Fault::Damaged(
            "its main file is gone and the write-ahead log is still there".to_owned(),
        ));
    }
    let create = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    create
        .map_err(|error| Fault::Refused(ImagesError::file(format!("opening {}", path.display()))(error)))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(fault("opening"))?;
    connection.busy_timeout(settings.busy_timeout).map_err(fault("opening"))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED_MAX);
    migrate(path, &mut connection)?;
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0)).map_err(fault("checking"))?;
    if verdict != "ok" {
        return Err(Fault::Damaged(verdict));
    }
    read_through(&connection)?;
    let boot = note_boot(&connection, &settings.boot_id).map_err(fault("noting the boot id"))?;
    Ok((connection, boot))
}

fn migrate(path: &Path, connection: &mut Connection) -> Result<(), Fault> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application_id = pragma("application_id").map_err(fault("opening"))?.cast_unsigned();
    let version = pragma("user_version").map_err(fault("opening"))?.cast_unsigned();
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))
        .map_err(fault("opening"))?;
    match (application_id, tables) {
        (0, 0) | (APPLICATION_ID, _) if version <= VERSION => {}
        (APPLICATION_ID, _) => {
            return Err(Fault::Refused(ImagesError::NewerSchema { found: version, known: VERSION }));
        }
        _ => return Err(Fault::Refused(ImagesError::Foreign { path: path.to_owned(), application_id })),
    }
    let bring_up = |connection: &mut Connection| -> rusqlite::Result<()> {
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update_and_check(None, "journal_size_limit", WAL_SIZE_KEPT_MAX, |_| Ok(()))?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for migration in &MIGRATIONS[version as usize..] {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION_ID.cast_signed())?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()
    };
    bring_up(connection).map_err(fault("bringing the schema up"))
}

/// Reads everything; it is not much. What cannot be read is damage.
fn read_through(connection: &Connection) -> Result<(), Fault> {
    let read = || -> rusqlite::Result<()> {
        rows::images(connection)?;
        rows::blobs(connection)?;
        rows::layers(connection)?;
        rows::leases(connection).map(drop)
    };
    read().map_err(|error| match error {
        rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..) => {
            Fault::Damaged(error.to_string())
        }
        error => fault("reading")(error),
    })
}

fn note_boot(connection: &Connection, boot_id: &str) -> rusqlite::Result<Boot> {
    let last: Option<String> =
        connection.query_row("SELECT boot_id FROM state", (), |row| row.get(0)).optional()?;
    if last.as_deref() == Some(boot_id) {
        return Ok(Boot::Same);
    }
    connection.execute(
        "INSERT INTO state (one, boot_id) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET boot_id = ?1",
        [boot_id],
    )?;
    Ok(Boot::Other)
}

fn fault(operation: &'static str) -> impl FnOnce(rusqlite::Error) -> Fault {
    move |error| {
        let damaged =
            matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase));
        if damaged {
            Fault::Damaged(error.to_string())
        } else {
            Fault::Refused(ImagesError::Records { operation, source: error })
        }
    }
}

fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let stamp = Timestamp::from_system(SystemTime::now()).to_string().replace(':', "-");
    let target = with_suffix(path, &format!(".damaged-{stamp}"));
    for suffix in SUFFIXES {
        match fs::rename(with_suffix(path, suffix), with_suffix(&target, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(target)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A file is emptied before it is written: whoever looked in between was told that somebody keeps the images, and gave up.
    #[rstest]
    #[case("", None, Tenure::InTurn)]
    #[case("12", None, Tenure::InTurn)]
    #[case("123\n", Some(123), Tenure::Kept)]
    #[case("123 in turn\n", Some(123), Tenure::InTurn)]
    #[case("nobody\n", None, Tenure::InTurn)]
    fn only_a_whole_line_says_that_somebody_keeps_the_images(
        #[case] text: &str,
        #[case] holder: Option<u32>,
        #[case] tenure: Tenure,
    ) {
        assert_eq!(holder_in(text), (holder, tenure));
    }
}
