//! A reference model of merging: one table of words, written without a look at how the real thing does it.

use std::collections::BTreeMap;

/// What can be changed, and all of it in a list.
macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Kind {
            $($kind),*
        }

        impl Kind {
            pub(super) const ALL: &'static [Self] = &[$(Self::$kind),*];
        }
    };
}

kinds! {
    Annotation,
    Mount,
    Env,
    Args,
    Device,
    Namespace,
    Sysctl,
    NetDevice,
    Rlimit,
    Cdi,
    Hugepage,
    Unified,
    MemLimit,
    MemSwap,
    CpuShares,
    CpuPeriod,
    Cpus,
    Pids,
    OomScore,
    IoPriority,
    Scheduler,
    MemoryPolicy,
}

/// One thing that a plugin does.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Put(Kind, String, u8),
    Remove(Kind, String),
}

/// The last word about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    value: Option<u8>,
    owner: Option<String>,
    was_taken: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    words: BTreeMap<(Kind, String), Word>,
}

/// Two plugins and what they are at odds about.
pub(super) type Conflict = (String, Kind, String);

impl Model {
    /// All of it, or nothing and everybody whom the plugin is at odds with.
    pub(super) fn apply(&mut self, plugin: &str, ops: &[Op]) -> Result<(), Vec<Conflict>> {
        let before = self.clone();
        let mut conflicts = Vec::new();
        for op in ops {
            if let Op::Remove(kind, key) = op {
                self.remove(plugin, *kind, key, &mut conflicts);
            }
        }
        for op in ops {
            if let Op::Put(kind, key, value) = op {
                if let Some(other) = self.in_the_way(plugin, *kind, key) {
                    conflicts.push((other, *kind, key.clone()));
                }
                let word = Word { value: Some(*value), owner: Some(plugin.to_owned()), was_taken: false };
                self.words.insert((*kind, key.clone()), word);
            }
        }
        if conflicts.is_empty() {
            return Ok(());
        }
        *self = before;
        Err(conflicts)
    }

    fn remove(&mut self, plugin: &str, kind: Kind, key: &str, conflicts: &mut Vec<Conflict>) {
        if kind == Kind::Namespace {
            // Here a removal is as good as a setting.
            if let Some(other) = self.in_the_way(plugin, kind, key) {
                conflicts.push((other, kind, key.to_owned()));
            }
            let word = Word { value: None, owner: Some(plugin.to_owned()), was_taken: false };
            self.words.insert((kind, key.to_owned()), word);
            return;
        }
        let entry = self.words.entry((kind, key.to_owned()));
        let word = entry.or_insert(Word { value: None, owner: None, was_taken: false });
        word.value = None;
        if word.owner.is_some() {
            word.owner = Some(plugin.to_owned());
            word.was_taken = true;
        }
    }

    fn in_the_way(&self, plugin: &str, kind: Kind, key: &str) -> Option<String> {
        let word = self.words.get(&(kind, key.to_owned()))?;
        let owner = word.owner.clone()?;
        (!(word.was_taken && owner == plugin)).then_some(owner)
    }

    /// The last word of everything that anybody had a say about. A command that was taken back is as if nobody had.
    pub(super) fn words(&self) -> BTreeMap<(Kind, String), Option<u8>> {
        let all = self.words.iter().map(|(entry, word)| (entry.clone(), word.value));
        all.filter(|((kind, _), value)| *kind != Kind::Args || value.is_some()).collect()
    }
}
