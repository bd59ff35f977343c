//! Peers that do not keep to the protocol. The server must say why, close, keep its memory, and serve the
//! next one.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;

use mainstay_admin::wire::{
    ClientMessage, Credit, FRAME_BODY_MAX, PROTOCOL_VERSION, REQUEST_BODY_MAX, STREAM_WINDOW, ServerMessage,
    TO_CLIENT, TO_DAEMON,
};
use mainstay_admin::{Client, Limits};
use mainstay_messages::admin::{ClientBody, ClientFrame, Input, Request, ServerBody, ServerFrame};
use mainstay_messages::codec::{Format, HEADER_LENGTH};
use mainstay_messages::{Error, SandboxSpec};
use proptest::prelude::*;
use rstest::rstest;
use tokio::runtime::Runtime;

mod world;
use world::{World, exec, follow_events, logs, named, raw, reached, soon};

fn frame(request: u64, body: ClientBody) -> Vec<u8> {
    ClientMessage::Frame(ClientFrame { request, body }).seal().expect("it fits")
}

fn version(request: u64) -> Vec<u8> {
    frame(request, ClientBody::Call(Request::Version))
}

fn credit(request: u64, bytes: u32) -> Vec<u8> {
    TO_DAEMON.seal(&ClientMessage::Credit(Credit { request, bytes })).expect("small")
}

/// Reads a frame; none at the end of the connection.
fn read_frame(stream: &mut UnixStream) -> Option<ServerMessage> {
    let mut header = [0; HEADER_LENGTH];
    stream.read_exact(&mut header).ok()?;
    let header = TO_CLIENT.header(&header).expect("the server's frames are right");
    let mut body = vec![0; header.length];
    stream.read_exact(&mut body).expect("the server's frames are whole");
    Some(TO_CLIENT.open_body(header, &body).expect("the server's frames are right"))
}

/// Reads until a frame tells that the connection is being closed.
fn last_words(stream: &mut UnixStream) -> (u64, Error) {
    let mut last = None;
    while let Some(message) = read_frame(stream) {
        last = Some(message);
    }
    match last {
        Some(ServerMessage::Frame(ServerFrame { request, body: ServerBody::Reply(Err(error)) })) => {
            (request, error)
        }
        other => panic!("expected an error and then the end, got {other:?}"),
    }
}

/// A world whose runtime has threads of its own, for tests that block.
struct Threaded {
    world: World,
    runtime: Runtime,
}

impl Threaded {
    fn start() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let world = runtime.block_on(async { World::with_limits(limits) });
        Self { world, runtime }
    }

    fn assert_alive(&self) {
        self.runtime.block_on(self.world.assert_alive());
    }
}

#[test]
fn another_version_is_told_both_in_the_daemons_own() {
    let threaded = Threaded::start();
    let mut stream = threaded.world.raw();
    let other = Format { version: 9, ..TO_DAEMON };
    let message = ClientMessage::Frame(ClientFrame { request: 5, body: ClientBody::Call(Request::Version) });
    stream.write_all(&other.seal(&message).expect("small")).expect("connected");
    let (request, error) = last_words(&mut stream);
    assert_eq!(request, 0);
    let text = error.to_string();
    let own = format!("expected {PROTOCOL_VERSION}");
    assert!(text.contains("version") && text.contains('9') && text.contains(&own), "{text}");
    threaded.assert_alive();
}

#[rstest]
#[case::magic(0, b"HTTP", "magic")]
#[case::huge_length(8, &[0xff; 4], "limit")]
#[case::length_beyond_the_limit(8, &(REQUEST_BODY_MAX as u32 + 1).to_be_bytes(), "limit")]
#[case::checksum(12, &[1, 2, 3, 4], "checksum")]
fn a_wrong_header_is_told_and_closed(#[case] offset: usize, #[case] bytes: &[u8], #[case] word: &str) {
    let threaded = Threaded::start();
    let mut stream = threaded.world.raw();
    let mut frame = version(5);
    frame[offset..offset + bytes.len()].copy_from_slice(bytes);
    stream.write_all(&frame).expect("connected");
    let (request, error) = last_words(&mut stream);
    assert_eq!(request, 0, "nothing in the frame can be believed");
    assert!(error.to_string().contains(word), "{error}");
    threaded.assert_alive();
}

/// A name that no client of ours sends: the sentence must reach the request that had it.
#[test]
fn a_body_that_cannot_be_decoded_is_told_to_its_request() {
    let threaded = Threaded::start();
    let mut stream = threaded.world.raw();
    let spec = SandboxSpec::new("good-name".parse().expect("a name"));
    let good = frame(77, ClientBody::Call(Request::RunSandbox(Box::new(spec))));
    let at = good.windows(9).position(|w| w == b"good-name").expect("it is in there");
    let mut body = good[HEADER_LENGTH..].to_vec();
    body[at - HEADER_LENGTH..][..9].copy_from_slice(b"../../etc");
    stream.write_all(&reseal(&body)).expect("connected");
    let (request, error) = last_words(&mut stream);
    assert_eq!(request, 77);
    assert!(error.to_string().contains("../../etc"), "{error}");
    threaded.assert_alive();
}

/// A frame with a right header around any body.
fn reseal(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_LENGTH + body.len());
    frame.extend_from_slice(b"MSAD");
    frame.extend_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend_from_slice(&crc32(body).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// CRC-32 (IEEE), bit by bit, written from the page and not from the code.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// After each violation there is one sentence, for request 0, and the end.
#[rstest]
#[case::request_zero(vec![version(0)], "request 0")]
#[case::request_in_use(vec![frame(3, ClientBody::Open(follow_events())), version(3)], "still open")]
#[case::credit_from_nothing(vec![frame(3, ClientBody::Open(follow_events())), credit(3, u32::MAX)], "credit")]
#[case::input_too_large(
    vec![frame(3, ClientBody::Open(exec("busy"))), frame(3, ClientBody::Input(Input::Stdin(vec![1; 100_000])))],
    "100028 bytes"
)]
#[case::input_beyond_the_window(
    [vec![frame(3, ClientBody::Open(exec("busy")))],
     vec![frame(3, ClientBody::Input(Input::Stdin(vec![1; 60_000]))); STREAM_WINDOW / 60_000 + 2]].concat(),
    "beyond its credit"
)]
fn a_violation_is_told_and_closed(#[case] frames: Vec<Vec<u8>>, #[case] words: &str) {
    let threaded = Threaded::start();
    let mut stream = threaded.world.raw();
    stream.write_all(&frames.concat()).expect("connected");
    let (request, error) = last_words(&mut stream);
    assert_eq!(request, 0);
    assert!(error.to_string().contains(words), "{error}");
    threaded.assert_alive();
}

#[test]
fn words_for_streams_that_are_not_open_are_ignored() {
    let threaded = Threaded::start();
    let mut stream = threaded.world.raw();
    let late = [
        credit(9, u32::MAX),
        frame(9, ClientBody::Cancel),
        frame(9, ClientBody::Input(Input::StdinEnd)),
        version(1),
    ];
    stream.write_all(&late.concat()).expect("connected");
    let Some(ServerMessage::Frame(answer)) = read_frame(&mut stream) else { panic!("no answer") };
    assert_eq!(answer.request, 1);
}

#[test]
fn a_number_may_be_used_again_after_its_final_frame() {
    let threaded = Threaded::start();
    let mut stream = threaded.world.raw();
    for _ in 0..2_000 {
        stream.write_all(&version(1)).expect("connected");
        let Some(ServerMessage::Frame(answer)) = read_frame(&mut stream) else { panic!("no answer") };
        assert!(matches!(answer, ServerFrame { request: 1, body: ServerBody::Reply(Ok(_)) }));
    }
}

#[test]
fn a_frame_cut_at_each_byte_is_told() {
    let threaded = Threaded::start();
    let whole = frame(5, ClientBody::Call(Request::Wait { container: named("web") }));
    for cut in 1..whole.len() {
        let mut stream = threaded.world.raw();
        stream.write_all(&whole[..cut]).expect("connected");
        stream.shutdown(Shutdown::Write).expect("connected");
        let (request, error) = last_words(&mut stream);
        assert_eq!(request, 0);
        assert!(error.to_string().contains("cut short"), "{cut}: {error}");
    }
    threaded.assert_alive();
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_taken() {
    let threaded = Threaded::start();
    let mut stream = threaded.world.raw();
    for byte in version(5) {
        stream.write_all(&[byte]).expect("connected");
    }
    assert!(matches!(read_frame(&mut stream), Some(ServerMessage::Frame(ServerFrame { request: 5, .. }))));
}

/// A peer that begins a frame and falls silent would hold its connection for ever.
#[test]
fn a_half_sent_frame_runs_out_of_time_and_an_idle_connection_does_not() {
    let threaded = Threaded::with_limits(Limits { frame_read_timeout_ms: 50, ..Limits::default() });
    let mut idle = threaded.world.raw();
    let mut half = threaded.world.raw();
    half.write_all(&version(5)[..20]).expect("connected");
    let (_, error) = last_words(&mut half);
    assert!(error.to_string().contains("50 ms"), "{error}");
    idle.write_all(&version(6)).expect("still connected");
    assert!(matches!(read_frame(&mut idle), Some(ServerMessage::Frame(ServerFrame { request: 6, .. }))));
}

/// A client that asks and never reads is cut off, and nobody else notices.
#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let threaded = Threaded::with_limits(Limits { write_stall_ms: 50, ..Limits::default() });
    let mut stalled = threaded.world.raw();
    let streams: Vec<u8> = (1..=60).flat_map(|n| frame(n, ClientBody::Open(logs(1_000_000)))).collect();
    stalled.write_all(&streams).expect("connected");
    threaded.assert_alive();
    // Writing goes on until the server hangs up: that is what is waited for.
    let error = loop {
        if let Err(error) = stalled.write_all(&credit(99, 1)) {
            break error;
        }
        std::thread::yield_now();
    };
    let kinds = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
    assert!(kinds.contains(&error.kind()), "{error}");
    let sent = threaded.world.fake.sent.load(std::sync::atomic::Ordering::SeqCst);
    assert!(sent < 60 * 300, "{sent} records of 1 KB are more than 60 windows of 256 KiB");
    threaded.assert_alive();
}

/// A flood of requests whose answers are not read must stop at the socket, not in the server's memory.
#[test]
fn a_flood_of_requests_is_held_up() {
    let threaded = Threaded::with_limits(Limits { write_stall_ms: 200, ..Limits::default() });
    let mut flood = threaded.world.raw();
    let many: Vec<u8> = (1..=10_000).flat_map(version).collect();
    let mut written = 0u64;
    // Writing stops when the queue of answers is full, and fails when the server has hung up.
    while flood.write_all(&many).is_ok() {
        written += many.len() as u64;
        assert!(written < 1 << 30, "the server reads without end from a client that reads nothing");
    }
    threaded.assert_alive();
}

#[test]
fn peers_of_other_users_are_refused() {
    if !rustix::process::geteuid().is_root() {
        // Past the macros, whose output the harness swallows when a test passes.
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(std::io::stderr(), "skipped {test}: needs root to become another user");
        return;
    }
    let threaded = Threaded::start();
    let path = threaded.world.path.clone();
    // The modes would keep the other user out already; the second lock is tried with the first one open.
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our own file");
    };
    let as_nobody = |path: std::path::PathBuf| {
        // On Linux the user is each thread's own when set without libc.
        std::thread::spawn(move || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may become anybody");
            UnixStream::connect(path)
        })
        .join()
        .expect("no panic")
    };
    let kept_out = as_nobody(path.clone()).expect_err("the modes keep it out");
    assert_eq!(kept_out.kind(), std::io::ErrorKind::PermissionDenied);
    open(threaded.world.directory.path(), 0o755);
    open(&path, 0o666);
    let mut stream = as_nobody(path).expect("the modes let it in");
    stream.set_read_timeout(Some(world::DEADLINE)).expect("a socket");
    let (request, error) = last_words(&mut stream);
    assert_eq!(request, 0);
    assert!(matches!(error, Error::PermissionDenied { ref what, .. } if what.contains("65534")), "{error}");
    threaded.assert_alive();
}

/// Sends bytes, hangs up, and reads to the end: the server must come to an end too.
fn attack(threaded: &Threaded, bytes: &[u8]) {
    let mut stream = threaded.world.raw();
    // The server may hang up before it has read all.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    assert!(answers.len() <= 2 * FRAME_BODY_MAX, "{} bytes of answers", answers.len());
    threaded.assert_alive();
}

fn any_client_body() -> impl Strategy<Value = ClientBody> {
    prop_oneof![
        Just(ClientBody::Call(Request::Version)),
        "[0-9]{1,2}".prop_map(|code| ClientBody::Call(Request::Wait { container: named(&code) })),
        Just(ClientBody::Call(Request::ListContainers)),
        Just(ClientBody::Open(follow_events())),
        Just(ClientBody::Open(exec("cat"))),
        (0u64..50).prop_map(|count| ClientBody::Open(logs(count))),
        proptest::collection::vec(any::<u8>(), 0..2_000).prop_map(|b| ClientBody::Input(Input::Stdin(b))),
        Just(ClientBody::Input(Input::StdinEnd)),
        Just(ClientBody::Cancel),
    ]
}

fn any_conversation() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let message = prop_oneof![
        8 => (0u64..6, any_client_body()).prop_map(|(request, body)| frame(request, body)),
        1 => (0u64..6, any::<u32>()).prop_map(|(request, bytes)| credit(request, bytes)),
    ];
    proptest::collection::vec(message, 1..12)
}

#[test]
fn the_server_survives_any_bytes() {
    let threaded = Threaded::start();
    proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..3_000))| attack(&threaded, &bytes));
    proptest!(|(body in proptest::collection::vec(any::<u8>(), 0..3_000))| attack(&threaded, &reseal(&body)));
}

#[test]
fn the_server_survives_any_conversation_and_any_change_of_it() {
    let threaded = Threaded::start();
    proptest!(|(
        frames in any_conversation(),
        victim in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        fix in any::<bool>(),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    )| {
        let mut frames = frames;
        let victim = victim.index(frames.len());
        for (at, byte) in changes {
            let at = at.index(frames[victim].len());
            frames[victim][at] = byte;
        }
        if fix {
            // With its checksum right, a change reaches the decoder.
            frames[victim] = reseal(&frames[victim][HEADER_LENGTH..]);
        }
        let mut bytes = frames.concat();
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        attack(&threaded, &bytes);
    });
}

/// The client is no less careful: something else on the socket gives an error, not a panic and not a hang.
#[test]
fn the_client_survives_any_daemon() {
    let runtime = Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("admin.sock");
    let listener = UnixListener::bind(&path).expect("a free path");
    let (send, said) = mpsc::channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for bytes in said {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let _ = stream.write_all(&bytes);
        }
    });
    let answer =
        |request, body| TO_CLIENT.seal(&ServerMessage::Frame(ServerFrame { request, body })).expect("small");
    let kinds = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..500),
        proptest::collection::vec(any::<u8>(), 0..500).prop_map(|body| reseal(&body)),
        (0u64..4).prop_map(move |n| answer(n, ServerBody::Item(mainstay_messages::admin::Item::Opened))),
        (0u64..4).prop_map(move |n| answer(n, ServerBody::End(Ok(mainstay_messages::admin::End::Done)))),
    ];
    proptest!(|(bytes in kinds)| {
        send.send(bytes).expect("the thread lives");
        runtime.block_on(async {
            let client = Client::connect(&path).await.expect("it listens");
            let stream = client.open(follow_events()).await;
            let outcome = soon(client.version()).await;
            assert!(outcome.is_err());
            if let Ok(stream) = stream {
                let _ = soon(stream.end()).await;
            }
        });
    });
}

#[test]
fn a_daemon_of_another_version_is_named() {
    let runtime = Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("admin.sock");
    let listener = UnixListener::bind(&path).expect("a free path");
    let other = Format { version: 9, ..TO_CLIENT };
    let error = runtime.block_on(async {
        let client = Client::connect(&path).await.expect("it listens");
        let (mut daemon, _) = listener.accept().expect("it connects");
        daemon.write_all(&other.seal(&0u8).expect("small")).expect("connected");
        soon(client.version()).await.expect_err("another version")
    });
    let own = format!("version {PROTOCOL_VERSION}");
    assert!(error.to_string().contains("version 9") && error.to_string().contains(&own), "{error}");
}

/// The connection is closed when the last client and the last stream are gone, not before.
#[test]
fn a_stream_keeps_its_connection() {
    let threaded = Threaded::start();
    threaded.runtime.block_on(async {
        let client = threaded.world.client().await;
        let mut stream = client.open(follow_events()).await.expect("connected");
        drop(client);
        assert!(soon(stream.next()).await.is_some());
        drop(stream);
        reached(&threaded.world.fake.left, 1).await;
    });
    drop(raw(&threaded.world.path));
}
