//! Which pods plugins may have something for.
//!
//! Plugins keep what they have given on disks, so that a record outlives a power cut as well.
//!
//! Owns: the directory of records. Never: decides when one is made or goes, nor holds a lock while a file is written: whoever calls
//! sees to it that one call at a time works on a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mainstay_messages::codec::Format;
use mainstay_messages::{SandboxId, Timestamp};
use serde::{Deserialize, Serialize};

use super::config::CONFIG_LENGTH_MAX;
use super::error::CniError;
use super::plugin::OUTPUT_LENGTH_MAX;
use crate::durable::{self, Claim, Outlives};

/// The largest record, in bytes: a list, a result, and as much again for the rest.
const RECORD_LENGTH_MAX: usize = 2 * (CONFIG_LENGTH_MAX + OUTPUT_LENGTH_MAX) as usize;
const FORMAT: Format = Format { magic: *b"MNCN", version: 1, body_length_max: RECORD_LENGTH_MAX };

/// One pod that plugins may have something for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniRecord {
    /// The pod.
    pub pod: SandboxId,
    /// When ADD began.
    pub since: Timestamp,
    /// The name of the network.
    pub network: String,
    /// The list that was run, as it was written.
    pub list: String,
    /// The path of the pod's namespace.
    pub netns: String,
    /// The capabilities that were asked for, as JSON.
    pub capabilities: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// The last plugin's result, as JSON; none as long as ADD has not come to its end.
    pub result: Option<String>,
}

/// All records.
#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
    book: Mutex<Book>,
    _lock: Claim,
}

/// What is in the directory.
#[derive(Debug, Default)]
struct Book {
    records: BTreeMap<SandboxId, CniRecord>,
    damaged: BTreeSet<SandboxId>,
}

impl Records {
    pub(super) fn open(directory: &Path) -> Result<Self, CniError> {
        let fault =
            |operation| move |source| CniError::File { path: directory.to_owned(), operation, source };
        let lock = durable::claim(directory).map_err(fault("claimed"))?;
        let lock = lock.ok_or_else(|| CniError::Locked { directory: directory.to_owned() })?;
        let mut book = Book::default();
        for path in durable::files(directory).map_err(fault("read"))? {
            let pod = path.file_name().and_then(|name| name.to_str()?.parse::<SandboxId>().ok());
            match (read(&path), pod) {
                (Ok(record), Some(pod)) if record.pod == pod => drop(book.records.insert(pod, record)),
                (read, pod) => {
                    let reason = read.err().unwrap_or_else(|| "it is the record of another pod".into());
                    tracing::warn!(path = %path.display(), reason, "not a record of a CNI network");
                    book.damaged.extend(pod);
                }
            }
        }
        Ok(Self { directory: directory.to_owned(), book: Mutex::new(book), _lock: lock })
    }

    /// Pods whose records cannot be read.
    pub(super) fn damaged(&self) -> BTreeSet<SandboxId> {
        self.book().damaged.clone()
    }

    pub(super) fn get(&self, pod: &SandboxId) -> Option<CniRecord> {
        self.book().records.get(pod).cloned()
    }

    pub(super) fn all(&self) -> Vec<CniRecord> {
        self.book().records.values().cloned().collect()
    }

    pub(super) fn keep(&self, record: &CniRecord) -> Result<(), CniError> {
        let path = self.directory.join(record.pod.as_str());
        let frame = FORMAT.seal(record).map_err(|source| CniError::Record { path: path.clone(), source })?;
        let written = durable::write_whole(&self.directory, &path, &frame, Outlives::PowerCut);
        written.map_err(|source| CniError::File { path, operation: "written", source })?;
        self.book().records.insert(record.pod.clone(), record.clone());
        Ok(())
    }

    pub(super) fn release(&self, pod: &SandboxId) -> Result<(), CniError> {
        let path = self.directory.join(pod.as_str());
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(CniError::File { path, operation: "removed", source }),
        }
        let mut book = self.book();
        book.records.remove(pod);
        book.damaged.remove(pod);
        Ok(())
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Each change of it is one call after its file, so that a poisoned lock holds a sound book.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> Result<CniRecord, String> {
    let mut frame = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(RECORD_LENGTH_MAX as u64 + 64).read_to_end(&mut frame).map_err(|error| error.to_string())?;
    FORMAT.open(&frame).map_err(|error| error.to_string())
}
