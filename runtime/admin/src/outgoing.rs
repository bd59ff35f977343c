//! Writing frames to a socket: a queue bounded in bytes, and the writer that empties it.
//!
//! Whoever wants to send first waits for [`Room`], which is the back-pressure of a slow reader, and then
//! pushes without waiting. Nothing is dropped while the connection stands.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error as ThisError;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::frame::Patience;
use crate::limits::OUTGOING_BYTES_MAX;

/// What a frame counts beside its bytes: its place in the queue, in bytes.
const FRAME_COST: usize = 128;

/// The connection takes no more frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disconnected;

/// Why writing ended.
#[derive(Debug, ThisError)]
pub(crate) enum WriteError {
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the other side took nothing for {after_ms} ms")]
    Stalled { after_ms: u64 },
}

/// The end of the queue where frames go in.
#[derive(Clone)]
pub(crate) struct Outgoing {
    queue: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
}

/// Room for one frame.
pub(crate) struct Room {
    queue: mpsc::UnboundedSender<Queued>,
    permit: OwnedSemaphorePermit,
}

/// A sealed frame; its room is free again when it has been written.
struct Queued {
    frame: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

/// The end of the queue where frames come out. When it is dropped, all who wait for room are told.
pub(crate) struct Writer {
    queue: mpsc::UnboundedReceiver<Queued>,
    room: Arc<Semaphore>,
}

/// The queue of one connection.
pub(crate) fn queue() -> (Outgoing, Writer) {
    // The channel itself has no bound: each frame in it holds a part of `room`.
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(OUTGOING_BYTES_MAX));
    (Outgoing { queue: sender, room: room.clone() }, Writer { queue: receiver, room })
}

impl Outgoing {
    /// Waits for room for a frame of so many bytes, first come, first served.
    pub(crate) async fn room(&self, length: usize) -> Result<Room, Disconnected> {
        // A frame is at most FRAME_BODY_MAX and a header, half of the queue: the numbers fit.
        let cost = (length + FRAME_COST).min(OUTGOING_BYTES_MAX) as u32;
        match self.room.clone().acquire_many_owned(cost).await {
            Ok(permit) => Ok(Room { queue: self.queue.clone(), permit }),
            Err(_) => Err(Disconnected),
        }
    }

    /// Waits for room and pushes.
    pub(crate) async fn send(&self, frame: Vec<u8>) -> Result<(), Disconnected> {
        self.room(frame.len()).await?.push(frame);
        Ok(())
    }
}

impl Room {
    /// Puts the frame into the queue. When the writer has just ended, nobody will read it, and whoever cares
    /// learns of that from the connection.
    pub(crate) fn push(self, frame: Vec<u8>) {
        let _ = self.queue.send(Queued { frame, _permit: self.permit });
    }
}

impl Writer {
    /// Writes until the connection fails, or until `finish` fires and what was queued by then is written.
    pub(crate) async fn run(
        mut self,
        mut io: impl AsyncWrite + Unpin,
        mut finish: oneshot::Receiver<()>,
        patience: Patience,
    ) -> Result<(), WriteError> {
        let mut finishing = false;
        loop {
            let queued = tokio::select! {
                biased;
                _ = &mut finish, if !finishing => {
                    finishing = true;
                    self.queue.close();
                    continue;
                }
                queued = self.queue.recv() => queued,
            };
            match queued {
                Some(queued) => write(&mut io, &queued.frame, patience).await?,
                None => return Ok(()),
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.room.close();
    }
}

async fn write(
    io: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    patience: Patience,
) -> Result<(), WriteError> {
    while !bytes.is_empty() {
        let written = match patience {
            Patience::Endless => io.write(bytes).await?,
            Patience::Milliseconds(after_ms) => {
                match tokio::time::timeout(Duration::from_millis(after_ms), io.write(bytes)).await {
                    Ok(outcome) => outcome?,
                    Err(_) => return Err(WriteError::Stalled { after_ms }),
                }
            }
        };
        if written == 0 {
            return Err(WriteError::Io(io::ErrorKind::WriteZero.into()));
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

#[cfg(test)]
impl Writer {
    /// Takes out all that is queued and tells the frames' lengths.
    pub(crate) fn queued_lengths(&mut self) -> Vec<usize> {
        std::iter::from_fn(|| self.queue.try_recv().ok()).map(|queued| queued.frame.len()).collect()
    }
}
