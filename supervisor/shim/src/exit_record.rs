//! The exit record: what became of a process, on disk before anybody is told.
//!
//! Owns: the file's place, its bytes (EXIT_RECORD.md), writing and reading it. Never: removes one; that is done
//! with the bundle. The supervisor reads it when the shim is dead.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mainstay_messages::codec::{CodecError, Format};
use mainstay_messages::{ContainerId, ExecId, Exit};
use mainstay_task_api::convert::ProcessKey;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::faults::{EXIT_RECORD, around_write};

/// What a record begins with.
const FORMAT: Format = Format { magic: *b"MSEX", version: 1, body_length_max: 16 * 1024 };

/// What became of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// The container.
    pub container: ContainerId,
    /// The exec; none for PID 1.
    pub exec: Option<ExecId>,
    /// Its process id; 0 when it never had one.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
}

/// Why there is no exit record to be had.
#[derive(Debug, Error)]
pub enum ExitRecordError {
    /// The file cannot be read or written.
    #[error("exit record {path:?} cannot be {doing}")]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The file is not an exit record.
    #[error("exit record {path:?} is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: CodecError,
    },
}

/// The bundle of a container under a shim's directory.
pub fn bundle_path(directory: &Path, container: &ContainerId) -> PathBuf {
    directory.join("c").join(container.as_str())
}

/// Where the record of a process is.
pub fn exit_record_path(directory: &Path, key: &ProcessKey) -> PathBuf {
    record_path(&bundle_path(directory, &key.container), key.exec.as_ref())
}

/// The same, in a bundle wherever that is.
pub(crate) fn record_path(bundle: &Path, exec: Option<&ExecId>) -> PathBuf {
    match exec {
        None => bundle.join("exit"),
        Some(exec) => bundle.join(format!("exec-{exec}.exit")),
    }
}

/// Reads the record at `path`; `None` when there is none: the process has not ended, or nobody saw it.
pub fn read_exit_record(path: &Path) -> Result<Option<ExitRecord>, ExitRecordError> {
    let failed = |source| ExitRecordError::File { path: path.to_owned(), doing: "read", source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut frame = Vec::new();
    let length_max = mainstay_messages::codec::HEADER_LENGTH + FORMAT.body_length_max;
    file.take(length_max as u64 + 1).read_to_end(&mut frame).map_err(failed)?;
    let record = FORMAT.open(&frame);
    record.map(Some).map_err(|source| ExitRecordError::Damaged { path: path.to_owned(), source })
}

/// Writes the record into its bundle, so that a reader sees all of it or nothing.
pub(crate) fn write_exit_record(bundle: &Path, record: &ExitRecord) -> Result<(), ExitRecordError> {
    let path = record_path(bundle, record.exec.as_ref());
    let frame =
        FORMAT.seal(record).map_err(|source| ExitRecordError::Damaged { path: path.clone(), source })?;
    let temporary = path.with_extension("exit-new");
    let write = || write_whole(&temporary, &frame).and_then(|()| std::fs::rename(&temporary, &path));
    around_write(EXIT_RECORD, write).map_err(|source| {
        // What could be written of it takes space that somebody needs; there is nothing more to be done here.
        let _ = std::fs::remove_file(&temporary);
        ExitRecordError::File { path, doing: "written", source }
    })
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use mainstay_messages::Timestamp;
    use mainstay_messages::process::{ExitStatus, OomVerdict};

    use super::*;

    fn record() -> ExitRecord {
        let status = ExitStatus::Exited { code: 7 };
        ExitRecord {
            container: "web".parse().expect("a good id"),
            exec: Some("probe.1".parse().expect("a good id")),
            pid: 12,
            exit: Exit { status, at: Timestamp(5), oom: OomVerdict::NotKilled },
        }
    }

    #[test]
    fn is_read_back_and_leaves_no_other_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let bundle = directory.path().join("c/web");
        std::fs::create_dir_all(&bundle).expect("a bundle");
        let record = record();
        let key = ProcessKey { container: record.container.clone(), exec: record.exec.clone() };
        let path = exit_record_path(directory.path(), &key);
        assert!(read_exit_record(&path).expect("readable").is_none());
        write_exit_record(&bundle, &record).expect("written");
        assert_eq!(read_exit_record(&path).expect("readable"), Some(record));
        assert_eq!(std::fs::read_dir(&bundle).expect("a bundle").count(), 1);
    }

    /// EXIT_RECORD.md, byte by byte: a daemon reads what a shim of last month wrote.
    #[test]
    fn the_bytes_are_those_of_the_page() {
        let body: &[&[u8]] = &[
            b"\x03\0\0\0\0\0\0\0web",
            b"\x01\x07\0\0\0\0\0\0\0probe.1",
            b"\x0c\0\0\0",
            b"\0\0\0\0\x07",
            b"\x05\0\0\0\0\0\0\0",
            b"\x01\0\0\0",
        ];
        let body = body.concat();
        let frame = FORMAT.seal(&record()).expect("small");
        assert_eq!(&frame[..12], [&b"MSEX\0\x01\0\0\0\0\0"[..], &[body.len() as u8]].concat());
        assert_eq!(&frame[16..], body);
    }

    /// A daemon that trusts a torn record would invent an exit code.
    #[test]
    fn a_damaged_record_is_an_error_and_not_an_exit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("exit");
        let mut frame = FORMAT.seal(&record()).expect("small");
        *frame.last_mut().expect("not empty") ^= 1;
        std::fs::write(&path, &frame).expect("written");
        assert!(matches!(read_exit_record(&path), Err(ExitRecordError::Damaged { .. })));
        std::fs::write(&path, &frame[..9]).expect("written");
        assert!(matches!(read_exit_record(&path), Err(ExitRecordError::Damaged { .. })));
    }
}
