//! What other programs are told of what plugins gave a pod: files where libcni keeps them, in its format.
//!
//! `<cache_dir>/results/<network>-<pod>-<link>`, JSON of the kind `cniCacheV1`. Tools and some plugins look there. The truth
//! is in the records.
//!
//! Owns: these files. Never: reads one to decide what plugins are to take back.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::error::CniError;
use super::record::CniRecord;
use crate::spec::POD_LINK;

/// The kind of file that is written and read.
const KIND: &str = "cniCacheV1";

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedResult {
    /// The file.
    pub path: PathBuf,
    /// The id of the pod, whoever's it is.
    pub pod: String,
    /// The path of the pod's namespace, as the plugins were told it.
    pub netns: String,
}

/// Writes the file of a pod that was attached.
pub(super) fn write(cache_dir: &Path, record: &CniRecord) -> Result<(), CniError> {
    let directory = results(cache_dir);
    let path = path(cache_dir, record);
    let fault = |source| CniError::File { path: path.clone(), operation: "written", source };
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(fault)?;
    let opened = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
    opened.and_then(|mut file| file.write_all(document(record).to_string().as_bytes())).map_err(fault)
}

/// Removes the file of a pod.
pub(super) fn remove(cache_dir: &Path, record: &CniRecord) -> Result<(), CniError> {
    remove_file(&path(cache_dir, record))
}

pub(super) fn remove_file(path: &Path) -> Result<(), CniError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(CniError::File { path: path.to_owned(), operation: "removed", source })
        }
        _ => Ok(()),
    }
}

/// All files that are of this kind, also those that others have written.
pub(super) fn list(cache_dir: &Path) -> Result<Vec<CachedResult>, CniError> {
    let directory = results(cache_dir);
    let fault = |source| CniError::File { path: directory.clone(), operation: "read", source };
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fault)?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(fault)?;
    Ok(paths.into_iter().filter_map(read).collect())
}

fn read(path: PathBuf) -> Option<CachedResult> {
    let value: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    (value["kind"] == KIND).then_some(())?;
    Some(CachedResult { pod: text("containerId")?, netns: text("netns").unwrap_or_default(), path })
}

fn results(cache_dir: &Path) -> PathBuf {
    cache_dir.join("results")
}

fn path(cache_dir: &Path, record: &CniRecord) -> PathBuf {
    results(cache_dir).join(format!("{}-{}-{POD_LINK}", record.network, record.pod))
}

fn document(record: &CniRecord) -> Value {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let pairs = record.args.split(';').filter_map(|pair| pair.split_once('='));
    json!({
        "kind": KIND,
        "containerId": record.pod.as_str(),
        "config": STANDARD.encode(&record.list),
        "ifName": POD_LINK,
        "networkName": record.network,
        "netns": record.netns,
        "cniArgs": pairs.map(|(key, value)| [key, value]).collect::<Vec<_>>(),
        "capabilityArgs": parsed(&record.capabilities),
        "result": record.result.as_deref().map(parsed),
    })
}
