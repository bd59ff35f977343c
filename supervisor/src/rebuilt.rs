//! Records that are rebuilt from pods' directories: for a runtime whose store has lost them, while pods run.
//!
//! Each pod's directory holds the record that the pod was made by, and each bundle that of its container. They say what
//! was asked for; what has become of it since is for the shim to say, when it is adopted. What had no directory any
//! more, such as a pod that was stopped, is lost with the store.
//!
//! Owns: reading them. Never: writes or removes anything, or knows the store.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use mainstay_messages::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord, ShimRecord};
use mainstay_messages::{ContainerId, SandboxId};
use mainstay_task_api::EXTENSION_PROTOCOL;
use serde::de::DeserializeOwned;

use crate::files;
use crate::find::find_shim;
use crate::identity::{self, Fate};
use crate::paths::Directories;
use crate::user_namespaces;

/// What is known already.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Pods.
    pub sandboxes: HashSet<SandboxId>,
    /// Containers.
    pub containers: HashSet<ContainerId>,
}

/// What was not known and could be rebuilt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Pods. Each counts as Ready until its shim was looked for.
    pub sandboxes: Vec<SandboxRecord>,
    /// Containers, of these pods and of known ones.
    pub containers: Vec<ContainerRecord>,
    /// Directories whose record is missing or cannot be read.
    pub unreadable: Vec<PathBuf>,
}

/// Reads the records of what is not known.
pub fn rebuild(directories: &Directories, known: &Known) -> Rebuilt {
    let mut rebuilt = Rebuilt::default();
    for sandbox in ids::<SandboxId>(&directories.pods()) {
        let named = known.sandboxes.contains(&sandbox);
        if !named && !rebuild_pod(directories, &sandbox, &mut rebuilt) {
            continue;
        }
        let lost = |container: &ContainerId| !known.containers.contains(container);
        for container in ids(&directories.bundles(&sandbox)).into_iter().filter(lost) {
            rebuild_container(directories, &sandbox, &container, &mut rebuilt);
        }
    }
    rebuilt
}

/// Whether it could be done.
fn rebuild_pod(directories: &Directories, sandbox: &SandboxId, rebuilt: &mut Rebuilt) -> bool {
    let record = read::<SandboxRecord>(&directories.pod_record(sandbox));
    let Some(mut record) = record.filter(|record| record.id == *sandbox) else {
        rebuilt.unreadable.push(directories.pod(sandbox));
        return false;
    };
    record.phase = SandboxPhase::Ready;
    record.reason = None;
    record.shim = shim(directories, sandbox);
    rebuilt.sandboxes.push(record);
    true
}

fn rebuild_container(
    directories: &Directories,
    sandbox: &SandboxId,
    container: &ContainerId,
    rebuilt: &mut Rebuilt,
) {
    let record = read::<ContainerRecord>(&directories.container_record(sandbox, container));
    let Some(mut record) = record.filter(|record| record.id == *container && record.sandbox == *sandbox)
    else {
        rebuilt.unreadable.push(directories.bundle(sandbox, container));
        return;
    };
    record.phase = ContainerPhase::Creating;
    let runs = |shim: &ShimRecord| matches!(identity::fate(&shim.process), Ok(Fate::Runs));
    if !shim(directories, sandbox).is_some_and(|shim| runs(&shim)) {
        // Nobody can tell whether it was ever told to run. That it never was must not be claimed: it would be forgotten
        // without a word about its end.
        record.started_at = Some(record.created_at);
    }
    rebuilt.containers.push(record);
}

fn shim(directories: &Directories, sandbox: &SandboxId) -> Option<ShimRecord> {
    let found = || {
        let (process, socket) = (find_shim(directories, sandbox)?, directories.shim_socket(sandbox));
        // Without them its containers would be made with the host's ids, and could not join its namespaces.
        let ids = user_namespaces::of_pod(directories, sandbox).ok()?;
        Some(ShimRecord { process, socket, protocol: EXTENSION_PROTOCOL, ids })
    };
    files::read_identity(directories, sandbox).or_else(found)
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The names in a directory that are ids; none when it is not there.
fn ids<T: std::str::FromStr + Ord>(directory: &Path) -> Vec<T> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut ids: Vec<T> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort();
    ids
}

#[cfg(test)]
mod tests {
    use mainstay_messages::{ContainerSpec, SandboxSpec, Timestamp};

    use super::*;

    fn world() -> (tempfile::TempDir, Directories, SandboxRecord, ContainerRecord) {
        let temp = tempfile::tempdir().expect("a directory");
        let directories = Directories::new(temp.path().join("state"), temp.path().join("root"));
        directories.prepare().expect("made");
        let spec = SandboxSpec::new("web".parse().expect("a name"));
        let pod = SandboxRecord::intent("pod".parse().expect("an id"), spec, Timestamp(1));
        let spec = ContainerSpec::new("app".parse().expect("a name"), ["true"]);
        let (id, log) = ("box".parse().expect("an id"), "/log".into());
        let container = ContainerRecord::intent(id, pod.id.clone(), spec, log, Timestamp(2));
        files::make_pod(&directories, &pod).expect("made");
        let spec = oci_spec::runtime::Spec::default();
        files::make_bundle(&directories, &container, &spec, &[]).expect("made");
        (temp, directories, pod, container)
    }

    #[test]
    fn what_was_asked_for_comes_back_whole() {
        let (_temp, directories, pod, container) = world();
        let rebuilt = rebuild(&directories, &Known::default());
        assert_eq!(rebuilt.sandboxes.len(), 1);
        assert_eq!((&rebuilt.sandboxes[0].id, &rebuilt.sandboxes[0].spec), (&pod.id, &pod.spec));
        assert_eq!(rebuilt.sandboxes[0].phase, SandboxPhase::Ready, "until its shim was looked for");
        assert_eq!(rebuilt.containers.len(), 1);
        assert_eq!(rebuilt.containers[0].spec, container.spec);
        assert!(rebuilt.containers[0].started_at.is_some(), "without a shim it may have run");
        assert!(rebuilt.unreadable.is_empty());
    }

    #[test]
    fn what_is_known_is_left_alone() {
        let (_temp, directories, pod, container) = world();
        let mut known = Known::default();
        known.sandboxes.insert(pod.id);
        let rebuilt = rebuild(&directories, &known);
        assert!(rebuilt.sandboxes.is_empty());
        assert_eq!(rebuilt.containers.len(), 1, "a container that is not known of a pod that is");
        known.containers.insert(container.id);
        assert_eq!(rebuild(&directories, &known), Rebuilt::default());
    }

    /// A record that lies under another's name must not bring that one to life.
    #[test]
    fn a_record_of_another_or_of_nothing_is_unreadable() {
        let (_temp, directories, pod, _) = world();
        let other: SandboxId = "other".parse().expect("an id");
        fs::create_dir(directories.pod(&other)).expect("made");
        fs::copy(directories.pod_record(&pod.id), directories.pod_record(&other)).expect("copied");
        let torn: SandboxId = "torn".parse().expect("an id");
        fs::create_dir(directories.pod(&torn)).expect("made");
        fs::write(directories.pod_record(&torn), "{").expect("written");
        let rebuilt = rebuild(&directories, &Known::default());
        assert_eq!(rebuilt.sandboxes.len(), 1);
        assert_eq!(rebuilt.unreadable, [directories.pod(&other), directories.pod(&torn)]);
    }
}
