//! The thread that writes one blob. It hashes and writes what the registry's side hands to it, so that neither waits for
//! the other longer than it must. When that side is gone, the bytes that came are kept for the next try.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use mainstay_images::{BlobWriter, ImagesError, Observer};
use mainstay_oci_image::{Algorithm, Digest};
use mainstay_registry::Sink;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::failure::PullError;
use crate::gate::Passage;
use crate::settings::{BYTES_AHEAD_MAX, PIECES_AHEAD_MAX};

/// The registry's side.
pub(crate) struct WriterSink {
    pieces: mpsc::Sender<Piece>,
    /// Bytes that may still be handed over before some are written.
    room: Arc<Semaphore>,
}

/// The thread's side.
pub(crate) struct WriterThread(JoinHandle<Result<(), ImagesError>>);

/// What the blob needs while it is written: its gate, and a slot.
pub(crate) struct Room {
    pub(crate) _passage: Passage<Digest>,
    pub(crate) _slot: OwnedSemaphorePermit,
}

enum Piece {
    /// With the room that they take until they are written.
    Bytes(Bytes, OwnedSemaphorePermit),
    Restart,
    /// Asks for the digest of all that came, and was there before.
    Digest(oneshot::Sender<Digest>),
    Commit,
}

/// Starts the thread. The room is given back when the blob is, by whatever end.
pub(crate) fn start(writer: BlobWriter, observer: Observer, room: Room) -> (WriterSink, WriterThread) {
    let (sink, pieces) = WriterSink::new();
    let thread = tokio::task::spawn_blocking(move || {
        let result = write(writer, pieces, &observer);
        // Not before the writer is gone: the next one would find it still there.
        drop(room);
        result
    });
    (sink, WriterThread(thread))
}

fn write(
    mut writer: BlobWriter,
    mut pieces: mpsc::Receiver<Piece>,
    observer: &Observer,
) -> Result<(), ImagesError> {
    loop {
        match pieces.blocking_recv() {
            Some(Piece::Bytes(bytes, _room)) => writer.write(&bytes)?,
            Some(Piece::Restart) => writer.restart()?,
            // Who has left needs no answer.
            Some(Piece::Digest(answer)) => drop(answer.send(writer.found())),
            Some(Piece::Commit) => return writer.commit(observer),
            None => return Ok(()),
        }
    }
}

impl WriterSink {
    fn new() -> (Self, mpsc::Receiver<Piece>) {
        let (pieces, receiver) = mpsc::channel(PIECES_AHEAD_MAX);
        (Self { pieces, room: Arc::new(Semaphore::new(BYTES_AHEAD_MAX)) }, receiver)
    }

    /// All of it was handed over.
    pub(crate) async fn commit(self) {
        // A thread that has ended has an error to tell.
        let _ = self.pieces.send(Piece::Commit).await;
    }

    async fn hand(&self, piece: Piece) -> io::Result<()> {
        // What is wrong is told by the thread; here it only ends the transfer.
        self.pieces.send(piece).await.map_err(|_| writing_failed())
    }
}

impl Sink for WriterSink {
    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        // One that is larger than all room there is takes all of it.
        let wanted = u32::try_from(bytes.len().min(BYTES_AHEAD_MAX)).unwrap_or(u32::MAX);
        // The semaphore is never closed, and a thread that has ended gives back all room.
        let room = Arc::clone(&self.room).acquire_many_owned(wanted).await.map_err(|_| writing_failed())?;
        self.hand(Piece::Bytes(bytes, room)).await
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.hand(Piece::Restart).await
    }

    async fn digest(&mut self, _: Algorithm) -> io::Result<Digest> {
        let (answer, digest) = oneshot::channel();
        self.hand(Piece::Digest(answer)).await?;
        digest.await.map_err(|_| writing_failed())
    }
}

fn writing_failed() -> io::Error {
    io::Error::other("writing it has failed")
}

impl WriterThread {
    /// Waits for its end, which comes soon once the registry's side has committed or is gone.
    pub(crate) async fn end(self) -> Result<(), PullError> {
        self.0.await.map_err(|_| PullError::Thread)?.map_err(PullError::Images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixteen pieces might wait, whatever their size: with connections that bring large ones, a slow disk and many layers, a
    /// pull took tens of MiB.
    #[tokio::test]
    async fn what_waits_for_the_disk_is_limited_in_bytes() {
        for length in [1, 1 << 10, 300 << 10, BYTES_AHEAD_MAX, 2 * BYTES_AHEAD_MAX] {
            let (mut sink, mut pieces) = WriterSink::new();
            let piece = Bytes::from(vec![0; length]);
            let mut waiting = 0;
            while futures::poll!(Box::pin(sink.write(piece.clone()))).is_ready() {
                waiting += 1;
            }
            assert!(waiting <= PIECES_AHEAD_MAX, "{waiting} pieces of {length} bytes");
            assert!(
                waiting == 1 || waiting * length <= BYTES_AHEAD_MAX,
                "{waiting} pieces of {length} bytes"
            );
            drop(pieces.recv().await.expect("a piece"));
            assert!(futures::poll!(Box::pin(sink.write(piece))).is_ready(), "what was written makes room");
        }
    }

    /// A transfer that waits for room must learn that nobody writes any more.
    #[tokio::test]
    async fn a_writer_that_has_ended_keeps_nobody_waiting() {
        let (mut sink, pieces) = WriterSink::new();
        let piece = Bytes::from(vec![0; BYTES_AHEAD_MAX]);
        sink.write(piece.clone()).await.expect("there is room");
        let mut next = Box::pin(sink.write(piece));
        assert!(futures::poll!(&mut next).is_pending());
        drop(pieces);
        next.await.expect_err("nobody writes");
    }
}
