//! What is received.
//!
//! Owns: reading frames, checking their length before anything is kept, and handing them to the queue of their connection.
//! Frames for connections that nobody knows are read and dropped. Never: waits for a queue for ever.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::closed::{Closed, Closing};
use super::frame::{FRAME_MAX_BYTES, HEADER_BYTES, Header};
use super::{PLUGIN_CONNECTION, RUNTIME_CONNECTION};

/// How many frames of a connection wait for whoever reads it, as with all that speak this.
pub const QUEUE_FRAMES: usize = 256;
/// How long the reader waits for room in a full queue, in milliseconds. Whoever reads it is a task that never waits
/// for long, so that this is the time of a machine that is very busy.
pub const QUEUE_PATIENCE_MS: u64 = 10_000;
/// How many bytes are read at once.
const READ_BYTES: usize = 16 << 10;

/// What waits for whoever reads a connection.
pub(super) struct Queues {
    pub plugin: Sender<Vec<u8>>,
    pub runtime: Sender<Vec<u8>>,
}

pub(super) fn queue() -> (Sender<Vec<u8>>, Receiver<Vec<u8>>) {
    channel(QUEUE_FRAMES)
}

/// Reads until the socket is closed.
pub(super) async fn read(socket: Arc<UnixStream>, queues: Queues, closing: Closing) {
    let reason = tokio::select! {
        // What came before the end is handed on even when both are ready.
        biased;
        reason = frames(Reader::new(socket), &queues) => reason,
        reason = closing.closed() => reason,
    };
    closing.close(reason);
}

async fn frames(mut reader: Reader, queues: &Queues) -> Closed {
    loop {
        match frame(&mut reader, queues).await {
            Ok(()) => {}
            Err(reason) => return reason,
        }
    }
}

async fn frame(reader: &mut Reader, queues: &Queues) -> Result<(), Closed> {
    let mut header = [0; HEADER_BYTES];
    reader.fill(&mut header, 0, HEADER_BYTES).await?;
    let Header { connection, length } = Header::from_bytes(header);
    let bytes = length as usize;
    if bytes > FRAME_MAX_BYTES {
        return Err(Closed::TooLong { connection, length, limit: FRAME_MAX_BYTES });
    }
    let queue = match connection {
        PLUGIN_CONNECTION => &queues.plugin,
        RUNTIME_CONNECTION => &queues.runtime,
        _ => return reader.skip(bytes).await,
    };
    let payload = reader.payload(bytes).await?;
    if payload.is_empty() {
        return Ok(());
    }
    hand_on(queue, connection, payload).await
}

async fn hand_on(queue: &Sender<Vec<u8>>, connection: u32, payload: Vec<u8>) -> Result<(), Closed> {
    let limit = Duration::from_millis(QUEUE_PATIENCE_MS);
    match tokio::time::timeout(limit, queue.send(payload)).await {
        // A connection that is not read any more is as good as one that nobody knows.
        Ok(Ok(()) | Err(_)) => Ok(()),
        Err(_) => Err(Closed::Overflow { connection, frames: QUEUE_FRAMES, waited_ms: QUEUE_PATIENCE_MS }),
    }
}

/// Reads ahead, so that a frame usually costs one call.
struct Reader {
    socket: Arc<UnixStream>,
    ahead: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Reader {
    fn new(socket: Arc<UnixStream>) -> Self {
        Self { socket, ahead: vec![0; READ_BYTES].into_boxed_slice(), from: 0, to: 0 }
    }

    /// A payload. What is announced is only kept as it comes.
    async fn payload(&mut self, length: usize) -> Result<Vec<u8>, Closed> {
        let mut payload = Vec::new();
        while payload.len() < length {
            let part = (length - payload.len()).min(READ_BYTES);
            let got = payload.len();
            payload.resize(got + part, 0);
            self.fill(&mut payload[got..], HEADER_BYTES + got, HEADER_BYTES + length).await?;
        }
        Ok(payload)
    }

    async fn skip(&mut self, length: usize) -> Result<(), Closed> {
        let mut left = length;
        while left > 0 {
            let got = self.more(HEADER_BYTES + length - left, HEADER_BYTES + length).await?.min(left);
            self.from += got;
            left -= got;
        }
        Ok(())
    }

    /// Fills `buffer`. `before` bytes of a frame of `of` came already.
    async fn fill(&mut self, buffer: &mut [u8], before: usize, of: usize) -> Result<(), Closed> {
        let mut filled = 0;
        while filled < buffer.len() {
            let got = self.more(before + filled, of).await?.min(buffer.len() - filled);
            buffer[filled..filled + got].copy_from_slice(&self.ahead[self.from..self.from + got]);
            self.from += got;
            filled += got;
        }
        Ok(())
    }

    /// How many bytes there are, which is one at least.
    async fn more(&mut self, before: usize, of: usize) -> Result<usize, Closed> {
        while self.from == self.to {
            let failed = |error: io::Error| match error.kind() {
                io::ErrorKind::ConnectionReset => Closed::There,
                _ => Closed::Failed { operation: "reading from", reason: error.to_string() },
            };
            self.socket.readable().await.map_err(failed)?;
            match self.socket.try_read(&mut self.ahead) {
                Ok(0) if before == 0 => return Err(Closed::There),
                Ok(0) => return Err(Closed::CutOff { got: before, of }),
                Ok(read) => (self.from, self.to) = (0, read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(self.to - self.from)
    }
}
