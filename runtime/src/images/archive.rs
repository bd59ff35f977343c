//! Archives between callers, who wait without blocking, and the images, whose work blocks: pieces through a short queue.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_actors::image::{ProgressFeed, progress};
use mainstay_image_pull::figures::{Figures, Kind, MANIFEST_PART};
use mainstay_images::{ImportOptions, Observer};
use mainstay_messages::image::{ImageId, ImageName, PullProgress};
use mainstay_messages::{Error, Result};
use mainstay_oci_image::{Event, Part};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::failure::{told, told_of_import};
use super::node::NodeImages;
use super::view;
use crate::closing::Closed;

/// Pieces of an archive that wait to be taken.
const PIECES_MAX: usize = 4;
/// The largest piece of an archive that is written, in bytes.
pub(crate) const PIECE_BYTES_MAX: usize = mainstay_messages::admin::OUTPUT_CHUNK_MAX;

/// A piece of an archive that comes in.
#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    Failed(io::Error),
    End,
}

/// Images that are being imported. Dropping it gives the import up; what was unpacked is garbage then.
#[derive(Debug)]
pub struct Import {
    feed: ProgressFeed,
    answer: JoinHandle<Result<Vec<ImageId>>>,
    observer: Observer,
    end: Closed,
}

/// Images that are being exported: an OCI archive, piece by piece. Dropping it gives the export up.
#[derive(Debug)]
pub struct Export {
    pieces: mpsc::Receiver<Vec<u8>>,
    answer: Option<JoinHandle<Result<()>>>,
    end: Closed,
}

/// The reading end of pieces.
struct Incoming {
    pieces: mpsc::Receiver<Piece>,
    rest: io::Cursor<Vec<u8>>,
    over: bool,
}

/// The writing end of pieces.
struct Outgoing(mpsc::Sender<Vec<u8>>);

impl Import {
    pub(super) fn begin(
        images: Arc<NodeImages>,
        name: Option<ImageName>,
        end: Closed,
    ) -> Result<(Self, mpsc::Sender<Piece>)> {
        let name = name.map(|name| name.as_str().parse()).transpose();
        let name = name.map_err(|error| told(&mainstay_images::ImagesError::Name(error)))?;
        let options = ImportOptions { name, ..ImportOptions::default() };
        let (sink, feed) = progress();
        // Taken at the end of the work, which is the end of the news; the observer stays, to cancel it.
        let teller = Arc::new(Mutex::new(Some((sink, BTreeMap::new()))));
        let told = Arc::clone(&teller);
        let observer = Observer::new(move |event| {
            if let Some((sink, parts)) = lock(&told).as_mut() {
                sink.tell(told_of(parts, &event));
            }
        });
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let source = Incoming { pieces, rest: io::Cursor::default(), over: false };
        let watched = observer.clone();
        let work = async move {
            let imported = images.blocking(move |images| images.import(source, &options, &watched)).await;
            lock(&teller).take();
            let records = imported?.map_err(|error| told_of_import(&error))?;
            Ok(records.iter().map(|record| view::id(record)).collect())
        };
        Ok((Self { feed, answer: tokio::spawn(work), observer, end }, sender))
    }

    /// The next of its news; none when it has ended.
    pub async fn progress(&mut self) -> Option<PullProgress> {
        self.feed.next().await
    }

    /// The images, once they are here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with what is wrong with the archive, [`Error::Unavailable`] with what is wrong with the
    /// machine; nothing of it is listed.
    pub async fn images(&mut self) -> Result<Vec<ImageId>> {
        let answer = self.end.or(&mut self.answer).await?;
        answer.map_err(|_| Error::internal("an import", "it panicked, or was asked before"))?
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        self.observer.cancel();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind it holds figures and nothing else.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a caller is told of an event.
fn told_of(parts: &mut BTreeMap<String, Figures>, event: &Event) -> PullProgress {
    let (name, kind) = match &event.part {
        Part::Manifest(_) => (MANIFEST_PART.to_owned(), Kind::Document),
        Part::Blob(digest) => (digest.to_string(), Kind::Document),
        Part::Layer(digest) => (digest.to_string(), Kind::Layer),
    };
    let figures = parts.entry(name.clone()).or_insert_with(|| Figures::new(name, kind, None));
    figures.take(&event.part, &event.step)
}

impl Export {
    pub(super) fn begin(images: Arc<NodeImages>, names: Vec<ImageName>, end: Closed) -> Self {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let work = async move {
            images
                .with(move |images| {
                    let names: Vec<_> = names.iter().map(ImageName::as_str).collect();
                    let mut to = io::BufWriter::with_capacity(PIECE_BYTES_MAX, Outgoing(sender));
                    images.export(&names, &mut to)?;
                    to.flush().map_err(|source| {
                        let operation = "writing an archive".to_owned();
                        mainstay_images::ImagesError::File { operation, source }
                    })
                })
                .await
        };
        Self { pieces, answer: Some(tokio::spawn(work)), end }
    }

    /// The next piece of the archive, 64 KiB at most; none at its end.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an image that is not here; [`Error::Unavailable`] when one is damaged: what came until then
    /// is no archive.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(piece) = self.end.or(self.pieces.recv()).await? {
            return Ok(Some(piece));
        }
        let Some(answer) = self.answer.take() else { return Ok(None) };
        answer.await.map_err(|_| Error::internal("an export", "it panicked"))?.map(|()| None)
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.rest.read(buffer)?;
            if read > 0 || buffer.is_empty() || self.over {
                return Ok(read);
            }
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.rest = io::Cursor::new(bytes),
                Some(Piece::Failed(error)) => return Err(error),
                Some(Piece::End) => self.over = true,
                None => {
                    let text = "whoever sent the archive stopped before its end";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
            }
        }
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES_MAX)];
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody takes the archive any more");
        self.0.blocking_send(piece.to_vec()).map_err(gone)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming(pieces: Vec<Piece>) -> Incoming {
        let (sender, receiver) = mpsc::channel(pieces.len().max(1));
        for piece in pieces {
            sender.try_send(piece).expect("room for all");
        }
        Incoming { pieces: receiver, rest: io::Cursor::default(), over: false }
    }

    #[test]
    fn pieces_are_one_stream_to_its_end() {
        let pieces =
            vec![Piece::Bytes(b"ab".into()), Piece::Bytes(Vec::new()), Piece::Bytes(b"c".into()), Piece::End];
        let mut text = String::new();
        incoming(pieces).read_to_string(&mut text).expect("whole");
        assert_eq!(text, "abc");
    }

    /// An archive whose sender was killed must not be taken for a whole one.
    #[test]
    fn a_stream_that_breaks_off_is_no_end() {
        let error = incoming(vec![Piece::Bytes(b"ab".into())]).read_to_end(&mut Vec::new());
        assert_eq!(error.expect_err("broken off").kind(), io::ErrorKind::UnexpectedEof);
    }
}
