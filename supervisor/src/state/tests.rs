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
    FoundEnded(ProcessKey),
    Announced(ProcessKey),
    Forgotten(ProcessKey),
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
        processes().prop_map(News::FoundEnded),
        processes().prop_map(News::Announced),
        processes().prop_map(News::Forgotten),
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

/// Whether its exit is on the way up.
fn is_under_way(fact: &Fact) -> bool {
    matches!(fact, Fact::Reporting(_) | Fact::Waiting(_))
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
                News::FoundEnded(process) => ledger.found_ended(process, &exit(1)),
                News::Forgotten(process) => {
                    let under_way = ledger.facts.values().filter(|fact| is_under_way(fact)).count();
                    ledger.forgotten(&process.container);
                    prop_assert_eq!(
                        ledger.facts.values().filter(|fact| is_under_way(fact)).count(),
                        under_way
                    );
                }
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

/// A container was removed while the store failed: the exits of its execs, and its own, were on their way up, and were forgotten
/// with it. When the shim ended before it had announced them again, nobody ever heard of them.
#[test]
fn what_is_on_its_way_up_outlives_the_removal_of_its_container() {
    let mut ledger = Ledger::default();
    let (container, exec) = (process(0, None), process(0, Some(1)));
    ledger.announced(container.clone(), &exit(1));
    ledger.announced(exec.clone(), &exit(2));
    ledger.receipt(&exec, ExitReceipt::Pending);
    ledger.forgotten(&container.container);
    let mut dying = ledger.clone();
    let reports = dying.shim_died(BTreeMap::new(), UnknownReason::ShimDied, Timestamp(9));
    assert_eq!(reports, [(container.clone(), exit(1)), (exec.clone(), exit(2))]);

    ledger.receipt(&container, ExitReceipt::Settled);
    assert_eq!(ledger.announced(exec.clone(), &exit(2)), Announcement::Report);
    ledger.receipt(&exec, ExitReceipt::Settled);
    assert_eq!(ledger.acknowledgements(), [container.clone(), exec.clone()], "the shim may forget them");
    ledger.acknowledged(&[container, exec]);
    assert!(ledger.facts.is_empty() && ledger.removed.is_empty(), "{ledger:?}");
}

/// A removal came so soon after the exit that the shim had not been told to forget it, and it was told of twice.
#[test]
fn a_removal_does_not_take_back_what_the_shim_is_to_be_told() {
    let mut ledger = Ledger::default();
    ledger.announced(process(0, None), &exit(1));
    ledger.receipt(&process(0, None), ExitReceipt::Settled);
    ledger.forgotten(&process(0, None).container);
    assert_eq!(ledger.acknowledgements(), [process(0, None)]);
    assert_eq!(ledger.announced(process(0, None), &exit(1)), Announcement::AlreadySettled);
}

/// An exec whose container was deleted before the restart has no record on disk any more: what its shim said of it at adoption
/// has to outlive the shim.
#[test]
fn what_was_found_to_have_ended_keeps_its_exit() {
    let mut ledger = Ledger::default();
    ledger.found_ended(process(0, Some(1)), &exit(5));
    let reports = ledger.shim_died(BTreeMap::new(), UnknownReason::ShimDied, Timestamp(9));
    assert_eq!(reports, [(process(0, Some(1)), exit(5))]);
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
