//! Subscribers at all speeds.

use mainstay_messages::Timestamp;
use mainstay_messages::event::{Subject, What};
use mainstay_messages::journal::Commit;

use super::*;
use crate::fakes::MemoryStore;

fn facts(count: usize) -> Vec<Fact> {
    let subject = Subject { sandbox: None, container: None, exec: None };
    vec![Fact { at: Timestamp(1), subject, what: What::ExitParked }; count]
}

async fn write(log: &EventLog, store: &MemoryStore, count: usize) {
    let turn = log.begin();
    let commit = Commit { changes: Vec::new(), facts: facts(count) };
    let committed = store.commit(commit).await.expect("it is written");
    log.end(turn, Some((committed.last, facts(count))));
}

async fn seq(subscription: &mut Subscription) -> u64 {
    match subscription.next().await.expect("the store answers") {
        Item::Event(event) => event.seq.0,
        Item::Lagged { from, to } => panic!("lagged from {from} to {to}"),
    }
}

fn world() -> (EventLog, MemoryStore) {
    let store = MemoryStore::default();
    (EventLog::new(Arc::new(store.clone()), Seq(0)), store)
}

#[tokio::test]
async fn a_subscriber_sees_the_past_and_what_comes() {
    let (log, store) = world();
    write(&log, &store, 3).await;
    let mut subscription = log.subscribe(Seq(1));
    assert_eq!((seq(&mut subscription).await, seq(&mut subscription).await), (2, 3));
    let more = async {
        tokio::task::yield_now().await;
        write(&log, &store, 1).await;
    };
    let (next, ()) = futures::join!(seq(&mut subscription), more);
    assert_eq!(next, 4);
    assert_eq!((log.last(), subscription.cursor()), (Seq(4), Seq(4)));
}

/// Behind the ring, a subscriber reads pages of the store, and misses nothing.
#[tokio::test]
async fn a_slow_subscriber_misses_nothing_that_is_kept() {
    let (log, store) = world();
    let mut subscription = log.subscribe(Seq(0));
    for _ in 0..RING_EVENTS / 10 + 100 {
        write(&log, &store, 10).await;
    }
    let total = log.last().0;
    assert!(total > RING_EVENTS as u64);
    for expected in 1..=total {
        assert_eq!(seq(&mut subscription).await, expected);
    }
}

/// cri-containerd: a subscriber with a full channel held up every operation. Here it is told what it missed.
#[tokio::test]
async fn a_subscriber_that_is_too_slow_is_told_what_it_missed() {
    let (log, store) = world();
    let mut subscription = log.subscribe(Seq(0));
    for _ in 0..RING_EVENTS / 10 + 100 {
        write(&log, &store, 10).await;
    }
    store.trim(Seq(500));
    let item = subscription.next().await.expect("the store answers");
    assert_eq!(item, Item::Lagged { from: Seq(1), to: Seq(500) });
    assert_eq!(seq(&mut subscription).await, 501);
}

#[tokio::test]
async fn waiting_for_an_event_can_be_given_up_without_loss() {
    let (log, store) = world();
    let mut subscription = log.subscribe(Seq(0));
    for expected in 1..5 {
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(1), subscription.next()).await;
        assert!(given_up.is_err());
        write(&log, &store, 1).await;
        assert_eq!(seq(&mut subscription).await, expected);
    }
}

/// An event that the journal never heard of (its commit was given up, and was written all the same) does not
/// stop the log.
#[tokio::test]
async fn an_event_that_was_not_reported_is_found_in_the_store() {
    let (log, store) = world();
    let mut subscription = log.subscribe(Seq(0));
    let turn = log.begin();
    let commit = Commit { changes: Vec::new(), facts: facts(2) };
    store.commit(commit).await.expect("it is written");
    log.end(turn, None);
    write(&log, &store, 1).await;
    for expected in 1..=3 {
        assert_eq!(seq(&mut subscription).await, expected);
    }
}

#[tokio::test]
async fn how_far_the_slowest_is_behind_is_known_without_asking_it() {
    let (log, store) = world();
    let mut quick = log.subscribe(Seq(0));
    let slow = log.subscribe(Seq(0));
    write(&log, &store, 3).await;
    for _ in 0..3 {
        seq(&mut quick).await;
    }
    assert_eq!(log.readers(), Readers { subscribers: 2, lag: 3, missed: 0 });
    drop(slow);
    assert_eq!(log.readers(), Readers { subscribers: 1, lag: 0, missed: 0 });
}
