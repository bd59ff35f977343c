//! The names of links.
//!
//! Owns: how they are made and told from others'. Never: asks whether one exists.
//!
//! A pod's link is called `ms` and thirteen hexadecimal digits, which come from the pod's id and the bridge's name, so that it is
//! found again without any record.

use mainstay_messages::SandboxId;

use crate::ledger::Lease;
use crate::settings::Settings;

const POD_PREFIX: &str = "ms";
const BRIDGE_PREFIX: &str = "mb";
const DIGITS: usize = 13;
/// How many names a pod tries when others have them; two ids with the same digits are one in 2^52.
pub(crate) const ATTEMPTS_MAX: usize = 8;

/// The names that a pod's link may have, best first.
pub(crate) fn pod_links<'a>(bridge: &'a str, pod: &'a SandboxId) -> impl Iterator<Item = String> + 'a {
    (0..ATTEMPTS_MAX).map(move |attempt| {
        let digits = fingerprint(&[bridge, pod.as_str(), &"+".repeat(attempt)]);
        format!("{POD_PREFIX}{digits}")
    })
}

/// The name for a new pod's link: the best one that no lease has.
pub(crate) fn pod_link<'a>(
    bridge: &str,
    pod: &SandboxId,
    leases: impl Iterator<Item = &'a Lease>,
) -> Option<String> {
    let taken: Vec<_> = leases.filter(|lease| lease.pod != *pod).map(|lease| lease.link.as_str()).collect();
    pod_links(bridge, pod).find(|name| !taken.contains(&name.as_str()))
}

/// Whether a name is of the kind that pods' links have.
pub(crate) fn is_pod_link(name: &str) -> bool {
    name.strip_prefix(POD_PREFIX).is_some_and(|rest| {
        rest.len() == DIGITS && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The name of the bridge until it has its mark.
pub(crate) fn unfinished_bridge(settings: &Settings) -> String {
    let directory = settings.directory.to_string_lossy();
    format!("{BRIDGE_PREFIX}{}", fingerprint(&[&settings.bridge, &directory]))
}

/// FNV-1a of 64 bits: the same for ever, which the standard library's hash need not be.
fn fingerprint(parts: &[&str]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{:013x}", hash >> 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_are_known_again() {
        let pod: SandboxId = "pod-1".parse().expect("an id");
        let names: Vec<_> = pod_links("mainstay0", &pod).collect();
        assert!(names.iter().all(|name| is_pod_link(name) && name.len() <= 15), "{names:?}");
        assert_ne!(names[0], names[1]);
        assert_eq!(names[0], pod_links("mainstay0", &pod).next().expect("one"));
        assert!(!is_pod_link("msfoo") && !is_pod_link("eth0"));
    }
}
