//! Clients for tests: one of SPDY and one of WebSocket.
//!
//! Owns: a client's side that does what it is told, also what no client should. Its SPDY has framing of its own, so that a mistake of
//! the server's is not made twice. Never: part of what is shipped.

pub mod spdy;
pub mod websocket;

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::resize::SizeReader;
use crate::websocket::channel::{ChannelMessage, Encoding, HalfClose, decode};

/// An answer that is no upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its head, as it came.
    pub head: String,
    /// Its body.
    pub body: String,
}

/// Sends a request for a URL of the server's, and reads the head of the answer; the connection when it is an upgrade.
///
/// # Panics
/// When the server is not there, or speaks no HTTP.
pub async fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
) -> Result<(TcpStream, String), Answer> {
    let rest = url.strip_prefix("http://").expect("a URL of plain HTTP");
    let (address, path) = rest.split_once('/').expect("a URL with a path");
    let address: SocketAddr = address.parse().expect("an address");
    let stream = TcpStream::connect(address).await.expect("the server is there");
    request_over(stream, method, path, headers).await
}

/// The same on a connection that is there.
///
/// # Panics
/// When the server speaks no HTTP.
pub async fn request_over<Io: AsyncRead + AsyncWrite + Unpin>(
    mut stream: Io,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(Io, String), Answer> {
    let mut head = format!("{method} /{path} HTTP/1.1\r\nHost: streams\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all((head + "\r\n").as_bytes()).await.expect("the server reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the server answers"));
    }
    let head = String::from_utf8(head).expect("a head is text");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    if status == 101 {
        return Ok((stream, head));
    }
    let lines = head.lines().map(str::to_ascii_lowercase);
    let length = lines.filter_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).next();
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.expect("the body comes");
    Err(Answer { status, head, body: String::from_utf8_lossy(&body).into_owned() })
}

/// Reads a message as the server does, in each encoding, and its bytes as sizes of a terminal: for fuzzing.
pub fn read_strangers_message(message: &[u8]) {
    let message = Bytes::copy_from_slice(message);
    let mut sizes = SizeReader::default();
    for encoding in [Encoding::Binary, Encoding::Base64] {
        for half_close in [HalfClose::Yes, HalfClose::No] {
            if let Ok(ChannelMessage::Data { bytes, .. }) = decode(&message, encoding, half_close) {
                let _ = sizes.read(&bytes);
            }
        }
    }
}
