//! A container's log file in CRI's format (LOGS.md).
//!
//! Owns: the file, the unfinished lines of both streams, what is done when the file cannot be written. Never: keeps
//! the container waiting for the disk to have space, follows a symbolic link or opens a FIFO in the place of the
//! file, leaves a torn record that another one follows.

mod sheet;

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use thiserror::Error;

use self::sheet::{Cause, Header, Sheet, Torn, Trouble};
use super::splitter::Splitter;
use super::{ReadAt, Stream};
use crate::logger;

/// The file's permissions.
const LOG_MODE: u32 = 0o640;
/// The permissions of a log directory that is made.
const LOG_DIRECTORY_MODE: u32 = 0o755;

/// A container's log file.
#[derive(Debug)]
pub(crate) struct CriLog {
    path: PathBuf,
    file: File,
    age: Age,
    stdout: Splitter,
    stderr: Splitter,
    bytes_lost: u64,
    trouble: Option<Trouble>,
}

/// Whether the file was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    New,
    Old,
}

/// Why there is no log file.
#[derive(Debug, Error)]
pub(crate) enum LogError {
    /// It cannot be opened.
    #[error(
        "log file {path:?} cannot be opened; expected a regular file, or none, in a directory that exists"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Its directory cannot be made.
    #[error("log directory {path:?} cannot be made")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Something else is in its place.
    #[error("log file {path:?} is no regular file; expected a regular file or none")]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The path is not acceptable.
    #[error("log path {path:?} is not valid; expected an absolute path without \"..\"")]
    Path {
        /// The path.
        path: PathBuf,
    },
}

impl CriLog {
    /// Opens the log of a new container, with its directory.
    pub(crate) fn create(path: &Path) -> Result<Self, LogError> {
        let proper =
            path.is_absolute() && !path.components().any(|part| part == std::path::Component::ParentDir);
        let Some(directory) = path.parent().filter(|_| proper) else {
            return Err(LogError::Path { path: path.to_owned() });
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(LOG_DIRECTORY_MODE)
            .create(directory)
            .map_err(|source| LogError::Directory { path: directory.to_owned(), source })?;
        let (file, age) = open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            age,
            stdout: Splitter::default(),
            stderr: Splitter::default(),
            bytes_lost: 0,
            trouble: None,
        })
    }

    /// Writes bytes that were read at `at`. `batch` is a buffer to work in.
    pub(crate) fn write(&mut self, stream: Stream, bytes: &[u8], at: ReadAt, batch: &mut Vec<u8>) {
        self.follow_name();
        let mut sheet =
            Sheet { file: &self.file, trouble: &mut self.trouble, lost: &mut self.bytes_lost, batch };
        let header = Header::new(at, stream);
        let splitter = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        splitter.push(bytes, |tag, head, tail| sheet.record(&header, tag, head, tail));
        sheet.flush();
    }

    /// The streams have ended: writes what is left of their last lines.
    pub(crate) fn finish(&mut self, at: ReadAt, batch: &mut Vec<u8>) {
        self.follow_name();
        let mut sheet =
            Sheet { file: &self.file, trouble: &mut self.trouble, lost: &mut self.bytes_lost, batch };
        for (stream, splitter) in [(Stream::Stdout, &mut self.stdout), (Stream::Stderr, &mut self.stderr)] {
            splitter.finish(|tag, head, tail| sheet.record(&Header::new(at, stream), tag, head, tail));
        }
        sheet.flush();
    }

    /// Opens the file by its name again; if that fails the old one stays.
    pub(crate) fn reopen(&mut self) -> Result<(), LogError> {
        let (file, age) = open(&self.path)?;
        (self.file, self.age, self.trouble) = (file, age, None);
        Ok(())
    }

    /// Bytes of output that could not be written.
    pub(crate) fn bytes_lost(&self) -> u64 {
        self.bytes_lost
    }

    /// Removes the file if this log made it and wrote nothing.
    pub(crate) fn discard_if_unused(self) {
        let empty = self.file.metadata().is_ok_and(|metadata| metadata.len() == 0);
        if self.age == Age::New && empty {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Goes over to the file that has the log's name by now, where the one at hand is of no use: it was deleted, so that
    /// nobody would ever read what is written to it, or it failed for another reason than want of space, and may be of a
    /// file system that is gone.
    fn follow_name(&mut self) {
        let deleted = is_deleted(&self.file);
        let due = match &self.trouble {
            Some(trouble) => trouble.cause == Cause::File && Instant::now() >= trouble.retry_at,
            None => deleted,
        };
        if !due {
            return;
        }
        match open(&self.path) {
            Ok((file, age)) => {
                if let Some(trouble) = self.trouble.as_mut().filter(|_| !is_same(&self.file, &file)) {
                    trouble.torn = Torn::No;
                }
                (self.file, self.age) = (file, age);
            }
            Err(error) if deleted => {
                if self.trouble.is_none() {
                    logger::warning!("a container's log was deleted, its output is being dropped: {error}");
                }
                self.trouble = Some(Trouble::now(Cause::File, Torn::No));
            }
            // The old file is tried again.
            Err(_) => {}
        }
    }
}

/// Whether a file has no name any more.
fn is_deleted(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

fn is_same(one: &File, other: &File) -> bool {
    let place = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    place(one) == place(other)
}

/// Opens a log file for appending. Nothing but a regular file is ever opened for writing: O_NONBLOCK keeps a FIFO
/// from hanging us, and O_NOFOLLOW a link from leading us away.
fn open(path: &Path) -> Result<(File, Age), LogError> {
    let failed = |source| LogError::Open { path: path.to_owned(), source };
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = File::options();
    options.append(true).mode(LOG_MODE).custom_flags(flags);
    let (file, age) = match options.clone().create_new(true).open(path) {
        Ok(file) => (file, Age::New),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            (options.create(true).open(path).map_err(failed)?, Age::Old)
        }
        Err(error) => return Err(failed(error)),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(LogError::NotAFile { path: path.to_owned() });
    }
    Ok((file, age))
}

#[cfg(test)]
mod tests;
