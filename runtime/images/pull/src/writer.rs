//! The thread that writes one blob. It hashes and writes what the registry's side hands to it, so that neither waits for
//! the other longer than it must. When that side is gone, the bytes that came are kept for the next try.

use std::io;

use bytes::Bytes;
use mainstay_images::{BlobWriter, ImagesError, Observer};
use mainstay_oci_image::{Algorithm, Digest};
use mainstay_registry::Sink;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::failure::PullError;
use crate::gate::Passage;
use crate::settings::PIECES_MAX;

/// The registry's side.
pub(crate) struct WriterSink(mpsc::Sender<Piece>);

/// The thread's side.
pub(crate) struct WriterThread(JoinHandle<Result<(), ImagesError>>);

/// What the blob needs while it is written: its gate, and a slot.
pub(crate) struct Room {
    pub(crate) _passage: Passage<Digest>,
    pub(crate) _slot: OwnedSemaphorePermit,
}

enum Piece {
    Bytes(Bytes),
    Restart,
    /// Asks for the digest of all that came, and was there before.
    Digest(oneshot::Sender<Digest>),
    Commit,
}

/// Starts the thread. The room is given back when the blob is, by whatever end.
pub(crate) fn start(writer: BlobWriter, observer: Observer, room: Room) -> (WriterSink, WriterThread) {
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let thread = tokio::task::spawn_blocking(move || {
        let result = write(writer, pieces, &observer);
        // Not before the writer is gone: the next one would find it still there.
        drop(room);
        result
    });
    (WriterSink(sender), WriterThread(thread))
}

fn write(
    mut writer: BlobWriter,
    mut pieces: mpsc::Receiver<Piece>,
    observer: &Observer,
) -> Result<(), ImagesError> {
    loop {
        match pieces.blocking_recv() {
            Some(Piece::Bytes(bytes)) => writer.write(&bytes)?,
            Some(Piece::Restart) => writer.restart()?,
            // Who has left needs no answer.
            Some(Piece::Digest(answer)) => drop(answer.send(writer.found())),
            Some(Piece::Commit) => return writer.commit(observer),
            None => return Ok(()),
        }
    }
}

impl WriterSink {
    /// All of it was handed over.
    pub(crate) async fn commit(self) {
        // A thread that has ended has an error to tell.
        let _ = self.0.send(Piece::Commit).await;
    }

    async fn hand(&self, piece: Piece) -> io::Result<()> {
        // What is wrong is told by the thread; here it only ends the transfer.
        self.0.send(piece).await.map_err(|_| writing_failed())
    }
}

impl Sink for WriterSink {
    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.hand(Piece::Bytes(bytes)).await
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
