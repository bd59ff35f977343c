//! The schema of the database file: who it belongs to, its version, and how an older one is brought up.
//!
//! `PRAGMA application_id` is [`APPLICATION_ID`], `PRAGMA user_version` the number of migrations that were
//! applied. A migration is never changed once it was released; a new one is added behind it.

use rusqlite::{Connection, TransactionBehavior};

/// `MSTY` in ASCII: file(1) and we know the file by it.
pub(crate) const APPLICATION_ID: u32 = u32::from_be_bytes(*b"MSTY");

/// What leads from one version to the next; the first one starts at an empty database.
const MIGRATIONS: [&str; 2] = [include_str!("schema/v1.sql"), include_str!("schema/v2.sql")];

/// The version that this program writes.
pub(crate) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Whose database a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Nobody's yet.
    Empty,
    /// Ours, of a version that we can read or bring up.
    Ours {
        /// Its version.
        version: u32,
    },
    /// Ours, of a version that only a newer program knows.
    Newer {
        /// Its version.
        version: u32,
    },
    /// Another program's.
    Foreign {
        /// Its application id.
        application_id: u32,
    },
}

/// Finds out whose database it is, and changes nothing.
pub(crate) fn ownership(connection: &Connection) -> rusqlite::Result<Ownership> {
    let application_id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    let (application_id, version) = (application_id.cast_unsigned(), version.cast_unsigned());
    Ok(match (application_id, tables) {
        (0, 0) => Ownership::Empty,
        (APPLICATION_ID, _) if version > VERSION => Ownership::Newer { version },
        (APPLICATION_ID, _) => Ownership::Ours { version },
        _ => Ownership::Foreign { application_id },
    })
}

/// Brings a database of `from` to [`VERSION`], all or nothing. `first_seq` is what a new journal counts from.
pub(crate) fn migrate(connection: &mut Connection, from: u32, first_seq: u64) -> rusqlite::Result<()> {
    if from == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (version, migration) in MIGRATIONS.iter().enumerate().skip(from as usize) {
        transaction.execute_batch(migration)?;
        if version == 0 {
            transaction.execute(
                "INSERT INTO state (one, last_seq, boot_id, condition) VALUES (1, ?1, NULL, 'closed')",
                [first_seq.cast_signed()],
            )?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID.cast_signed())?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}
