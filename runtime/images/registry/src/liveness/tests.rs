//! Pulls in virtual time.
//!
//! The fault that these guard: a runtime counted bytes over a window and cancelled pulls that were unpacking, waiting
//! for a slot, or served by a registry that took its time, for "no progress" (containerd issues 13909 and 12811).

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use mainstay_oci_image::Digest;

const TIMEOUT: Duration = Duration::from_secs(300);

fn blob(n: u8) -> Part {
    Part::Blob(Digest::of(&[n]))
}

fn layer() -> Part {
    Part::Layer(Digest::of(b"layer"))
}

fn event(part: Part, step: Step) -> Event {
    Event::new(part, step)
}

fn retrying(after_s: u64) -> Step {
    Step::Retrying { attempt: 1, after: Duration::from_secs(after_s), because: "503".to_owned() }
}

fn seconds(s: u64) -> Moment {
    Duration::from_secs(s)
}

#[rstest]
#[case(Step::Received { bytes: 0 })]
#[case(Step::Connecting { host: "r.example".to_owned() })]
#[case(Step::Extracted { entries: 1, bytes: 0 })]
#[case(Step::Syncing)]
#[case(Step::TokenFetched { host: "r.example".to_owned() })]
#[case(retrying(0))]
fn events_without_bytes_keep_a_pull_alive_for_ten_timeouts(#[case] step: Step) {
    let mut liveness = Liveness::new(TIMEOUT, seconds(0));
    let period = TIMEOUT - Duration::from_millis(1);
    let mut now = seconds(0);
    while now < TIMEOUT * 10 {
        now += period;
        assert_eq!(liveness.check(now), None, "at {now:?}");
        liveness.observe(&event(layer(), step.clone()), now);
    }
    assert_eq!(liveness.bytes(), (0, 0));
}

#[test]
fn silence_is_said_at_the_timeout_not_before_and_not_twice() {
    let mut liveness = Liveness::new(TIMEOUT, seconds(0));
    liveness.observe(&event(blob(1), Step::Started { offset: 10, expected: Some(1000) }), seconds(1));
    liveness.observe(&event(blob(1), Step::Received { bytes: 90 }), seconds(2));
    liveness.observe(&event(blob(2), Step::Done), seconds(3));
    let deadline = liveness.deadline().expect("it runs");
    assert_eq!(deadline, seconds(3) + TIMEOUT);
    assert_eq!(liveness.check(deadline - Duration::from_millis(1)), None);
    let silence = liveness.check(deadline).expect("silence");
    assert_eq!((silence.part.clone(), silence.got, silence.expected), (blob(1), 100, Some(1000)));
    let text = silence.to_string();
    let digest = Digest::of(&[1]);
    assert_eq!(
        text,
        format!(
            "nothing happened for 300000 ms: blob {digest} stands at 100 bytes of 1000, and the last event was 301000 \
             ms ago: 90 bytes received"
        )
    );
    assert_eq!(liveness.check(deadline), None, "not twice");
    liveness.observe(&event(blob(1), Step::Received { bytes: 1 }), deadline);
    assert_eq!(liveness.check(deadline + TIMEOUT * 2), None, "not twice");
    assert_eq!(liveness.deadline(), None);
}

#[test]
fn a_pull_of_which_nothing_was_ever_heard_is_silent_too() {
    let mut liveness = Liveness::new(TIMEOUT, seconds(7));
    assert_eq!(liveness.check(seconds(6) + TIMEOUT), None);
    assert!(liveness.check(seconds(7) + TIMEOUT).is_some());
}

/// What completes at the very deadline is complete, if it is heard of first.
#[test]
fn an_event_exactly_at_the_deadline_counts() {
    let mut liveness = Liveness::new(TIMEOUT, seconds(0));
    liveness.observe(&event(blob(1), Step::Received { bytes: 1 }), seconds(0));
    liveness.observe(&event(blob(1), Step::Done), TIMEOUT);
    assert_eq!(liveness.check(TIMEOUT), None);
    assert_eq!(liveness.deadline(), Some(TIMEOUT * 2));
}

#[test]
fn extraction_of_a_huge_layer_lives() {
    let mut liveness = Liveness::new(TIMEOUT, seconds(0));
    for n in 0..100_000u64 {
        let now = seconds(n * 60);
        assert_eq!(liveness.check(now), None);
        liveness.observe(&event(layer(), Step::Extracted { entries: 1, bytes: 0 }), now);
    }
}

#[test]
fn a_pause_that_was_announced_is_no_silence() {
    let mut liveness = Liveness::new(TIMEOUT, seconds(0));
    liveness.observe(&event(blob(1), retrying(3600)), seconds(0));
    assert_eq!(liveness.check(seconds(3600)), None);
    liveness.observe(&event(blob(2), Step::Received { bytes: 1 }), seconds(1));
    assert_eq!(
        liveness.deadline(),
        Some(seconds(3600) + TIMEOUT),
        "an event of another part does not shorten it"
    );
    assert!(liveness.check(seconds(3600) + TIMEOUT).is_some());
}

#[test]
fn a_pull_that_waits_for_a_slot_has_no_deadline_until_it_works() {
    let mut liveness = Liveness::new(TIMEOUT, seconds(0));
    liveness.observe(&event(blob(1), Step::Done), seconds(0));
    liveness.observe(&event(blob(2), Step::Waiting), seconds(0));
    liveness.observe(&event(blob(3), Step::Waiting), seconds(0));
    assert_eq!(liveness.deadline(), None);
    assert_eq!(liveness.check(TIMEOUT * 100), None);
    liveness.observe(&event(blob(2), Step::Connecting { host: "r.example".to_owned() }), TIMEOUT * 100);
    let silence = liveness.check(TIMEOUT * 101).expect("blob 2 is at work and silent");
    assert_eq!(silence.part, blob(2), "the one that waits is not to blame");
}

#[test]
fn zero_is_off() {
    let mut liveness = Liveness::new(Duration::ZERO, seconds(0));
    liveness.observe(&event(blob(1), Step::Received { bytes: 1 }), seconds(1));
    assert_eq!((liveness.deadline(), liveness.check(Duration::MAX)), (None, None));
}

#[test]
fn a_clock_that_goes_back_does_nothing() {
    let mut liveness = Liveness::new(TIMEOUT, seconds(1000));
    liveness.observe(&event(blob(1), Step::Received { bytes: 1 }), seconds(1000));
    liveness.observe(&event(blob(1), Step::Received { bytes: 1 }), seconds(0));
    assert_eq!(liveness.deadline(), Some(seconds(1000) + TIMEOUT));
    assert_eq!(liveness.check(seconds(0)), None);
    liveness.observe(&event(blob(1), Step::Done), Duration::MAX);
    assert_eq!(liveness.deadline(), Some(Duration::MAX), "nor does one at its end");
}

const PACE: Pace = Pace { stall_timeout: Duration::from_secs(60), floor_bytes_per_s: 0 };

/// One of eight transfers stalls while seven bring a byte a second: it alone is tried again, and the pull lives.
#[test]
fn one_stalled_transfer_of_many_is_tried_again_alone() {
    let mut liveness = Liveness::new(TIMEOUT, seconds(0));
    let mut watches: Vec<_> = (0..8).map(|_| Watch::new(PACE, seconds(0))).collect();
    let mut retried = Vec::new();
    for now in (1..=600).map(seconds) {
        for (n, watch) in watches.iter_mut().enumerate() {
            if n == 3 && retried.is_empty() {
                if watch.check(now).is_err() {
                    retried.push((n, now));
                    liveness.observe(&event(blob(3), retrying(0)), now);
                    *watch = Watch::new(PACE, now);
                }
            } else {
                watch.check(now).expect("in time");
                watch.received(1, now).expect("no floor");
                liveness.observe(&event(blob(n as u8), Step::Received { bytes: 1 }), now);
            }
        }
        assert_eq!(liveness.check(now), None);
    }
    assert_eq!(retried, [(3, seconds(60))]);
}

#[test]
fn a_transfer_stalls_at_the_timeout_and_not_before() {
    let mut watch = Watch::new(PACE, seconds(0));
    watch.received(1, seconds(5)).expect("in time");
    assert_eq!(watch.deadline(), seconds(65));
    assert_eq!(watch.check(seconds(64)), Ok(()));
    assert_eq!(watch.check(seconds(65)), Err(Stall::Silent { for_: seconds(60) }));
}

#[test]
fn the_time_that_a_sink_takes_is_not_the_registrys() {
    let pace = Pace { floor_bytes_per_s: 1000, ..PACE };
    let mut watch = Watch::new(pace, seconds(0));
    for n in 1..100 {
        let now = seconds(n * 1000);
        watch.wait(now);
        watch.received(1000, now + seconds(1)).expect("1000 bytes in a second of waiting");
    }
}

#[test]
fn a_trickle_below_the_floor_is_slow_after_a_window() {
    let pace = Pace { floor_bytes_per_s: 1000, ..PACE };
    let mut watch = Watch::new(pace, seconds(0));
    for now in (1..FLOOR_WINDOW_S).map(seconds) {
        watch.received(999, now).expect("within the window");
    }
    let slow = watch.received(999, seconds(FLOOR_WINDOW_S));
    assert_eq!(slow, Err(Stall::Slow { bytes: 999 * FLOOR_WINDOW_S, within: seconds(FLOOR_WINDOW_S) }));
    let mut free = Watch::new(PACE, seconds(0));
    (1..1000).map(seconds).for_each(|now| free.received(1, now).expect("the floor is off"));
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Waiting),
        Just(Step::Done),
        Just(Step::Syncing),
        (0u64..100).prop_map(|bytes| Step::Received { bytes }),
        (0u64..400).prop_map(retrying),
    ]
}

proptest! {
    /// Whatever happens in whatever order: silence is said at most once, and only when no event came for the
    /// whole time-out.
    #[test]
    fn silence_is_only_what_was_silent(
        events in proptest::collection::vec((0u8..4, any_step(), 0u64..500), 0..60),
    ) {
        let mut liveness = Liveness::new(TIMEOUT, seconds(0));
        let (mut now, mut last, mut said) = (seconds(0), seconds(0), 0);
        for (part, step, pause) in events {
            now += seconds(pause);
            if let Some(silence) = liveness.check(now) {
                said += 1;
                prop_assert!(now - last >= TIMEOUT, "{silence}");
                prop_assert!(silence.age >= TIMEOUT, "{silence}");
            }
            liveness.observe(&event(blob(part), step), now);
            last = now;
        }
        prop_assert!(said <= 1);
    }
}
