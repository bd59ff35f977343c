//! WebSocket, after hyper has upgraded a connection.
//!
//! ```text
//!   socket ──► messages, pings answered ──► whoever serves it, one at a time
//!   socket ◄── one message at a time    ◄── whoever serves it
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `channel` | messages with a channel |
//! | `tunnel` | a byte stream inside of messages |
//!
//! Owns: the two halves of a connection, their limits and its end. Never: keeps more than one message.

pub(crate) mod channel;
pub(crate) mod tunnel;

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use crate::peer::{Activity, Gone};

/// The longest message of a client, in bytes. kubectl sends 32 KiB at once; other clients send what they have.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time for a client to answer a close, in milliseconds.
pub const CLOSE_MS: u64 = 30_000;
/// The longest reason of a close, in bytes, as the protocol has it.
const REASON_BYTES_MAX: usize = 123;

/// What a client sends.
pub(crate) struct Source<Io> {
    stream: SplitStream<WebSocketStream<Io>>,
    activity: Activity,
    gone: Gone,
}

/// What a client is sent.
pub(crate) struct Sink<Io> {
    sink: SplitSink<WebSocketStream<Io>, Message>,
    activity: Activity,
}

/// The connection is over for this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client has left, or nothing moved for too long.
    Left,
    /// The client broke a rule: how the connection is closed.
    Wrong(CloseCode, String),
}

/// The two halves of a connection.
pub(crate) async fn open<Io>(io: Io, idle: Duration, gone: Gone) -> (Source<Io>, Sink<Io>)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let (sink, stream) = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await.split();
    let activity = Activity::new(idle);
    (Source { stream, activity: activity.clone(), gone }, Sink { sink, activity })
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Source<Io> {
    /// The next message with data. Pings are answered, and closes.
    pub(crate) async fn next(&mut self) -> Result<Bytes, Ended> {
        loop {
            let next = tokio::select! {
                next = timeout(self.activity.left(), self.stream.next()) => next,
                () = self.gone.heard() => return Err(Ended::Left),
            };
            let message = match next {
                Ok(Some(Ok(message))) => message,
                Ok(None) => return Err(Ended::Left),
                Ok(Some(Err(error))) => return Err(ended(&error)),
                Err(_) if self.activity.is_idle() => return Err(Ended::Left),
                Err(_) => continue,
            };
            self.activity.happened();
            match message {
                Message::Binary(bytes) => return Ok(bytes),
                Message::Text(text) => return Ok(text.into()),
                Message::Close(_) => return Err(Ended::Left),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    /// Reads until the client has closed its side, and throws away what it still sends.
    pub(crate) async fn drain(&mut self) {
        while let Some(Ok(_)) = self.stream.next().await {}
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Sink<Io> {
    /// Sends a message; waits while the client does not read. False when it has left.
    pub(crate) async fn send(&mut self, message: Message) -> bool {
        let is_sent = self.sink.send(message).await.is_ok();
        self.activity.happened();
        is_sent
    }

    /// Says goodbye.
    pub(crate) async fn close(&mut self, code: CloseCode, reason: &str) {
        let mut end = reason.len().min(REASON_BYTES_MAX);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let frame = CloseFrame { code, reason: reason[..end].into() };
        let _ = self.sink.send(Message::Close(Some(frame))).await;
    }
}

/// Says goodbye, and gives the client its time to read what is on its way.
pub(crate) async fn finish<Io>(mut source: Source<Io>, mut sink: Sink<Io>, code: CloseCode, reason: &str)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let farewell = async {
        sink.close(code, reason).await;
        // Closed while bytes are unread, a TCP connection takes back what the client has not read yet.
        source.drain().await;
    };
    let _ = timeout(Duration::from_millis(CLOSE_MS), farewell).await;
}

fn ended(error: &Error) -> Ended {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
            let reason = format!("a message has {size} bytes; the limit is {max_size}");
            Ended::Wrong(CloseCode::Size, reason)
        }
        Error::Protocol(problem) => Ended::Wrong(CloseCode::Protocol, problem.to_string()),
        Error::Utf8(_) => Ended::Wrong(CloseCode::Invalid, "a text is not UTF-8".into()),
        _ => Ended::Left,
    }
}
