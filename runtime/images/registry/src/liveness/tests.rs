//! Transfers in virtual time.
//!
//! The faults that these guard: a range that stalled held up a pull, or ended it with all the others (case 52), and a
//! disk that took its time was taken for a registry that did (containerd issue 13909).

use proptest::prelude::*;

use super::*;

const STALL_TIMEOUT: Duration = Duration::from_secs(60);
const PACE: Pace = Pace { stall_timeout: STALL_TIMEOUT, floor_bytes_per_s: 0 };

fn seconds(s: u64) -> Moment {
    Duration::from_secs(s)
}

/// One of eight transfers stalls while seven bring a byte a second: it alone is tried again.
#[test]
fn one_stalled_transfer_of_many_is_tried_again_alone() {
    let mut watches: Vec<_> = (0..8).map(|_| Watch::new(PACE, seconds(0))).collect();
    let mut retried = Vec::new();
    for now in (1..=600).map(seconds) {
        for (n, watch) in watches.iter_mut().enumerate() {
            if n == 3 && retried.is_empty() {
                if watch.check(now).is_err() {
                    retried.push((n, now));
                    *watch = Watch::new(PACE, now);
                }
            } else {
                watch.check(now).expect("in time");
                watch.received(1, now).expect("no floor");
            }
        }
    }
    assert_eq!(retried, [(3, STALL_TIMEOUT)]);
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
fn a_clock_that_goes_back_does_nothing() {
    let mut watch = Watch::new(PACE, seconds(1000));
    watch.received(1, seconds(0)).expect("in time");
    watch.wait(seconds(0));
    assert_eq!(watch.deadline(), seconds(1060));
    assert_eq!(watch.check(seconds(0)), Ok(()));
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

proptest! {
    /// Whatever the pauses and pieces are: it stalls exactly when one pause is too long.
    #[test]
    fn it_stalls_exactly_when_a_pause_is_too_long(
        pieces in proptest::collection::vec((0u64..100, 0u64..10), 1..50),
    ) {
        let mut watch = Watch::new(PACE, seconds(0));
        let mut now = seconds(0);
        for (pause, bytes) in pieces {
            now += seconds(pause);
            prop_assert_eq!(watch.check(now).is_err(), seconds(pause) >= STALL_TIMEOUT);
            watch.received(bytes, now).expect("no floor");
        }
    }
}
