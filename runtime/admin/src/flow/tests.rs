//! Flow control without sockets: the peers are two ends in one test.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::outgoing;

fn frame(body: usize) -> Vec<u8> {
    vec![0; HEADER_LENGTH + body]
}

fn invariant_the_balance_is_never_above_the_window(lane: &Lane) {
    if let LaneState::Open { balance } = *lane.state.borrow() {
        assert!(balance <= STREAM_WINDOW as i64, "balance {balance}");
    }
}

fn invariant_the_receiver_holds_at_most_the_window_and_one_frame<T>(intake: &Intake<T>, frame: usize) {
    assert!(intake.held.load(Ordering::Acquire) < STREAM_WINDOW + frame);
}

/// Nothing else runs in a paused test: when the future is not ready now, it never will be.
async fn is_held_up<F: Future>(future: F) -> bool {
    tokio::time::timeout(Duration::from_secs(1), future).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_sender_without_credit_waits_for_it() {
    let (outgoing, _writer) = outgoing::queue();
    let lane = Lane::new(outgoing);
    lane.send(frame(STREAM_WINDOW - 1)).await.expect("a fresh window");
    lane.send(frame(100)).await.expect("one byte of credit is enough for a frame");
    assert!(is_held_up(lane.send(frame(1))).await);
    lane.grant(99).expect("less than was sent");
    assert!(is_held_up(lane.send(frame(1))).await, "the balance is zero, not above it");
    lane.grant(1).expect("less than was sent");
    lane.send(frame(1)).await.expect("credit again");
}

#[tokio::test(start_paused = true)]
async fn a_closed_lane_wakes_its_sender_and_keeps_the_first_reason() {
    let (outgoing, _writer) = outgoing::queue();
    let lane = Arc::new(Lane::new(outgoing));
    lane.send(frame(STREAM_WINDOW)).await.expect("a fresh window");
    let sender = tokio::spawn({
        let lane = lane.clone();
        async move { lane.send(frame(1)).await }
    });
    tokio::task::yield_now().await;
    lane.close(Farewell::Cancelled);
    lane.close(Farewell::Finished);
    assert_eq!(sender.await.expect("no panic"), Err(Farewell::Cancelled));
    assert_eq!(lane.closed().await, Farewell::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_send_sends_nothing_and_costs_nothing() {
    let (outgoing, mut writer) = outgoing::queue();
    let lane = Lane::new(outgoing);
    lane.send(frame(STREAM_WINDOW)).await.expect("a fresh window");
    assert!(is_held_up(lane.send(frame(10))).await);
    lane.grant(STREAM_WINDOW as u32).expect("what was sent");
    lane.send(frame(20)).await.expect("credit again");
    assert_eq!(writer.queued_lengths(), [HEADER_LENGTH + STREAM_WINDOW, HEADER_LENGTH + 20]);
}

#[test]
fn too_much_credit_is_an_overrun() {
    let (outgoing, _writer) = outgoing::queue();
    assert_eq!(Lane::new(outgoing).grant(1), Err(Overrun));
}

#[test]
fn items_beyond_the_window_are_an_overrun() {
    let (feed, _intake) = intake();
    feed.push((), STREAM_WINDOW - 1).expect("a fresh window");
    feed.push((), 1_000).expect("the last one may go beyond");
    assert_eq!(feed.push((), 1), Err(Overrun));
}

proptest! {
    /// Whatever the sizes and however the two ends take turns: nothing is lost, nobody overruns, and the
    /// sender can always go on once the consumer has taken all.
    #[test]
    fn honest_peers_neither_overrun_nor_stop(
        steps in proptest::collection::vec((1usize..100_000, 0usize..4), 1..200)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let (mut sent, mut received) = (0, 0);
            let (outgoing, mut writer) = outgoing::queue();
            let lane = Lane::new(outgoing);
            let (feed, mut intake) = intake();
            for (size, takes) in steps {
                if lane.has_credit() {
                    lane.send(frame(size)).await.expect("open");
                    sent += 1;
                    for length in writer.queued_lengths() {
                        feed.push((), length - HEADER_LENGTH).expect("an honest sender");
                    }
                }
                let takes = if lane.has_credit() { takes } else { sent - received };
                for _ in 0..takes.min(sent - received) {
                    intake.take().await.expect("it was sent");
                    received += 1;
                    if let Some(bytes) = intake.owed() {
                        intake.settle();
                        lane.grant(bytes).expect("an honest receiver");
                    }
                }
                invariant_the_balance_is_never_above_the_window(&lane);
                invariant_the_receiver_holds_at_most_the_window_and_one_frame(&intake, 100_000);
                assert!(received < sent || lane.has_credit(), "all taken and still no credit");
            }
        });
    }
}

impl Lane {
    fn has_credit(&self) -> bool {
        matches!(*self.state.borrow(), LaneState::Open { balance } if balance > 0)
    }
}
