//! The reader: a thread with a connection of its own, so that no read waits for the writer.
//!
//! Each read is one transaction and sees one state of the database, with everything in it that was answered as
//! committed before the read was asked for.

use crossbeam_channel::Receiver;
use mainstay_actors::ports::{Damaged, EventFilter, EventPage, EventQuery, Loaded};
use mainstay_messages::event::Seq;
use mainstay_messages::{Error, Result};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::unavailable;
use crate::row::{DamagedEvent, Record, read_event, read_record};
use crate::writer::DamageSeen;

/// The most events that one page holds, however many are asked for.
pub const EVENT_PAGE_MAX: usize = 10_000;

/// A read: done on the reader's thread with its connection.
pub(crate) type Read = Box<dyn FnOnce(&mut Reader) + Send>;

/// The state of the reader thread.
pub(crate) struct Reader {
    connection: Connection,
    damage: DamageSeen,
}

impl Reader {
    /// Takes over a connection.
    pub(crate) fn new(connection: Connection, damage: DamageSeen) -> Self {
        Self { connection, damage }
    }

    /// Works until the queue is disconnected and empty.
    pub(crate) fn run(mut self, reads: &Receiver<Read>) {
        for read in reads {
            read(&mut self);
        }
    }

    /// Does one read in a transaction of its own.
    pub(crate) fn read<T>(
        &mut self,
        query: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let outcome = self.connection.transaction().and_then(|transaction| query(&transaction));
        outcome.map_err(|error| {
            self.damage.note(&error);
            tracing::error!(%error, "the store cannot be read");
            unavailable(&self.connection, &error)
        })
    }
}

/// All that is kept, with what cannot be read listed as such (P5).
pub(crate) fn load(transaction: &Transaction<'_>, boot_id: Option<String>) -> rusqlite::Result<Loaded> {
    let mut damaged = Vec::new();
    let sandboxes = load_all(transaction, &mut damaged)?;
    let containers = load_all(transaction, &mut damaged)?;
    Ok(Loaded { sandboxes, containers, damaged, last: last(transaction)?, boot_id })
}

/// One record. The inner error says that it is there and cannot be read.
pub(crate) fn load_one<R: Record>(
    transaction: &Transaction<'_>,
    id: &str,
) -> rusqlite::Result<Result<Option<R>>> {
    let row = transaction.prepare_cached(R::SELECT_ONE)?.query_row([id], read_record::<R>).optional()?;
    Ok(row.transpose().map_err(|Damaged { kind, id, reason }| {
        Error::internal("store", format_args!("{kind} {id}: {reason}"))
    }))
}

/// A part of the journal. An event that cannot be read is logged; readers see that its number is missing.
pub(crate) fn page(transaction: &Transaction<'_>, query: &EventQuery) -> rusqlite::Result<EventPage> {
    let (condition, subject) = match &query.subject {
        None => ("", None),
        Some(EventFilter::Sandbox(id)) => ("AND sandbox = ?2", Some(id.as_str())),
        Some(EventFilter::Container(id)) => ("AND container = ?2", Some(id.as_str())),
    };
    let mut select = transaction.prepare_cached(&format!(
        "SELECT seq, at, sandbox, container, exec, body FROM events WHERE seq > ?1 {condition} ORDER BY seq"
    ))?;
    // Numbers above what SQLite can hold are above all events.
    let after = i64::try_from(query.after.0).unwrap_or(i64::MAX);
    let mut rows = match subject {
        None => select.query([after])?,
        Some(subject) => select.query((after, subject))?,
    };
    let limit = query.limit.min(EVENT_PAGE_MAX);
    let mut events = Vec::new();
    while events.len() < limit
        && let Some(row) = rows.next()?
    {
        match read_event(row)? {
            Ok(event) => events.push(event),
            Err(DamagedEvent { seq, reason }) => tracing::error!(%seq, reason, "an event cannot be read"),
        }
    }
    let last = last(transaction)?;
    Ok(EventPage { events, first_kept: first_kept(transaction, last)?, last })
}

fn load_all<R: Record>(
    transaction: &Transaction<'_>,
    damaged: &mut Vec<Damaged>,
) -> rusqlite::Result<Vec<R>> {
    let mut select = transaction.prepare_cached(R::SELECT_ALL)?;
    let mut records = Vec::new();
    for row in select.query_map((), read_record::<R>)? {
        match row? {
            Ok(record) => records.push(record),
            Err(row) => damaged.push(row),
        }
    }
    Ok(records)
}

fn last(transaction: &Transaction<'_>) -> rusqlite::Result<Seq> {
    let last: i64 =
        transaction.prepare_cached("SELECT last_seq FROM state")?.query_row((), |row| row.get(0))?;
    Ok(Seq(last.cast_unsigned()))
}

/// The number of the oldest event that is kept, or the next number when there is none.
pub(crate) fn first_kept(connection: &Connection, last: Seq) -> rusqlite::Result<Seq> {
    let oldest: Option<i64> =
        connection.prepare_cached("SELECT min(seq) FROM events")?.query_row((), |row| row.get(0))?;
    Ok(oldest.map_or(last.next(), |oldest| Seq(oldest.cast_unsigned())))
}
