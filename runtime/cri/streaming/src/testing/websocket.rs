//! A client of WebSocket.

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{Answer, request};

/// A client.
pub struct WebSocketClient {
    stream: WebSocketStream<TcpStream>,
}

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message, the first byte of which is a channel.
    Message(Vec<u8>),
    /// The connection is closed with this code; none without one.
    Closed(Option<u16>),
}

impl WebSocketClient {
    /// Comes for a URL with these protocols. The one that was chosen is in the head.
    pub async fn connect(url: &str, protocols: &[&str]) -> Result<(Self, String), Answer> {
        let protocols = protocols.join(", ");
        let mut headers = vec![
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        if !protocols.is_empty() {
            headers.push(("Sec-WebSocket-Protocol", &protocols));
        }
        let (stream, head) = request("GET", url, &headers).await?;
        let stream = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
        Ok((Self { stream }, head))
    }

    /// Sends bytes on a channel.
    pub async fn send(&mut self, channel: u8, bytes: &[u8]) -> bool {
        let mut message = vec![channel];
        message.extend_from_slice(bytes);
        self.stream.send(Message::Binary(message.into())).await.is_ok()
    }

    /// Sends a message of any kind.
    pub async fn raw(&mut self, message: Message) {
        let _ = self.stream.send(message).await;
    }

    /// What comes next.
    pub async fn next(&mut self) -> Event {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Binary(bytes))) => return Event::Message(bytes.into()),
                Some(Ok(Message::Text(text))) => return Event::Message(text.as_bytes().to_vec()),
                Some(Ok(Message::Close(frame))) => {
                    return Event::Closed(frame.map(|frame| frame.code.into()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Event::Closed(None),
            }
        }
    }

    /// Reads until the server closes: the bytes of the first five channels, and the code of the close.
    pub async fn collect(&mut self) -> ([Vec<u8>; 5], Option<u16>) {
        let mut channels: [Vec<u8>; 5] = Default::default();
        loop {
            match self.next().await {
                Event::Message(message) => {
                    if let Some((channel, bytes)) = message.split_first() {
                        channels[usize::from(*channel)].extend_from_slice(bytes);
                    }
                }
                Event::Closed(code) => return (channels, code),
            }
        }
    }

    /// The bytes inside of its messages, as a stream.
    pub fn into_tunnel(mut self) -> DuplexStream {
        let (outer, mut inner) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move {
            let mut buffer = vec![0; 32 * 1024];
            loop {
                tokio::select! {
                    read = inner.read(&mut buffer) => match read {
                        Ok(count) if count > 0 => {
                            self.raw(Message::Binary(Bytes::copy_from_slice(&buffer[..count]))).await;
                        }
                        _ => return self.raw(Message::Close(None)).await,
                    },
                    event = self.next() => match event {
                        Event::Message(bytes) => {
                            if inner.write_all(&bytes).await.is_err() {
                                return;
                            }
                        }
                        Event::Closed(_) => return,
                    },
                }
            }
        });
        outer
    }
}
