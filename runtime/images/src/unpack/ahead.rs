//! Reading ahead: a layer is read and decompressed on a thread of its own, while its entries are made of what came before.
//!
//! ```text
//!   blob ─► decompress ─► filled pieces ─► DiffID ─► archive
//!               ▲                            │
//!               └──────── empty pieces ◄─────┘      never more than PIECES_MAX of them
//! ```
//!
//! Owns the pieces, which go round, so that a layer takes the same memory whatever its size, and the digest of what was read.
//! Never decides what a layer may be: that is the stream's. The thread ends with its stream, or when nobody reads any more: at
//! the latest when its source gives the next bytes, or breaks off.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, channel};

use mainstay_oci_image::{Algorithm, Digest, Hasher};

use crate::unpack::stream::Stream;

/// Bytes of one piece.
pub(crate) const PIECE_BYTES: usize = 128 << 10;
/// Pieces of one layer: one that is filled, one that is read, and those between, so that neither side waits for every turn
/// of the other.
pub(crate) const PIECES_MAX: usize = 6;

/// The content of a layer, read ahead.
pub(crate) struct Ahead {
    filled: Receiver<io::Result<Piece>>,
    empty: Sender<Vec<u8>>,
    piece: Piece,
    /// Bytes of the piece that were read.
    read: usize,
    hasher: Hasher,
}

/// Bytes of a layer, at the beginning of a buffer. One without bytes is the end.
#[derive(Default)]
struct Piece {
    buffer: Vec<u8>,
    length: usize,
}

impl Ahead {
    /// Starts the thread.
    pub(crate) fn start<R: Read + Send + 'static>(
        stream: Stream<R>,
        algorithm: Algorithm,
    ) -> io::Result<Self> {
        let (empty, to_fill) = channel();
        let (full, filled) = channel();
        for _ in 0..PIECES_MAX {
            // Its other end is here.
            let _ = empty.send(vec![0; PIECE_BYTES]);
        }
        std::thread::Builder::new()
            .name("mainstay-inflate".to_owned())
            .spawn(move || fill(stream, &to_fill, &full))?;
        Ok(Self { filled, empty, piece: Piece::default(), read: 0, hasher: Hasher::new(algorithm) })
    }

    /// The digest of everything that was read, up to the end of the piece that was read last.
    pub(crate) fn digest(self) -> Digest {
        self.hasher.finish()
    }

    /// Takes the next piece.
    fn advance(&mut self) -> io::Result<()> {
        let used = std::mem::take(&mut self.piece).buffer;
        if !used.is_empty() {
            // The thread is gone once it has given everything.
            let _ = self.empty.send(used);
        }
        self.read = 0;
        let broken = || io::Error::other("the thread that decompresses it has ended");
        self.piece = self.filled.recv().map_err(|_| broken())??;
        self.hasher.update(&self.piece.buffer[..self.piece.length]);
        Ok(())
    }

    fn is_at_end(&self) -> bool {
        self.piece.length == 0 && !self.piece.buffer.is_empty()
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.piece.length && !self.is_at_end() {
            self.advance()?;
        }
        let rest = &self.piece.buffer[self.read..self.piece.length];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.read += count;
        Ok(count)
    }
}

/// The thread: fills pieces until the stream ends, or nobody takes them.
fn fill(mut stream: impl Read, empty: &Receiver<Vec<u8>>, full: &Sender<io::Result<Piece>>) {
    while let Ok(mut buffer) = empty.recv() {
        let mut length = 0;
        let mut failed = None;
        while length < buffer.len() {
            match stream.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let whole = length == buffer.len();
        // What came before a fault is read before it is told.
        if (length > 0 || failed.is_none()) && full.send(Ok(Piece { buffer, length })).is_err() {
            return;
        }
        if let Some(error) = failed {
            let _ = full.send(Err(error));
            return;
        }
        if !whole && length > 0 {
            let end = Piece { buffer: vec![0], length: 0 };
            let _ = full.send(Ok(end));
        }
        if !whole {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;
    use crate::settings::Limits;

    /// Gives zeros for ever, and counts them.
    struct Zeros(Arc<AtomicUsize>);

    impl Read for Zeros {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(0);
            self.0.fetch_add(buffer.len(), Ordering::SeqCst);
            Ok(buffer.len())
        }
    }

    fn start(source: impl Read + Send + 'static) -> Ahead {
        let stream = Stream::new(source, &Limits::default()).expect("readable");
        Ahead::start(stream, Algorithm::Sha256).expect("a thread")
    }

    #[test]
    fn it_gives_what_the_stream_gives_and_its_digest() {
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECES_MAX * PIECE_BYTES + 7]
        {
            let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut ahead = start(io::Cursor::new(content.clone()));
            let mut found = Vec::new();
            ahead.read_to_end(&mut found).expect("read");
            assert!(found == content, "{length}");
            assert_eq!(ahead.read(&mut [0; 8]).expect("the end again"), 0);
            assert_eq!(ahead.digest(), Digest::of(&content));
        }
    }

    /// One huge file in a layer must take the memory of a small one: the source is not read further than there are pieces,
    /// and what was made of it is not made again.
    #[test]
    fn a_layer_of_any_size_takes_the_same_pieces() {
        let given = Arc::new(AtomicUsize::new(0));
        let mut ahead = start(Zeros(Arc::clone(&given)));
        let mut buffers = std::collections::BTreeSet::new();
        let mut buffer = vec![0; PIECE_BYTES];
        // What lies between is what the decompressor reads at a time.
        let slack = 2 * PIECE_BYTES;
        for turn in 1..=2000 {
            ahead.read_exact(&mut buffer).expect("zeros");
            buffers.insert(ahead.piece.buffer.as_ptr() as usize);
            let outstanding = given.load(Ordering::SeqCst) - turn * PIECE_BYTES;
            assert!(outstanding <= PIECES_MAX * PIECE_BYTES + slack, "{outstanding} bytes ahead");
        }
        assert!(buffers.len() <= PIECES_MAX, "{} buffers", buffers.len());
    }

    /// A layer was refused at its first entry while its bytes stalled: nobody may wait for the thread, and it must end when
    /// the bytes go on.
    #[test]
    fn it_ends_when_nobody_reads_any_more() {
        struct Gate(
            Arc<(Mutex<bool>, Condvar)>,
            #[expect(dead_code, reason = "its count tells whether it lives")] Arc<()>,
        );
        impl Read for Gate {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let (open, changed) = &*self.0;
                let _open = changed.wait_while(open.lock().expect("sound"), |open| !*open).expect("sound");
                buffer.fill(1);
                Ok(buffer.len())
            }
        }
        let (gate, alive) = (Arc::new((Mutex::new(true), Condvar::new())), Arc::new(()));
        let mut ahead = start(Gate(Arc::clone(&gate), Arc::clone(&alive)));
        ahead.read_exact(&mut [0; 8]).expect("ones");
        *gate.0.lock().expect("sound") = false;
        drop(ahead);
        *gate.0.lock().expect("sound") = true;
        gate.1.notify_all();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while Arc::strong_count(&alive) > 1 {
            assert!(std::time::Instant::now() < deadline, "the thread goes on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_came_before_a_fault_is_read_before_it_is_told() {
        struct Breaks(usize);
        impl Read for Breaks {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if self.0 == 0 {
                    return Err(io::Error::other("it broke off"));
                }
                let count = self.0.min(buffer.len());
                self.0 -= count;
                buffer[..count].fill(7);
                Ok(count)
            }
        }
        let mut ahead = start(Breaks(PIECE_BYTES + 10));
        let mut found = Vec::new();
        let error = ahead.read_to_end(&mut found).expect_err("it breaks off");
        assert_eq!((found.len(), error.to_string()), (PIECE_BYTES + 10, "it broke off".to_owned()));
    }
}
