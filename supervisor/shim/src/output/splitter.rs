//! Cuts a stream of bytes into lines of limited length.
//!
//! Owns: the rule of LOGS.md: a line that ends in a newline ends in an `F` record; a part of a longer line, and a
//! last line without a newline, is a `P` record. So joining the texts of a stream's records, with a newline after
//! each `F`, gives the exact bytes. Never: knows files or time.

/// The longest text of a record, in bytes.
pub(crate) const LOG_LINE_MAX_BYTES: usize = 16 * 1024;

/// Whether a record ends its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// The line goes on in the next record of the stream, or the stream ended without a newline.
    Partial,
    /// A newline followed.
    Full,
}

/// The unfinished line of one stream.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    pending: Vec<u8>,
}

impl Tag {
    /// As it stands in a record.
    pub(crate) fn letter(self) -> u8 {
        match self {
            Self::Partial => b'P',
            Self::Full => b'F',
        }
    }
}

impl Splitter {
    /// Takes bytes and gives records: each is a tag and a text in two parts.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut record: impl FnMut(Tag, &[u8], &[u8])) {
        while !bytes.is_empty() {
            let room = LOG_LINE_MAX_BYTES - self.pending.len();
            // One more than fits: only then is it known that the line is longer.
            let window = &bytes[..bytes.len().min(room + 1)];
            match window.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    record(Tag::Full, &self.pending, &bytes[..end]);
                    self.clear();
                    bytes = &bytes[end + 1..];
                }
                None if window.len() > room => {
                    record(Tag::Partial, &self.pending, &bytes[..room]);
                    self.clear();
                    bytes = &bytes[room..];
                }
                None => {
                    self.pending.extend_from_slice(bytes);
                    return;
                }
            }
        }
    }

    /// The stream has ended: gives the last line if it had no newline.
    pub(crate) fn finish(&mut self, record: impl FnOnce(Tag, &[u8], &[u8])) {
        if !self.pending.is_empty() {
            record(Tag::Partial, &self.pending, b"");
            self.clear();
        }
    }

    fn clear(&mut self) {
        // A container that once wrote a long line does not keep its memory for ever.
        if self.pending.capacity() > 1_024 {
            self.pending = Vec::new();
        } else {
            self.pending.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(input: &[u8], cut: usize) -> Vec<(Tag, Vec<u8>)> {
        let mut records = Vec::new();
        let mut splitter = Splitter::default();
        for chunk in input.chunks(cut) {
            splitter.push(chunk, |tag, a, b| records.push((tag, [a, b].concat())));
        }
        splitter.finish(|tag, a, b| records.push((tag, [a, b].concat())));
        records
    }

    fn join(records: &[(Tag, Vec<u8>)]) -> Vec<u8> {
        let newline = |tag: &Tag| if *tag == Tag::Full { &b"\n"[..] } else { b"" };
        records.iter().flat_map(|(tag, text)| [text, newline(tag)].concat()).collect()
    }

    proptest! {
        /// Case 37: long lines could not be put together again, and the last line was guessed at.
        #[test]
        fn joined_records_are_the_exact_bytes(
            parts in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..40),
                    Just(b"\n".to_vec()),
                    (LOG_LINE_MAX_BYTES - 2..LOG_LINE_MAX_BYTES + 3).prop_map(|n| vec![b'x'; n]),
                ],
                0..12,
            ),
            cut in prop_oneof![1usize..20, 1_000usize..40_000],
        ) {
            let input = parts.concat();
            let records = split(&input, cut);
            prop_assert_eq!(join(&records), &input[..]);
            for (_, text) in &records {
                prop_assert!(text.len() <= LOG_LINE_MAX_BYTES && !text.contains(&b'\n'));
            }
            // However the bytes arrive, the records are the same.
            prop_assert_eq!(split(&input, input.len().max(1)), records);
        }
    }

    #[test]
    fn the_tail_without_a_newline_is_partial() {
        assert_eq!(split(b"a\nhello", 3), [(Tag::Full, b"a".to_vec()), (Tag::Partial, b"hello".to_vec())]);
        assert_eq!(split(b"\n", 1), [(Tag::Full, Vec::new())]);
        let line = [vec![b'x'; LOG_LINE_MAX_BYTES], b"\n".to_vec()].concat();
        assert_eq!(split(&line, 7).len(), 1);
    }
}
