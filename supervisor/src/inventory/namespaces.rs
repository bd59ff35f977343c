//! The names of network namespaces.
//!
//! Owns: telling this runtime's from all others, which are left alone. Never: opens one.

use std::fs;
use std::io;
use std::path::PathBuf;

use mainstay_messages::audit::{Owner, Thing, ThingKind};

use super::changed_at;
use crate::netns::NamespaceNames;

/// The names of this runtime's pods; none when there is no directory for them.
pub(super) fn of(names: &NamespaceNames) -> Result<Vec<Thing>, (PathBuf, io::Error)> {
    let fault = |error| (names.directory().to_owned(), error);
    let entries = match fs::read_dir(names.directory()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fault)?,
    };
    let mut things = Vec::new();
    for entry in entries {
        let path = entry.map_err(fault)?.path();
        let Some(sandbox) = path.file_name().and_then(|name| names.pod_of(name.to_str()?)) else { continue };
        things.push(Thing {
            kind: ThingKind::NetworkNamespace,
            place: path.display().to_string(),
            process: None,
            owner: Owner::pod(&sandbox),
            since: changed_at(&path),
        });
    }
    Ok(things)
}
