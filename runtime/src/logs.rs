//! Reads a container's log: files in CRI format, as the shim writes them. It never writes one.
//!
//! ```text
//! 2026-11-29T16:37:25.000000000Z stdout F a whole line
//! 2026-11-29T16:37:25.000000001Z stderr P a line, or the first piece of one, without its newline
//! ```
//!
//! A reader goes from record to record. At the end of the file it sees whether the file was rotated away
//! (its path leads to another file), and goes on there.

mod tail;

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::admin::{Follow, LineEnd, LogRecord, OutputStream};
use mainstay_messages::record::ContainerSnapshot;
use mainstay_messages::{Error, Result, Timestamp};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::watch;

use crate::closing::Closed;

/// How often a log that is followed is looked at, in milliseconds.
pub const LOG_FOLLOW_POLL_MS: u64 = 50;
/// The longest record that is taken, in bytes. The shim splits lines far below it; a longer one is shown in
/// pieces of this size.
pub const LOG_RECORD_LENGTH_MAX: usize = 256 * 1024;
/// Bytes that are read at once.
const READ_LENGTH: usize = 64 * 1024;

/// Which part of a log is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether to go on until the container has ended.
    pub follow: Follow,
    /// Only the last so many lines.
    pub tail: Option<u64>,
    /// Only lines from this time on.
    pub since: Option<Timestamp>,
}

impl Default for LogOptions {
    /// All that is there, to the end of it.
    fn default() -> Self {
        Self { follow: Follow::No, tail: None, since: None }
    }
}

/// The log of a container.
#[derive(Debug)]
pub struct LogStream {
    reader: LogReader,
    since: Timestamp,
    /// While the container can still write.
    writer: Option<watch::Receiver<Arc<ContainerSnapshot>>>,
    closed: Closed,
}

/// Reads the records of one log.
#[derive(Debug)]
struct LogReader {
    path: PathBuf,
    file: Option<File>,
    /// Bytes of the file that are not a whole record yet.
    pending: Vec<u8>,
    /// Records that were read and not yet asked for.
    ready: VecDeque<LogRecord>,
}

impl LogStream {
    /// The log at `path`, of the container that `writer` shows.
    pub(crate) async fn open(
        path: PathBuf,
        options: LogOptions,
        writer: watch::Receiver<Arc<ContainerSnapshot>>,
        closed: Closed,
    ) -> Result<Self> {
        let mut reader = LogReader::new(path);
        if let Some(count) = options.tail {
            reader.skip_to_last(count).await.map_err(|error| unreadable(&reader.path, &error))?;
        }
        let writer = (options.follow == Follow::Yes).then_some(writer);
        Ok(Self { reader, since: options.since.unwrap_or_default(), writer, closed })
    }

    /// The next record; none at the end.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the log cannot be read, and when the runtime was closed and all has been read.
    pub async fn next(&mut self) -> Result<Option<LogRecord>> {
        loop {
            let ended = self.writer.as_ref().is_none_or(has_ended);
            match self.reader.next().await.map_err(|error| unreadable(&self.reader.path, &error))? {
                Some(record) if record.at >= self.since => return Ok(Some(record)),
                Some(_) => {}
                // The shim writes a log to its end before it tells of the exit, so this was the end.
                None if ended => return Ok(None),
                None => self.wait().await?,
            }
        }
    }

    /// Until there may be more.
    async fn wait(&mut self) -> Result<()> {
        let poll = Duration::from_millis(LOG_FOLLOW_POLL_MS);
        let more = async {
            match &mut self.writer {
                Some(writer) => {
                    let exit = writer.wait_for(|snapshot| snapshot.record.exit.is_some());
                    let _ = tokio::time::timeout(poll, exit).await;
                }
                None => tokio::time::sleep(poll).await,
            }
        };
        self.closed.or(more).await
    }
}

/// Whether a container can write no more: it has ended, or is gone.
fn has_ended(writer: &watch::Receiver<Arc<ContainerSnapshot>>) -> bool {
    writer.borrow().record.exit.is_some() || writer.has_changed().is_err()
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::unavailable(format!("the log {}", path.display()), error)
}

impl LogReader {
    /// A reader that begins with the first record. A log that is not there yet is an empty one.
    fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None, pending: Vec::new(), ready: VecDeque::new() }
    }

    /// The next record, or none when there is none now.
    async fn next(&mut self) -> io::Result<Option<LogRecord>> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(Some(record));
            }
            if self.file.is_none() && !self.open().await? {
                return Ok(None);
            }
            if self.fill().await? == 0 && !self.follow_rotation().await? {
                return Ok(None);
            }
        }
    }

    /// Goes to where the last `count` lines of what is there begin.
    async fn skip_to_last(&mut self, count: u64) -> io::Result<()> {
        if !self.open().await? {
            return Ok(());
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let whole = file.try_clone().await?.into_std().await;
        let offset = tokio::task::spawn_blocking(move || tail::offset(&whole, count)).await??;
        file.seek(io::SeekFrom::Start(offset)).await?;
        Ok(())
    }

    async fn open(&mut self) -> io::Result<bool> {
        match File::open(&self.path).await {
            Ok(file) => {
                self.file = Some(file);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads on, and takes apart what came. Answers the bytes that came.
    async fn fill(&mut self) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return Ok(0) };
        let start = self.pending.len();
        self.pending.resize(start + READ_LENGTH, 0);
        let outcome = file.read(&mut self.pending[start..]).await;
        self.pending.truncate(start + outcome.as_ref().copied().unwrap_or(0));
        let length = outcome?;
        self.take_records();
        Ok(length)
    }

    fn take_records(&mut self) {
        let mut used = 0;
        while let Some(end) = self.pending[used..].iter().position(|byte| *byte == b'\n') {
            self.ready.extend(parse_record(&self.pending[used..used + end]));
            used += end + 1;
        }
        if self.pending.len() - used > LOG_RECORD_LENGTH_MAX {
            self.ready.extend(parse_record(&self.pending[used..]));
            used = self.pending.len();
        }
        self.pending.drain(..used);
    }

    /// At the end of a file that is no longer the one at the path: goes on with that one.
    async fn follow_rotation(&mut self) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        let mine = file.metadata().await?;
        match tokio::fs::metadata(&self.path).await {
            Ok(now) if (now.dev(), now.ino()) != (mine.dev(), mine.ino()) => {
                // What came between the last read and the rotation is still in the old file.
                if self.fill().await? == 0 {
                    self.pending.clear();
                    self.file = None;
                }
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Takes one record apart; a line that is none is shown as it is, so that nothing of a damaged file hides.
fn parse_record(line: &[u8]) -> Option<LogRecord> {
    if line.is_empty() {
        return None;
    }
    Some(parse_cri(line).unwrap_or_else(|| LogRecord {
        at: Timestamp::default(),
        stream: OutputStream::Stdout,
        bytes: line.to_vec(),
        ends: LineEnd::Newline,
    }))
}

fn parse_cri(line: &[u8]) -> Option<LogRecord> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let at = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let stream = match parts.next()? {
        b"stdout" => OutputStream::Stdout,
        b"stderr" => OutputStream::Stderr,
        _ => return None,
    };
    // CRI allows more tags after the first, separated by colons.
    let ends = match parts.next()?.split(|byte| *byte == b':').next()? {
        b"F" => LineEnd::Newline,
        b"P" => LineEnd::Continued,
        _ => return None,
    };
    Some(LogRecord { at, stream, bytes: parts.next()?.to_vec(), ends })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(n: u32) -> String {
        format!("2026-11-29T16:37:25.000000000Z stdout F line {n}\n")
    }

    async fn texts(reader: &mut LogReader) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(record) = reader.next().await.expect("readable") {
            all.push(String::from_utf8_lossy(&record.bytes).into_owned());
        }
        all
    }

    #[test]
    fn takes_records_apart() {
        let record = parse_record(b"2026-11-29T16:37:25.000000007Z stderr P a  b").expect("a record");
        assert_eq!(record.stream, OutputStream::Stderr);
        assert_eq!(record.ends, LineEnd::Continued);
        assert_eq!(record.bytes, b"a  b");
        assert_eq!(record.at.0 % 10, 7);
    }

    #[test]
    fn shows_a_damaged_line_as_it_is() {
        assert_eq!(parse_record(b"\0\0garbage").expect("shown").bytes, b"\0\0garbage");
    }

    #[test]
    fn an_empty_line_of_output_is_a_record() {
        let record = parse_record(b"2026-11-29T16:37:25Z stdout F ").expect("a record");
        assert!(record.bytes.is_empty());
    }

    /// k8s#81132: lines were lost around a rotation, when a reader went to the new file too early.
    #[tokio::test]
    async fn a_rotation_loses_and_repeats_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut file = std::fs::File::create(&path).expect("made");
        file.write_all(line(1).as_bytes()).expect("written");
        let mut reader = LogReader::new(&path);
        assert_eq!(texts(&mut reader).await, ["line 1"]);
        std::fs::rename(&path, dir.path().join("log.1")).expect("renamed");
        file.write_all(line(2).as_bytes()).expect("written");
        assert_eq!(texts(&mut reader).await, ["line 2"], "the old file is read on while there is no new one");
        file.write_all(line(3).as_bytes()).expect("written");
        std::fs::write(&path, line(4)).expect("written");
        assert_eq!(texts(&mut reader).await, ["line 3", "line 4"]);
    }

    #[tokio::test]
    async fn half_a_record_waits_for_its_other_half() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut reader = LogReader::new(&path);
        assert!(texts(&mut reader).await.is_empty(), "a log that is not there yet is empty");
        let whole = line(1);
        let mut file = std::fs::File::create(&path).expect("made");
        file.write_all(&whole.as_bytes()[..20]).expect("written");
        assert!(texts(&mut reader).await.is_empty());
        file.write_all(&whole.as_bytes()[20..]).expect("written");
        assert_eq!(texts(&mut reader).await, ["line 1"]);
    }
}
