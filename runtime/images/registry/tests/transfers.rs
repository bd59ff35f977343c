//! Transfers from a registry that fails in every way that registries do.
//!
//! The faults that these guard (cases 52 and 54): a short read, a reset, a 429 or a 5xx failed the pull or started it
//! anew from the first byte; a range that was answered by 200 was taken for the rest; a stalled transfer hung for ever;
//! a transfer that trickled was cancelled.

mod world;

use std::time::Duration;

use mainstay_images_testing::wait::until;
use mainstay_oci_image::{Algorithm, Descriptor, Digest, Step};
use mainstay_registry::liveness::Pace;
use mainstay_registry::{Problem, RegistryError, Settings};
use rstest::rstest;
use world::content::Content;
use world::stub::{Ending, Reply, Request, Stub};
use world::{Events, finish, open, settings};

const LENGTH: usize = 1_000_000;

/// A stub that serves one blob, with an answer changed by the test.
async fn stub(
    change: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
) -> (Stub, Descriptor, Vec<u8>) {
    let mut content = Content::default();
    let bytes = Content::bytes(LENGTH, 1);
    let descriptor = content.blob(bytes.clone());
    let stub = Stub::start(move |request| {
        let reply = content.serve(request);
        change(request, reply)
    })
    .await;
    (stub, descriptor, bytes)
}

async fn fetch(
    stub: &Stub,
    descriptor: &Descriptor,
    settings: Settings,
) -> (Result<(), RegistryError>, Vec<u8>, Events) {
    let (repository, events) = open(settings, &stub.name("a/b"), None).await;
    let mut sink = Vec::new();
    let result = finish("the transfer", repository.blob(descriptor, 0, &mut sink)).await;
    (result, sink, events)
}

fn ranges(stub: &Stub) -> Vec<Option<String>> {
    let gets = stub.seen().into_iter().filter(|request| request.path.contains("/blobs/"));
    gets.map(|request| request.header("range").map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_good_registry_is_asked_once() {
    let (stub, descriptor, bytes) = stub(|_, reply| reply).await;
    let (result, sink, events) = fetch(&stub, &descriptor, settings()).await;
    result.expect("a good transfer");
    assert!(sink == bytes);
    assert_eq!((stub.count("GET", "/blobs/"), events.retries()), (1, 0));
    assert_eq!(events.bytes(), LENGTH as u64);
    let steps = events.steps();
    assert!(steps.contains(&Step::Started { offset: 0, expected: Some(LENGTH as u64) }));
    assert_eq!(steps.last(), Some(&Step::Done));
}

#[rstest]
#[case::cut(Ending::Cut(150_000))]
#[case::reset(Ending::Reset(150_000))]
#[tokio::test]
async fn what_breaks_off_goes_on_where_it_was(#[case] ending: Ending) {
    let (stub, descriptor, bytes) = stub(move |_, reply| reply.ending(ending)).await;
    let (result, sink, events) = fetch(&stub, &descriptor, settings()).await;
    result.expect("seven pieces");
    assert!(sink == bytes);
    assert_eq!(events.bytes(), LENGTH as u64, "no byte twice");
    let ranges = ranges(&stub);
    assert!(
        ranges.len() >= 7 && ranges[0].is_none() && ranges[1..].iter().all(Option::is_some),
        "{ranges:?}"
    );
}

#[rstest]
#[case(500)]
#[case(502)]
#[case(503)]
#[case(429)]
#[case(408)]
#[tokio::test]
async fn what_may_pass_is_tried_again(#[case] status: u16) {
    let failing =
        move |request: &Request, reply| if request.nth < 2 { Reply::new(status, "") } else { reply };
    let (stub, descriptor, bytes) = stub(failing).await;
    let (result, sink, events) = fetch(&stub, &descriptor, settings()).await;
    result.expect("the third try");
    assert!(sink == bytes);
    assert_eq!((stub.count("GET", "/blobs/"), events.retries()), (3, 2));
}

#[tokio::test]
async fn tries_are_counted_and_the_error_says_who_and_what() {
    let body = r#"{"errors":[{"code":"UNAVAILABLE","message":"come back later"}]}"#;
    let (stub, descriptor, _) = stub(move |_, _| Reply::new(503, body)).await;
    let (result, _, _) = fetch(&stub, &descriptor, settings()).await;
    let error = result.expect_err("it never serves");
    let expected = format!(
        "GET /v2/a/b/blobs/{} of {}: 503: UNAVAILABLE: come back later",
        descriptor.digest, stub.address
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(stub.count("GET", "/blobs/"), 3);
}

#[tokio::test]
async fn a_pause_that_is_asked_for_is_made() {
    let busy = |request: &Request, reply| match request.nth {
        0 => Reply::new(429, "").header("retry-after", 1),
        _ => reply,
    };
    let (stub, descriptor, _) = stub(busy).await;
    let (result, _, events) = fetch(&stub, &descriptor, settings()).await;
    result.expect("the second try");
    let pauses = events.count(
        |step| matches!(step, Step::Retrying { after, attempt: 1, .. } if *after >= Duration::from_secs(1)),
    );
    assert_eq!(pauses, 1);
}

#[tokio::test]
async fn a_pause_that_is_too_long_is_an_error_that_says_how_long() {
    let (stub, descriptor, _) = stub(|_, _| Reply::new(429, "").header("retry-after", 3600)).await;
    let (result, _, events) = fetch(&stub, &descriptor, settings()).await;
    let error = result.expect_err("an hour");
    let hour = Some(Duration::from_secs(3600));
    assert!(matches!(&*error.problem, Problem::TooManyRequests { retry_after, .. } if *retry_after == hour));
    assert!(error.to_string().contains("to be tried again in 3600 s"), "{error}");
    assert_eq!(events.retries(), 0);
}

/// Case 54: a range that is answered by 200, by 416 or by another range.
#[rstest]
#[case::with_200(|bytes: &[u8]| Reply::new(200, bytes))]
#[case::with_416(|_: &[u8]| Reply::new(416, ""))]
#[case::with_another_range(|bytes: &[u8]| {
    let range = format!("bytes 0-{}/{}", bytes.len() - 1, bytes.len());
    Reply::new(206, bytes).header("content-range", range)
})]
#[case::without_its_range(|bytes: &[u8]| Reply::new(206, &bytes[10..]))]
#[tokio::test]
async fn a_range_that_is_not_answered_as_such_is_read_from_the_start(#[case] answer: fn(&[u8]) -> Reply) {
    let whole = Content::bytes(LENGTH, 1);
    let change = move |request: &Request, reply: Reply| match (request.nth, request.header("range")) {
        (0, _) => reply.ending(Ending::Cut(300_000)),
        (_, Some(_)) => answer(&whole),
        _ => reply,
    };
    let (stub, descriptor, bytes) = stub(change).await;
    let (result, sink, events) = fetch(&stub, &descriptor, settings()).await;
    result.expect("read from the start");
    assert!(sink == bytes);
    assert_eq!(events.bytes(), LENGTH as u64);
    let skipped = |step: &Step| if let Step::Skipped { bytes } = step { *bytes } else { 0 };
    assert_eq!(events.steps().iter().map(skipped).sum::<u64>(), 300_000);
}

#[rstest]
#[case::longer(LENGTH + 1)]
#[case::shorter(LENGTH - 1)]
#[tokio::test]
async fn another_length_than_the_manifests_is_not_taken(#[case] length: usize) {
    let wrong = move |_: &Request, _| Reply::new(200, vec![0; length]);
    let (stub, descriptor, _) = stub(wrong).await;
    let (result, sink, _) = fetch(&stub, &descriptor, settings()).await;
    let error = result.expect_err("another length");
    let (expected, got) = (LENGTH as u64, length as u64);
    assert!(
        matches!(*error.problem, Problem::WrongSize { expected: e, got: g } if (e, g) == (expected, got)),
        "{error}"
    );
    assert!(sink.is_empty());
}

/// A length that is announced and not kept is a connection that breaks off; one that is not announced is bounded by the
/// manifest.
#[tokio::test]
async fn a_body_without_end_is_cut_at_the_size() {
    let endless = |_: &Request, _| {
        let piece = vec![0; LENGTH];
        let mut body = format!("{LENGTH:x}\r\n").into_bytes();
        body.extend_from_slice(&piece);
        body.extend_from_slice(b"\r\n1\r\nx\r\n0\r\n\r\n");
        Reply::new(200, body).header("transfer-encoding", "chunked")
    };
    let (stub, descriptor, _) = stub(endless).await;
    let (result, sink, _) = fetch(&stub, &descriptor, settings()).await;
    let error = result.expect_err("one byte too many");
    assert!(sink.len() <= LENGTH, "never more than the size");
    assert!(matches!(*error.problem, Problem::WrongSize { .. } | Problem::WrongDigest { .. }), "{error}");
}

#[tokio::test]
async fn wrong_bytes_are_taken_back_and_not_asked_for_again() {
    let wrong = |_: &Request, _| Reply::new(200, Content::bytes(LENGTH, 2));
    let (stub, descriptor, _) = stub(wrong).await;
    let (result, sink, _) = fetch(&stub, &descriptor, settings()).await;
    let error = result.expect_err("wrong bytes");
    assert!(
        matches!(&*error.problem, Problem::WrongDigest { expected, .. } if *expected == descriptor.digest)
    );
    assert!(sink.is_empty());
    assert_eq!(stub.count("GET", "/blobs/"), 1);
}

#[tokio::test]
async fn what_is_there_already_is_not_fetched() {
    let (stub, descriptor, bytes) = stub(|_, reply| reply).await;
    let (repository, events) = open(settings(), &stub.name("a"), None).await;
    let mut sink = bytes[..400_000].to_vec();
    let there = sink.len() as u64;
    finish("the rest", repository.blob(&descriptor, there, &mut sink)).await.expect("the rest");
    assert!(sink == bytes);
    assert_eq!(events.bytes(), 600_000);
    assert_eq!(ranges(&stub), [Some("bytes=400000-".to_owned())]);
    let there = sink.len() as u64;
    finish("nothing", repository.blob(&descriptor, there, &mut sink)).await.expect("all is there");
    assert_eq!(stub.count("GET", "/blobs/"), 1, "all of it needs nobody");
}

#[rstest]
#[case::a_part(400_000)]
#[case::all(LENGTH)]
#[case::more(LENGTH + 5)]
#[tokio::test]
async fn what_was_wrong_before_is_fetched_anew(#[case] length: usize) {
    let (stub, descriptor, bytes) = stub(|_, reply| reply).await;
    let (repository, _) = open(settings(), &stub.name("a"), None).await;
    let mut sink = Content::bytes(length, 3);
    let there = sink.len() as u64;
    finish("all of it", repository.blob(&descriptor, there, &mut sink)).await.expect("all of it");
    assert!(sink == bytes);
}

fn hasty(stall_ms: u64) -> Settings {
    let pace = Pace { stall_timeout: Duration::from_millis(stall_ms), floor_bytes_per_s: 0 };
    Settings { pace, ..settings() }
}

#[tokio::test]
async fn a_transfer_that_stalls_is_tried_again_from_where_it_stood() {
    let stall = |request: &Request, reply: Reply| match request.nth {
        0 => reply.ending(Ending::Stall(250_000)),
        _ => reply,
    };
    let (stub, descriptor, bytes) = stub(stall).await;
    let (result, sink, events) = fetch(&stub, &descriptor, hasty(300)).await;
    result.expect("the second try");
    assert!(sink == bytes);
    assert_eq!((events.bytes(), events.retries()), (LENGTH as u64, 1));
}

#[tokio::test]
async fn a_transfer_that_always_stalls_ends_and_says_where() {
    let stall = |request: &Request, reply: Reply| match request.nth {
        0 => reply.ending(Ending::Stall(250_000)),
        _ => reply.ending(Ending::Stall(0)),
    };
    let (stub, descriptor, _) = stub(stall).await;
    let (result, sink, _) = fetch(&stub, &descriptor, hasty(300)).await;
    let error = result.expect_err("it always stalls");
    assert!(
        error.to_string().contains("stalled at 250000 bytes of 1000000: nothing came for 300 ms"),
        "{error}"
    );
    assert_eq!(sink.len(), 250_000, "what came is kept");
}

/// Case 52 (a): slow is not dead.
#[tokio::test]
async fn a_trickle_lives_as_long_as_it_moves() {
    let trickle =
        |_: &Request, reply: Reply| reply.ending(Ending::Trickle(50_000, Duration::from_millis(100)));
    let (stub, descriptor, bytes) = stub(trickle).await;
    // Twenty pieces a tenth of a second apart, each in time, all of them together not.
    let (result, sink, events) = fetch(&stub, &descriptor, hasty(1500)).await;
    result.expect("it moves");
    assert!(sink == bytes);
    assert_eq!(events.retries(), 0);
}

#[tokio::test]
async fn an_answer_that_never_comes_is_given_up() {
    let silent = |_: &Request, _| Reply::new(200, "").header("content-length", 5).ending(Ending::Stall(0));
    let (stub, descriptor, _) = stub(silent).await;
    let settings = Settings { response_timeout: Duration::from_millis(100), ..settings() };
    let (result, ..) = fetch(&stub, &descriptor, settings).await;
    assert!(matches!(*result.expect_err("another length").problem, Problem::WrongSize { .. }));
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let name = format!("{}/a", mute.local_addr().expect("bound"));
    let timeouts = Settings {
        connect_timeout: Duration::from_millis(100),
        response_timeout: Duration::from_millis(100),
        ..world::settings()
    };
    let (repository, _) = open(timeouts, &name, None).await;
    let result = finish("an answer", repository.blob(&descriptor, 0, &mut Vec::new())).await;
    let error = result.expect_err("nobody answers");
    assert!(matches!(*error.problem, Problem::TimedOut { .. }), "{error}");
}

/// A call that is dropped closes its connection, and the next one finds room.
#[tokio::test]
async fn a_transfer_that_is_dropped_closes_its_connection() {
    let (stub, descriptor, _) = stub(|_, reply| reply.ending(Ending::Stall(100_000))).await;
    let (repository, events) = open(Settings { downloads_max: 1, ..settings() }, &stub.name("a"), None).await;
    let mut sink = Vec::new();
    {
        let transfer = repository.blob(&descriptor, 0, &mut sink);
        let half = until("the first bytes", || events.bytes() == 100_000);
        tokio::select! {
            result = transfer => panic!("it stalls: {result:?}"),
            () = half => {}
        }
        assert_eq!(stub.open(), 1);
    }
    until("the connection is closed", || stub.open() == 0).await;
    assert_eq!(sink.len(), 100_000);
}

/// So does one that waits for the head of an answer, or for a handshake, which is where a registry hangs that is
/// overloaded.
#[tokio::test]
async fn a_request_that_is_dropped_closes_its_connection() {
    use tokio::io::AsyncReadExt;
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = mute.local_addr().expect("bound").to_string();
    let tls = settings();
    let plain = Settings { plain_http: vec![address.clone()], ..settings() };
    for settings in [tls, plain] {
        let (repository, _) = open(settings, &format!("{address}/a"), None).await;
        let accepted = tokio::select! {
            result = repository.resolve() => panic!("nobody answers: {result:?}"),
            accepted = finish("a connection", mute.accept()) => accepted,
        };
        // The call is dropped, and the repository is not.
        let (mut connection, _) = accepted.expect("accepted");
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = finish("the end of the connection", connection.read_to_end(&mut rest)).await;
        drop(repository);
    }
}

#[tokio::test]
async fn idle_connections_end_with_the_pull() {
    let (stub, descriptor, _) = stub(|_, reply| reply).await;
    let (repository, _) = open(settings(), &stub.name("a"), None).await;
    finish("the transfer", repository.small_blob(&descriptor)).await.expect("a good transfer");
    until("the connection is kept for the next request", || stub.open() == 1).await;
    drop(repository);
    until("the connection is closed", || stub.open() == 0).await;
}

#[tokio::test]
async fn who_finds_no_room_says_so_and_waits() {
    let slow = |_: &Request, reply: Reply| reply.ending(Ending::Trickle(250_000, Duration::from_millis(20)));
    let (stub, descriptor, _) = stub(slow).await;
    let (repository, events) = open(Settings { downloads_max: 1, ..settings() }, &stub.name("a"), None).await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let both = async {
        tokio::join!(repository.blob(&descriptor, 0, &mut one), repository.blob(&descriptor, 0, &mut two))
    };
    let (first, second) = finish("both", both).await;
    first.and(second).expect("both");
    assert_eq!(events.count(|step| *step == Step::Waiting), 1);
}

struct Full;

impl mainstay_registry::Sink for Full {
    async fn write(&mut self, _: bytes::Bytes) -> std::io::Result<()> {
        Err(std::io::Error::from_raw_os_error(28))
    }

    async fn restart(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    async fn digest(&mut self, _: Algorithm) -> std::io::Result<Digest> {
        unreachable!("it never has everything");
    }
}

#[tokio::test]
async fn a_sink_that_fails_ends_it_at_once() {
    let (stub, descriptor, _) = stub(|_, reply| reply).await;
    let (repository, _) = open(settings(), &stub.name("a"), None).await;
    let error = finish("the transfer", repository.blob(&descriptor, 0, &mut Full)).await.expect_err("full");
    assert!(matches!(*error.problem, Problem::Sink(_)));
    let source = std::error::Error::source(&error).expect("a source").to_string();
    assert!(source.contains("No space left"), "{source}");
    assert_eq!(stub.count("GET", "/blobs/"), 1);
}
