//! Which pods plugins may have something for.
//!
//! Plugins keep what they have given on disks, so that a record outlives a power cut as well.
//!
//! Owns: the directory of records. Never: decides when one is made or goes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mainstay_messages::codec::Format;
use mainstay_messages::{SandboxId, Timestamp};
use serde::{Deserialize, Serialize};

use super::config::CONFIG_LENGTH_MAX;
use super::error::CniError;
use super::plugin::OUTPUT_LENGTH_MAX;
use crate::durable::{Claim, LOCK, NEW, Outlives, claim, write_whole};

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
    records: BTreeMap<SandboxId, CniRecord>,
    damaged: BTreeSet<SandboxId>,
    _lock: Claim,
}

impl Records {
    pub(super) fn open(directory: &Path) -> Result<Self, CniError> {
        let fault =
            |operation| move |source| CniError::File { path: directory.to_owned(), operation, source };
        let lock = claim(directory).map_err(fault("claimed"))?;
        let lock = lock.ok_or_else(|| CniError::Locked { directory: directory.to_owned() })?;
        let mut records = BTreeMap::new();
        let mut damaged = BTreeSet::new();
        for entry in fs::read_dir(directory).map_err(fault("read"))? {
            let path = entry.map_err(fault("read"))?.path();
            if path.file_name().is_some_and(|name| name == NEW || name == LOCK) {
                continue;
            }
            let pod = path.file_name().and_then(|name| name.to_str()?.parse::<SandboxId>().ok());
            match (read(&path), pod) {
                (Ok(record), Some(pod)) if record.pod == pod => drop(records.insert(pod, record)),
                (read, pod) => {
                    let reason = read.err().unwrap_or_else(|| "it is the record of another pod".into());
                    tracing::warn!(path = %path.display(), reason, "not a record of a CNI network");
                    damaged.extend(pod);
                }
            }
        }
        Ok(Self { directory: directory.to_owned(), records, damaged, _lock: lock })
    }

    /// Pods whose records cannot be read.
    pub(super) fn damaged(&self) -> &BTreeSet<SandboxId> {
        &self.damaged
    }

    pub(super) fn get(&self, pod: &SandboxId) -> Option<&CniRecord> {
        self.records.get(pod)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &CniRecord> {
        self.records.values()
    }

    pub(super) fn keep(&mut self, record: &CniRecord) -> Result<(), CniError> {
        let path = self.directory.join(record.pod.as_str());
        let frame = FORMAT.seal(record).map_err(|source| CniError::Record { path: path.clone(), source })?;
        write_whole(&self.directory, &path, &frame, Outlives::PowerCut).map_err(|source| CniError::File {
            path,
            operation: "written",
            source,
        })?;
        self.records.insert(record.pod.clone(), record.clone());
        Ok(())
    }

    pub(super) fn release(&mut self, pod: &SandboxId) -> Result<(), CniError> {
        let path = self.directory.join(pod.as_str());
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(CniError::File { path, operation: "removed", source }),
        }
        self.records.remove(pod);
        self.damaged.remove(pod);
        Ok(())
    }
}

fn read(path: &Path) -> Result<CniRecord, String> {
    let mut frame = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(RECORD_LENGTH_MAX as u64 + 64).read_to_end(&mut frame).map_err(|error| error.to_string())?;
    FORMAT.open(&frame).map_err(|error| error.to_string())
}
