//! The rows of the database: records and facts into columns and JSON, and back.
//!
//! The `body` column is the truth; the other columns repeat parts of it, for queries and for people. Encoding
//! happens on the caller's thread, so that the writer does nothing but write.

use mainstay_actors::ports::Damaged;
use mainstay_messages::error::Kind;
use mainstay_messages::event::{Event, Fact, Seq, Subject, What};
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::{ContainerId, Error, Result, SandboxId, Timestamp};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest record or fact that is written, in bytes of JSON.
pub const BODY_LENGTH_MAX: usize = 16 * 1024 * 1024;

/// A commit, ready to be written.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) changes: Vec<RowChange>,
    pub(crate) facts: Vec<FactRow>,
}

/// A change of one row.
#[derive(Debug)]
pub(crate) enum RowChange {
    PutSandbox(SandboxRow),
    DeleteSandbox(SandboxId),
    PutContainer(ContainerRow),
    DeleteContainer(ContainerId),
}

/// A row of `sandboxes`.
#[derive(Debug)]
pub(crate) struct SandboxRow {
    pub(crate) id: SandboxId,
    pub(crate) name: String,
    pub(crate) phase: &'static str,
    pub(crate) created_at: i64,
    pub(crate) body: String,
}

/// A row of `containers`.
#[derive(Debug)]
pub(crate) struct ContainerRow {
    pub(crate) id: ContainerId,
    pub(crate) name: String,
    pub(crate) sandbox: SandboxId,
    pub(crate) phase: &'static str,
    pub(crate) created_at: i64,
    pub(crate) body: String,
}

/// A row of `events`, but for its number.
#[derive(Debug)]
pub(crate) struct FactRow {
    pub(crate) at: i64,
    pub(crate) subject: Subject,
    pub(crate) kind: String,
    pub(crate) body: String,
}

/// A record that knows what it is: the tables of sandboxes and containers differ in nothing else when read.
pub(crate) trait Record: DeserializeOwned + Send + 'static {
    /// What it is a record of.
    const KIND: Kind;
    /// All rows, oldest first: id and body.
    const SELECT_ALL: &'static str;
    /// One row, by id: id and body.
    const SELECT_ONE: &'static str;

    /// The id in the body.
    fn id(&self) -> &str;
}

impl Record for SandboxRecord {
    const KIND: Kind = Kind::Sandbox;
    const SELECT_ALL: &'static str = "SELECT id, body FROM sandboxes ORDER BY created_at, id";
    const SELECT_ONE: &'static str = "SELECT id, body FROM sandboxes WHERE id = ?1";

    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl Record for ContainerRecord {
    const KIND: Kind = Kind::Container;
    const SELECT_ALL: &'static str = "SELECT id, body FROM containers ORDER BY created_at, id";
    const SELECT_ONE: &'static str = "SELECT id, body FROM containers WHERE id = ?1";

    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl Rows {
    /// Encodes a commit; what cannot be written is refused here, before anything of it is queued.
    pub(crate) fn encode(commit: Commit) -> Result<Self> {
        Ok(Self {
            changes: commit.changes.into_iter().map(RowChange::encode).collect::<Result<_>>()?,
            facts: commit.facts.into_iter().map(FactRow::encode).collect::<Result<_>>()?,
        })
    }
}

impl RowChange {
    fn encode(change: Change) -> Result<Self> {
        Ok(match change {
            Change::PutSandbox(record) => Self::PutSandbox(SandboxRow {
                name: record.name().to_string(),
                phase: record.phase.word(),
                created_at: column_time("created_at", record.created_at)?,
                body: column_json("sandbox record", &record)?,
                id: record.id,
            }),
            Change::DeleteSandbox(id) => Self::DeleteSandbox(id),
            Change::PutContainer(record) => Self::PutContainer(ContainerRow {
                name: record.name().to_string(),
                phase: record.phase.word(),
                created_at: column_time("created_at", record.created_at)?,
                body: column_json("container record", &record)?,
                sandbox: record.sandbox,
                id: record.id,
            }),
            Change::DeleteContainer(id) => Self::DeleteContainer(id),
        })
    }
}

impl FactRow {
    fn encode(fact: Fact) -> Result<Self> {
        let body = column_json("fact", &fact.what)?;
        Ok(Self { at: column_time("at", fact.at)?, subject: fact.subject, kind: tag(&body).to_owned(), body })
    }
}

/// Reads a row of id and body. The inner error is for the row alone, the outer one for the whole query.
pub(crate) fn read_record<R: Record>(row: &Row<'_>) -> rusqlite::Result<Result<R, Damaged>> {
    let id = String::from_utf8_lossy(bytes(row.get_ref(0)?)).into_owned();
    let damaged = |reason: String| Damaged { kind: R::KIND, id: id.clone(), reason };
    Ok(match serde_json::from_slice::<R>(bytes(row.get_ref(1)?)) {
        Err(error) => Err(damaged(format!("its record cannot be read: {error}"))),
        Ok(record) if record.id() != id => {
            Err(damaged(format!("its record is that of another {}, {}", R::KIND, record.id())))
        }
        Ok(record) => Ok(record),
    })
}

/// Reads a row of seq, at, sandbox, container, exec and body. The inner error is for the row alone.
pub(crate) fn read_event(row: &Row<'_>) -> rusqlite::Result<Result<Event, DamagedEvent>> {
    let seq = Seq(row.get::<_, i64>(0)?.cast_unsigned());
    let damaged = |reason: String| DamagedEvent { seq, reason };
    let at: i64 = row.get(1)?;
    let (sandbox, container, exec): (Option<String>, Option<String>, Option<String>) =
        (row.get(2)?, row.get(3)?, row.get(4)?);
    let subject = (|| -> Result<Subject> {
        Ok(Subject {
            sandbox: sandbox.map(TryFrom::try_from).transpose()?,
            container: container.map(TryFrom::try_from).transpose()?,
            exec: exec.map(TryFrom::try_from).transpose()?,
        })
    })();
    let what: serde_json::Result<What> = serde_json::from_slice(bytes(row.get_ref(5)?));
    Ok(match (subject, what) {
        (Ok(subject), Ok(what)) => Ok(Event { seq, at: Timestamp(at.cast_unsigned()), subject, what }),
        (Err(error), _) => Err(damaged(error.to_string())),
        (_, Err(error)) => Err(damaged(error.to_string())),
    })
}

/// An event that is there and cannot be read.
#[derive(Debug)]
pub(crate) struct DamagedEvent {
    pub(crate) seq: Seq,
    pub(crate) reason: String,
}

/// The bytes of a text column, whether they are UTF-8 or not.
fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => &[],
    }
}

fn column_time(field: &'static str, time: Timestamp) -> Result<i64> {
    i64::try_from(time.0).map_err(|_| Error::invalid(field, time.to_string(), "a time before the year 2262"))
}

fn column_json(field: &'static str, value: &impl Serialize) -> Result<String> {
    // The only thing in records and facts that JSON cannot hold is a path that is not UTF-8.
    let json = serde_json::to_string(value).map_err(|error| {
        Error::invalid(field, format!("{:?}", error.to_string()), "paths and texts in UTF-8")
    })?;
    if json.len() > BODY_LENGTH_MAX {
        return Err(Error::invalid(
            field,
            format!("{} bytes", json.len()),
            format!("at most {BODY_LENGTH_MAX} bytes of JSON"),
        ));
    }
    Ok(json)
}

/// The variant's name in the JSON of an externally tagged enum: `"name"` or `{"name":…}`.
fn tag(json: &str) -> &str {
    json.split('"').nth(1).unwrap_or_default()
}
