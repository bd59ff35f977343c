//! The records that are about to be written to a log file, and what is done when they cannot be.
//!
//! Owns: the form of a record, and that the file ends with a whole one. Never: opens a file.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::logger;
use crate::output::splitter::Tag;
use crate::output::{ReadAt, Stream};

/// How long output is dropped after a failed write before writing is tried again, in milliseconds.
const LOG_RETRY_MS: u64 = 250;
/// Records are written when this many bytes of them have come together, or when there is no more to read.
const WRITE_BATCH_BYTES: usize = 32 * 1024;
/// Bytes of a record before its text: a time stamp of 30 bytes, the stream's name of 6, the tag, three spaces.
pub(super) const RECORD_HEADER_BYTES: usize = 40;

/// Writing failed and has not succeeded since.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) retry_at: Instant,
    /// A torn record stands at the end of the file and could not be cut off.
    pub(super) torn: Torn,
    pub(super) cause: Cause,
}

/// What is at fault when a file cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its disk has no room; the same file can be written when there is some.
    Room,
    /// The file itself, or its file system: another file of that name may do better.
    File,
}

impl Trouble {
    /// Something just failed; it is tried again after a while.
    pub(super) fn now(cause: Cause, torn: Torn) -> Self {
        Self { retry_at: Instant::now() + Duration::from_millis(LOG_RETRY_MS), torn, cause }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Torn {
    Yes,
    No,
}

/// The beginning of each record of one batch.
pub(super) struct Header {
    time: String,
    stream: &'static str,
}

impl Header {
    pub(super) fn new(at: ReadAt, stream: Stream) -> Self {
        Self { time: at.to_string(), stream: stream.name() }
    }
}

/// The records that are about to be written.
pub(super) struct Sheet<'a> {
    pub(super) file: &'a File,
    pub(super) trouble: &'a mut Option<Trouble>,
    pub(super) lost: &'a mut u64,
    pub(super) batch: &'a mut Vec<u8>,
}

impl Sheet<'_> {
    pub(super) fn record(&mut self, header: &Header, tag: Tag, head: &[u8], tail: &[u8]) {
        let parts: [&[u8]; 8] = [
            header.time.as_bytes(),
            b" ",
            header.stream.as_bytes(),
            b" ",
            &[tag.letter(), b' '],
            head,
            tail,
            b"\n",
        ];
        parts.iter().for_each(|part| self.batch.extend_from_slice(part));
        if self.batch.len() >= WRITE_BATCH_BYTES {
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.write_batch();
            self.batch.clear();
        }
    }

    fn write_batch(&mut self) {
        let mut start: &[u8] = b"";
        if let Some(trouble) = self.trouble.as_ref() {
            if Instant::now() < trouble.retry_at {
                *self.lost += text_bytes(self.batch);
                return;
            }
            if trouble.torn == Torn::Yes {
                start = b"\n";
            }
        }
        let mut written = 0;
        let result =
            write_all(self.file, start, &mut 0).and_then(|()| write_all(self.file, self.batch, &mut written));
        match result {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    logger::note!(
                        "the log can be written again; {} bytes of output are lost so far",
                        self.lost
                    );
                }
            }
            Err(error) => self.failed(written, error),
        }
    }

    /// `written` bytes of the batch are in the file. A record that is there in part is cut off.
    fn failed(&mut self, written: usize, error: Errno) {
        let whole = self.batch[..written].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let torn = match (written - whole) as u64 {
            0 => self
                .trouble
                .as_ref()
                .map_or(Torn::No, |trouble| if written > 0 { Torn::No } else { trouble.torn }),
            excess => cut_off(self.file, excess),
        };
        *self.lost += text_bytes(&self.batch[whole..]);
        if self.trouble.is_none() {
            logger::warning!("a container's log cannot be written, its output is being dropped: {error}");
        }
        let cause = match (error, torn) {
            (Errno::NOSPC | Errno::DQUOT, Torn::No) => Cause::Room,
            _ => Cause::File,
        };
        *self.trouble = Some(Trouble::now(cause, torn));
    }
}

fn cut_off(file: &File, excess: u64) -> Torn {
    let cut = file.metadata().and_then(|metadata| file.set_len(metadata.len().saturating_sub(excess)));
    if cut.is_ok() { Torn::No } else { Torn::Yes }
}

fn write_all(file: &File, mut bytes: &[u8], written: &mut usize) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => {
                *written += count;
                bytes = &bytes[count..];
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes of the container's output in whole records.
pub(super) fn text_bytes(records: &[u8]) -> u64 {
    let full = |record: &[u8]| record.get(RECORD_HEADER_BYTES - 2) == Some(&Tag::Full.letter());
    records
        .split_inclusive(|byte| *byte == b'\n')
        .map(|record| (record.len() - RECORD_HEADER_BYTES - 1) as u64 + u64::from(full(record)))
        .sum()
}
