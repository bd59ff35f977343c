//! The format itself: the page and the code must say the same.

use mainstay_messages::Timestamp;
use mainstay_messages::admin::{ClientBody, Reference, Request, Response, ServerBody};
use mainstay_messages::process::{Exit, ExitStatus, OomVerdict};

use super::*;

const PAGE: &str = include_str!("../../PROTOCOL.md");

/// The bytes of the example with this title: two-digit numbers before the `|` of each line of its block.
fn example(title: &str) -> Vec<u8> {
    let (_, rest) = PAGE.split_once(title).expect("the page has the example");
    let (_, rest) = rest.split_once("```hex\n").expect("a block follows");
    let (block, _) = rest.split_once("```").expect("the block ends");
    block
        .lines()
        .flat_map(|line| line.split('|').next().unwrap_or_default().split_whitespace())
        .map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits"))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x} ")).collect()
}

#[test]
fn the_page_has_the_bytes_of_a_request() {
    let call = ClientBody::Call(Request::Wait { container: Reference("web".to_owned()) });
    let message = ClientMessage::Frame(ClientFrame { request: 7, body: call });
    let sealed = message.seal().expect("small");
    let bytes = example("### A request");
    assert_eq!(hex(&bytes), hex(&sealed));
    assert_eq!(TO_DAEMON.open::<ClientMessage>(&bytes).expect("well formed"), message);
}

#[test]
fn the_page_has_the_bytes_of_an_answer() {
    let exit = Exit {
        status: ExitStatus::Exited { code: 3 },
        at: Timestamp(1_800_000_000_000_000_000),
        oom: OomVerdict::NotKilled,
    };
    let reply = ServerBody::Reply(Ok(Response::Exited(exit)));
    let message = ServerMessage::Frame(ServerFrame { request: 7, body: reply });
    let sealed = message.seal("the answer").expect("small");
    let bytes = example("### Its answer");
    assert_eq!(hex(&bytes), hex(&sealed));
    assert_eq!(TO_CLIENT.open::<ServerMessage>(&bytes).expect("well formed"), message);
}

#[test]
fn the_page_has_the_bytes_of_credit() {
    let bytes = example("### Credit");
    assert_eq!(hex(&bytes), hex(&Credit { request: 8, bytes: 65_536 }.to_daemon()));
}

#[test]
fn the_page_has_the_limits() {
    for limit in [FRAME_BODY_MAX, REQUEST_BODY_MAX, INPUT_BODY_MAX, STREAM_WINDOW] {
        let digits = limit.to_string();
        assert!(PAGE.contains(&digits), "{digits} is not in PROTOCOL.md");
    }
}

#[test]
fn the_request_is_found_in_any_body() {
    let frame = Credit { request: 0x0102_0304_0506_0708, bytes: 1 }.to_client();
    assert_eq!(request_of(&frame[16..]), 0x0102_0304_0506_0708);
    assert_eq!(request_of(&[1; 11]), 0);
}

#[test]
fn a_request_that_does_not_fit_is_refused_before_it_is_sent() {
    let call = ClientBody::Call(Request::Wait { container: Reference("x".repeat(5_000_000)) });
    let error = ClientMessage::Frame(ClientFrame { request: 1, body: call }).seal().expect_err("too large");
    assert!(matches!(&error, Error::InvalidArgument { field, .. } if field == "request"), "{error}");
}
