//! One connection of a multiplexed socket, as a stream of bytes.
//!
//! Owns: the frame that is being read. Never: buffers what is written: each write is one frame.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::Receiver;

use super::closed::Closed;
use super::outgoing::Outgoing;

/// One connection of a multiplexed socket.
#[derive(Debug)]
pub struct Channel {
    connection: u32,
    frames: Receiver<Vec<u8>>,
    frame: Vec<u8>,
    taken: usize,
    outgoing: Arc<Outgoing>,
}

impl Channel {
    pub(super) fn new(connection: u32, frames: Receiver<Vec<u8>>, outgoing: Arc<Outgoing>) -> Self {
        Self { connection, frames, frame: Vec::new(), taken: 0, outgoing }
    }
}

impl AsyncRead for Channel {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.taken == this.frame.len() {
            match ready!(this.frames.poll_recv(context)) {
                Some(frame) => (this.frame, this.taken) = (frame, 0),
                // The reader has gone, and has said why.
                None => return Poll::Ready(end(this.outgoing.closing.reason())),
            }
        }
        let left = &this.frame[this.taken..];
        let part = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..part]);
        this.taken += part;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Channel {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, payload: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.outgoing.send(self.connection, payload).map_err(io::Error::from))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What a reader is told at the end: an orderly one is an end of file.
fn end(reason: Option<Closed>) -> io::Result<()> {
    match reason {
        None | Some(Closed::Here { .. } | Closed::There) => Ok(()),
        Some(reason) => Err(reason.into()),
    }
}
