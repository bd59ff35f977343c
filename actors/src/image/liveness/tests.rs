//! In virtual time: the time is a number.

use mainstay_messages::image::PullActivity::{Connecting, Done, Fetching, Syncing, Unpacking, Waiting};
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::image::progress::sample::part;

const TIMEOUT_MS: u64 = 5_000;

fn patience() -> Patience {
    Patience { silence_ms: TIMEOUT_MS, floor: None }
}

fn retry(name: &str, after_ms: u64) -> PullProgress {
    PullProgress::Retry { part: name.into(), reason: "r.example answered 503".into(), after_ms }
}

/// containerd#13909: healthy pulls were cancelled since a window had no more bytes than the one before. Here events
/// with no new byte go on for ten time-outs, one just before each deadline, and the pull lives.
#[rstest]
#[case::connecting(part("a", Connecting, 0))]
#[case::fetching(part("a", Fetching, 7))]
#[case::syncing(part("a", Syncing, 7))]
#[case::retrying(retry("a", 0))]
#[case::resolved(PullProgress::Resolved { digest: "sha256:0".into(), layers: Vec::new() })]
fn events_without_bytes_are_life(#[case] event: PullProgress) {
    let mut liveness = Liveness::new(patience(), 0);
    let mut now = 0;
    while now < 10 * TIMEOUT_MS {
        now += TIMEOUT_MS - 1;
        assert_eq!(liveness.check(now), None, "at {now}");
        liveness.heard(&event, now);
    }
}

#[test]
fn silence_ends_it_at_the_time_out_not_before_and_not_twice() {
    let mut liveness = Liveness::new(patience(), 100);
    liveness.heard(&part("sha256:aa", Fetching, 400), 1_000);
    assert_eq!(liveness.deadline_ms(), Some(6_000));
    assert_eq!(liveness.check(5_999), None);
    let stalled = liveness.check(6_000).expect("the time-out");
    assert_eq!(
        stalled.to_string(),
        "nothing moved for 5000 ms; sha256:aa has 400 of 1000000 bytes; its last event was fetching, 5000 ms ago"
    );
    assert_eq!(liveness.check(60_000), None);
    assert_eq!(liveness.deadline_ms(), None);
}

#[test]
fn a_pull_that_never_said_anything_is_given_up_too() {
    let stalled = Liveness::new(patience(), 0).check(TIMEOUT_MS).expect("the time-out").to_string();
    assert_eq!(stalled, "nothing moved for 5000 ms; its last event was its beginning, 5000 ms ago");
}

/// containerd#13909 again: unpacking was not counted as progress. A huge layer of tiny files is unpacked for an hour;
/// its transfer ended long ago.
#[test]
fn the_extraction_of_a_huge_layer_lives() {
    let mut liveness = Liveness::new(patience(), 0);
    liveness.heard(&part("a", Fetching, 1_000_000), 1);
    for second in 1..3_600 {
        assert_eq!(liveness.check(second * 1_000), None);
        liveness.heard(&part("a", Unpacking, 0), second * 1_000);
    }
}

/// One of many parts stands still while others go on: that is the transfer's own time-out to see, not the pull's.
#[test]
fn one_part_that_is_silent_does_not_end_the_others() {
    let mut liveness = Liveness::new(patience(), 0);
    liveness.heard(&part("still", Fetching, 1), 0);
    for step in 1..100 {
        liveness.heard(&part("moving", Fetching, step), step * 1_000);
        assert_eq!(liveness.check(step * 1_000), None);
    }
    let stalled = liveness.check(99_000 + TIMEOUT_MS).expect("silence");
    assert_eq!((stalled.part.as_deref(), stalled.bytes, stalled.age_ms), (Some("still"), 1, 104_000));
}

/// A registry asked for a pause that was longer than the time-out, and the pull was given up in it.
#[test]
fn an_announced_pause_is_no_silence() {
    let mut liveness = Liveness::new(patience(), 0);
    liveness.heard(&retry("a", 20_000), 1_000);
    assert_eq!(liveness.check(25_999), None);
    let stalled = liveness.check(26_000).expect("silence after the pause").to_string();
    assert!(
        stalled.ends_with("its last event was a retry, since r.example answered 503, 25000 ms ago"),
        "{stalled}"
    );
}

/// Other pulls had all the slots for an hour. That is no fault of this one.
#[test]
fn waiting_for_others_is_no_silence() {
    let floor = Floor { bytes: 1, window_ms: 1_000 };
    let mut liveness = Liveness::new(Patience { floor: Some(floor), ..patience() }, 0);
    liveness.heard(&part("config", Done, 10), 0);
    liveness.heard(&part("a", Waiting, 0), 0);
    liveness.heard(&part("b", Waiting, 0), 0);
    assert_eq!(liveness.deadline_ms(), None);
    assert_eq!(liveness.check(3_600_000), None);
    liveness.heard(&part("a", Connecting, 0), 3_600_000);
    assert_eq!(liveness.deadline_ms(), Some(3_601_000));
    let stalled = liveness.check(3_600_000 + TIMEOUT_MS).expect("silence");
    assert_eq!(stalled.part.as_deref(), Some("a"), "the one that waits is not to blame");
}

#[test]
fn what_was_fetched_is_named_when_unpacking_was_last() {
    let mut liveness = Liveness::new(patience(), 0);
    liveness.heard(&part("a", Fetching, 70), 0);
    liveness.heard(&part("a", Unpacking, 9_000), 0);
    let stalled = liveness.check(TIMEOUT_MS).expect("silence");
    assert_eq!((stalled.bytes, stalled.last.as_str()), (70, "unpacking"));
}

#[test]
fn zero_is_for_ever() {
    let mut liveness = Liveness::new(Patience { silence_ms: 0, floor: None }, 0);
    assert_eq!(liveness.deadline_ms(), None);
    assert_eq!(liveness.check(u64::MAX), None);
}

/// Whoever measures the time gives a monotonic one. Should it ever go back, nothing is given up for it, and silence
/// is still measured from the latest event.
#[test]
fn a_clock_that_goes_back_does_nothing() {
    let mut liveness = Liveness::new(patience(), 10_000);
    liveness.heard(&part("a", Fetching, 1), 12_000);
    liveness.heard(&part("a", Fetching, 2), 3_000);
    assert_eq!(liveness.check(0), None);
    assert_eq!(liveness.deadline_ms(), Some(17_000));
}

#[test]
fn a_trickle_below_the_floor_is_given_up_where_a_floor_is_set() {
    let floor = Floor { bytes: 10_000, window_ms: 10_000 };
    let mut liveness = Liveness::new(Patience { floor: Some(floor), ..patience() }, 0);
    let trickle = |liveness: &mut Liveness, from: u64, to: u64| {
        (from..to).find_map(|second| {
            liveness.heard(&part("a", Fetching, second * 2_000), second * 1_000);
            liveness.check(second * 1_000)
        })
    };
    assert_eq!(trickle(&mut liveness, 0, 20), None);
    liveness.heard(&part("a", Syncing, 40_000), 25_000);
    let stalled = (26..60).find_map(|second| {
        liveness.heard(&part("a", Fetching, 40_000 + second), second * 1_000);
        liveness.check(second * 1_000)
    });
    let stalled = stalled.expect("it is too slow").to_string();
    assert!(stalled.starts_with("35 bytes came in 10000 ms, and at least 10000 are asked for;"), "{stalled}");
}

/// A transfer that has to begin anew moves all the same.
#[test]
fn bytes_that_come_again_are_bytes_that_came() {
    let floor = Floor { bytes: 100, window_ms: 1_000 };
    let mut liveness = Liveness::new(Patience { silence_ms: 0, floor: Some(floor) }, 0);
    for bytes in [150, 0, 60] {
        liveness.heard(&part("a", Fetching, bytes), 500);
    }
    assert_eq!(liveness.window.bytes, 210);
    assert_eq!(liveness.check(1_000), None);
}

proptest! {
    /// It is given up exactly when the longest gap reaches the time-out, whatever the events are.
    #[test]
    fn it_is_given_up_exactly_after_a_whole_silence(gaps in prop::collection::vec(0_u64..7_000, 1..50)) {
        let mut liveness = Liveness::new(patience(), 0);
        let mut now = 0;
        for gap in gaps {
            let deadline = liveness.deadline_ms().expect("a time-out is set");
            prop_assert_eq!(deadline, now + TIMEOUT_MS);
            now += gap;
            let given_up = liveness.check(now).is_some();
            prop_assert_eq!(given_up, gap >= TIMEOUT_MS);
            if given_up {
                break;
            }
            liveness.heard(&part("a", Connecting, 0), now);
        }
    }
}
