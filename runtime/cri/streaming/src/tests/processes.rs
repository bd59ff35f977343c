//! Exec and attach.

use std::sync::atomic::Ordering;

use tokio_tungstenite::tungstenite::Message;

use super::fakes::{Fake, PIPES, Script, TERMINAL, server};
use super::soon;
use crate::backend::Exit;
use crate::testing::spdy::{Event, SpdyClient};
use crate::testing::websocket::{self, WebSocketClient};

const SUCCESS: &str = r#"{"status":"Success"}"#;

fn cat(code: u8) -> Script {
    Script::Cat { exit: Exit::Code(code) }
}

#[tokio::test]
async fn over_spdy_input_ends_and_the_exit_code_is_told() {
    let server = server().await;
    for (version, expected) in [("v4.channel.k8s.io", "\"message\":\"3\""), ("channel.k8s.io", "exit code 3")]
    {
        let url = server.exec(Fake::new(cat(3)).0, PIPES).expect("issued");
        let (mut client, head) = SpdyClient::connect(&url, &["v9", version]).await.expect("upgraded");
        assert!(
            head.to_ascii_lowercase().contains(&format!("x-stream-protocol-version: {version}")),
            "{head}"
        );
        let streams = client.open_process(&["error", "stdin", "stdout", "stderr"]).await;
        client.writer.ping(1).await;
        assert_eq!(soon(client.reader.next()).await, Event::Ping(1));
        client.writer.data(streams[1], b"hello ", false).await;
        client.writer.data(streams[1], b"you", true).await;
        let all = soon(client.reader.collect()).await;
        assert_eq!(all.text(streams[2]), "hello you");
        assert_eq!(all.text(streams[3]), "over");
        assert!(all.text(streams[0]).contains(expected), "{}", all.text(streams[0]));
        for stream in streams {
            assert!(all.ended.contains(&stream), "stream {stream} has no end");
        }
    }
}

#[tokio::test]
async fn over_websocket_input_ends_and_the_exit_code_is_told() {
    let server = server().await;
    let url = server.exec(Fake::new(cat(3)).0, PIPES).expect("issued");
    let (mut client, head) = WebSocketClient::connect(&url, &["v5.channel.k8s.io"]).await.expect("upgraded");
    assert!(head.to_ascii_lowercase().contains("sec-websocket-protocol: v5.channel.k8s.io"), "{head}");
    client.send(0, b"hello").await;
    client.raw(Message::Ping("x".into())).await;
    client.send(255, &[0]).await;
    let (channels, code) = soon(client.collect()).await;
    assert_eq!(channels[1], b"hello");
    assert_eq!(channels[2], b"over");
    assert!(String::from_utf8_lossy(&channels[3]).contains("\"message\":\"3\""), "{channels:?}");
    assert_eq!(code, Some(1000));
}

#[tokio::test]
async fn a_client_that_knows_base64_alone_is_served_and_hears_when_its_process_cannot_be_started() {
    let server = server().await;
    let url = server.exec(Fake::new(Script::Broken).0, PIPES).expect("issued");
    let (mut client, _) = WebSocketClient::connect(&url, &["base64.channel.k8s.io"]).await.expect("upgraded");
    assert_eq!(
        soon(client.next()).await,
        websocket::Event::Message(b"1".to_vec()),
        "the connection is there"
    );
    let websocket::Event::Message(message) = soon(client.next()).await else { panic!("no message") };
    // "\"nope\" is not in the PATH of the container"
    assert!(message.starts_with(b"3Im5vcGUi"), "{}", String::from_utf8_lossy(&message));
    assert_eq!(soon(client.next()).await, websocket::Event::Closed(Some(1000)));
}

#[tokio::test]
async fn the_first_size_is_there_when_the_process_starts_and_later_ones_follow() {
    let server = server().await;
    let url = server.attach(Fake::new(Script::Sizes).0, TERMINAL).expect("issued");
    let (mut client, _) = SpdyClient::connect(&url, &["v4.channel.k8s.io"]).await.expect("upgraded");
    let streams = client.open_process(&["error", "stdin", "stdout", "resize"]).await;
    client.writer.data(streams[3], b"{\"Width\":120,\"Height\":40}\n", false).await;
    assert_eq!(soon(client.reader.next()).await, Event::Data(streams[2], b"40 120\n".to_vec(), false));
    client.writer.data(streams[3], b"{\"Width\":80,", false).await;
    client.writer.data(streams[3], b"\"Height\":24}\n", false).await;
    assert_eq!(soon(client.reader.next()).await, Event::Data(streams[2], b"24 80\n".to_vec(), false));
    client.writer.data(streams[1], b"", true).await;
    assert_eq!(soon(client.reader.collect()).await.text(streams[0]), SUCCESS);

    let url = server.exec(Fake::new(Script::Sizes).0, TERMINAL).expect("issued");
    let (mut client, _) = WebSocketClient::connect(&url, &["v5.channel.k8s.io"]).await.expect("upgraded");
    client.send(4, b"{\"Width\":120,\"Height\":40}").await;
    assert_eq!(soon(client.next()).await, websocket::Event::Message(vec![1]));
    assert_eq!(soon(client.next()).await, websocket::Event::Message(b"\x0140 120\n".to_vec()));
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_also_while_its_input_is_not_read() {
    let server = server().await;
    let (fake, fate) = Fake::new(Script::Sleep);
    let url = server.exec(fake, PIPES).expect("issued");
    let (mut client, _) = SpdyClient::connect(&url, &["v4.channel.k8s.io"]).await.expect("upgraded");
    let streams = client.open_process(&["error", "stdin", "stdout", "stderr"]).await;
    // More than all queues on the way have room for.
    for _ in 0..32 {
        let sent = client.writer.data(streams[1], &[b'x'; 32_768], false);
        if tokio::time::timeout(std::time::Duration::from_millis(500), sent).await.is_err() {
            break;
        }
    }
    drop(client);
    soon(async {
        while !fate.abandoned.load(Ordering::Relaxed) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;

    let (fake, fate) = Fake::new(Script::Sleep);
    let url = server.exec(fake, PIPES).expect("issued");
    let (client, _) = WebSocketClient::connect(&url, &["v5.channel.k8s.io"]).await.expect("upgraded");
    drop(client);
    soon(async {
        while !fate.abandoned.load(Ordering::Relaxed) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A client that does not read holds up its own process alone: what waits for it is in queues of a fixed length and the kernel's buffers.
#[tokio::test]
async fn what_a_client_does_not_read_is_not_kept_and_not_lost() {
    const FLOOD: u64 = 64 * 1024 * 1024;
    let server = server().await;
    let (fake, fate) = Fake::new(Script::Flood { bytes: FLOOD });
    let url = server.exec(fake, PIPES).expect("issued");
    let (mut stalled, _) = SpdyClient::connect(&url, &["v4.channel.k8s.io"]).await.expect("upgraded");
    let streams = stalled.open_process(&["error", "stdin", "stdout", "stderr"]).await;
    // Meanwhile another one gets all of its own.
    let url = server.exec(Fake::new(Script::Flood { bytes: FLOOD }).0, PIPES).expect("issued");
    let (mut other, _) = WebSocketClient::connect(&url, &["v5.channel.k8s.io"]).await.expect("upgraded");
    let (channels, _) = soon(other.collect()).await;
    assert_eq!(channels[1].len() as u64, FLOOD);
    assert!(fate.taken.load(Ordering::Relaxed) < FLOOD / 2, "{fate:?}");
    let all = soon(stalled.reader.collect()).await;
    assert_eq!(all.bytes[&streams[2]].len() as u64, FLOOD);
    assert_eq!(all.text(streams[0]), SUCCESS);
}

#[tokio::test]
async fn what_breaks_a_rule_ends_its_own_connection_alone() {
    let server = server().await;
    let url = server.exec(Fake::new(Script::Sleep).0, PIPES).expect("issued");
    let (mut client, _) = SpdyClient::connect(&url, &["v4.channel.k8s.io"]).await.expect("upgraded");
    client.writer.raw(&[0xff; 64]).await;
    soon(client.reader.collect()).await;

    let url = server.exec(Fake::new(Script::Sleep).0, PIPES).expect("issued");
    let (mut client, _) = WebSocketClient::connect(&url, &["v5.channel.k8s.io"]).await.expect("upgraded");
    client.send(255, &[]).await;
    let (_, code) = soon(client.collect()).await;
    assert_eq!(code, Some(1002));

    let url = server.exec(Fake::new(cat(0)).0, PIPES).expect("issued");
    let (mut client, _) = WebSocketClient::connect(&url, &["v5.channel.k8s.io"]).await.expect("upgraded");
    client.send(255, &[0]).await;
    assert_eq!(soon(client.collect()).await.0[3], SUCCESS.as_bytes());
}
