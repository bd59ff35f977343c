//! How much of the journal is kept: so many events, and as many as leave the database within so many bytes.
//!
//! Owns: the decision whether the oldest events are to go, and deleting a step of them, with the names that nothing is left of. Never: deletes a record, or one of
//! the newest [`EVENTS_KEPT_MIN`] events because of their bytes: records take room in the same file, and however much that is,
//! whoever follows the journal can resume.
//!
//! What is measured is the pages of the database that are in use. The file itself does not shrink: pages that were given back
//! are used again, so that it stays near the limit once it was there.

use mainstay_messages::event::Seq;
use rusqlite::Connection;

use crate::names;
use crate::reader::first_kept;

/// The journal is trimmed by so many events at a time, when it has so many too many.
pub const TRIM_STEP_EVENTS: u64 = 256;
/// The newest events that are kept however many bytes the database takes.
pub const EVENTS_KEPT_MIN: u64 = 4_096;

/// How much is kept. Both limits hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// Events.
    pub(crate) events_max: u64,
    /// Bytes of the database that are in use.
    pub(crate) bytes_max: u64,
}

/// What is kept, and what it takes.
#[derive(Debug)]
pub(crate) struct Trim {
    keep: Keep,
    /// Number of the oldest event that is kept; above the last one when there is none.
    oldest: u64,
    /// Bytes of the database that were in use when it was measured.
    bytes: u64,
    /// Number of the last event when it was measured.
    measured_at: u64,
}

impl Trim {
    /// Of a database whose last event has the number `last`.
    pub(crate) fn new(connection: &Connection, keep: Keep, last: u64) -> rusqlite::Result<Self> {
        let oldest = first_kept(connection, Seq(last))?.0;
        Ok(Self { keep, oldest, bytes: bytes_in_use(connection)?, measured_at: last })
    }

    /// Whether a step is to be deleted.
    pub(crate) fn is_due(&self, last: u64) -> bool {
        let kept = (last + 1).saturating_sub(self.oldest);
        let too_many = kept.saturating_sub(self.keep.events_max) >= TRIM_STEP_EVENTS;
        let can_go = kept.saturating_sub(EVENTS_KEPT_MIN) >= TRIM_STEP_EVENTS;
        too_many || can_go && self.bytes > self.keep.bytes_max
    }

    /// Something was written. Measures again when that was as much as one step can take away.
    pub(crate) fn written(&mut self, connection: &Connection, last: u64) {
        if last.saturating_sub(self.measured_at) >= TRIM_STEP_EVENTS {
            self.measure(connection, last);
        }
    }

    /// Deletes the oldest events, one step.
    pub(crate) fn step(&mut self, connection: &Connection, last: u64) -> rusqlite::Result<()> {
        let bound = (self.oldest + TRIM_STEP_EVENTS).cast_signed();
        connection.prepare_cached("DELETE FROM events WHERE seq < ?1")?.execute([bound])?;
        self.oldest = first_kept(connection, Seq(last))?.0;
        names::trim(connection, self.oldest)?;
        self.measure(connection, last);
        Ok(())
    }

    fn measure(&mut self, connection: &Connection, last: u64) {
        self.measured_at = last;
        match bytes_in_use(connection) {
            Ok(bytes) => self.bytes = bytes,
            // What cannot be measured now is measured after the next step.
            Err(error) => tracing::debug!(%error, "the size of the database is not known"),
        }
    }
}

/// The bytes of the pages that hold something. These are numbers in the head of the file: nothing is searched for them.
fn bytes_in_use(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let used = number("page_count")?.saturating_sub(number("freelist_count")?);
    Ok(used.saturating_mul(number("page_size")?).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trim(events_max: u64, bytes_max: u64, bytes: u64) -> Trim {
        Trim { keep: Keep { events_max, bytes_max }, oldest: 1, bytes, measured_at: 0 }
    }

    #[test]
    fn both_limits_hold_and_the_newest_stay() {
        let full = EVENTS_KEPT_MIN + TRIM_STEP_EVENTS;
        assert!(!trim(u64::MAX, 100, 100).is_due(full), "neither is passed");
        assert!(trim(u64::MAX, 100, 101).is_due(full), "too many bytes");
        assert!(!trim(u64::MAX, 100, 101).is_due(full - 1), "the newest stay");
        assert!(!trim(10, 100, 100).is_due(10 + TRIM_STEP_EVENTS - 1), "less than a step");
        assert!(trim(10, 100, 100).is_due(10 + TRIM_STEP_EVENTS), "too many events");
    }
}
