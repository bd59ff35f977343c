//! From what a person types to an id: an exact id, a name, or the unique beginning of an id.
//!
//! A creation that was given up, and became durable all the same, may be listed beside the one that has its name by then,
//! until it is undone; and what is being removed, beside its successor. The name means the other one: whoever stops `web` wants
//! the `web` that runs. By their ids they can be reached too.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use mainstay_messages::error::Kind;
use mainstay_messages::record::{ContainerPhase, ContainerSnapshot, SandboxPhase, SandboxSnapshot};
use mainstay_messages::{ContainerId, Error, ExecId, Result, SandboxId};

use super::{Directory, Shelf};

/// The largest number of wrong characters for which a known name is still proposed.
const PROPOSAL_DISTANCE_MAX: usize = 3;

/// What has a name.
struct Named<K> {
    name: String,
    id: K,
    stay: Stay,
}

/// Whether something is there to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Stays,
    /// It is half made, or being removed.
    Passes,
}

impl Directory {
    /// The sandbox that `text` means: its id, its name, or the unique beginning of its id.
    pub fn resolve_sandbox(&self, text: &str) -> Result<SandboxId> {
        let names = || {
            let named = |s: &Arc<SandboxSnapshot>| {
                let record = &s.record;
                let passes = record.is_half_made() || record.phase == SandboxPhase::Removing;
                let stay = if passes { Stay::Passes } else { Stay::Stays };
                Named { name: record.name().to_string(), id: record.id.clone(), stay }
            };
            self.sandboxes().iter().map(named).collect()
        };
        self.pick(Kind::Sandbox, text, |directory| &directory.sandboxes, names)
    }

    /// The container that `text` means: its id, `POD/NAME`, its name where only one container has it, or the
    /// unique beginning of its id.
    pub fn resolve_container(&self, text: &str) -> Result<ContainerId> {
        let names = || {
            let pods: BTreeMap<_, _> = self
                .sandboxes()
                .iter()
                .map(|pod| (pod.record.id.clone(), pod.record.name().clone()))
                .collect();
            let mut names = Vec::new();
            for container in self.containers(None) {
                let record = &container.record;
                let (id, name) = (&record.id, record.name());
                let passes = record.is_half_made() || record.phase == ContainerPhase::Removing;
                let stay = if passes { Stay::Passes } else { Stay::Stays };
                names.push(Named { name: name.to_string(), id: id.clone(), stay });
                if let Some(pod) = pods.get(&record.sandbox) {
                    names.push(Named { name: format!("{pod}/{name}"), id: id.clone(), stay });
                }
            }
            names
        };
        self.pick(Kind::Container, text, |directory| &directory.containers, names)
    }

    /// The exec that `text` means: its id or the unique beginning of it.
    pub fn resolve_exec(&self, text: &str) -> Result<ExecId> {
        self.pick(Kind::Exec, text, |directory| &directory.execs, Vec::new)
    }

    /// The error for an id that nobody has, with the known id or name that is most like it.
    pub fn not_found(&self, kind: Kind, text: &str) -> Error {
        let nearest = match kind {
            Kind::Sandbox => nearest(text, self.known_sandboxes()),
            Kind::Container => nearest(text, self.known_containers()),
            Kind::Either => nearest(text, self.known_sandboxes().chain(self.known_containers())),
            Kind::Exec | Kind::Image | Kind::Plugin => None,
        };
        Error::NotFound { kind, id: shown(text), nearest }
    }

    fn known_sandboxes(&self) -> impl Iterator<Item = String> + use<> {
        let known = |s: Arc<SandboxSnapshot>| [s.record.id.to_string(), s.record.name().to_string()];
        self.sandboxes().into_iter().flat_map(known)
    }

    fn known_containers(&self) -> impl Iterator<Item = String> + use<> {
        let known = |c: Arc<ContainerSnapshot>| [c.record.id.to_string(), c.record.name().to_string()];
        self.containers(None).into_iter().flat_map(known)
    }

    fn pick<K, S>(
        &self,
        kind: Kind,
        text: &str,
        shelf: impl Fn(&super::Shelves) -> &Shelf<K, S>,
        names: impl FnOnce() -> Vec<Named<K>>,
    ) -> Result<K>
    where
        K: Ord + Clone + ToString + std::str::FromStr,
    {
        let id = text.parse::<K>().ok();
        if let Some(id) = &id
            && shelf(&self.read()).objects.contains_key(id)
        {
            return Ok(id.clone());
        }
        let names = names();
        let named = holders(&names, text);
        if let Some(found) = only(kind, text, &named)? {
            return Ok(found);
        }
        let directory = self.read();
        let objects = &shelf(&directory).objects;
        let from = id.as_ref().map_or(Bound::Unbounded, Bound::Included);
        let after = objects.range::<K, _>((from, Bound::Unbounded)).map(|(id, _)| id);
        let begun: Vec<&K> = match &id {
            Some(_) => after.take_while(|id| id.to_string().starts_with(text)).take(2).collect(),
            None => Vec::new(),
        };
        if let Some(found) = only(kind, text, &begun)? {
            return Ok(found);
        }
        let known = names.iter().map(|named| named.name.clone()).chain(objects.keys().map(K::to_string));
        Err(Error::NotFound { kind, id: shown(text), nearest: nearest(text, known) })
    }
}

/// Those that a name means: those that stay where there are such, else all that have it.
fn holders<'a, K>(names: &'a [Named<K>], text: &str) -> Vec<&'a K> {
    let all: Vec<&Named<K>> = names.iter().filter(|named| named.name == text).collect();
    let staying: Vec<&K> =
        all.iter().filter(|named| named.stay == Stay::Stays).map(|named| &named.id).collect();
    if staying.is_empty() { all.iter().map(|named| &named.id).collect() } else { staying }
}

/// The one candidate, none, or the error that names two of them.
fn only<K: Clone + ToString>(kind: Kind, text: &str, candidates: &[&K]) -> Result<Option<K>> {
    match candidates {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        [first, second, ..] => Err(Error::Ambiguous {
            kind,
            prefix: shown(text),
            first: first.to_string(),
            second: second.to_string(),
        }),
    }
}

/// The known text that is most like the one that was given, if any is like it.
pub(crate) fn nearest(text: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let limit = PROPOSAL_DISTANCE_MAX.min(text.chars().count() / 2);
    let close = |known: String| {
        // A difference in length is a lower bound of the distance, and is cheaper to find out.
        let distance = match known.len().abs_diff(text.len()) <= limit {
            true => strsim::damerau_levenshtein(text, &known),
            false => return None,
        };
        (distance <= limit).then_some((distance, known))
    };
    known.filter_map(close).min().map(|(_, known)| known)
}

/// What was typed, never longer than a line.
fn shown(text: &str) -> String {
    text.chars().take(128).collect()
}
