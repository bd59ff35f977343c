//! Devices by their names in the Container Device Interface (CDI): what the vendors' files say is to be changed of a container.
//!
//! Owns: reading the files of `/etc/cdi` and `/var/run/cdi` and finding a device in them; a file of the second directory goes
//! before one of the first. Never: makes such files, or watches them; they are read for each container that names a device.
//!
//! Files are JSON or YAML, by their names. What cannot be read is passed over, and said when a device is not found.

mod edits;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mainstay_messages::{Error, Result};
use serde::Deserialize;

pub use edits::Edits;

/// Where files are, the first the weakest.
pub const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// The largest file, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The most files of a directory that are read.
const FILES_MAX: usize = 1_024;

/// A file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Registry {
    cdi_version: String,
    kind: String,
    #[serde(default)]
    devices: Vec<NamedDevice>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedDevice {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

/// What is to be changed for these devices, in their order; what a file says for all its devices comes once, before those.
pub(crate) fn edits(names: &[String], directories: &[PathBuf]) -> Result<Vec<Edits>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let found = Files::read(directories);
    let mut all = Vec::new();
    let mut general = Vec::new();
    for name in names {
        let (kind, device) = name.split_once('=').unwrap_or((name, ""));
        let registries = found.registries.get(kind).map(Vec::as_slice).unwrap_or_default();
        let hit = registries.iter().rev().find_map(|registry| {
            Some((registry, registry.devices.iter().find(|candidate| candidate.name == device)?))
        });
        let Some((registry, device)) = hit else { return Err(found.missing(name, directories)) };
        let place = std::ptr::from_ref::<Registry>(registry);
        if !general.contains(&place) {
            general.push(place);
            all.push(registry.container_edits.clone());
        }
        all.push(device.container_edits.clone());
    }
    all.iter().try_for_each(Edits::check)?;
    all.iter_mut().try_for_each(Edits::complete)?;
    Ok(all)
}

/// What was read.
#[derive(Default)]
struct Files {
    /// By kind, the strongest last.
    registries: BTreeMap<String, Vec<Registry>>,
    /// What could not be, in sentences.
    unread: Vec<String>,
}

impl Files {
    fn read(directories: &[PathBuf]) -> Files {
        let mut files = Files::default();
        for directory in directories {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths.iter().take(FILES_MAX) {
                let extension = path.extension().and_then(|extension| extension.to_str());
                let Some(form @ ("json" | "yaml" | "yml")) = extension else { continue };
                match read(path, form) {
                    Ok(registry) => {
                        files.registries.entry(registry.kind.clone()).or_default().push(registry);
                    }
                    Err(why) => files.unread.push(format!("{path:?} cannot be read: {why}")),
                }
            }
        }
        files
    }

    fn missing(&self, name: &str, directories: &[PathBuf]) -> Error {
        let mut expected = format!("a device of a file in one of {directories:?}");
        for why in &self.unread {
            expected.push_str("; ");
            expected.push_str(why);
        }
        Error::invalid("CDI_devices", format!("{name:?}"), expected)
    }
}

fn read(path: &Path, form: &str) -> std::result::Result<Registry, String> {
    let length = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("{length} bytes are more than {FILE_BYTES_MAX}"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let registry: Registry = match form {
        "json" => serde_json::from_str(&text).map_err(|error| error.to_string())?,
        _ => serde_saphyr::from_str(&text).map_err(|error| error.to_string())?,
    };
    let is_known = registry.cdi_version.starts_with("0.") || registry.cdi_version.starts_with("1.");
    if !is_known {
        return Err(format!("cdiVersion {:?} is not known", registry.cdi_version));
    }
    Ok(registry)
}
