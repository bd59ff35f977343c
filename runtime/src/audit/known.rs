//! What audits have found so far: since when, and what of it the journal has been told.
//!
//! ```text
//!   not known ── found ──► known ── told ──► told ── not found any more ──► not known
//! ```
//!
//! Pure. Owns: that a finding is told once for as long as it is found, and the age of one that the machine has none for.
//! Never: outlives the process; the next one tells again what is still there.

use std::collections::{HashMap, HashSet};

use mainstay_messages::Timestamp;
use mainstay_messages::audit::{Deviation, Finding, Owner, ThingKind};

/// The most findings that are remembered; those beyond are counted and listed, and not told to the journal.
pub const KNOWN_MAX: usize = 4_096;
/// The most findings that one audit tells the journal; the next one goes on with the rest.
pub const TOLD_AT_ONCE_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Known {
    findings: HashMap<Key, Entry>,
}

/// What a finding is about.
pub(super) type Key = (Deviation, ThingKind, String, Option<u32>, Owner);

#[derive(Clone, Copy, Debug)]
struct Entry {
    since: Timestamp,
    told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    No,
    Yes,
}

impl Known {
    /// Takes what an audit has found; gives each finding an age, and answers those that the journal is to be told.
    pub(super) fn take(&mut self, findings: &mut [Finding], now: Timestamp) -> Vec<Finding> {
        let found = keys(findings);
        self.findings.retain(|key, _| found.contains(key));
        let mut news = Vec::new();
        for finding in findings {
            let key = key(finding);
            if !self.findings.contains_key(&key) && self.findings.len() >= KNOWN_MAX {
                finding.since.get_or_insert(now);
                continue;
            }
            let fresh = Entry { since: finding.since.unwrap_or(now), told: Told::No };
            let entry = self.findings.entry(key).or_insert(fresh);
            finding.since.get_or_insert(entry.since);
            if entry.told == Told::No && news.len() < TOLD_AT_ONCE_MAX {
                entry.told = Told::Yes;
                news.push(finding.clone());
            }
        }
        news
    }
}

/// Two findings with one key are about the same thing.
pub(super) fn key(finding: &Finding) -> Key {
    let Finding { deviation, kind, place, pid, owner, .. } = finding;
    (*deviation, *kind, place.clone(), *pid, owner.clone())
}

pub(super) fn keys(findings: &[Finding]) -> HashSet<Key> {
    findings.iter().map(key).collect()
}

#[cfg(test)]
mod tests {
    use mainstay_messages::audit::Remedy;

    use super::*;

    fn finding(place: &str) -> Finding {
        Finding {
            deviation: Deviation::Leak,
            kind: ThingKind::Cgroup,
            place: place.to_owned(),
            pid: None,
            owner: Owner::default(),
            since: None,
            reason: "nobody's".to_owned(),
            remedy: Remedy::ByHand { how: "remove it".to_owned() },
            outcome: None,
        }
    }

    fn places(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.place.as_str()).collect()
    }

    #[test]
    fn a_finding_is_told_once_for_as_long_as_it_is_there() {
        let mut known = Known::default();
        assert_eq!(places(&known.take(&mut [finding("a")], Timestamp(1))), ["a"]);
        let mut both = [finding("a"), finding("b")];
        assert_eq!(places(&known.take(&mut both, Timestamp(2))), ["b"]);
        assert_eq!(both.map(|finding| finding.since), [Some(Timestamp(1)), Some(Timestamp(2))]);
        assert!(known.take(&mut [finding("b")], Timestamp(3)).is_empty());
        let mut again = [finding("a")];
        assert_eq!(places(&known.take(&mut again, Timestamp(4))), ["a"], "it was gone in between");
        assert_eq!(again[0].since, Some(Timestamp(4)));
    }

    #[test]
    fn what_the_machine_knows_of_an_age_counts() {
        let mut findings = [Finding { since: Some(Timestamp(1)), ..finding("a") }];
        Known::default().take(&mut findings, Timestamp(9));
        assert_eq!(findings[0].since, Some(Timestamp(1)));
    }

    /// A machine with a thousand leaks would push everything else out of the journal.
    #[test]
    fn very_many_are_told_piece_by_piece_and_no_more_than_are_remembered() {
        let mut known = Known::default();
        let findings = |count: usize| (0..count).map(|n| finding(&n.to_string())).collect::<Vec<_>>();
        let mut many = findings(TOLD_AT_ONCE_MAX + 1);
        assert_eq!(known.take(&mut many, Timestamp(1)).len(), TOLD_AT_ONCE_MAX);
        assert_eq!(known.take(&mut many, Timestamp(2)).len(), 1);
        let mut told = 0;
        for round in 0..2 * (KNOWN_MAX / TOLD_AT_ONCE_MAX) {
            told += known.take(&mut findings(KNOWN_MAX + 10), Timestamp(round as u64)).len();
        }
        assert_eq!(told, KNOWN_MAX - TOLD_AT_ONCE_MAX - 1);
    }
}
