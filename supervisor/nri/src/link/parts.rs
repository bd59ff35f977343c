//! Cutting what a plugin is synchronised with into parts that can be sent.
//!
//! Owns: the sizes. Never: sends. Pure.

use mainstay_nri_api::{Container, Message, PodSandbox, SynchronizeRequest};

use super::answer::REQUEST_MAX_BYTES;

/// The size of a part, in bytes, unless a single pod or container is larger. It is a quarter of what a message may have, so that
/// a plugin has the first containers soon, and nobody needs 4 MiB at once.
pub const SYNC_PART_MAX_BYTES: u64 = 1 << 20;
/// Tag and length of one entry, at most, in bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 8;

/// A pod or container that is too large to be sent at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {id} would have {bytes} bytes; at most {REQUEST_MAX_BYTES} can be sent")]
pub struct Oversized {
    /// "pod" or "container".
    pub what: &'static str,
    /// Its id.
    pub id: String,
    /// Its size.
    pub bytes: u64,
}

/// All pods and then all containers, in as few parts as possible; all but the last say that there are more. There is one
/// at least.
pub(super) fn cut(
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
) -> Result<Vec<SynchronizeRequest>, Oversized> {
    let mut parts = Parts::default();
    for pod in pods {
        parts.room_for("pod", &pod.id, pod.compute_size())?.pods.push(pod);
    }
    for container in containers {
        parts.room_for("container", &container.id, container.compute_size())?.containers.push(container);
    }
    Ok(parts.finish())
}

#[derive(Default)]
struct Parts {
    full: Vec<SynchronizeRequest>,
    part: SynchronizeRequest,
    bytes: u64,
}

impl Parts {
    /// The part that the next entry goes into.
    fn room_for(
        &mut self,
        what: &'static str,
        id: &str,
        size: u64,
    ) -> Result<&mut SynchronizeRequest, Oversized> {
        let bytes = size + ENTRY_OVERHEAD_BYTES;
        if bytes > REQUEST_MAX_BYTES as u64 {
            return Err(Oversized { what, id: id.to_owned(), bytes });
        }
        if self.bytes > 0 && self.bytes + bytes > SYNC_PART_MAX_BYTES {
            self.full.push(std::mem::take(&mut self.part));
            self.bytes = 0;
        }
        self.bytes += bytes;
        Ok(&mut self.part)
    }

    fn finish(mut self) -> Vec<SynchronizeRequest> {
        for part in &mut self.full {
            part.more = true;
        }
        self.full.push(self.part);
        self.full
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(n: usize, size: usize) -> PodSandbox {
        PodSandbox { id: format!("p{n}"), uid: "x".repeat(size), ..Default::default() }
    }

    fn container(n: usize, size: usize) -> Container {
        Container { id: format!("c{n}"), status_message: "x".repeat(size), ..Default::default() }
    }

    #[test]
    fn nothing_is_one_part() {
        assert_eq!(cut(vec![], vec![]), Ok(vec![SynchronizeRequest::default()]));
    }

    #[test]
    fn one_that_can_never_be_sent_is_named() {
        let error = cut(vec![], vec![container(7, REQUEST_MAX_BYTES)]).expect_err("too large");
        assert!(error.to_string().starts_with("container c7 would have "), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn each_is_sent_once_in_its_order_and_no_part_is_too_large(
            pod_sizes in proptest::collection::vec(0..600_000usize, 0..12),
            container_sizes in proptest::collection::vec(0..2_000_000usize, 0..12),
        ) {
            let pods: Vec<_> = pod_sizes.iter().enumerate().map(|(n, size)| pod(n, *size)).collect();
            let containers: Vec<_> =
                container_sizes.iter().enumerate().map(|(n, size)| container(n, *size)).collect();
            let parts = cut(pods.clone(), containers.clone()).expect("none is too large");
            prop_assert!(parts.iter().flat_map(|part| &part.pods).eq(&pods));
            prop_assert!(parts.iter().flat_map(|part| &part.containers).eq(&containers));
            for part in &parts {
                let entries = part.pods.len() + part.containers.len();
                prop_assert!(part.compute_size() <= SYNC_PART_MAX_BYTES + 2 || entries == 1);
                prop_assert!(part.compute_size() <= REQUEST_MAX_BYTES as u64);
            }
            let (last, rest) = parts.split_last().expect("one at least");
            prop_assert!(!last.more && rest.iter().all(|part| part.more));
        }
    }
}
