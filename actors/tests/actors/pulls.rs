//! Pulls of images, on a pretended registry (P8).

use std::time::Duration;

use mainstay_actors::fakes::{Act, FakeImages};
use mainstay_actors::image::{CANCEL_MAX_MS, PULLS_MAX, Patience, Pull, Pulls};
use mainstay_messages::Error;
use mainstay_messages::error::PullFault;
use mainstay_messages::event::What;
use mainstay_messages::image::PullActivity::{Done, Fetching, Unpacking, Waiting};
use mainstay_messages::image::{Credentials, ImageId, PullActivity, PullProgress, PullSpec};
use rstest::rstest;
use tokio::time::Instant;

use crate::world::{Test, pass};

const TIMEOUT_MS: u64 = 5_000;

/// Actors, a registry and what is pulled from it.
struct Rig {
    test: Test,
    images: FakeImages,
    pulls: Pulls,
}

impl Rig {
    fn new() -> Self {
        let (test, images) = (Test::new(), FakeImages::default());
        images.offer("r/x:1", "sha256:d");
        images.offer("r/x:2", "sha256:d");
        let patience = Patience { silence_ms: TIMEOUT_MS, floor: None };
        let pulls = test.core.start_pulls(std::sync::Arc::new(images.clone()), patience);
        Self { test, images, pulls }
    }

    fn pull(&self, name: &str) -> Pull {
        self.pulls.pull(PullSpec::new(name.parse().expect("a name")))
    }

    fn pull_as(&self, name: &str, user: &str) -> Pull {
        let credentials = Credentials::Password { user: user.into(), password: "secret".into() };
        let spec = PullSpec::new(name.parse().expect("a name"));
        self.pulls.pull(PullSpec { credentials: Some(credentials), ..spec })
    }

    async fn until_fetching(&self, count: usize) {
        self.test.until("it is fetched", |_| self.images.tally().fetched.len() == count).await;
    }
}

fn part(part: &str, activity: PullActivity, bytes: u64) -> PullProgress {
    PullProgress::Part { part: part.into(), activity, bytes, of: Some(100) }
}

fn id() -> ImageId {
    ImageId("sha256:d".into())
}

async fn fault(pull: &mut Pull) -> (PullFault, String) {
    match pull.image().await {
        Err(Error::PullFailed { fault, reason, .. }) => (fault, reason),
        other => panic!("{other:?}"),
    }
}

async fn news(pull: &mut Pull) -> Vec<PullProgress> {
    let mut all = Vec::new();
    while let Some(progress) = pull.progress().await {
        all.push(progress);
    }
    all
}

/// containerd#4937: ten pods with the same image made ten downloads. The first caller leaves in the middle.
#[actix::test]
async fn many_callers_share_one_fetch_and_the_first_may_leave() {
    let rig = Rig::new();
    rig.images.next_fetch([Act::Wait(1_000), Act::Tell(part("a", Fetching, 50)), Act::Wait(1_000)]);
    let first = rig.pull("r/x:1");
    let mut others: Vec<Pull> = (0..19).map(|_| rig.pull("r/x:1")).collect();
    pass(1_500).await;
    drop(first);
    for other in &mut others {
        assert_eq!(other.image().await, Ok(id()));
    }
    let tally = rig.images.tally();
    assert_eq!((tally.asked, tally.fetched.len(), tally.dropped), (20, 1, 0));
    let counters = &rig.test.core.counters;
    assert_eq!((counters.pulls_started.get(), counters.pulls_joined.get()), (1, 19));
    let pulled = |what: &What| matches!(what, What::ImagePulled { image, digest, .. } if image == "r/x:1" && digest == "sha256:d");
    assert_eq!(rig.test.count(pulled), 1);
}

#[actix::test]
async fn whoever_comes_late_hears_where_everything_stands() {
    let rig = Rig::new();
    let story =
        [part("a", Waiting, 0), part("a", Fetching, 10), part("b", Fetching, 20), part("a", Done, 100)];
    rig.images.next_fetch(story.iter().cloned().map(Act::Tell).chain([Act::Wait(2_000)]));
    let mut early = rig.pull("r/x:1");
    let early = actix::spawn(async move { news(&mut early).await });
    pass(1_000).await;
    let mut late = rig.pull("r/x:1");
    assert_eq!(news(&mut late).await, story[2..]);
    let early = early.await.expect("no panic");
    assert_eq!(early.last(), story.last());
}

/// A reader that sleeps must hold up neither the pull nor the other readers, and costs no memory.
#[actix::test]
async fn a_slow_reader_holds_up_nobody() {
    let rig = Rig::new();
    rig.images.next_fetch((0..10_000).map(|bytes| Act::Tell(part("a", Fetching, bytes))));
    let mut slow = rig.pull("r/x:1");
    assert_eq!(slow.image().await, Ok(id()));
    assert_eq!(news(&mut slow).await, [part("a", Fetching, 9_999)]);
}

/// containerd#4937: a caller must not get an image that its own credentials could not fetch, because another one may.
#[actix::test]
async fn wrong_credentials_get_their_own_error_while_the_pull_goes_on() {
    let rig = Rig::new();
    rig.images.deny("stranger");
    rig.images.next_fetch([Act::Wait(2_000)]);
    let mut friend = rig.pull_as("r/x:1", "friend");
    rig.until_fetching(1).await;
    let mut strangers = [rig.pull_as("r/x:1", "stranger"), rig.pull_as("r/x:2", "stranger")];
    for stranger in &mut strangers {
        assert_eq!(fault(stranger).await.0, PullFault::Denied);
        assert_eq!(news(stranger).await, []);
    }
    assert_eq!(friend.image().await, Ok(id()));
}

/// A token that is taken back in the middle fails its own caller; the other one goes on with its own.
#[actix::test]
async fn credentials_that_fail_in_the_middle_fail_no_other_caller() {
    let rig = Rig::new();
    let denied = Error::pull("r/x:1", PullFault::Denied, "r.example answered 401");
    rig.images.next_fetch([Act::Wait(1_000), Act::Fail(denied)]);
    let (mut one, mut other) = (rig.pull_as("r/x:1", "one"), rig.pull_as("r/x:1", "other"));
    assert_eq!(fault(&mut one).await.0, PullFault::Denied);
    assert_eq!(other.image().await, Ok(id()));
    let users: Vec<_> =
        rig.images.tally().fetched.into_iter().map(|(_, user)| user.expect("a user")).collect();
    assert_eq!(users, ["one", "other"]);
}

#[actix::test]
async fn every_caller_has_its_own_name_recorded() {
    let rig = Rig::new();
    rig.images.next_fetch([Act::Wait(1_000)]);
    let (mut one, mut two) = (rig.pull("r/x:1"), rig.pull("r/x:2"));
    assert_eq!((one.image().await, two.image().await), (Ok(id()), Ok(id())));
    assert_eq!(rig.images.tally().names.into_iter().collect::<Vec<_>>(), ["r/x:1", "r/x:2"]);
    assert_eq!(rig.images.tally().fetched.len(), 1);
}

#[actix::test]
async fn the_last_who_leaves_cancels_the_pull() {
    let rig = Rig::new();
    rig.images.next_fetch([Act::Hang]);
    let callers = [rig.pull("r/x:1"), rig.pull("r/x:2")];
    rig.until_fetching(1).await;
    pass(10).await;
    let left = Instant::now();
    drop(callers);
    rig.test.until("it is dropped", |_| rig.images.tally().dropped == 1).await;
    assert!(left.elapsed() < Duration::from_millis(CANCEL_MAX_MS));
    rig.test.until("it is counted", |test| test.core.counters.pulls_cancelled.get() == 1).await;
    // Nothing stands in the way of the next one.
    assert_eq!(rig.pull("r/x:1").image().await, Ok(id()));
}

#[actix::test]
async fn whoever_leaves_before_the_registry_has_answered_ends_the_question() {
    let rig = Rig::new();
    rig.images.next_question([Act::Hang]);
    let caller = rig.pull("r/x:1");
    rig.test.until("it is asked", |_| rig.images.tally().asked == 1).await;
    drop(caller);
    rig.test.until("it is dropped", |_| rig.images.tally().dropped == 1).await;
    assert_eq!(rig.images.tally().fetched, []);
}

/// containerd#13909: events without a new byte for ten time-outs, and the pull lives.
#[actix::test]
async fn events_without_bytes_keep_a_pull_alive() {
    let rig = Rig::new();
    let event = || [Act::Wait(TIMEOUT_MS - 1), Act::Tell(part("a", Unpacking, 7))];
    rig.images.next_fetch((0..12).flat_map(|_| event()));
    assert_eq!(rig.pull("r/x:1").image().await, Ok(id()));
    assert_eq!(rig.test.core.counters.pulls_timed_out.get(), 0);
}

#[actix::test]
async fn silence_ends_a_pull_at_the_time_out_and_says_where() {
    let rig = Rig::new();
    rig.images.next_fetch([Act::Wait(1_000), Act::Tell(part("sha256:aa", Fetching, 40)), Act::Hang]);
    let began = Instant::now();
    let mut caller = rig.pull("r/x:1");
    let (fault, reason) = fault(&mut caller).await;
    assert_eq!(fault, PullFault::Stalled);
    assert!(began.elapsed() >= Duration::from_millis(1_000 + TIMEOUT_MS));
    assert!(began.elapsed() < Duration::from_millis(1_100 + TIMEOUT_MS));
    let expected =
        "nothing moved for 5000 ms; sha256:aa has 40 of 100 bytes; its last event was fetching, 500";
    assert!(reason.starts_with(expected), "{reason}");
    let counters = &rig.test.core.counters;
    assert_eq!((counters.pulls_timed_out.get(), counters.pulls_failed.get()), (1, 1));
    assert_eq!(rig.images.tally().dropped, 1);
    pass(10 * TIMEOUT_MS).await;
    assert_eq!(counters.pulls_timed_out.get(), 1);
    assert_eq!(rig.test.count(|what| matches!(what, What::ImagePullFailed { .. })), 1);
}

#[actix::test]
async fn a_silent_registry_is_given_up_before_anything_is_known_of_the_image() {
    let rig = Rig::new();
    rig.images.next_question([Act::Hang]);
    let (fault, reason) = fault(&mut rig.pull("r/x:1")).await;
    assert_eq!(fault, PullFault::Stalled);
    assert!(
        reason.starts_with("nothing moved for 5000 ms; its last event was its beginning, 500"),
        "{reason}"
    );
    assert_eq!(rig.test.core.counters.pulls_timed_out.get(), 1);
}

/// What ends, or moves, in the very moment of the deadline has not been silent for the whole time-out.
#[rstest]
#[case::done(vec![])]
#[case::moving(vec![Act::Tell(part("a", Fetching, 0)), Act::Wait(TIMEOUT_MS)])]
#[actix::test]
async fn what_comes_exactly_at_the_deadline_is_in_time(#[case] then: Vec<Act>) {
    let rig = Rig::new();
    // Often, so that it is not by luck.
    for _ in 0..30 {
        rig.images.next_fetch([Act::Wait(TIMEOUT_MS)].into_iter().chain(then.clone()));
        assert_eq!(rig.pull("r/x:1").image().await, Ok(id()));
    }
}

/// A fault of ours in the middle of a pull: everyone hears of it, and it is pulled by whoever asks again.
#[actix::test]
async fn a_panic_in_the_work_answers_everyone_and_leaves_nothing() {
    let rig = Rig::new();
    rig.images.next_fetch([Act::Wait(1_000), Act::Panic]);
    rig.images.next_question([Act::Panic]);
    assert!(matches!(rig.pull("r/x:1").image().await, Err(Error::Internal { .. })));
    let (mut one, mut two) = (rig.pull_as("r/x:1", "one"), rig.pull_as("r/x:2", "two"));
    for caller in [&mut one, &mut two] {
        assert!(matches!(caller.image().await, Err(Error::Internal { .. })));
    }
    assert_eq!(rig.pull("r/x:1").image().await, Ok(id()));
    assert_eq!(rig.images.tally().fetched.len(), 2);
}

#[actix::test]
async fn an_image_that_is_not_there_and_a_platform_that_cannot_be() {
    let rig = Rig::new();
    assert_eq!(fault(&mut rig.pull("r/y:1")).await.0, PullFault::NotFound);
    let spec = PullSpec::new("r/x:1".parse().expect("a name"));
    let answer = rig.pulls.pull(PullSpec { platform: Some("linux".into()), ..spec }).image().await;
    assert!(matches!(answer, Err(Error::InvalidArgument { field, .. }) if field == "platform"));
    assert_eq!(rig.images.tally().asked, 1, "what cannot be is not asked for");
}

#[actix::test]
async fn the_number_of_pulls_is_bounded_and_room_is_used_again() {
    let rig = Rig::new();
    let mut callers: Vec<Pull> = (0..PULLS_MAX)
        .map(|number| {
            let name = format!("r/many:{number}");
            rig.images.offer(&name, &format!("sha256:{number}"));
            rig.images.next_fetch([Act::Hang]);
            rig.pull(&name)
        })
        .collect();
    rig.until_fetching(PULLS_MAX).await;
    let refused = rig.pull("r/x:1").image().await;
    assert!(matches!(refused, Err(Error::ResourceExhausted { limit, .. }) if limit == PULLS_MAX as u64));
    drop(callers.pop());
    rig.test.until("there is room", |_| rig.images.tally().dropped == 1).await;
    assert_eq!(rig.pull("r/x:1").image().await, Ok(id()));
}
