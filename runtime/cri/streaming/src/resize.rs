//! Sizes of terminals as clients send them: JSON objects, one after the other, in pieces of any length.
//!
//! Owns: finding the sizes in the pieces. Never: keeps more than one object may have, or passes on a size without rows or columns.

use serde::Deserialize;

use crate::backend::TerminalSize;

/// The longest text of one size, in bytes.
pub const RESIZE_BYTES_MAX: usize = 1024;

#[derive(Deserialize)]
struct Size {
    #[serde(alias = "width")]
    #[serde(rename = "Width")]
    columns: u16,
    #[serde(alias = "height")]
    #[serde(rename = "Height")]
    rows: u16,
}

/// Finds sizes in what a client sends.
#[derive(Debug, Default)]
pub(crate) struct SizeReader {
    pending: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Reading,
    /// It sent what is no size; nothing after it can be trusted.
    Lost,
}

impl SizeReader {
    /// The last size that is complete with these bytes; those before it are of no interest any more.
    /// One without rows or columns is that of a terminal whose size nobody has set: it says nothing.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Option<TerminalSize> {
        if self.state == State::Lost {
            return None;
        }
        let mut last = None;
        for piece in bytes.chunks(RESIZE_BYTES_MAX) {
            self.pending.extend_from_slice(piece);
            last = self.complete().or(last);
        }
        last
    }

    fn complete(&mut self) -> Option<TerminalSize> {
        let mut last = None;
        let mut sizes = serde_json::Deserializer::from_slice(&self.pending).into_iter::<Size>();
        let wrong = loop {
            match sizes.next() {
                Some(Ok(Size { columns: 0, .. } | Size { rows: 0, .. })) => {}
                Some(Ok(Size { columns, rows })) => last = Some(TerminalSize { rows, columns }),
                Some(Err(error)) => break !error.is_eof(),
                None => break false,
            }
        };
        let read = sizes.byte_offset();
        self.pending.drain(..read);
        if wrong || self.pending.len() > RESIZE_BYTES_MAX {
            tracing::debug!("a client sent what is no size of a terminal");
            self.state = State::Lost;
            self.pending = Vec::new();
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    #[test]
    fn sizes_come_in_any_pieces() {
        let text = b"{\"Width\":120,\"Height\":40}\n{\"Width\":80,\"Height\":24}\n";
        let mut whole = SizeReader::default();
        assert_eq!(whole.read(text), Some(TerminalSize { rows: 24, columns: 80 }));
        let mut pieces = SizeReader::default();
        let found: Vec<_> = text.iter().filter_map(|byte| pieces.read(&[*byte])).collect();
        assert_eq!(found, [TerminalSize { rows: 40, columns: 120 }, TerminalSize { rows: 24, columns: 80 }]);
    }

    /// Where a terminal was made by a program that never set its size (`script`, some CI runners), its exec was refused.
    #[test]
    fn a_size_that_was_never_set_says_nothing() {
        let mut reader = SizeReader::default();
        assert_eq!(reader.read(b"{\"Width\":0,\"Height\":0}"), None);
        assert_eq!(reader.read(b"{\"Width\":80,\"Height\":0}{\"Width\":0,\"Height\":24}"), None);
        let text = b"{\"Width\":80,\"Height\":24}{\"Width\":0,\"Height\":0}";
        assert_eq!(reader.read(text), Some(TerminalSize { rows: 24, columns: 80 }));
    }

    /// Bytes of sizes more often than others.
    fn bytes() -> impl Strategy<Value = u8> {
        prop_oneof![select(b"[]{}\":,WidthHeg0123456789- ".to_vec()), any::<u8>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_do_harm(pieces in vec(vec(bytes(), 0..1_500), 0..4)) {
            let mut reader = SizeReader::default();
            for piece in pieces {
                let _ = reader.read(&piece);
                prop_assert!(reader.pending.len() <= RESIZE_BYTES_MAX);
            }
        }
    }

    #[test]
    fn nonsense_ends_it_and_is_not_kept() {
        let mut reader = SizeReader::default();
        assert_eq!(reader.read(b"{\"Width\":-1,\"Height\":24}"), None);
        assert_eq!(reader.read(b"{\"Width\":80,\"Height\":24}"), None);
        let mut endless = SizeReader::default();
        for _ in 0..100 {
            assert_eq!(endless.read(&[b' '; 700]), None);
            assert_eq!(endless.read(b"["), None);
            assert!(endless.pending.capacity() < 16 * RESIZE_BYTES_MAX);
        }
    }
}
