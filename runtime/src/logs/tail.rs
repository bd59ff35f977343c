//! Where the last lines of a log begin. It looks for them from the end, a block at a time, and so holds the same few
//! kilobytes whatever the length of the log and of its lines. It never reads what comes before them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use mainstay_messages::admin::LineEnd;

use super::parse_record;

/// Bytes that are looked at once.
const BLOCK_LENGTH: usize = 64 * 1024;
/// Bytes of a record that are enough to tell how it ends: time, stream and tags.
const HEADER_LENGTH: usize = 128;

/// The offset of the first record of the last `count` lines. What a last line without its newline has is not counted,
/// and comes after them.
pub(super) fn offset(file: &File, count: u64) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut lines = 0;
    // What follows the last newline is still being written.
    let mut whole = false;
    let mut buffer = vec![0; BLOCK_LENGTH + HEADER_LENGTH];
    // Records are looked at from the last one: each begins behind the newline of the one before it.
    while end > 0 {
        let start = end.saturating_sub(BLOCK_LENGTH as u64);
        let length = read_at(file, &mut buffer, start)?;
        // In a file that was cut short meanwhile there is nothing any more.
        let block = usize::try_from(end - start).unwrap_or(BLOCK_LENGTH).min(length);
        for newline in (0..block).rev().filter(|index| buffer[*index] == b'\n') {
            let record = &buffer[newline + 1..length.min(newline + 1 + HEADER_LENGTH)];
            lines += u64::from(whole && ends_a_line(record));
            whole = true;
            if lines > count {
                return end_of_record(file, start + newline as u64 + 1);
            }
        }
        end = start;
    }
    let length = read_at(file, &mut buffer, 0)?;
    lines += u64::from(whole && ends_a_line(&buffer[..length.min(HEADER_LENGTH)]));
    if lines > count { end_of_record(file, 0) } else { Ok(0) }
}

/// Whether a record, of which this is at least the beginning, ends a line.
fn ends_a_line(header: &[u8]) -> bool {
    let line = header.split(|byte| *byte == b'\n').next().unwrap_or_default();
    parse_record(line).is_some_and(|record| record.ends == LineEnd::Newline)
}

/// The offset behind the newline of the record at `offset`, or the end of the file.
fn end_of_record(file: &File, mut offset: u64) -> io::Result<u64> {
    let mut buffer = vec![0; BLOCK_LENGTH];
    loop {
        let length = read_at(file, &mut buffer, offset)?;
        if let Some(newline) = buffer[..length].iter().position(|byte| *byte == b'\n') {
            return Ok(offset + newline as u64 + 1);
        }
        if length == 0 {
            return Ok(offset);
        }
        offset += length as u64;
    }
}

/// Fills the buffer as far as the file goes.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn rest(text: &[u8], count: u64) -> Vec<u8> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text).expect("written");
        let from = offset(&file, count).expect("readable");
        text[usize::try_from(from).expect("in the text")..].to_vec()
    }

    fn record(tag: &str, text: &str) -> String {
        format!("2026-11-29T16:37:25Z stdout {tag} {text}\n")
    }

    #[test]
    fn counts_lines_and_keeps_their_pieces() {
        let text: String =
            [("F", "a"), ("P", "b"), ("F", "c"), ("P", "d")].map(|(t, b)| record(t, b)).concat();
        let pieces: String = [("P", "b"), ("F", "c"), ("P", "d")].map(|(t, b)| record(t, b)).concat();
        assert_eq!(rest(text.as_bytes(), 1), pieces.as_bytes());
        assert_eq!(rest(text.as_bytes(), 0), record("P", "d").as_bytes());
        assert_eq!(rest(text.as_bytes(), 2), text.as_bytes());
        assert_eq!(rest(text.as_bytes(), u64::MAX), text.as_bytes());
        assert_eq!(rest(b"", 3), b"");
    }

    /// A record longer than a block, and one that is still being written.
    #[test]
    fn long_and_unfinished_records() {
        let long = record("F", &"x".repeat(3 * BLOCK_LENGTH));
        let text = format!("{}{long}2026-11-29T16:37:25Z std", record("F", "a"));
        assert!(rest(text.as_bytes(), 1) == text.as_bytes()[record("F", "a").len()..]);
        assert!(rest(text.as_bytes(), 0) == b"2026-11-29T16:37:25Z std");
    }

    proptest! {
        /// What it finds is what reading all of it would find.
        #[test]
        fn agrees_with_the_plain_way(
            lengths in proptest::collection::vec((0usize..90_000, proptest::bool::ANY), 0..8),
            count in 0u64..9,
        ) {
            let records: Vec<String> =
                lengths.iter().map(|(n, last)| record(if *last { "F" } else { "P" }, &"y".repeat(*n))).collect();
            let ends = records.iter().enumerate().rev().filter(|(i, _)| lengths[*i].1).map(|(i, _)| i);
            let from = ends.skip(usize::try_from(count).expect("small")).map(|i| i + 1).next().unwrap_or(0);
            prop_assert!(rest(records.concat().as_bytes(), count) == records[from..].concat().as_bytes());
        }
    }
}
