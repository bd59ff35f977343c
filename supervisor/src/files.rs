//! The files of pods and containers: bundles, layers, logs, and the identity of a shim.
//!
//! Owns: writing and removing them. Never: knows what is in a spec, or talks to a shim. All of it blocks.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mainstay_launch::{Removal, remove_directory};
use mainstay_messages::process::Exit;
use mainstay_messages::record::{ContainerRecord, SandboxRecord, ShimRecord};
use mainstay_messages::shortage::{Shortage, explained};
use mainstay_messages::spec::{IdMappings, MissingSource, MountSource, Rootfs};
use mainstay_messages::{ContainerId, Error, Result, SandboxId};
use mainstay_shim::faults::around_write;
use mainstay_task_api::convert::ProcessKey;
use oci_spec::runtime::Spec;
use serde::Serialize;

use crate::cgroup::with_sources;
use crate::faults::Written;
use crate::inventory::detach_below;
use crate::oci::NameFile;
use crate::paths::{Directories, Layer, PRIVATE_DIRECTORY_MODE};
use crate::peers;

/// The mode of files that only the runtime may read.
pub(crate) const PRIVATE_FILE_MODE: u32 = 0o600;
/// The mode of files that are mounted into containers.
const MOUNTED_FILE_MODE: u32 = 0o644;
/// The mode of a directory of logs, as the shim makes it too: log collectors of other users read there.
const LOG_DIRECTORY_MODE: u32 = 0o755;
/// The mode of a directory of the host that is made because a container mounts it.
const MADE_SOURCE_MODE: u32 = 0o755;
/// The exit record of a container's PID 1, in its bundle.
const EXIT_RECORD: &str = "exit";

/// What a container's root is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// Directories, the uppermost first, with changes going to a layer.
    Overlay { lower: Vec<PathBuf>, layer: Layer },
    /// A directory itself.
    Bind(PathBuf),
}

/// Checks that what a container is made from is there. Names the field and the path that are not.
pub(crate) fn check_sources(record: &ContainerRecord) -> Result<()> {
    let roots = match &record.spec.rootfs {
        Rootfs::Directory { path } | Rootfs::CopyOnWrite { path } => std::slice::from_ref(path),
        Rootfs::Layers(root) => root.layers.as_slice(),
        Rootfs::Host => &[],
        Rootfs::Image(_) => return Err(unresolved()),
    };
    for path in roots {
        let metadata = fs::metadata(path).map_err(|error| match Shortage::of(&error) {
            Some(_) => at(path)(error),
            None => Error::StartFailed {
                reason: format!("rootfs: the directory {path:?} cannot be used: {error}"),
            },
        })?;
        if !metadata.is_dir() {
            return Err(Error::StartFailed { reason: format!("rootfs: {path:?} is not a directory") });
        }
    }
    let adjustment = record.adjustment.as_deref();
    for (index, mount) in record.spec.mounts.iter().enumerate() {
        // What a plugin has taken away is not looked for.
        if adjustment.is_some_and(|adjustment| adjustment.changes_mount(&mount.target)) {
            continue;
        }
        if mount.missing == MissingSource::DirectoryMade
            && let MountSource::Bind { path } = &mount.source
        {
            make_missing(path)?;
        }
        peers::check(index, mount)?;
        if matches!(mount.source, MountSource::Image(_)) {
            return Err(unresolved());
        }
        if let MountSource::Bind { path } = &mount.source
            && let Err(error) = fs::metadata(path)
        {
            if Shortage::of(&error).is_some() {
                return Err(at(path)(error));
            }
            return Err(Error::invalid(
                format!("mounts[{index}].source"),
                format!("{path:?}"),
                format!("a file or directory of the host ({error})"),
            ));
        }
    }
    Ok(())
}

/// Makes a directory, and those above it, where a caller mounts from a place with nothing there.
fn make_missing(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(MADE_SOURCE_MODE).create(path).map_err(at(path))
        }
        _ => Ok(()),
    }
}

/// An image whose layers the runtime has not looked up.
fn unresolved() -> Error {
    Error::internal("a container", "an image of it has no layers yet")
}

/// Whether something was there before it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Absent,
    Present,
}

/// Makes a pod's directories, and writes down whose they are.
pub(crate) fn make_pod(directories: &Directories, record: &SandboxRecord) -> Result<Before> {
    let sandbox = &record.id;
    let pod = directories.pod(sandbox);
    let before = match DirBuilder::new().mode(PRIVATE_DIRECTORY_MODE).create(&pod) {
        Ok(()) => Before::Absent,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Before::Present,
        Err(error) => return Err(at(&pod)(error)),
    };
    let bundles = directories.bundles(sandbox);
    create_private(&bundles).map_err(at(&bundles))?;
    write_record(Written::PodRecord, &directories.pod_record(sandbox), record)?;
    Ok(before)
}

/// What a failure at a path is called towards callers.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.display().to_string();
    move |error| Error::unavailable(path, explained(&error))
}

/// Makes a container's bundle.
pub(crate) fn make_bundle(
    directories: &Directories,
    record: &ContainerRecord,
    spec: &Spec,
    names: &[NameFile],
) -> Result<()> {
    let bundle = directories.bundle(&record.sandbox, &record.id);
    create_private(&bundle).map_err(at(&bundle))?;
    for file in names {
        let path = bundle.join(file.name);
        write_public(&path, file.text.as_bytes()).map_err(at(&path))?;
    }
    let config = bundle.join("config.json");
    let text = serde_json::to_vec(spec).map_err(|error| Error::internal("config.json", error))?;
    write_private(Written::Spec, &config, &text).map_err(at(&config))?;
    let own = directories.container_record(&record.sandbox, &record.id);
    write_record(Written::ContainerRecord, &own, record)
}

/// Writes a record beside what it is about, for a runtime whose store has lost it.
fn write_record(which: Written, path: &Path, record: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(record).map_err(|error| Error::internal("a record", error))?;
    write_private(which, path, &text).map_err(at(path))
}

/// The record of a container as it was made; none when it cannot be read.
pub(crate) fn read_container(
    directories: &Directories,
    sandbox: &SandboxId,
    container: &ContainerId,
) -> Option<ContainerRecord> {
    serde_json::from_slice(&fs::read(directories.container_record(sandbox, container)).ok()?).ok()
}

/// Makes what a container's changes go to, if it has such a thing.
pub(crate) fn make_layer(
    directories: &Directories,
    record: &ContainerRecord,
    ids: Option<&IdMappings>,
) -> Result<Root> {
    let lower = match &record.spec.rootfs {
        Rootfs::Directory { path } => return Ok(Root::Bind(path.clone())),
        Rootfs::CopyOnWrite { path } => vec![path.clone()],
        Rootfs::Layers(root) => root.layers.clone(),
        Rootfs::Host => vec![PathBuf::from("/")],
        Rootfs::Image(_) => return Err(unresolved()),
    };
    let uppermost =
        lower.first().ok_or_else(|| Error::internal("a container's root", "its image has no layer"))?;
    let layer = directories.layer(&record.id);
    create_layer(uppermost, &layer, ids).map_err(at(&layer.directory))?;
    Ok(Root::Overlay { lower, layer })
}

/// Makes the directory of a pod's logs, unless the container logs somewhere else.
pub(crate) fn make_logs(directories: &Directories, record: &ContainerRecord) -> Result<()> {
    let logs = directories.pod_logs(&record.sandbox);
    if !record.log_path.starts_with(&logs) {
        return Ok(());
    }
    match DirBuilder::new().mode(LOG_DIRECTORY_MODE).create(&logs) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(at(&logs)),
    }
}

/// The root of an overlay has the owner and mode of its upper directory, so these are taken from the one below it: else
/// only root could enter the container's `/`. In a user namespace it is the container's owner of the same number; of one that
/// the container does not have, its root.
fn create_layer(lower: &Path, layer: &Layer, ids: Option<&IdMappings>) -> io::Result<()> {
    let metadata = fs::metadata(lower)?;
    for directory in [&layer.directory, &layer.upper, &layer.work] {
        create_private(directory)?;
    }
    let owner = (metadata.uid(), metadata.gid());
    let mapped = |ids: &IdMappings| ids.to_host(owner.0, owner.1).or_else(|| ids.to_host(0, 0));
    let (uid, gid) = ids.and_then(mapped).unwrap_or(owner);
    std::os::unix::fs::chown(&layer.upper, Some(uid), Some(gid))?;
    fs::set_permissions(&layer.upper, fs::Permissions::from_mode(metadata.permissions().mode() & 0o7777))
}

/// Removes a directory of a pod or container, whatever is in it, without following links or crossing into what is
/// mounted there: that is taken away first. One that is not there is removed already.
pub(crate) fn remove_tree(directory: &Path) -> Result<()> {
    remove_all(directory).map_err(at(directory))
}

fn remove_all(directory: &Path) -> io::Result<()> {
    if remove_directory(directory)? == Removal::Gone {
        return Ok(());
    }
    detach_below(directory)?;
    match remove_directory(directory)? {
        Removal::Gone => Ok(()),
        Removal::Mounted => Err(io::ErrorKind::ResourceBusy.into()),
    }
}

/// Removes a directory in which nothing is.
pub(crate) fn remove_empty(directory: &Path) -> Result<()> {
    ignore_missing(fs::remove_dir(directory)).map_err(at(directory))
}

/// Removes a container's log and those that were rotated away, then the directory when it was the last.
pub(crate) fn remove_logs(
    directories: &Directories,
    sandbox: &SandboxId,
    container: &ContainerId,
) -> Result<()> {
    let logs = directories.pod_logs(sandbox);
    remove_logs_in(&logs, container).map_err(at(&logs))
}

fn remove_logs_in(logs: &Path, container: &ContainerId) -> io::Result<()> {
    let own = format!("{container}.log");
    for entry in read_directory(logs)? {
        let name = entry.to_string_lossy();
        if name.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
            ignore_missing(fs::remove_file(logs.join(entry)))?;
        }
    }
    match fs::remove_dir(logs) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        result => ignore_missing(result),
    }
}

/// The containers that have a bundle.
pub(crate) fn containers(directories: &Directories, sandbox: &SandboxId) -> io::Result<Vec<ContainerId>> {
    let names = read_directory(&directories.bundles(sandbox))?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}

/// The exit records that a shim left in the bundles of a pod. One that cannot be read is none, and said so.
pub(crate) fn exit_records(directories: &Directories, sandbox: &SandboxId) -> BTreeMap<ProcessKey, Exit> {
    let mut records = BTreeMap::new();
    let containers = containers(directories, sandbox).unwrap_or_else(|error| {
        tracing::error!(%sandbox, %error, "bundles cannot be listed: exits may become unknown");
        Vec::new()
    });
    for container in containers {
        let bundle = directories.bundle(sandbox, &container);
        for name in read_directory(&bundle).unwrap_or_default() {
            if let Some(process) = name.to_str().and_then(|name| recorded_process(&container, name))
                && let Some(exit) = exit_record(directories, sandbox, &process)
            {
                records.insert(process, exit);
            }
        }
    }
    records
}

/// The exit record of one process; none when there is none that can be read.
pub(crate) fn exit_record(
    directories: &Directories,
    sandbox: &SandboxId,
    process: &ProcessKey,
) -> Option<Exit> {
    let path = mainstay_shim::exit_record_path(&directories.pod(sandbox), process);
    match mainstay_shim::read_exit_record(&path) {
        Ok(record) => record.map(|record| record.exit),
        Err(error) => {
            tracing::error!(%sandbox, %process, error = %with_sources(&error), "exit record cannot be read");
            None
        }
    }
}

/// Whether a file of a bundle is the exit record of a process.
pub(crate) fn is_exit_record(file: &str) -> bool {
    file == EXIT_RECORD || (file.starts_with("exec-") && file.ends_with(".exit"))
}

/// Whose record a file of a bundle is.
fn recorded_process(container: &ContainerId, file: &str) -> Option<ProcessKey> {
    let exec = match file {
        EXIT_RECORD => None,
        _ => Some(file.strip_prefix("exec-")?.strip_suffix(".exit")?.parse().ok()?),
    };
    Some(ProcessKey { container: container.clone(), exec })
}

/// Writes down which process a pod's shim is, so that it is found even if nothing else was written.
pub(crate) fn write_identity(
    directories: &Directories,
    sandbox: &SandboxId,
    shim: &ShimRecord,
) -> io::Result<()> {
    let text = serde_json::to_vec(shim)?;
    write_private(Written::ShimIdentity, &directories.shim_identity(sandbox), &text)
}

/// Which process a pod's shim was; none when nothing (or nothing readable) was written.
pub(crate) fn read_identity(directories: &Directories, sandbox: &SandboxId) -> Option<ShimRecord> {
    let text = fs::read(directories.shim_identity(sandbox)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Makes a directory that only the runtime may enter; one that is there is kept.
pub(crate) fn create_private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(PRIVATE_DIRECTORY_MODE).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Opens a file for appending that only the runtime may read.
pub(crate) fn append_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(PRIVATE_FILE_MODE).open(path)
}

/// Writes a file that is mounted into a container, and that every user in it may read.
fn write_public(path: &Path, bytes: &[u8]) -> io::Result<()> {
    around_write(Written::NameFile.name(), || {
        fs::write(path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(MOUNTED_FILE_MODE))
    })
}

/// Writes a file as a whole: readers see all of it, or the one before.
pub(crate) fn write_private(which: Written, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    around_write(which.name(), || {
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(true).mode(PRIVATE_FILE_MODE);
        options.open(&temporary)?.write_all(bytes)?;
        fs::rename(&temporary, path)
    })
}

/// The names in a directory; none when it is not there.
fn read_directory(directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
