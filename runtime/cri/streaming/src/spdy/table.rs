//! The streams of one connection, as a decision.
//!
//! ```text
//!   opened by the client ─► both sides send ─► one has sent its last ─► the other has, too ─► forgotten
//!                                └───────────── reset by either side ──────────────────────────┘
//! ```
//!
//! Owns: which streams there are, and who may still send on them. Never: holds bytes.

use std::collections::HashMap;

use super::frame::{Fin, ResetCode, StreamId};

/// The most streams that are open at the same time on one connection. A port that is forwarded takes two.
pub const STREAMS_MAX: usize = 512;

/// The streams of a connection. `T` leads to the reader of each.
#[derive(Debug)]
pub(super) struct Table<T> {
    streams: HashMap<StreamId, Entry<T>>,
    last: StreamId,
    taking: Taking,
}

#[derive(Debug)]
struct Entry<T> {
    reader: T,
    /// Whether the client may still send.
    remote: Side,
    /// Whether we may.
    local: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Open,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    Yes,
    /// One side has said that it goes away.
    NoMore,
}

/// What becomes of a stream that the client opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    Accepted,
    /// It is reset with this code.
    Refused(ResetCode),
    /// Nothing is answered: the connection ends.
    Ignored,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { streams: HashMap::new(), last: StreamId(0), taking: Taking::Yes }
    }
}

impl<T> Table<T> {
    pub(super) fn open(&mut self, stream: StreamId, fin: Fin, unidirectional: bool, reader: T) -> Opening {
        if self.taking == Taking::NoMore {
            return Opening::Ignored;
        }
        // Clients count up in odd numbers.
        if stream.0.is_multiple_of(2) || stream <= self.last {
            return Opening::Refused(ResetCode::PROTOCOL_ERROR);
        }
        self.last = stream;
        if self.streams.len() >= STREAMS_MAX {
            return Opening::Refused(ResetCode::REFUSED_STREAM);
        }
        let side = |over: bool| if over { Side::Over } else { Side::Open };
        let entry = Entry { reader, remote: side(fin == Fin::Yes), local: side(unidirectional) };
        self.streams.insert(stream, entry);
        self.forget_if_over(stream);
        Opening::Accepted
    }

    /// Where what the client sends on a stream goes; none when it may send nothing there.
    pub(super) fn reader(&self, stream: StreamId) -> Option<&T> {
        self.streams.get(&stream).filter(|entry| entry.remote == Side::Open).map(|entry| &entry.reader)
    }

    /// The client has sent its last.
    pub(super) fn remote_over(&mut self, stream: StreamId) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.remote = Side::Over;
            self.forget_if_over(stream);
        }
    }

    /// Whether we may send on it.
    pub(super) fn is_writable(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|entry| entry.local == Side::Open)
    }

    /// We have sent our last; false when we had before, or the stream is gone.
    pub(super) fn local_over(&mut self, stream: StreamId) -> bool {
        let Some(entry) = self.streams.get_mut(&stream).filter(|entry| entry.local == Side::Open) else {
            return false;
        };
        entry.local = Side::Over;
        self.forget_if_over(stream);
        true
    }

    /// Forgets a stream at once; false when there was none.
    pub(super) fn reset(&mut self, stream: StreamId) -> bool {
        self.streams.remove(&stream).is_some()
    }

    /// No stream is taken any more; the last one that was.
    pub(super) fn go_away(&mut self) -> StreamId {
        self.taking = Taking::NoMore;
        self.last
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.taking = Taking::NoMore;
        self.streams.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    fn forget_if_over(&mut self, stream: StreamId) {
        if self
            .streams
            .get(&stream)
            .is_some_and(|entry| entry.remote == Side::Over && entry.local == Side::Over)
        {
            self.streams.remove(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(table: &mut Table<()>, stream: u32) -> Opening {
        table.open(StreamId(stream), Fin::No, false, ())
    }

    #[test]
    fn numbers_are_odd_and_go_up() {
        let mut table = Table::default();
        assert_eq!(open(&mut table, 1), Opening::Accepted);
        assert_eq!(open(&mut table, 1), Opening::Refused(ResetCode::PROTOCOL_ERROR));
        assert_eq!(open(&mut table, 4), Opening::Refused(ResetCode::PROTOCOL_ERROR));
        assert_eq!(open(&mut table, 9), Opening::Accepted);
        assert_eq!(open(&mut table, 3), Opening::Refused(ResetCode::PROTOCOL_ERROR));
        assert_eq!(table.go_away(), StreamId(9));
        assert_eq!(open(&mut table, 11), Opening::Ignored);
    }

    #[test]
    fn a_stream_is_forgotten_when_both_have_sent_their_last() {
        let mut table = Table::default();
        open(&mut table, 1);
        table.remote_over(StreamId(1));
        assert!(table.reader(StreamId(1)).is_none());
        assert!(table.is_writable(StreamId(1)));
        assert!(table.local_over(StreamId(1)));
        assert!(!table.local_over(StreamId(1)));
        assert_eq!(table.len(), 0);
        assert_eq!(table.open(StreamId(3), Fin::Yes, true, ()), Opening::Accepted);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn there_are_never_more_than_the_limit() {
        let mut table = Table::default();
        for number in 0..STREAMS_MAX as u32 {
            assert_eq!(open(&mut table, 2 * number + 1), Opening::Accepted);
        }
        let next = 2 * STREAMS_MAX as u32 + 1;
        assert_eq!(open(&mut table, next), Opening::Refused(ResetCode::REFUSED_STREAM));
        assert!(table.reset(StreamId(1)));
        assert_eq!(open(&mut table, next + 2), Opening::Accepted);
    }
}
