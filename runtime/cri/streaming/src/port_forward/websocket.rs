//! Port-forward over WebSocket channels: the ports are those of the request.
//!
//! ```text
//!   channel 2n    data of port n        both begin with the number of the port: 2 bytes, little endian
//!   channel 2n+1  what goes wrong there
//! ```
//!
//! Owns: the channels of one client. Never: ends a port because of another. There is no half-close in this protocol: the client's
//! direction of a port ends with the client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::STALL_MS;
use super::forward::{AfterPod, Forwarded, Inbound, Outbound, forward};
use crate::backend::OpenPort;
use crate::peer::{GoneGuard, Peer};
use crate::spdy::connection::Piece;
use crate::websocket::channel::{self, ChannelMessage, Encoding, HalfClose};
use crate::websocket::{self, Ended, Sink, Source};

/// Messages that wait for one port.
pub const PORT_QUEUE_MESSAGES: usize = 8;
/// The most ports of one request: each has two channels, whose numbers are one byte.
pub const PORTS_MAX: usize = 64;

/// Serves the ports of one request.
pub(crate) async fn serve<Io>(
    io: Io,
    peer: Peer,
    idle: Duration,
    encoding: Encoding,
    (numbers, ports): (Vec<u16>, Arc<dyn OpenPort>),
) where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    // It hears the end of `guard`, which nothing here waits for.
    let (guard, gone) = GoneGuard::new();
    let (mut source, sink) = websocket::open(io, idle, gone).await;
    let sink = Arc::new(Mutex::new(sink));
    let mut forwards = JoinSet::new();
    let mut queues = Vec::new();
    for (index, port) in numbers.into_iter().take(PORTS_MAX).enumerate() {
        let (sender, queue) = mpsc::channel(PORT_QUEUE_MESSAGES);
        queues.push(sender);
        let channel = 2 * index as u8;
        let channels = Channels { sink: Arc::clone(&sink), data: channel, error: channel + 1, encoding };
        forwards.spawn(serve_port(port, Queue(queue), channels, Arc::clone(&ports)));
    }
    let reading = read(&mut source, &peer, encoding, &mut queues);
    let all_over = async { while forwards.join_next().await.is_some() {} };
    let (code, reason) = tokio::select! {
        ended = reading => match ended {
            Ended::Wrong(code, reason) => (code, reason),
            Ended::Left => (CloseCode::Normal, String::new()),
        },
        () = all_over => (CloseCode::Normal, String::new()),
    };
    forwards.shutdown().await;
    drop(queues);
    if let Ok(sink) = Arc::try_unwrap(sink) {
        websocket::finish(source, sink.into_inner(), code, &reason).await;
    }
    drop(guard);
}

async fn read<Io: AsyncRead + AsyncWrite + Unpin>(
    source: &mut Source<Io>,
    peer: &Peer,
    encoding: Encoding,
    queues: &mut [mpsc::Sender<Piece>],
) -> Ended {
    loop {
        let message = match source.next().await {
            Ok(message) => message,
            Err(ended) => return ended,
        };
        let (channel, bytes) = match channel::decode(&message, encoding, HalfClose::No) {
            Ok(ChannelMessage::Data { channel, bytes }) => (channel, bytes),
            Ok(ChannelMessage::Close { .. } | ChannelMessage::Empty) => continue,
            Err(malformed) => return Ended::Wrong(CloseCode::Protocol, malformed.to_string()),
        };
        // Errors are for us to say.
        let Some(queue) = queues.get_mut(usize::from(channel / 2)).filter(|_| channel.is_multiple_of(2))
        else {
            continue;
        };
        if bytes.is_empty() {
            continue;
        }
        tokio::select! {
            sent = timeout(Duration::from_millis(STALL_MS), queue.send(Piece::Data(bytes))) => {
                if sent.is_err() {
                    tracing::debug!(channel, "a port that is forwarded took nothing for too long, and is cut off");
                    *queue = mpsc::channel(1).0;
                }
            }
            () = peer.left() => return Ended::Left,
        }
    }
}

async fn serve_port<Io>(port: u16, mut queue: Queue, mut channels: Channels<Io>, ports: Arc<dyn OpenPort>)
where
    Io: AsyncRead + AsyncWrite + Send + Unpin,
{
    let number = Bytes::copy_from_slice(&port.to_le_bytes());
    for channel in [channels.data, channels.error] {
        channels.say(channel, &number).await;
    }
    match ports.connect(port).await {
        Ok(connection) => {
            if forward(connection, &mut queue, &mut channels).await == Forwarded::PodReset {
                let message = format!("the connection to port {port} was reset by the pod");
                channels.say(channels.error, message.as_bytes()).await;
            }
        }
        Err(failure) => {
            channels.say(channels.error, failure.0.as_bytes()).await;
        }
    }
}

struct Queue(mpsc::Receiver<Piece>);

impl Inbound for Queue {
    async fn next(&mut self) -> Option<Piece> {
        self.0.recv().await
    }
}

struct Channels<Io> {
    sink: Arc<Mutex<Sink<Io>>>,
    data: u8,
    error: u8,
    encoding: Encoding,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Channels<Io> {
    async fn say(&self, channel: u8, bytes: &[u8]) -> bool {
        let message = channel::encode(channel, bytes, self.encoding);
        self.sink.lock().await.send(message).await
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin + Send> Outbound for Channels<Io> {
    async fn send(&mut self, bytes: Bytes) -> bool {
        self.say(self.data, &bytes).await
    }

    async fn finish(&mut self) -> AfterPod {
        AfterPod::IsOver
    }
}
