//! The ledger under news in any order, repeated and delayed.

use std::collections::BTreeMap;

use mainstay_messages::process::{ExitStatus, OomVerdict};
use proptest::prelude::*;

use super::*;

fn process(container: u8, exec: Option<u8>) -> ProcessKey {
    ProcessKey {
        container: format!("c{container}").parse().expect("a good id"),
        exec: exec.map(|exec| format!("e{exec}").parse().expect("a good id")),
    }
}

fn exit(code: u8) -> Exit {
    Exit { status: ExitStatus::Exited { code }, at: Timestamp(1), oom: OomVerdict::NotKilled }
}

#[derive(Clone, Debug)]
enum News {
    Begun(ProcessKey),
    Withdrawn(ProcessKey),
    Disowned(ProcessKey),
    Announced(ProcessKey),
    Receipt(ProcessKey, ExitReceipt),
    Acknowledged,
    Died,
}

fn processes() -> impl Strategy<Value = ProcessKey> {
    (0u8..3, proptest::option::of(0u8..2)).prop_map(|(container, exec)| process(container, exec))
}

fn news() -> impl Strategy<Value = News> {
    prop_oneof![
        processes().prop_map(News::Begun),
        processes().prop_map(News::Withdrawn),
        processes().prop_map(News::Disowned),
        processes().prop_map(News::Announced),
        (processes(), prop_oneof![Just(ExitReceipt::Settled), Just(ExitReceipt::Pending)])
            .prop_map(|(process, receipt)| News::Receipt(process, receipt)),
        Just(News::Acknowledged),
        Just(News::Died),
    ]
}

fn invariant_only_closed_processes_are_acknowledged(ledger: &Ledger) {
    for process in &ledger.acknowledgements {
        assert!(ledger.facts.get(process).is_some_and(is_closed), "{process}");
    }
}

/// Whether nothing of it goes up any more.
fn is_closed(fact: &Fact) -> bool {
    matches!(fact, Fact::Settled | Fact::Disowned)
}

proptest! {
    /// Whatever the order of news: what is settled is never reported again, and death leaves nothing unreported.
    #[test]
    fn exits_go_up_until_they_are_settled(list in proptest::collection::vec(news(), 1..60)) {
        let mut ledger = Ledger::default();
        for news in list {
            let settled: Vec<ProcessKey> =
                ledger.facts.iter().filter(|(_, fact)| is_closed(fact)).map(|(key, _)| key.clone()).collect();
            match news {
                News::Begun(process) => {
                    ledger.begun(process);
                }
                News::Withdrawn(process) => ledger.withdrawn(&process),
                News::Disowned(process) => ledger.disowned(&process),
                News::Announced(process) => {
                    let answer = ledger.announced(process.clone(), &exit(1));
                    prop_assert!(!settled.contains(&process) || answer == Announcement::AlreadySettled);
                }
                News::Receipt(process, receipt) => ledger.receipt(&process, receipt),
                News::Acknowledged => {
                    let told = ledger.acknowledgements();
                    ledger.acknowledged(&told);
                    prop_assert!(ledger.acknowledgements().is_empty());
                }
                News::Died => {
                    let open = ledger.facts.values().filter(|fact| !is_closed(fact)).count();
                    let reports = ledger.shim_died(BTreeMap::new(), UnknownReason::ShimDied, Timestamp(9));
                    prop_assert_eq!(reports.len(), open);
                    prop_assert!(reports.iter().all(|(process, _)| !settled.contains(process)));
                }
            }
            invariant_only_closed_processes_are_acknowledged(&ledger);
        }
    }
}

/// The shim was killed right after it had written an exit record and before it could announce it: the record is
/// the truth, and must not become "unknown" (cases 4 and 13).
#[test]
fn a_record_beats_not_knowing() {
    let mut ledger = Ledger::default();
    ledger.begun(process(0, None));
    ledger.begun(process(1, None));
    let recorded = BTreeMap::from([(process(0, None), exit(42)), (process(2, None), exit(7))]);
    let reports = ledger.shim_died(recorded, UnknownReason::ShimDied, Timestamp(9));
    assert_eq!(
        reports,
        [
            (process(0, None), exit(42)),
            (process(1, None), Exit::unknown(UnknownReason::ShimDied, Timestamp(9))),
            (process(2, None), exit(7)),
        ]
    );
}

/// The exit of a short exec overtakes the answer to its start; it must not be taken for running afterwards.
#[test]
fn an_exit_that_overtakes_the_start_reply_stays() {
    let mut ledger = Ledger::default();
    ledger.begun(process(0, Some(0)));
    assert_eq!(ledger.announced(process(0, Some(0)), &exit(0)), Announcement::Report);
    ledger.begun(process(0, Some(0)));
    ledger.withdrawn(&process(0, Some(0)));
    ledger.receipt(&process(0, Some(0)), ExitReceipt::Settled);
    assert_eq!(ledger.acknowledgements(), [process(0, Some(0))]);
}

#[test]
fn a_pending_exit_is_reported_when_announced_again() {
    let mut ledger = Ledger::default();
    let key = process(0, None);
    assert_eq!(ledger.announced(key.clone(), &exit(1)), Announcement::Report);
    assert_eq!(ledger.announced(key.clone(), &exit(1)), Announcement::AlreadyReporting);
    ledger.receipt(&key, ExitReceipt::Pending);
    assert!(ledger.acknowledgements().is_empty());
    assert_eq!(ledger.announced(key.clone(), &exit(1)), Announcement::Report);
    ledger.receipt(&key, ExitReceipt::Settled);
    assert_eq!(ledger.acknowledgements(), std::slice::from_ref(&key));
    assert_eq!(ledger.announced(key, &exit(1)), Announcement::AlreadySettled);
}

#[test]
fn what_is_removed_is_not_reported_when_the_shim_dies() {
    let mut ledger = Ledger::default();
    ledger.begun(process(0, None));
    ledger.begun(process(0, Some(1)));
    ledger.forgotten(&process(0, None).container);
    assert!(ledger.shim_died(BTreeMap::new(), UnknownReason::ShimDied, Timestamp(9)).is_empty());
}

/// While a creation that had failed was undone, its process was killed; the shim announced that, and the container was listed
/// as "killed by SIGKILL before it was ready" instead of being gone.
#[test]
fn the_end_of_what_is_being_undone_is_no_news() {
    let mut ledger = Ledger::default();
    ledger.begun(process(0, None));
    ledger.disowned(&process(0, None));
    assert_eq!(ledger.announced(process(0, None), &exit(137)), Announcement::AlreadySettled);
    assert_eq!(ledger.acknowledgements(), [process(0, None)], "the shim may forget it");
    let recorded = BTreeMap::from([(process(0, None), exit(137))]);
    assert!(ledger.shim_died(recorded, UnknownReason::ShimDied, Timestamp(9)).is_empty());
}
