//! A byte stream inside of the binary messages of a WebSocket.
//!
//! Owns: passing bytes from one to the other. Never: looks at them.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{Ended, Sink, Source, finish};

/// Bytes that wait in each direction, and the longest message that is sent.
pub const TUNNEL_BYTES: usize = 64 * 1024;

/// The end of a tunnel to be read and written.
pub(crate) fn ends() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(TUNNEL_BYTES)
}

/// Passes bytes until both sides have ended.
pub(crate) async fn run<Io>(mut source: Source<Io>, mut sink: Sink<Io>, inner: DuplexStream)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let (mut inner_read, mut inner_write) = tokio::io::split(inner);
    let inbound = async {
        let ended = loop {
            match source.next().await {
                Ok(bytes) => {
                    if inner_write.write_all(&bytes).await.is_err() {
                        break None;
                    }
                }
                Err(ended) => break Some(ended),
            }
        };
        let _ = inner_write.shutdown().await;
        ended
    };
    let outbound = async {
        let mut buffer = BytesMut::with_capacity(TUNNEL_BYTES);
        loop {
            buffer.reserve(TUNNEL_BYTES);
            match inner_read.read_buf(&mut buffer).await {
                Ok(count) if count > 0 => {
                    let message: Bytes = buffer.split().freeze();
                    if !sink.send(Message::Binary(message)).await {
                        return;
                    }
                }
                _ => return,
            }
        }
    };
    let (code, reason) = {
        tokio::pin!(inbound, outbound);
        tokio::select! {
            ended = &mut inbound => {
                // What is still to be said is said, if there is anybody to hear it.
                if ended.is_none() {
                    outbound.await;
                }
                match ended {
                    Some(Ended::Wrong(code, reason)) => (code, reason),
                    Some(Ended::Left) | None => (CloseCode::Normal, String::new()),
                }
            }
            () = &mut outbound => (CloseCode::Normal, String::new()),
        }
    };
    finish(source, sink, code, &reason).await;
}
