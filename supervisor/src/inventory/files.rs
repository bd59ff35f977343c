//! The directories of pods, the layers of containers, the logs.
//!
//! Owns: knowing by its name whose a file is. Never: opens one.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use mainstay_messages::audit::{Owner, Thing, ThingKind};
use mainstay_messages::{ContainerId, SandboxId};

use super::changed_at;
use crate::files::is_exit_record;
use crate::paths::Directories;

/// What a file system has at its top that was mounted here for layers alone.
const RECOVERED_FILES: &str = "lost+found";

type Listed<T> = Result<T, (PathBuf, io::Error)>;

/// Pods' directories, with their sockets, bundles and exit records.
pub(super) fn pods(directories: &Directories) -> Listed<Vec<Thing>> {
    let mut things = Vec::new();
    for entry in entries(&directories.pods())? {
        let Some(sandbox) = id::<SandboxId>(&entry) else {
            things.push(thing(ThingKind::Stranger, &entry.path(), Owner::default()));
            continue;
        };
        let owner = Owner::pod(&sandbox);
        things.push(thing(ThingKind::PodDirectory, &entry.path(), owner.clone()));
        for inner in entries(&entry.path())? {
            if inner.file_type().is_ok_and(|kind| kind.is_socket()) {
                things.push(thing(ThingKind::Socket, &inner.path(), owner.clone()));
            }
        }
        for inner in entries(&directories.bundles(&sandbox))? {
            things.extend(bundle(&sandbox, &inner)?);
        }
    }
    Ok(things)
}

fn bundle(sandbox: &SandboxId, entry: &DirEntry) -> Listed<Vec<Thing>> {
    let Some(container) = id::<ContainerId>(entry) else {
        return Ok(vec![thing(ThingKind::Stranger, &entry.path(), Owner::pod(sandbox))]);
    };
    let owner = Owner::container(sandbox, &container);
    let mut things = vec![thing(ThingKind::Bundle, &entry.path(), owner.clone())];
    for inner in entries(&entry.path())? {
        if inner.file_name().to_str().is_some_and(is_exit_record) {
            things.push(thing(ThingKind::ExitRecord, &inner.path(), owner.clone()));
        }
    }
    Ok(things)
}

/// The layers of containers.
pub(super) fn layers(directories: &Directories) -> Listed<Vec<Thing>> {
    let layer = |entry: DirEntry| match id::<ContainerId>(&entry) {
        Some(container) => Some(thing(ThingKind::Layer, &entry.path(), Owner::container_alone(&container))),
        None if entry.file_name() == RECOVERED_FILES => None,
        None => Some(thing(ThingKind::Stranger, &entry.path(), Owner::default())),
    };
    Ok(entries(&directories.layers())?.into_iter().filter_map(layer).collect())
}

/// The logs that were given no place of their own.
pub(super) fn logs(directories: &Directories) -> Listed<Vec<Thing>> {
    let mut things = Vec::new();
    for entry in entries(&directories.logs())? {
        let Some(sandbox) = id::<SandboxId>(&entry) else {
            things.push(thing(ThingKind::Stranger, &entry.path(), Owner::default()));
            continue;
        };
        things.push(thing(ThingKind::LogDirectory, &entry.path(), Owner::pod(&sandbox)));
        for inner in entries(&entry.path())? {
            things.push(match inner.file_name().to_str().and_then(logged_container) {
                Some(container) => {
                    thing(ThingKind::Log, &inner.path(), Owner::container(&sandbox, &container))
                }
                None => thing(ThingKind::Stranger, &inner.path(), Owner::pod(&sandbox)),
            });
        }
    }
    Ok(things)
}

/// Whose log it is: `ID.log`, or `ID.log.SUFFIX` after it was rotated away.
fn logged_container(file: &str) -> Option<ContainerId> {
    let (id, rest) = file.split_once(".log")?;
    (rest.is_empty() || rest.starts_with('.')).then(|| id.parse().ok())?
}

fn thing(kind: ThingKind, path: &Path, owner: Owner) -> Thing {
    Thing { kind, place: path.display().to_string(), process: None, owner, since: changed_at(path) }
}

fn id<T: std::str::FromStr>(entry: &DirEntry) -> Option<T> {
    entry.file_name().to_str()?.parse().ok()
}

/// What is in a directory; nothing when it is not there, or is none.
fn entries(directory: &Path) -> Listed<Vec<DirEntry>> {
    let listed = fs::read_dir(directory).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    match listed {
        Ok(entries) => Ok(entries),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err((directory.to_owned(), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_everything_of_a_pod_and_says_whose_it_is() {
        let temp = tempfile::tempdir().expect("a directory");
        let directories = Directories::new(temp.path().join("state"), temp.path().join("root"));
        directories.prepare().expect("made");
        let (pod, container): (SandboxId, ContainerId) =
            ("pod".parse().expect("an id"), "box".parse().expect("an id"));
        let bundle = directories.bundle(&pod, &container);
        fs::create_dir_all(&bundle).expect("made");
        for file in ["exit", "exec-probe.exit", "config.json"] {
            fs::write(bundle.join(file), "").expect("written");
        }
        let socket = std::os::unix::net::UnixListener::bind(directories.shim_socket(&pod)).expect("bound");
        fs::create_dir_all(directories.layer(&container).upper).expect("made");
        fs::create_dir_all(directories.pod_logs(&pod)).expect("made");
        for file in ["box.log", "box.log.1", "notes"] {
            fs::write(directories.pod_logs(&pod).join(file), "").expect("written");
        }
        for name in ["lost+found", "my notes"] {
            fs::create_dir(directories.layers().join(name)).expect("made");
        }
        let found = [pods(&directories), layers(&directories), logs(&directories)];
        drop(socket);
        let mut found: Vec<_> = found.into_iter().flat_map(|things| things.expect("readable")).collect();
        found.sort_by_key(|thing| (thing.kind, thing.place.clone()));
        let whole = Owner::container(&pod, &container);
        let expected = [
            (ThingKind::PodDirectory, "state/p/pod", Owner::pod(&pod)),
            (ThingKind::Socket, "state/p/pod/shim.sock", Owner::pod(&pod)),
            (ThingKind::Bundle, "state/p/pod/c/box", whole.clone()),
            (ThingKind::ExitRecord, "state/p/pod/c/box/exec-probe.exit", whole.clone()),
            (ThingKind::ExitRecord, "state/p/pod/c/box/exit", whole.clone()),
            (ThingKind::Layer, "root/layers/box", Owner::container_alone(&container)),
            (ThingKind::Log, "root/logs/pod/box.log", whole.clone()),
            (ThingKind::Log, "root/logs/pod/box.log.1", whole),
            (ThingKind::LogDirectory, "root/logs/pod", Owner::pod(&pod)),
            (ThingKind::Stranger, "root/layers/my notes", Owner::default()),
            (ThingKind::Stranger, "root/logs/pod/notes", Owner::pod(&pod)),
        ];
        let found: Vec<_> = found.into_iter().map(|thing| (thing.kind, thing.place, thing.owner)).collect();
        let expected =
            expected.map(|(kind, place, owner)| (kind, temp.path().join(place).display().to_string(), owner));
        assert_eq!(found, expected);
    }

    /// A state directory that was wiped under a running daemon is a finding of its own, and no reason to find nothing.
    #[test]
    fn directories_that_are_gone_are_empty() {
        let directories = Directories::new("/nonexistent/state", "/nonexistent/root");
        assert!(pods(&directories).expect("empty").is_empty());
        assert!(layers(&directories).expect("empty").is_empty());
    }
}
