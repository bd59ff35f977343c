//! Who has or had a name: a row for each pod and container, which outlives its record as long as the journal knows of it.
//!
//! A row changes with the first and the last write of its record alone: as long as there is a record the row stays, whatever its
//! number, and each change of it would touch two pages more of the database.
//!
//! Owns: writing these rows with the records, deleting them with the journal, and finding them. Never: decides who has a name
//! now; that is the router's.

use mainstay_actors::ports::BEARERS_MAX;
use mainstay_messages::event::{Bearer, Subject};
use mainstay_messages::{Name, Timestamp};
use rusqlite::{Connection, Row, Transaction};

use crate::row::{ContainerRow, RowChange, SandboxRow};

/// A record was written or deleted in a commit whose last fact has the number `last`.
pub(crate) fn follow(connection: &Connection, change: &RowChange, last: u64) -> rusqlite::Result<()> {
    let last = last.cast_signed();
    match change {
        RowChange::PutSandbox(SandboxRow { id, name, created_at, .. }) => {
            let none: Option<&str> = None;
            put(connection)?.execute(("sandbox", id.as_str(), name, none, created_at, last))?
        }
        RowChange::PutContainer(ContainerRow { id, name, sandbox, created_at, .. }) => {
            let sandbox = Some(sandbox.as_str());
            put(connection)?.execute(("container", id.as_str(), name, sandbox, created_at, last))?
        }
        RowChange::DeleteSandbox(id) => touch(connection)?.execute(("sandbox", id.as_str(), last))?,
        RowChange::DeleteContainer(id) => touch(connection)?.execute(("container", id.as_str(), last))?,
    };
    Ok(())
}

/// The journal begins with `oldest` now: what is gone, and has nothing in it any more, is forgotten.
pub(crate) fn trim(connection: &Connection, oldest: u64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM names WHERE seq < ?1
             AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE kind = 'sandbox' AND sandboxes.id = names.id)
             AND NOT EXISTS (SELECT 1 FROM containers WHERE kind = 'container' AND containers.id = names.id)",
        )?
        .execute([oldest.cast_signed()])
        .map(drop)
}

/// Those who have or had a name, the newest first. One whose row cannot be read is left out, and said so.
pub(crate) fn bearers(transaction: &Transaction<'_>, name: &Name) -> rusqlite::Result<Vec<Bearer>> {
    let mut select = transaction.prepare_cached(
        "SELECT kind, id, sandbox, created_at FROM names WHERE name = ?1 ORDER BY created_at DESC, id LIMIT ?2",
    )?;
    let limit = i64::try_from(BEARERS_MAX).unwrap_or(i64::MAX);
    let mut rows = select.query((name.as_str(), limit))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        match bearer(row)? {
            Ok(bearer) => found.push(bearer),
            Err(error) => tracing::error!(%name, %error, "a row of the table of names cannot be read"),
        }
    }
    Ok(found)
}

fn put(connection: &Connection) -> rusqlite::Result<rusqlite::CachedStatement<'_>> {
    connection.prepare_cached(
        "INSERT INTO names (kind, id, name, sandbox, created_at, seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (kind, id) DO NOTHING",
    )
}

fn touch(connection: &Connection) -> rusqlite::Result<rusqlite::CachedStatement<'_>> {
    connection.prepare_cached("UPDATE names SET seq = ?3 WHERE kind = ?1 AND id = ?2")
}

/// The inner error is for the row alone.
fn bearer(row: &Row<'_>) -> rusqlite::Result<mainstay_messages::Result<Bearer>> {
    let (kind, id, sandbox): (String, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let at: i64 = row.get(3)?;
    let subject = || {
        Ok(match kind.as_str() {
            "sandbox" => Subject { sandbox: Some(id.try_into()?), container: None, exec: None },
            _ => Subject {
                sandbox: sandbox.map(TryFrom::try_from).transpose()?,
                container: Some(id.try_into()?),
                exec: None,
            },
        })
    };
    Ok(subject().map(|subject| Bearer { subject, created_at: Timestamp(at.cast_unsigned()) }))
}
