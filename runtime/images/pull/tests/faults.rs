//! Registries that misbehave, seen through a whole pull: what a pull survives, and what is said when it does not.

mod world;

use std::time::Duration;

use mainstay_messages::error::PullFault;
use mainstay_messages::image::PullProgress;

use world::content::Content;
use world::stub::{Ending, Reply, Stub};
use world::{World, failure, finish, image, image_with, layer, news};

/// The silence that ends a pull in these tests.
const SILENCE: Duration = Duration::from_secs(4);

/// containerd#13909, case 52 (a): a trickle takes many time-outs, and is as healthy as it is slow.
#[actix::test]
async fn a_trickle_lives() {
    let mut content = Content::default();
    let base = content.blob(layer("base", 20_000, 1));
    image(&mut content, "one", &[&base]);
    let slow = base.digest.to_string();
    let stub = Stub::start(move |request| {
        let reply = content.serve(request);
        let trickles = request.path.ends_with(&slow);
        if trickles { reply.ending(Ending::Trickle(1_000, SILENCE / 8)) } else { reply }
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::with_silence(dir.path(), SILENCE);
    finish("it is pulled", world.pull(&stub.name("x:one")).image()).await.expect("the image");
    assert_eq!(world.core.counters.pulls_timed_out.get(), 0);
}

/// Case 52 (c): a transfer that stands still is tried again alone, from where it stood, and the pull goes on.
#[actix::test]
async fn a_transfer_that_stalls_is_retried_from_where_it_stood() {
    let mut content = Content::default();
    let base = content.blob(layer("base", 200_000, 2));
    image(&mut content, "one", &[&base]);
    let stalls = base.digest.to_string();
    let stub = Stub::start(move |request| {
        let reply = content.serve(request);
        let first = request.path.ends_with(&stalls) && request.nth == 0;
        if first { reply.ending(Ending::Stall(150_000)) } else { reply }
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::with_silence(dir.path(), SILENCE);
    let mut pull = world.pull(&stub.name("x:one"));
    let heard = finish("it is pulled", news(&mut pull)).await;
    pull.image().await.expect("the image");
    let digest = base.digest.to_string();
    let names_the_blob = |progress: &PullProgress| matches!(progress, PullProgress::Retry { part, reason, .. } if *part == digest && reason.contains("150000"));
    assert!(heard.iter().any(names_the_blob), "{heard:?}");
    let ranges: Vec<_> = stub.seen().into_iter().filter(|request| request.path.ends_with(&digest)).collect();
    assert_eq!(ranges.last().and_then(|request| request.header("range")), Some("bytes=150000-"));
}

/// Case 52 (c) again, and for good: the error says which blob, how much of it is here, and whom to ask.
#[actix::test]
async fn a_registry_that_stalls_for_good_is_named_with_the_blob_and_the_bytes() {
    let mut content = Content::default();
    let base = content.blob(layer("base", 200_000, 3));
    image(&mut content, "one", &[&base]);
    let stalls = base.digest.to_string();
    let stub = Stub::start(move |request| {
        let reply = content.serve(request);
        if request.path.ends_with(&stalls) { reply.ending(Ending::Stall(0)) } else { reply }
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::with_silence(dir.path(), SILENCE);
    let (fault, reason) = failure(&mut world.pull(&stub.name("x:one"))).await;
    assert_eq!(fault, PullFault::Registry);
    let expected = [stub.address.to_string(), base.digest.to_string(), format!("0 bytes of {}", base.size)];
    assert!(expected.iter().all(|part| reason.contains(part)), "{reason}");
    assert_eq!(world.listed(), Vec::<String>::new());
}

/// Case 54: bytes of the right length that are the wrong ones are kept nowhere, and the right ones are taken when they
/// come.
#[actix::test]
async fn wrong_bytes_are_never_kept() {
    let mut content = Content::default();
    let base = content.blob(layer("base", 50_000, 4));
    image(&mut content, "one", &[&base]);
    let (served, wrong, size) = (content.clone(), base.digest.to_string(), base.size as usize);
    let stub = Stub::start(move |request| {
        let lies = request.path.ends_with(&wrong);
        if lies { Reply::new(200, Content::bytes(size, 9)) } else { served.serve(request) }
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::at(dir.path());
    let (fault, reason) = failure(&mut world.pull(&stub.name("x:one"))).await;
    assert_eq!(fault, PullFault::Content, "{reason}");
    assert!(reason.contains(&stub.address.to_string()), "{reason}");
    assert_eq!(world.listed(), Vec::<String>::new());
    let honest = Stub::start(move |request| content.serve(request)).await;
    finish("it is pulled", world.pull(&honest.name("x:one")).image()).await.expect("the image");
}

/// Case 54: an image that lies about the content of a layer gets nothing, and does no harm to one that shares the layer.
#[actix::test]
async fn a_wrong_diff_id_is_refused_and_harms_no_other_image() {
    let mut content = Content::default();
    let base = content.blob(layer("base", 50_000, 5));
    image(&mut content, "honest", &[&base]);
    image_with(&mut content, "liar", &[&base], &[format!("sha256:{}", "0".repeat(64))]);
    image_with(&mut content, "short", &[&base], &[]);
    let stub = Stub::start(move |request| content.serve(request)).await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::at(dir.path());
    for tag in ["x:liar", "x:short"] {
        let (fault, reason) = failure(&mut world.pull(&stub.name(tag))).await;
        assert_eq!(fault, PullFault::Content, "{reason}");
    }
    assert_eq!(world.listed(), Vec::<String>::new());
    finish("it is pulled", world.pull(&stub.name("x:honest")).image()).await.expect("the image");
    assert_eq!(world.listed(), [stub.name("x:honest")]);
}

#[actix::test]
async fn what_is_not_there_is_named() {
    let stub = Stub::start(|request| Content::default().serve(request)).await;
    let dir = tempfile::tempdir().expect("a directory");
    let world = World::at(dir.path());
    let (fault, reason) = failure(&mut world.pull(&stub.name("x:gone"))).await;
    assert_eq!(fault, PullFault::NotFound);
    assert!(reason.contains("404") && reason.contains("/v2/x/manifests/gone"), "{reason}");
}
