//! Which pods and containers a list is asked for, and which one an id means.
//!
//! Owns: the selection, over published snapshots. What was not asked for over this interface is never among them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mainstay::{ContainerSnapshot, Error, Kind, Runtime, SandboxPhase, SandboxSnapshot};

use crate::failure::{Failure, Result};

/// The pods that the interface shows. One that is being made is not among them: kubelet, which does not know it yet, would take it
/// for one that has failed and ask for another, instead of asking again and joining it.
pub(crate) fn pods(runtime: &Runtime) -> Vec<Arc<SandboxSnapshot>> {
    let mut pods = runtime.sandboxes();
    pods.retain(|pod| pod.record.spec.identity.is_some() && pod.record.phase != SandboxPhase::Starting);
    pods
}

/// The containers that the interface shows: those that are made, for the same reason.
pub(crate) fn containers(runtime: &Runtime) -> Vec<Arc<ContainerSnapshot>> {
    let mut containers = runtime.containers();
    containers.retain(|container| shows_container(container));
    containers
}

/// Whether the interface shows a container.
pub(crate) fn shows_container(container: &ContainerSnapshot) -> bool {
    container.record.spec.identity.is_some() && !container.record.is_half_made()
}

/// For calls that are content when there is no such pod or container.
pub(crate) fn present<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Failure::Runtime(Error::NotFound { .. })) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The pod of an id, or of the beginning of one.
pub(crate) fn pod(runtime: &Runtime, id: &str) -> Result<Arc<SandboxSnapshot>> {
    let exact = id.parse().ok().and_then(|id| runtime.sandbox(&id).ok());
    if let Some(pod) = exact.filter(|pod| pod.record.spec.identity.is_some()) {
        return Ok(pod);
    }
    one(Kind::Sandbox, id, pods(runtime), |pod| pod.record.id.as_str())
}

/// The container of an id, or of the beginning of one.
pub(crate) fn container(runtime: &Runtime, id: &str) -> Result<Arc<ContainerSnapshot>> {
    let exact = id.parse().ok().and_then(|id| runtime.container(&id).ok());
    if let Some(container) = exact.filter(|container| container.record.spec.identity.is_some()) {
        return Ok(container);
    }
    one(Kind::Container, id, containers(runtime), |container| container.record.id.as_str())
}

fn one<T>(kind: Kind, prefix: &str, all: Vec<Arc<T>>, id: impl Fn(&T) -> &str) -> Result<Arc<T>> {
    let begins = |one: &&Arc<T>| !prefix.is_empty() && id(one).starts_with(prefix);
    let mut fitting = all.iter().filter(begins);
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(Arc::clone(one)),
        (None, _) => Err(Error::not_found(kind, prefix).into()),
        (Some(first), Some(second)) => Err(Error::Ambiguous {
            kind,
            prefix: prefix.to_owned(),
            first: id(first).to_owned(),
            second: id(second).to_owned(),
        }
        .into()),
    }
}

/// Whether labels are as a selector wants them: all of its pairs are among them.
pub(crate) fn selects(selector: &HashMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_wants_all_of_its_labels() {
        let labels: BTreeMap<_, _> =
            [("a", "1"), ("b", "2")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let selector = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        assert!(selects(&selector(&[]), &labels));
        assert!(selects(&selector(&[("a", "1"), ("b", "2")]), &labels));
        assert!(!selects(&selector(&[("a", "2")]), &labels));
        assert!(!selects(&selector(&[("c", "")]), &labels));
    }

    #[test]
    fn an_id_may_be_cut_short_as_long_as_it_is_one() {
        let all = || ["abc1", "abc2", "b"].map(|id| Arc::new(id.to_owned())).to_vec();
        let find = |prefix: &str| one(Kind::Sandbox, prefix, all(), |id: &String| id);
        assert_eq!(*find("abc1").expect("one"), "abc1");
        assert_eq!(*find("b").expect("one"), "b");
        assert!(find("abc").expect_err("two").to_string().contains("ambiguous"));
        assert!(find("x").expect_err("none").to_string().contains("no pod"));
        assert!(find("").is_err());
    }
}
