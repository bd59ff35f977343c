//! Pulls that share: each blob is fetched once, each layer unpacked once, and nobody fails for another's reasons.
//!
//! One program of its own, and one test after another in it: layers that are unpacked are counted for the whole process.

mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_actors::image::Pull;
use mainstay_image_pull::Settings;
use mainstay_messages::error::PullFault;
use mainstay_messages::image::{PullActivity, PullProgress};
use mainstay_oci_image::Descriptor;

use world::content::Content;
use world::stub::{Ending, Reply, Request, Stub};
use world::{World, failure, finish, image, layer, news, unpacked, until};

/// `user:secret` and `other:secret`, as basic authentication has it.
const USER: &str = "Basic dXNlcjpzZWNyZXQ=";
const OTHER: &str = "Basic b3RoZXI6c2VjcmV0";

/// One at a time.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// What is wrong with who asks, if anything is.
fn refusal(request: &Request) -> Option<Reply> {
    match request.header("authorization") {
        Some(USER | OTHER) => None,
        _ => Some(denied()),
    }
}

fn denied() -> Reply {
    Reply::new(401, "").header("www-authenticate", "Basic realm=\"test\"")
}

/// Requests for the bytes of a blob by somebody who may have them.
fn fetches(stub: &Stub, blob: &Descriptor) -> Vec<Request> {
    let wanted =
        |request: &Request| request.method == "GET" && request.path.ends_with(&blob.digest.to_string());
    stub.seen().into_iter().filter(|request| wanted(request) && refusal(request).is_none()).collect()
}

fn bytes_of(progress: &PullProgress, blob: &Descriptor) -> u64 {
    match progress {
        PullProgress::Part { part, bytes, .. } if *part == blob.digest.to_string() => *bytes,
        _ => 0,
    }
}

/// containerd#4937, case 51: twenty pulls of one tag, five tags with the same base, two callers who may not; the first
/// caller leaves when half of the base is here.
#[actix::test]
async fn twenty_pulls_of_one_tag_and_five_tags_with_its_base() {
    let _turn = TURN.lock().await;
    let mut content = Content::default();
    let base = content.blob(layer("base", 400_000, 1));
    let mut tops = Vec::new();
    image(&mut content, "one", &[&base]);
    for number in 0..5 {
        let top = content.blob(layer(&format!("top-{number}"), 10_000, 10 + number));
        image(&mut content, &format!("tag-{number}"), &[&base, &top]);
        tops.push(top);
    }
    let (served, slow) = (content.clone(), base.digest.to_string());
    let stub = Stub::start(move |request| {
        refusal(request).unwrap_or_else(|| {
            let reply = served.serve(request);
            let trickles = request.path.ends_with(&slow);
            if trickles { reply.ending(Ending::Trickle(20_000, Duration::from_millis(30))) } else { reply }
        })
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::at(dir.path());
    let before = unpacked();

    let mut first = world.pull_as(&stub.name("x:one"), "user");
    let mut others: Vec<Pull> = (0..19).map(|_| world.pull_as(&stub.name("x:one"), "user")).collect();
    others.extend((0..5).map(|number| world.pull_as(&stub.name(&format!("x:tag-{number}")), "other")));
    let mut strangers = [world.pull_as(&stub.name("x:one"), "nobody"), world.pull(&stub.name("x:tag-1"))];
    let half = async {
        while let Some(progress) = first.progress().await {
            if bytes_of(&progress, &base) >= base.size / 2 {
                return;
            }
        }
        panic!("it ended before half of it was here");
    };
    finish("half of the base is here", half).await;
    drop(first);
    for stranger in &mut strangers {
        assert_eq!(failure(stranger).await.0, PullFault::Denied);
        let heard = news(stranger).await;
        assert!(heard.iter().all(|progress| bytes_of(progress, &base) == 0), "{heard:?}");
    }
    for other in &mut others {
        finish("the others get it", other.image()).await.expect("the image");
    }
    for blob in tops.iter().chain([&base]) {
        assert_eq!(fetches(&stub, blob).len(), 1, "{}", blob.digest);
    }
    assert_eq!(unpacked() - before, 6, "the base and five tops");
    assert_eq!(world.listed().len(), 6);
    assert_eq!(world.core.counters.pulls_started.get(), 6);
}

/// The credentials of the one who fetches a shared layer are taken back in the middle. Whoever waits for the same layer
/// goes on from there with its own.
#[actix::test]
async fn who_waits_for_a_blob_goes_on_where_the_other_had_to_stop() {
    let _turn = TURN.lock().await;
    let mut content = Content::default();
    let base = content.blob(layer("base", 300_000, 2));
    let top = content.blob(layer("top", 1_000, 3));
    image(&mut content, "one", &[&base]);
    image(&mut content, "two", &[&base, &top]);
    let revoked = Arc::new(AtomicBool::new(false));
    let (served, shared, taken) = (content.clone(), base.digest.to_string(), Arc::clone(&revoked));
    let stub = Stub::start(move |request| {
        let is_users = request.header("authorization") == Some(USER);
        if let Some(refusal) = refusal(request).or((is_users && taken.load(Ordering::SeqCst)).then(denied)) {
            return refusal;
        }
        let reply = served.serve(request);
        let shared = request.path.ends_with(&shared);
        if shared && is_users { reply.ending(Ending::Stall(100_000)) } else { reply }
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::with_silence(dir.path(), Duration::from_secs(4));
    let mut one = world.pull_as(&stub.name("x:one"), "user");
    until("it is fetched", || !fetches(&stub, &base).is_empty()).await;
    let mut two = world.pull_as(&stub.name("x:two"), "other");
    until("the second one is under way", || !fetches(&stub, &top).is_empty()).await;
    revoked.store(true, Ordering::SeqCst);
    assert_eq!(failure(&mut one).await.0, PullFault::Denied);
    finish("the other goes on", two.image()).await.expect("the image");
    let ranges: Vec<Option<String>> =
        fetches(&stub, &base).iter().map(|request| request.header("range").map(str::to_owned)).collect();
    assert_eq!(ranges.first(), Some(&None));
    assert_eq!(ranges.last(), Some(&Some("bytes=100000-".to_owned())), "{ranges:?}");
}

/// The last who wants an image leaves: its connections are closed, and what came is kept for the next one.
#[actix::test]
async fn a_cancelled_pull_closes_its_connections_and_keeps_what_came() {
    let _turn = TURN.lock().await;
    let mut content = Content::default();
    let base = content.blob(layer("base", 300_000, 4));
    image(&mut content, "one", &[&base]);
    let (served, slow) = (content.clone(), base.digest.to_string());
    let stub = Stub::start(move |request| {
        let reply = served.serve(request);
        let stalls = request.path.ends_with(&slow) && request.nth == 0;
        if stalls { reply.ending(Ending::Stall(200_000)) } else { reply }
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::at(dir.path());
    let mut only = world.pull(&stub.name("x:one"));
    let half = async {
        while let Some(progress) = only.progress().await {
            if bytes_of(&progress, &base) == 200_000 {
                return;
            }
        }
        panic!("it ended");
    };
    finish("most of it is here", half).await;
    drop(only);
    until("the connections are closed", || stub.open() == 0).await;
    until("it is counted", || world.core.counters.pulls_cancelled.get() == 1).await;
    assert_eq!(world.listed(), Vec::<String>::new());
    let mut again = world.pull(&stub.name("x:one"));
    finish("it is pulled", again.image()).await.expect("the image");
    let last = stub.seen().into_iter().rfind(|request| request.path.ends_with(&base.digest.to_string()));
    assert_eq!(last.expect("a request").header("range"), Some("bytes=200000-"));
}

/// A caller who comes when half is here hears so, and of every part that it is here in the end.
#[actix::test]
async fn everyone_hears_of_every_part() {
    let _turn = TURN.lock().await;
    let mut content = Content::default();
    let base = content.blob(layer("base", 100_000, 5));
    let top = content.blob(layer("top", 1_000, 6));
    image(&mut content, "one", &[&base, &top]);
    let served = Mutex::new(content);
    let stub = Stub::start(move |request| served.lock().expect("not poisoned").serve(request)).await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::at(dir.path());
    let mut pull = world.pull(&stub.name("x:one"));
    let heard = finish("it is pulled", news(&mut pull)).await;
    assert!(
        heard
            .iter()
            .any(|progress| matches!(progress, PullProgress::Resolved { layers, .. } if layers.len() == 2))
    );
    for blob in [&base, &top] {
        let done = PullProgress::Part {
            part: blob.digest.to_string(),
            activity: PullActivity::Done,
            bytes: blob.size,
            of: Some(blob.size),
        };
        assert!(heard.contains(&done), "{heard:?}");
    }
    // It is here now: nothing is fetched again but what the name means.
    let asked = stub.count("GET", "/");
    let mut again = world.pull(&stub.name("x:one"));
    finish("it is here", again.image()).await.expect("the image");
    assert_eq!(stub.count("GET", "/"), asked);
}

/// With one slot of each kind layers and pulls must not wait for one another in a ring. Every transfer breaks off once.
#[actix::test]
async fn one_slot_is_enough_for_many_layers_and_many_pulls() {
    let _turn = TURN.lock().await;
    let mut content = Content::default();
    let layers: Vec<Descriptor> =
        (0..24).map(|number| content.blob(layer(&format!("file-{number}"), 5_000, 100 + number))).collect();
    // The same layers, more and fewer of them, and in another order: shared chains, and shared blobs in other chains.
    let whole: Vec<&Descriptor> = layers.iter().collect();
    let turned: Vec<&Descriptor> = layers.iter().rev().collect();
    image(&mut content, "whole", &whole);
    image(&mut content, "half", &whole[..12]);
    image(&mut content, "turned", &turned);
    let stub = Stub::start(move |request| {
        let reply = content.serve(request);
        let breaks = request.path.contains("/blobs/") && request.nth == 0;
        if breaks { reply.ending(Ending::Cut(3_000)) } else { reply }
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Settings { downloads_max: 1, unpacks_max: 1, progress_timeout: Duration::from_secs(60) };
    let world = World::with(dir.path(), engine);
    let before = unpacked();
    let mut pulls = ["x:whole", "x:half", "x:turned"].map(|tag| world.pull(&stub.name(tag)));
    for pull in &mut pulls {
        finish("it is pulled", pull.image()).await.expect("the image");
    }
    assert_eq!(unpacked() - before, 48, "two chains of 24 layers");
    for blob in &layers {
        let asked =
            stub.seen().into_iter().filter(|request| request.path.ends_with(&blob.digest.to_string()));
        let ranges: Vec<_> = asked.map(|request| request.header("range").map(str::to_owned)).collect();
        assert_eq!(ranges, [None, Some("bytes=3000-".to_owned())]);
    }
}
