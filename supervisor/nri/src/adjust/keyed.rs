//! Lists and maps whose entries have a key: adding, replacing and taking away.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mainstay_nri_api::{Field, KeyValue, LinuxDevice, LinuxNamespace, Mount};

use super::error::AdjustError;
use super::owners::Claims;

/// What stands before a key that is to be taken away.
const REMOVAL: &str = "-";

/// The key that is to be taken away, if it is one.
pub(super) fn removal(key: &str) -> Option<&str> {
    key.strip_prefix(REMOVAL)
}

/// A key that takes away.
pub(super) fn marked(key: &str) -> String {
    format!("{REMOVAL}{key}")
}

/// An entry of a list.
pub(super) trait Entry: Clone {
    /// Its key, with the mark of a removal.
    fn key(&self) -> &str;
    /// One that takes away.
    fn removing(key: &str) -> Self;
    /// Its key as it is compared.
    fn compared_key(&self) -> String {
        Self::compared(self.key())
    }
    /// A key as it is compared: two spellings of a path are one.
    fn compared(key: &str) -> String {
        key.to_owned()
    }
}

impl Entry for Mount {
    fn key(&self) -> &str {
        &self.destination
    }
    fn removing(key: &str) -> Self {
        Self { destination: marked(key), ..Self::default() }
    }
    fn compared(key: &str) -> String {
        clean(key)
    }
}

impl Entry for LinuxDevice {
    fn key(&self) -> &str {
        &self.path
    }
    fn removing(key: &str) -> Self {
        Self { path: marked(key), ..Self::default() }
    }
    fn compared(key: &str) -> String {
        clean(key)
    }
}

impl Entry for KeyValue {
    fn key(&self) -> &str {
        &self.key
    }
    fn removing(key: &str) -> Self {
        Self { key: marked(key), ..Self::default() }
    }
}

impl Entry for LinuxNamespace {
    fn key(&self) -> &str {
        &self.type_
    }
    fn removing(key: &str) -> Self {
        Self { type_: marked(key), ..Self::default() }
    }
}

/// Whether taking an entry away is a claim of it, as setting it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removing {
    Clears,
    Claims,
}

/// What one plugin has done to a list: the keys that it had a say about, and the entries that it set.
pub(super) struct Touched<T> {
    pub(super) keys: BTreeSet<String>,
    pub(super) put: Vec<T>,
}

/// Merges one plugin's entries into those of the plugins before it.
pub(super) fn merge<T: Entry>(
    claims: &mut Claims<'_>,
    field: Field,
    removing: Removing,
    changes: &[T],
    collected: &mut Vec<T>,
) -> Result<Touched<T>, AdjustError> {
    let (marks, put): (Vec<&T>, Vec<&T>) = changes.iter().partition(|change| removal(change.key()).is_some());
    let gone: BTreeSet<String> =
        marks.iter().filter_map(|mark| removal(mark.key())).map(T::compared).collect();
    for key in &gone {
        match removing {
            Removing::Clears => claims.clear(field, Some(key)),
            Removing::Claims => claims.claim(field, Some(key))?,
        }
    }
    let mut keys = BTreeSet::new();
    for entry in &put {
        let key = T::compared(entry.key());
        claims.claim(field, Some(&key))?;
        keys.insert(key);
    }
    collected.retain(|earlier| {
        let key = T::compared(removal(earlier.key()).unwrap_or(earlier.key()));
        !gone.contains(&key) && !keys.contains(&key)
    });
    collected.extend(gone.difference(&keys).map(|key| T::removing(key)));
    collected.extend(put.iter().map(|entry| (*entry).clone()));
    keys.extend(gone);
    Ok(Touched { keys, put: put.into_iter().cloned().collect() })
}

/// The same for a map; `now` is what the next plugin sees.
pub(super) fn merge_map<V: Clone + Default>(
    claims: &mut Claims<'_>,
    field: Field,
    changes: &HashMap<String, V>,
    now: &mut HashMap<String, V>,
    collected: &mut HashMap<String, V>,
) -> Result<(), AdjustError> {
    // In an order of its own, so that the first conflict is always the same one.
    let changes: BTreeMap<&String, &V> = changes.iter().collect();
    for key in changes.keys().filter_map(|key| removal(key)) {
        claims.clear(field, Some(key));
        now.remove(key);
        collected.remove(key);
        if !changes.contains_key(&key.to_owned()) {
            collected.insert(marked(key), V::default());
        }
    }
    for (key, value) in changes.into_iter().filter(|(key, _)| removal(key).is_none()) {
        claims.claim(field, Some(key))?;
        collected.remove(&marked(key));
        collected.insert(key.clone(), value.clone());
        now.insert(key.clone(), value.clone());
    }
    Ok(())
}

/// A path without empty and `.` components.
fn clean(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let start = if path.starts_with('/') { "/" } else { "" };
    format!("{start}{}", parts.collect::<Vec<_>>().join("/"))
}
