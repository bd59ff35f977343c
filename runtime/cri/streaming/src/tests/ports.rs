//! Port-forward.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fakes::{LocalPorts, server};
use super::soon;
use crate::testing::spdy::{Event, SpdyClient};
use crate::testing::websocket::{self, WebSocketClient};

/// A port where each connection is served by `serve`.
async fn listen<F: Future<Output = ()> + Send + 'static>(serve: fn(TcpStream) -> F) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

/// Sends back what came once there is no more, and what it was after.
async fn echo_at_end(mut stream: TcpStream) {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    all.extend_from_slice(b" and no more");
    let _ = stream.write_all(&all).await;
}

async fn never_read(stream: TcpStream) {
    std::future::pending::<()>().await;
    drop(stream);
}

async fn open_pair(client: &mut SpdyClient, port: u16, request: u32) -> (u32, u32) {
    let (port, request) = (port.to_string(), request.to_string());
    let fields = |kind| [("streamType", kind), ("port", port.as_str()), ("requestID", request.as_str())];
    let error = client.writer.open(&fields("error")).await;
    client.writer.data(error, b"", true).await;
    (error, client.writer.open(&fields("data")).await)
}

async fn many(mut client: SpdyClient) {
    const CONNECTIONS: u32 = 100;
    let (port, closed) = (listen(echo_at_end).await, free_port().await);
    let mut pairs = Vec::new();
    for request in 0..CONNECTIONS {
        let pair = open_pair(&mut client, port, request).await;
        client.writer.data(pair.1, format!("request {request}").as_bytes(), true).await;
        pairs.push(pair);
    }
    let (failed, broken) = open_pair(&mut client, closed, CONNECTIONS).await;
    let mut texts = std::collections::BTreeMap::<u32, Vec<u8>>::new();
    let mut ended = Vec::new();
    // Both streams of each, and the error of the one that failed; its data is reset.
    while ended.len() < 2 * pairs.len() + 2 {
        match soon(client.reader.next()).await {
            Event::Data(stream, bytes, is_last) => {
                texts.entry(stream).or_default().extend_from_slice(&bytes);
                ended.extend(is_last.then_some(stream));
            }
            Event::Reset(stream, _) => {
                assert_eq!(stream, broken);
                ended.push(stream);
            }
            Event::Reply(_) => {}
            event => panic!("{event:?}"),
        }
    }
    for (request, (error, data)) in pairs.iter().enumerate() {
        assert_eq!(texts[data], format!("request {request} and no more").as_bytes());
        assert_eq!(texts[error], b"");
    }
    let text = String::from_utf8_lossy(&texts[&failed]).into_owned();
    assert!(text.contains(&format!("port {closed} cannot be reached")), "{text}");
}

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.expect("bound").local_addr().expect("an address").port()
}

#[tokio::test]
async fn many_connections_and_one_that_fails_over_spdy() {
    let server = server().await;
    let url = server.port_forward(Arc::new(LocalPorts), Vec::new()).expect("issued");
    let (client, _) = SpdyClient::connect(&url, &["portforward.k8s.io"]).await.expect("upgraded");
    many(client).await;
}

#[tokio::test]
async fn many_connections_and_one_that_fails_over_spdy_inside_of_websocket() {
    let server = server().await;
    let url = server.port_forward(Arc::new(LocalPorts), Vec::new()).expect("issued");
    let connected = WebSocketClient::connect(&url, &["SPDY/3.1+portforward.k8s.io"]).await;
    let (read, write) = tokio::io::split(connected.expect("upgraded").0.into_tunnel());
    many(SpdyClient::over(read, write)).await;
}

#[tokio::test]
async fn a_port_that_takes_nothing_holds_up_no_other() {
    let server = server().await;
    let (stuck, echo) = (listen(never_read).await, listen(echo_at_end).await);
    let url = server.port_forward(Arc::new(LocalPorts), Vec::new()).expect("issued");
    let (mut client, _) = SpdyClient::connect(&url, &["portforward.k8s.io"]).await.expect("upgraded");
    let (_, data) = open_pair(&mut client, stuck, 0).await;
    client.writer.data(data, &[b'x'; 200_000], false).await;
    let (_, data) = open_pair(&mut client, echo, 1).await;
    client.writer.data(data, b"hello", true).await;
    loop {
        match soon(client.reader.next()).await {
            Event::Data(stream, bytes, _) if stream == data && !bytes.is_empty() => {
                assert_eq!(bytes, b"hello and no more");
                break;
            }
            Event::Reply(_) | Event::Data(..) => {}
            event => panic!("{event:?}"),
        }
    }
    // One stream that was reset by its client lets go of its connection, and the others live.
    client.writer.reset(data).await;
    client.writer.ping(7).await;
    while soon(client.reader.next()).await != Event::Ping(7) {}
}

#[tokio::test]
async fn channels_of_websocket_begin_with_their_port() {
    let server = server().await;
    let port = listen(|mut stream| async move {
        let _ = stream.write_all(b"hello").await;
    })
    .await;
    let closed = free_port().await;
    let url = server.port_forward(Arc::new(LocalPorts), vec![port, closed]).expect("issued");
    let (mut client, _) = WebSocketClient::connect(&url, &["v4.channel.k8s.io"]).await.expect("upgraded");
    let mut channels: [Vec<u8>; 4] = Default::default();
    let code = loop {
        match soon(client.next()).await {
            websocket::Event::Message(message) => {
                channels[usize::from(message[0])].extend_from_slice(&message[1..]);
            }
            websocket::Event::Closed(code) => break code,
        }
    };
    let [low, high] = port.to_le_bytes();
    assert_eq!(channels[0], [&[low, high], &b"hello"[..]].concat());
    assert_eq!(channels[1], [low, high]);
    assert_eq!(channels[2], closed.to_le_bytes());
    assert!(String::from_utf8_lossy(&channels[3][2..]).contains("cannot be reached"), "{channels:?}");
    assert_eq!(code, Some(1000));
}
