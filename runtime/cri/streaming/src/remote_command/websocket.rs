//! Exec and attach over WebSocket.
//!
//! ```text
//!   channel  0 stdin   1 stdout   2 stderr   3 error   4 resize
//! ```
//!
//! Owns: the channels of one process. Never: reads ahead of the process.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{STDIN_QUEUE_PIECES, Told, tell};
use crate::backend::{OpenProcess, OutputStream, Streams, TerminalSize};
use crate::peer::{GoneGuard, Peer};
use crate::resize::SizeReader;
use crate::session::{self, FromClient, Purpose, ToClient};
use crate::spdy::connection::Piece;
use crate::status::Version;
use crate::websocket::channel::{self, ChannelMessage, Encoding, HalfClose};
use crate::websocket::{self, Ended, Sink, Source};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

/// Serves one process.
pub(crate) async fn serve<Io>(
    io: Io,
    peer: Peer,
    idle: Duration,
    (version, encoding): (Version, Encoding),
    (opener, purpose, streams): (Box<dyn OpenProcess>, Purpose, Streams),
) where
    Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (guard, gone) = GoneGuard::new();
    let (source, sink) = websocket::open(io, idle, gone.clone()).await;
    let mut client = Client { sink, encoding };
    // Says that the connection is there, on the first channel that there is.
    let first = if streams.stdout {
        STDOUT
    } else if streams.stderr {
        STDERR
    } else {
        ERROR
    };
    client.send(first, &[]).await;

    let (pieces, stdin) = mpsc::channel(STDIN_QUEUE_PIECES);
    let (seen, sizes) = watch::channel(None);
    let half_close = if version >= Version::V5 { HalfClose::Yes } else { HalfClose::No };
    let reading = Reading {
        source,
        peer,
        encoding,
        half_close,
        stdin: streams.stdin.then_some(pieces),
        sizes: SizeReader::default(),
        seen,
    };
    // It owns the guard, so that the session hears of its end however it comes.
    let mut reading = tokio::spawn(reading.run(guard));
    let outcome =
        session::run(opener, purpose, streams, FromClient { stdin, sizes, gone: gone.clone() }, &mut client)
            .await;
    let limit = Duration::from_millis(websocket::CLOSE_MS);
    if let Some(outcome) = &outcome {
        let farewell = async {
            let text = outcome.text(version);
            if !text.is_empty() {
                client.send(ERROR, text.as_bytes()).await;
            }
            client.sink.close(CloseCode::Normal, "").await;
        };
        if tell(farewell, gone).await == Told::All {
            // The client's answer to the close ends the reading; what it still sends is thrown away.
            let _ = timeout(limit, &mut reading).await;
        }
    } else if let Ok(Ended::Wrong(code, reason)) = (&mut reading).await {
        let _ = timeout(limit, client.sink.close(code, &reason)).await;
    }
    reading.abort();
}

struct Client<Io> {
    sink: Sink<Io>,
    encoding: Encoding,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Client<Io> {
    async fn send(&mut self, channel: u8, bytes: &[u8]) {
        self.sink.send(channel::encode(channel, bytes, self.encoding)).await;
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin + Send> ToClient for Client<Io> {
    async fn output(&mut self, stream: OutputStream, bytes: Bytes) {
        let channel = match stream {
            OutputStream::Stdout => STDOUT,
            OutputStream::Stderr => STDERR,
        };
        self.send(channel, &bytes).await;
    }
}

struct Reading<Io> {
    source: Source<Io>,
    peer: Peer,
    encoding: Encoding,
    half_close: HalfClose,
    stdin: Option<mpsc::Sender<Piece>>,
    sizes: SizeReader,
    seen: watch::Sender<Option<TerminalSize>>,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Reading<Io> {
    async fn run(mut self, guard: GoneGuard) -> Ended {
        let ended = loop {
            let message = match self.source.next().await {
                Ok(message) => message,
                Err(ended) => break ended,
            };
            let step = match channel::decode(&message, self.encoding, self.half_close) {
                Ok(ChannelMessage::Data { channel: STDIN, bytes }) if !bytes.is_empty() => {
                    self.stdin(Piece::Data(bytes)).await
                }
                Ok(ChannelMessage::Close { channel: STDIN }) => {
                    let step = self.stdin(Piece::End).await;
                    self.stdin = None;
                    step
                }
                Ok(ChannelMessage::Data { channel: RESIZE, bytes }) => {
                    if let Some(size) = self.sizes.read(&bytes) {
                        self.seen.send_replace(Some(size));
                    }
                    Ok(())
                }
                // Other channels are for what we say; that a client has closed one of them is of no interest.
                Ok(ChannelMessage::Data { .. } | ChannelMessage::Close { .. } | ChannelMessage::Empty) => {
                    Ok(())
                }
                Err(malformed) => Err(Ended::Wrong(CloseCode::Protocol, malformed.to_string())),
            };
            if let Err(ended) = step {
                break ended;
            }
        };
        drop(guard);
        ended
    }

    async fn stdin(&mut self, piece: Piece) -> Result<(), Ended> {
        let Some(stdin) = &self.stdin else { return Ok(()) };
        tokio::select! {
            // It is closed when the process has ended.
            _ = stdin.send(piece) => Ok(()),
            () = self.peer.left() => Err(Ended::Left),
        }
    }
}
