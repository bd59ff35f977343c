//! What plugins were told of, on disk: `<state>/nri/<pod>.json`.
//!
//! ```text
//!              before the first plugin hears of it        all of them have been told of its end
//!  (nothing) ─────────────────────────────────────► told ──────────────────────────────────────► (nothing)
//!                                                     │ gone, and some of them were not there   ▲
//!                                                     ▼                                         │
//!                                                   owed ── each is told when it comes again ───┘
//! ```
//!
//! Owns: these files, and that a plugin which was told of a pod is told of its end, also when this program was killed in
//! between (P3, P5). Never: calls a plugin. Its changes block.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mainstay_messages::{ContainerId, Error, Result, SandboxId};
use mainstay_nri::api::{Container, PodSandbox};
use mainstay_nri::name::PluginName;
use serde::{Deserialize, Serialize};

use crate::faults::Written;
use crate::files::{at, write_private};
use crate::paths::create_private_all;

/// The most pods whose end is owed to plugins that have not come again. Of more the oldest are forgotten: a plugin that comes
/// after so long is told of all there is in any case.
pub(crate) const OWED_MAX: usize = 1_024;

/// What plugins were told of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// The name of the pod.
    pub name: String,
    /// Those who were told.
    pub plugins: BTreeSet<PluginName>,
    /// Containers of which they were told.
    pub containers: BTreeMap<ContainerId, ToldContainer>,
    /// Whether the pod is there.
    pub end: End,
}

/// What plugins were told of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToldContainer {
    /// Its name.
    pub name: String,
    /// Those who were told, and have not heard of its end.
    pub plugins: BTreeSet<PluginName>,
    /// Whether it is there.
    pub end: End,
}

/// Whether something is there of which plugins were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It is, or its end has yet to be told.
    #[default]
    Open,
    /// It is gone, and these plugins have not heard so.
    Owed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Book {
    directory: PathBuf,
    pods: Mutex<BTreeMap<SandboxId, Told>>,
    /// For each pod that is being changed what is held over all of a change, also while it is written: neither readers nor other
    /// pods wait for a disk that hangs under it. Taken before `pods`.
    changing: Mutex<BTreeMap<SandboxId, Weak<Mutex<()>>>>,
}

impl Book {
    /// An empty one, of a directory that may not be there.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, pods: Mutex::default(), changing: Mutex::default() }
    }

    /// Reads what an earlier program has written. Pods that are not among `standing` are gone.
    pub fn load(&self, standing: &BTreeSet<SandboxId>) -> Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(at(&self.directory)(error)),
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let whole = path.extension().is_some_and(|extension| extension == "json");
            let pod = path
                .file_stem()
                .filter(|_| whole)
                .and_then(|stem| stem.to_str())
                .and_then(|stem| stem.parse().ok());
            let text = match fs::read(&path) {
                Ok(text) => text,
                Err(error) => {
                    // It is for the next program: another time it may be readable.
                    let error = at(&path)(error);
                    tracing::error!(%error, "plugins may not hear of an end that they are owed");
                    continue;
                }
            };
            match (pod, serde_json::from_slice::<Told>(&text)) {
                (Some(pod), Ok(mut told)) => {
                    if !standing.contains(&pod) {
                        told.end = End::Owed;
                    }
                    self.lock().insert(pod, told);
                }
                _ => {
                    // Half written: nobody was told yet.
                    tracing::warn!(path = %path.display(), "it says nothing of a pod and is removed");
                    let _ = fs::remove_file(&path);
                }
            }
        }
        Ok(())
    }

    /// What is known of a pod.
    pub fn of(&self, pod: &SandboxId) -> Option<Told> {
        self.lock().get(pod).cloned()
    }

    /// Pods whose end, or that of a container in them, is owed to a plugin.
    pub fn owed_to(&self, plugin: &PluginName) -> Vec<(SandboxId, Told)> {
        let owed = |told: &Told| {
            told.end == End::Owed && told.plugins.contains(plugin) || !told.owed_containers(plugin).is_empty()
        };
        self.lock()
            .iter()
            .filter(|(_, told)| owed(told))
            .map(|(pod, told)| (pod.clone(), told.clone()))
            .collect()
    }

    /// Changes what is known of a pod, and writes it down before it answers. With nobody left it is forgotten. When that cannot
    /// be written it is known all the same: it may be on disk.
    pub fn change(&self, pod: &SandboxId, change: impl FnOnce(&mut Told)) -> Result<()> {
        let turn = self.turn(pod);
        let _changing = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.of(pod);
        let mut told = before.clone().unwrap_or_default();
        change(&mut told);
        let nobody = told.plugins.is_empty();
        // One of which nobody is left is here only when its file could not be removed: that is tried again.
        if before.as_ref() == Some(&told) && !nobody || before.is_none() && nobody {
            return Ok(());
        }
        let path = self.directory.join(format!("{pod}.json"));
        self.lock().insert(pod.clone(), told.clone());
        if nobody {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
                _ => drop(self.lock().remove(pod)),
            }
            return Ok(());
        }
        create_private_all(&self.directory).map_err(at(&self.directory))?;
        let text =
            serde_json::to_vec(&told).map_err(|error| Error::internal("what plugins were told", error))?;
        write_private(Written::Told, &path, &text).map_err(at(&path))?;
        self.forget_oldest();
        Ok(())
    }

    /// What is held over a change of a pod. Pods that nobody changes are forgotten.
    fn turn(&self, pod: &SandboxId) -> Arc<Mutex<()>> {
        let mut turns = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(pod).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(pod.clone(), Arc::downgrade(&turn));
        turn
    }

    fn forget_oldest(&self) {
        let mut pods = self.lock();
        let owed: Vec<_> =
            pods.iter().filter(|(_, told)| told.end == End::Owed).map(|(pod, _)| pod.clone()).collect();
        for pod in owed.iter().take(owed.len().saturating_sub(OWED_MAX)) {
            tracing::warn!(sandbox = %pod, "plugins that were told of it have not come again to hear of its end");
            pods.remove(pod);
            let _ = fs::remove_file(self.directory.join(format!("{pod}.json")));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SandboxId, Told>> {
        // Each change of the map is one call, so that a poisoned lock holds a sound map.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// The pod as plugins are told of its end when nothing else is known of it any more.
    pub fn pod(&self, id: &SandboxId) -> PodSandbox {
        PodSandbox { id: id.as_str().to_owned(), name: self.name.clone(), ..Default::default() }
    }

    /// A container likewise.
    pub fn container(&self, pod: &SandboxId, id: &ContainerId) -> Container {
        Container {
            id: id.as_str().to_owned(),
            pod_sandbox_id: pod.as_str().to_owned(),
            name: self.containers.get(id).map_or_else(String::new, |told| told.name.clone()),
            ..Default::default()
        }
    }

    /// Those of its containers whose end is owed to a plugin, likewise.
    pub fn owed_containers(&self, plugin: &PluginName) -> Vec<ContainerId> {
        let owed = |told: &ToldContainer| {
            told.plugins.contains(plugin) && (self.end, told.end) != (End::Open, End::Open)
        };
        self.containers.iter().filter(|(_, told)| owed(told)).map(|(id, _)| id.clone()).collect()
    }

    /// These plugins have heard of the end of a container.
    pub fn ended(&mut self, id: &ContainerId, heard: &BTreeSet<PluginName>) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.end = End::Owed;
        container.plugins.retain(|plugin| !heard.contains(plugin));
        if container.plugins.is_empty() {
            self.containers.remove(id);
        }
    }

    /// These plugins have heard of the end of all of it.
    pub fn gone(&mut self, heard: &BTreeSet<PluginName>) {
        self.end = End::Owed;
        self.plugins.retain(|plugin| !heard.contains(plugin));
        for id in self.containers.keys().cloned().collect::<Vec<_>>() {
            self.ended(&id, heard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str) -> PluginName {
        name.parse().expect("a good name")
    }

    #[test]
    fn what_was_told_is_known_to_the_next_program_and_forgotten_with_the_last_plugin() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let directory = temp.path().join("nri");
        let pod: SandboxId = "p".parse().expect("an id");
        let book = Book::new(directory.clone());
        book.load(&BTreeSet::new()).expect("nothing is there");
        book.change(&pod, |told| {
            told.plugins.insert(plugin("10-a"));
        })
        .expect("written");
        book.change(&pod, |told| {
            told.plugins.insert(plugin("20-b"));
        })
        .expect("written");

        let next = Book::new(directory.clone());
        next.load(&[pod.clone()].into()).expect("read");
        assert_eq!(next.owed_to(&plugin("10-a")), []);
        let next = Book::new(directory.clone());
        next.load(&BTreeSet::new()).expect("read");
        assert_eq!(next.owed_to(&plugin("10-a")).len(), 1);
        for name in ["10-a", "20-b"] {
            next.change(&pod, |told| {
                told.plugins.remove(&plugin(name));
            })
            .expect("written");
        }
        assert_eq!(next.of(&pod), None);
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 0);
    }

    /// Of two containers of a pod that were created at once, one could be forgotten.
    #[test]
    fn changes_at_once_are_all_kept() {
        const THREADS: usize = 8;
        const CHANGES: usize = 20;
        let temp = tempfile::tempdir().expect("a temporary directory");
        let book = Book::new(temp.path().join("nri"));
        let pod: SandboxId = "p".parse().expect("an id");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (book, pod) = (&book, &pod);
                scope.spawn(move || {
                    for change in 0..CHANGES {
                        let name = plugin(&format!("10-p{thread}x{change}"));
                        let change = |told: &mut Told| assert!(told.plugins.insert(name));
                        book.change(pod, change).expect("written");
                    }
                });
            }
        });
        let known = book.of(&pod).expect("known");
        assert_eq!(known.plugins.len(), THREADS * CHANGES);
        let next = Book::new(temp.path().join("nri"));
        next.load(&[pod.clone()].into()).expect("read");
        assert_eq!(next.of(&pod), Some(known), "and so on disk");
    }

    /// A file that could not be read for a moment was removed, and what was owed with it.
    #[test]
    fn only_what_says_nothing_is_removed() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let book = Book::new(temp.path().to_owned());
        // Reading it fails, also for root.
        fs::create_dir(temp.path().join("unreadable.json")).expect("made");
        for name in ["torn.json", "half.json.new"] {
            fs::write(temp.path().join(name), "{").expect("written");
        }
        book.load(&BTreeSet::new()).expect("the others can be read");
        let left: Vec<_> = fs::read_dir(temp.path()).expect("there").flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].file_name(), "unreadable.json");
    }
}
