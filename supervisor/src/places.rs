//! Where the cgroups of pods are: below the runtime's own, or below one of somebody else's where the pod's spec names one.
//!
//! ```text
//!  record ──learn──► known ──forget──► not known ──► read from the pod's directory, which outlives the cgroup
//! ```
//!
//! Owns: knowing it for every pod, also of one whose record is lost. Never: makes or removes a group.

use std::collections::HashMap;
use std::fs;
use std::sync::{PoisonError, RwLock};

use mainstay_cgroups::CgroupPath;
use mainstay_messages::record::SandboxRecord;
use mainstay_messages::spec::CgroupParent;
use mainstay_messages::{Error, Result, SandboxId};

use crate::paths::Directories;

/// See the module.
#[derive(Debug)]
pub(crate) struct CgroupPlaces {
    own: CgroupPath,
    known: RwLock<HashMap<SandboxId, Option<CgroupPath>>>,
}

impl CgroupPlaces {
    /// Nothing is known yet; `own` is the group above all pods that name no other.
    pub fn new(own: CgroupPath) -> Self {
        Self { own, known: RwLock::default() }
    }

    /// The runtime's own group.
    pub fn own(&self) -> &CgroupPath {
        &self.own
    }

    /// Takes in where a pod's group is, before anything of the pod is made or looked for.
    ///
    /// # Errors
    /// When the parent is no path of a group, or is the runtime's own or one below it: what ends a pod there would end this one, too.
    pub fn learn(&self, record: &SandboxRecord) -> Result<()> {
        let parent = record.spec.cgroup_parent.as_ref().map(parse).transpose()?;
        if let Some(parent) =
            parent.as_ref().filter(|parent| parent.relative().starts_with(self.own.relative()))
        {
            let expected = format!("a group that is not the runtime's own, which is {}", self.own);
            return Err(Error::invalid("cgroup_parent", format!("{:?}", parent.to_string()), expected));
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(record.id.clone(), parent);
        Ok(())
    }

    /// Nothing of the pod is left.
    pub fn forget(&self, sandbox: &SandboxId) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
    }

    /// The group of a pod. Of one that is not known its directory tells.
    pub fn of(&self, directories: &Directories, sandbox: &SandboxId) -> Result<CgroupPath> {
        let parent = self.known(sandbox).unwrap_or_else(|| written(directories, sandbox));
        let path = parent.as_ref().unwrap_or(&self.own).child(sandbox.as_str());
        path.map_err(|error| Error::internal("the pod's cgroup", error))
    }

    /// The pods whose groups are not below the runtime's own, with the groups above theirs.
    pub fn elsewhere(&self, directories: &Directories) -> Vec<(SandboxId, CgroupPath)> {
        let pods = fs::read_dir(directories.pods()).into_iter().flatten().flatten();
        let pods = pods.filter_map(|entry| entry.file_name().to_str()?.parse::<SandboxId>().ok());
        let parent = |pod: SandboxId| {
            let parent = self.known(&pod).unwrap_or_else(|| written(directories, &pod))?;
            Some((pod, parent))
        };
        pods.filter_map(parent).collect()
    }

    fn known(&self, sandbox: &SandboxId) -> Option<Option<CgroupPath>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(sandbox).cloned()
    }
}

fn parse(parent: &CgroupParent) -> Result<CgroupPath> {
    let refused = |error: mainstay_cgroups::PathError| {
        Error::invalid(
            "cgroup_parent",
            format!("{:?}", parent.as_str()),
            format!("the path of a cgroup ({error})"),
        )
    };
    CgroupPath::parse(parent.as_str()).map_err(refused)
}

/// What the record in a pod's directory says.
fn written(directories: &Directories, sandbox: &SandboxId) -> Option<CgroupPath> {
    let record: SandboxRecord =
        serde_json::from_slice(&fs::read(directories.pod_record(sandbox)).ok()?).ok()?;
    parse(record.spec.cgroup_parent.as_ref()?).ok()
}

#[cfg(test)]
mod tests {
    use mainstay_messages::{SandboxSpec, Timestamp};

    use super::*;
    use crate::files;

    fn record(id: &str, parent: Option<&str>) -> SandboxRecord {
        let mut spec = SandboxSpec::new("web".parse().expect("a name"));
        spec.cgroup_parent = parent.map(|parent| parent.parse().expect("good"));
        SandboxRecord::intent(id.parse().expect("an id"), spec, Timestamp(1))
    }

    #[test]
    fn where_a_pod_is_is_known_by_its_record_and_then_by_its_directory() {
        let temp = tempfile::tempdir().expect("a directory");
        let directories = Directories::new(temp.path().join("state"), temp.path().join("root"));
        directories.prepare().expect("made");
        let places = CgroupPlaces::new(CgroupPath::parse("/own").expect("good"));
        let (here, there) = (record("a", None), record("b", Some("pods-b.slice")));
        for pod in [&here, &there] {
            files::make_pod(&directories, pod).expect("made");
        }
        let place = |pod: &SandboxRecord| places.of(&directories, &pod.id).expect("known").to_string();
        for known in [false, true] {
            assert_eq!(place(&here), "/own/a", "{known}");
            assert_eq!(place(&there), "/pods.slice/pods-b.slice/b", "{known}");
            let elsewhere = places.elsewhere(&directories);
            assert_eq!(elsewhere.len(), 1, "{elsewhere:?}");
            assert_eq!(
                (&elsewhere[0].0, elsewhere[0].1.to_string().as_str()),
                (&there.id, "/pods.slice/pods-b.slice")
            );
            places.learn(&here).expect("good");
            places.learn(&there).expect("good");
        }
        places.forget(&there.id);
        files::remove_tree(&directories.pod(&there.id)).expect("removed");
        assert_eq!(place(&there), "/own/b", "of one that is gone there is nothing anywhere");
    }

    /// The kernel has files of such names in every group.
    #[test]
    fn a_parent_that_cannot_be_a_group_is_refused() {
        let places = CgroupPlaces::new(CgroupPath::parse("/own").expect("good"));
        for parent in ["/kubepods/memory.max", "/own", "/own/another-pod"] {
            let error = places.learn(&record("a", Some(parent))).expect_err("refused").to_string();
            assert!(error.starts_with("cgroup_parent: "), "{error}");
        }
        places.learn(&record("a", Some("/owner"))).expect("beside it");
    }
}
