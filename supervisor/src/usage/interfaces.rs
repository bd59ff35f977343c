//! The network interfaces of pods.
//!
//! A thread of its own goes from namespace to namespace and ends with the work, so that no other work is ever done in the
//! namespace of a pod.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use mainstay_messages::usage::{InterfaceUsage, Traffic};
use mainstay_messages::{SandboxId, Timestamp};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::machine::now;

/// The most interfaces of one pod that are told.
const INTERFACES_MAX: usize = 256;
/// The interfaces of the namespace that the asking thread is in.
const COUNTERS: &str = "/proc/thread-self/net/dev";
const LOOPBACK: &str = "lo";

/// The interfaces in each namespace. A namespace that cannot be entered or read has none.
pub(super) fn of_all(namespaces: Vec<(SandboxId, Arc<File>)>) -> BTreeMap<SandboxId, Vec<InterfaceUsage>> {
    if namespaces.is_empty() {
        return BTreeMap::new();
    }
    let go = move || namespaces.into_iter().map(|(pod, namespace)| (pod, of(&namespace))).collect();
    let thread = std::thread::Builder::new().name("mainstay-netns".into()).spawn(go);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(found)) => found,
        Ok(Err(_)) => BTreeMap::new(),
        Err(error) => {
            tracing::warn!(%error, "there is no thread to look at the networks of pods");
            BTreeMap::new()
        }
    }
}

fn of(namespace: &File) -> Vec<InterfaceUsage> {
    if move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).is_err() {
        return Vec::new();
    }
    std::fs::read_to_string(COUNTERS).map(|text| parse(&text, now())).unwrap_or_default()
}

/// Two lines of titles, then `eth0: ` with eight numbers of what came in and eight of what went out.
fn parse(text: &str, at: Timestamp) -> Vec<InterfaceUsage> {
    let interface = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let traffic = |at: usize| match numbers.get(at..at + 4)? {
            &[bytes, packets, errors, dropped] => Some(Traffic { bytes, packets, errors, dropped }),
            _ => None,
        };
        Some(InterfaceUsage { name: name.trim().to_owned(), at, received: traffic(0)?, sent: traffic(8)? })
    };
    let all = text.lines().skip(2).filter_map(interface);
    all.filter(|interface| interface.name != LOOPBACK).take(INTERFACES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_in_order_without_the_loopback() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:   10       1    0    0    0     0          0         0       10       1    0    0    0     0       0          0
  eth0: 1234       9    2    3    0     0          0         0     5678      11    4    5    0     0       0          0
  odd0: 1 2
";
        let found = parse(text, Timestamp(7));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].at), ("eth0", Timestamp(7)));
        assert_eq!(found[0].received, Traffic { bytes: 1_234, packets: 9, errors: 2, dropped: 3 });
        assert_eq!(found[0].sent, Traffic { bytes: 5_678, packets: 11, errors: 4, dropped: 5 });
    }
}
