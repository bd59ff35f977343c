//! Client and server as they are meant to be used: many calls and streams, slow and vanished peers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use mainstay_admin::limits::{REQUEST_COST, REQUESTS_IN_FLIGHT_MAX, STREAMS_MAX};
use mainstay_admin::{Client, Limits};
use mainstay_messages::admin::{
    Attached, End, Input, Item, OnLag, OutputStream, Request, Response, StreamRequest,
};
use mainstay_messages::process::Signal;
use mainstay_messages::{Error, Result};

mod world;
use world::{Gate, World, container, exec, exited, follow_events, logs, named, reached, soon};

async fn output(stream: &mut mainstay_admin::StreamHandle) -> Vec<u8> {
    match soon(stream.next()).await {
        Some(Item::Output { stream: OutputStream::Stdout, bytes }) => bytes,
        other => panic!("expected output, got {other:?}"),
    }
}

#[tokio::test]
async fn answers_overtake_one_another() {
    let world = World::start();
    let client = world.client().await;
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.wait(named("gated")).await }
    });
    reached(&world.fake.begun, 1).await;
    let codes = join_all((0..100u8).map(|code| {
        let client = &client;
        async move { client.wait(named(&code.to_string())).await }
    }));
    for (code, exit) in (0..100).zip(soon(codes).await) {
        assert_eq!(exit.expect("it ended"), exited(code), "each gets its own answer");
    }
    assert!(!slow.is_finished());
    world.fake.gate.send_replace(Gate::Open);
    assert_eq!(soon(slow).await.expect("no panic").expect("it ended"), exited(0));
}

#[tokio::test]
async fn errors_arrive_as_they_are() {
    let world = World::start();
    let client = world.client().await;
    let error = soon(client.stop_container(named("nobody"), None, None)).await.expect_err("not there");
    assert!(matches!(error, Error::NotFound { ref id, .. } if id == "nobody"), "{error}");
}

#[tokio::test]
async fn a_panic_of_the_backend_is_an_internal_fault_of_that_request_alone() {
    let world = World::start();
    let client = world.client().await;
    let error = soon(client.kill_container(named("panic"), Signal::KILL)).await.expect_err("it panics");
    assert!(
        matches!(error, Error::Internal { ref reason, .. } if reason.contains("the fake panics")),
        "{error}"
    );
    let stream = client.open(exec("panic")).await.expect("connected");
    assert!(matches!(soon(stream.end()).await, Err(Error::Internal { .. })));
    assert!(soon(client.version()).await.is_ok(), "on the same connection");
}

/// 1,300 containers with 200 KiB of annotations each are 260 MB of list: more than any frame holds.
#[tokio::test]
async fn a_huge_list_comes_whole_and_holds_up_nobody() {
    let world = World::start();
    let containers: Vec<_> = (0..1_300).map(|n| container(n, 200 * 1024)).collect();
    *world.fake.containers.lock().expect("no panic") = containers.clone();
    let client = world.client().await;
    let list = tokio::spawn({
        let client = client.clone();
        async move { client.list_containers().await }
    });
    reached(&world.fake.begun, 1).await;
    soon(client.version()).await.expect("an answer between the parts");
    let list = soon(list).await.expect("no panic").expect("the list");
    assert!(list == containers);
}

/// One container that no frame holds must not cut the connection.
#[tokio::test]
async fn an_element_that_no_frame_holds_is_an_error_that_names_it() {
    let world = World::start();
    *world.fake.containers.lock().expect("no panic") = vec![container(1, 10), container(2, 5_000_000)];
    let client = world.client().await;
    let error = soon(client.list_containers()).await.expect_err("too large");
    assert!(
        matches!(error, Error::ResourceExhausted { ref what, .. } if what.contains("00000002")),
        "{error}"
    );
    soon(client.version()).await.expect("on the same connection");
}

#[tokio::test]
async fn a_request_that_no_frame_holds_is_refused_by_the_client() {
    let world = World::start();
    let client = world.client().await;
    let error = soon(client.wait(named(&"x".repeat(5_000_000)))).await.expect_err("too large");
    assert!(matches!(error, Error::InvalidArgument { ref field, .. } if field == "request"), "{error}");
    soon(client.version()).await.expect("on the same connection");
}

#[tokio::test]
async fn the_request_beyond_the_limit_is_refused_and_the_others_go_on() {
    let world = World::start();
    let client = world.client().await;
    let waits: Vec<_> = (0..REQUESTS_IN_FLIGHT_MAX)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.wait(named("gated")).await })
        })
        .collect();
    reached(&world.fake.begun, REQUESTS_IN_FLIGHT_MAX as u64).await;
    let error = soon(client.version()).await.expect_err("one too many");
    assert!(
        matches!(error, Error::ResourceExhausted { limit, .. } if limit == REQUESTS_IN_FLIGHT_MAX as u64)
    );
    world.assert_alive().await;
    world.fake.gate.send_replace(Gate::Open);
    for wait in waits {
        soon(wait).await.expect("no panic").expect("it ended");
    }
    soon(client.version()).await.expect("there is room again");
}

#[tokio::test]
async fn the_stream_beyond_the_limit_is_refused() {
    let world = World::start();
    let client = world.client().await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS_MAX {
        let mut stream = client.open(follow_events()).await.expect("connected");
        assert!(matches!(soon(stream.next()).await, Some(Item::Event(_))));
        streams.push(stream);
    }
    let mut refused = client.open(follow_events()).await.expect("connected");
    assert_eq!(soon(refused.next()).await, None);
    assert!(matches!(soon(refused.end()).await, Err(Error::ResourceExhausted { .. })));
    streams.pop();
    reached(&world.fake.left, 1).await;
    let mut again = client.open(follow_events()).await.expect("connected");
    assert!(matches!(soon(again.next()).await, Some(Item::Event(_))));
}

#[tokio::test]
async fn an_exec_gives_back_what_it_gets() {
    let world = World::start();
    let client = world.client().await;
    let mut stream = client.open(exec("cat")).await.expect("connected");
    let input = stream.input_sender();
    let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let feeding = tokio::spawn({
        let sent = sent.clone();
        async move {
            input.send(Input::Stdin(sent)).await?;
            input.send(Input::StdinEnd).await
        }
    });
    let mut received = Vec::new();
    while received.len() < sent.len() {
        received.extend(output(&mut stream).await);
    }
    assert!(received == sent);
    soon(feeding).await.expect("no panic").expect("all sent");
    assert_eq!(soon(stream.next()).await, None);
    assert_eq!(soon(stream.end()).await.expect("it ended"), End::Exited(exited(0)));
}

#[tokio::test]
async fn input_after_the_end_is_an_error() {
    let world = World::start();
    let client = world.client().await;
    let mut stream = client.open(exec("cat")).await.expect("connected");
    stream.input(Input::StdinEnd).await.expect("open");
    assert_eq!(soon(stream.next()).await, None);
    let error = soon(stream.input(Input::StdinEnd)).await.expect_err("it has ended");
    assert!(error.to_string().contains("it has ended"), "{error}");
}

/// A pager that waits for its user holds up its log, and neither the connection nor the daemon's memory.
#[tokio::test]
async fn a_stream_that_nobody_takes_from_holds_up_itself_alone() {
    let world = World::start();
    let client = world.client().await;
    let mut paused = client.open(logs(10_000)).await.expect("connected");
    assert!(matches!(soon(paused.next()).await, Some(Item::Log(_))));
    // Far more than the window and all buffers hold goes over the same connection meanwhile.
    let mut other = client.open(logs(5_000)).await.expect("connected");
    let mut count = 0;
    while soon(other.next()).await.is_some() {
        count += 1;
    }
    assert_eq!(count, 5_000);
    soon(client.version()).await.expect("calls go on too");
    let sent = world.fake.sent.load(Ordering::SeqCst) - 5_000;
    assert!(sent < 300, "{sent} records of 1 KB are beyond a window of 256 KiB");
    let mut rest = 1;
    while let Some(item) = soon(paused.next()).await {
        let Item::Log(record) = item else { panic!("expected a log record, got {item:?}") };
        assert_eq!(record.bytes[..8], u64::to_be_bytes(rest), "in order, nothing lost");
        rest += 1;
    }
    assert_eq!(rest, 10_000);
    assert_eq!(soon(paused.end()).await.expect("it ended"), End::Done);
}

/// `mainstay exec -i` into a process that does not read: what else goes over the connection must go on.
#[tokio::test]
async fn input_that_nobody_takes_holds_up_itself_alone() {
    let world = World::start();
    let client = world.client().await;
    let mut busy = client.open(exec("busy")).await.expect("connected");
    let input = busy.input_sender();
    let feeding = tokio::spawn(async move {
        input.send(Input::Stdin(vec![7; 2_000_000])).await?;
        input.send(Input::StdinEnd).await
    });
    reached(&world.fake.begun, 1).await;
    for _ in 0..100 {
        soon(client.version()).await.expect("calls go on");
    }
    assert!(!feeding.is_finished());
    world.fake.gate.send_replace(Gate::Open);
    let mut received = 0;
    while soon(busy.next()).await.is_some_and(|_| true) {
        received += 1;
    }
    assert!(received >= 2_000_000 / 65_536);
    soon(feeding).await.expect("no panic").expect("all sent");
}

/// A backend that throws its input away must not hold up whoever sends it.
#[tokio::test]
async fn unwanted_input_is_taken_and_thrown_away() {
    let world = World::start();
    let client = world.client().await;
    let stream = client.open(exec("deaf")).await.expect("connected");
    soon(stream.input(Input::Stdin(vec![7; 5_000_000]))).await.expect("taken");
    world.fake.gate.send_replace(Gate::Open);
    assert_eq!(soon(stream.end()).await.expect("it ended"), End::Exited(exited(0)));
}

#[tokio::test]
async fn a_dropped_stream_is_cancelled() {
    let world = World::start();
    let client = world.client().await;
    let mut stream = client.open(follow_events()).await.expect("connected");
    assert!(matches!(soon(stream.next()).await, Some(Item::Event(_))));
    drop(stream);
    reached(&world.fake.left, 1).await;
    soon(client.version()).await.expect("the connection stays");
}

#[tokio::test]
async fn a_dropped_question_is_dropped_at_the_backend_too() {
    let world = World::start();
    let client = world.client().await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.wait(named("gated")).await }
    });
    reached(&world.fake.begun, 1).await;
    call.abort();
    reached(&world.fake.waits_over, 1).await;
    soon(client.version()).await.expect("the connection stays");
}

/// The user pressed Ctrl-C while a container was starting: it must come up all the same, not stay half-made.
#[tokio::test]
async fn operations_go_on_when_their_client_vanishes() {
    let world = World::start();
    let client = world.client().await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.start_container(named("gated")).await }
    });
    let stream = client.open(exec("gated")).await.expect("connected");
    let wait = tokio::spawn({
        let client = client.clone();
        async move { client.wait(named("gated")).await }
    });
    reached(&world.fake.begun, 3).await;
    call.abort();
    wait.abort();
    drop((stream, client));
    reached(&world.fake.waits_over, 1).await;
    assert_eq!(*world.fake.done.borrow(), 0);
    world.fake.gate.send_replace(Gate::Open);
    reached(&world.fake.done, 2).await;
}

/// A backend that never notices that its reader has left would pile up streams for ever.
#[tokio::test(start_paused = true)]
async fn a_reading_stream_that_does_not_leave_is_dropped() {
    let world = World::start();
    let client = world.client().await;
    let attach =
        StreamRequest::Attach { container: named("web"), stdin: Attached::No, on_lag: OnLag::Detach };
    let stream = client.open(attach).await.expect("connected");
    world.fake.begun.subscribe().wait_for(|n| *n == 1).await.expect("the fake lives");
    drop((stream, client));
    world.fake.waits_over.subscribe().wait_for(|n| *n == 1).await.expect("the fake lives");
}

#[tokio::test]
async fn when_the_daemon_goes_all_that_is_open_ends_as_unavailable() {
    let world = World::start();
    let client = world.client().await;
    let mut stream = client.open(follow_events()).await.expect("connected");
    assert!(matches!(soon(stream.next()).await, Some(Item::Event(_))));
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.wait(named("gated")).await }
    });
    reached(&world.fake.begun, 2).await;
    world.serving.abort();
    assert!(matches!(soon(call).await.expect("no panic"), Err(Error::Unavailable { .. })));
    assert_eq!(soon(stream.next()).await, None);
    assert!(matches!(soon(stream.end()).await, Err(Error::Unavailable { .. })));
    assert!(
        matches!(soon(client.version()).await, Err(Error::Unavailable { .. })),
        "and so does what comes later"
    );
}

#[tokio::test]
async fn at_shutdown_operations_are_answered_and_the_rest_is_told() {
    let mut world = World::start();
    let client = world.client().await;
    let call = |request| {
        let client = client.clone();
        tokio::spawn(async move { client.call(request).await })
    };
    let operation = call(Request::StartContainer { container: named("gated") });
    let question = call(Request::Wait { container: named("gated") });
    let mut stream = client.open(follow_events()).await.expect("connected");
    reached(&world.fake.begun, 3).await;
    drop(world.shutdown.take());
    let error = soon(question).await.expect("no panic").expect_err("the daemon shuts down");
    assert!(error.to_string().contains("shutting down"), "{error}");
    while soon(stream.next()).await.is_some() {}
    assert!(matches!(soon(stream.end()).await, Err(Error::Unavailable { .. })));
    assert!(!world.path.exists(), "a new daemon may start at once");
    world.fake.gate.send_replace(Gate::Open);
    assert_eq!(soon(operation).await.expect("no panic").expect("it is answered"), Response::Done);
    soon(world.serving).await.expect("no panic").expect("it served");
}

/// A hung operation must not keep the daemon from ending.
#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let mut world = World::with_limits(Limits { shutdown_drain_ms: 10, ..Limits::default() });
    let client = world.client().await;
    let operation = tokio::spawn(async move { client.start_container(named("gated")).await });
    reached(&world.fake.begun, 1).await;
    drop(world.shutdown.take());
    soon(world.serving).await.expect("no panic").expect("it served");
    assert!(matches!(soon(operation).await.expect("no panic"), Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn connecting_without_a_daemon_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("admin.sock");
    let said = |outcome: Result<Client>| outcome.expect_err("nobody is there").to_string();
    let missing = said(Client::connect(&path).await);
    assert!(missing.contains("there is no socket") && missing.contains("`mainstay daemon`"), "{missing}");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a free path"));
    let stale = said(Client::connect(&path).await);
    assert!(stale.contains("nobody answers") && stale.contains("`mainstay daemon`"), "{stale}");
}

#[tokio::test]
async fn ten_thousand_connections_come_and_go() {
    let world = World::start();
    for round in 0..10_000 {
        let client = world.client().await;
        if round % 10 == 0 {
            soon(client.version()).await.expect("it is served");
        }
    }
    world.assert_alive().await;
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_told_so() {
    let world = World::with_limits(Limits { connections_max: 2, ..Limits::default() });
    let (first, second) = (world.client().await, world.client().await);
    soon(first.version()).await.expect("served");
    soon(second.version()).await.expect("served");
    let error = soon(world.client().await.version()).await.expect_err("one too many");
    assert!(matches!(error, Error::ResourceExhausted { limit: 2, .. }), "{error}");
    drop(first);
    let again = async {
        while world.client().await.version().await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(again).await;
}

/// Work whose client has left still takes memory: asking and leaving, over and over, must meet a limit.
#[tokio::test]
async fn operations_without_a_client_count_until_they_are_done() {
    let world = World::with_limits(Limits { request_bytes_max: 2 * REQUEST_COST, ..Limits::default() });
    let client = world.client().await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.start_container(named("gated")).await }
    });
    reached(&world.fake.begun, 1).await;
    call.abort();
    drop(client);
    let client = world.client().await;
    let error = soon(client.version()).await.expect_err("the first one is still at work");
    assert!(matches!(error, Error::ResourceExhausted { .. }), "{error}");
    world.fake.gate.send_replace(Gate::Open);
    let served = async {
        while client.version().await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(served).await;
}
