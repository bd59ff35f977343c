//! One connection of SPDY/3.1, from the server's side.
//!
//! ```text
//!   socket ──► reading ──► a bounded queue for each stream ──► whoever serves it
//!                 │ answers (pings, refusals)
//!   socket ◄── writing ◄── a bounded queue for all streams ◄── whoever serves them
//! ```
//!
//! Owns: the two tasks of a connection, and what is between them and the streams. Never: keeps more than the queues hold. Nobody who
//! speaks SPDY with Kubernetes sends or heeds WINDOW_UPDATE, so the back-pressure is that of TCP: a queue that is full keeps the
//! connection from being read, and a client that does not read keeps the queue of what is written full.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::frame::{DATA_PIECE_BYTES_MAX, Decoder, Encoder, Fin, Frame, ResetCode, StreamId};
use super::headers::Headers;
use super::table::{Opening, STREAMS_MAX, Table};
use crate::peer::{Activity, Gone, GoneGuard, Peer};

/// Pieces of data that wait for the reader of one stream, each of at most 32 KiB.
pub const STREAM_QUEUE_PIECES: usize = 8;
/// Frames with data that wait to be written on one connection, each of at most 32 KiB.
pub const WRITE_QUEUE_FRAMES: usize = 16;
/// Answers that wait to be written. A ping beyond that is not answered.
pub const ANSWER_QUEUE_FRAMES: usize = STREAMS_MAX + 64;
/// Time for a client to take what is left when its connection is closed, and to close its side, in milliseconds.
pub const CLOSE_MS: u64 = 30_000;
/// Bytes that are read from a socket at once, and that are written at once when there is as much.
const BUFFER_BYTES: usize = 64 * 1024;

/// What happens to a stream whose reader takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnStall {
    /// The whole connection waits: its streams belong together.
    Wait,
    /// After this time it is reset, so that the other streams go on.
    Reset(Duration),
}

/// What a stream yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Data(Bytes),
    /// The client sends no more.
    End,
}

/// A stream that the client has opened, and that waits for an answer.
#[derive(Debug)]
pub(crate) struct NewStream {
    pub(crate) id: StreamId,
    pub(crate) headers: Headers,
    pub(crate) reader: StreamReader,
    pub(crate) writer: StreamWriter,
}

/// What the client sends on a stream.
#[derive(Debug)]
pub(crate) struct StreamReader(mpsc::Receiver<Piece>);

/// What the client is sent on a stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamWriter {
    id: StreamId,
    outbox: Outbox,
}

/// A connection. Dropping it cuts it off.
#[derive(Debug)]
pub(crate) struct Connection {
    outbox: Outbox,
    gone: Gone,
    reading: JoinHandle<()>,
    writing: JoinHandle<()>,
}

/// The stream cannot be written to any more: it was reset, or the client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

#[derive(Clone, Debug)]
struct Outbox {
    answers: mpsc::Sender<Frame>,
    data: mpsc::Sender<Frame>,
    table: Arc<Mutex<Table<mpsc::Sender<Piece>>>>,
}

impl Connection {
    /// Serves a connection. The streams that its client opens come out of the second half, which ends when the client is gone.
    pub(crate) fn start<Io>(
        io: Io,
        peer: Peer,
        idle: Duration,
        on_stall: OnStall,
    ) -> (Self, mpsc::Receiver<NewStream>)
    where
        Io: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (source, sink) = tokio::io::split(io);
        let (answers, answers_due) = mpsc::channel(ANSWER_QUEUE_FRAMES);
        let (data, data_due) = mpsc::channel(WRITE_QUEUE_FRAMES);
        let (opened, streams) = mpsc::channel(STREAMS_MAX);
        let (guard, gone) = GoneGuard::new();
        let activity = Activity::new(idle);
        let outbox = Outbox { answers, data, table: Arc::default() };
        let writer = Writer { sink, activity: activity.clone(), encoder: Encoder::default() };
        let writing = tokio::spawn(writer.run(answers_due, data_due, guard.clone()));
        let reader =
            Reader { source, peer, activity, on_stall, opened, outbox: outbox.clone(), gone: gone.clone() };
        let reading = tokio::spawn(reader.run(guard));
        (Self { outbox, gone, reading, writing }, streams)
    }

    /// Heard when the client is gone.
    pub(crate) fn gone(&self) -> Gone {
        self.gone.clone()
    }

    /// Says goodbye, and gives the client its time to read what is on its way. What it still sends is thrown away.
    pub(crate) async fn close(mut self) {
        let limit = Duration::from_millis(CLOSE_MS);
        let farewell = async {
            let last = self.outbox.table().go_away();
            let _ = self.outbox.data.send(Frame::GoAway { last, status: 0 }).await;
            let _ = (&mut self.writing).await;
            // Closed while bytes are unread, a TCP connection takes back what the client has not read yet.
            let _ = (&mut self.reading).await;
        };
        let _ = timeout(limit, farewell).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reading.abort();
        self.writing.abort();
    }
}

impl StreamReader {
    /// The next piece; none when the stream was reset or the client is gone.
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        self.0.recv().await
    }

    /// All pieces from now on, as a queue.
    pub(crate) fn take(&mut self) -> mpsc::Receiver<Piece> {
        std::mem::replace(&mut self.0, mpsc::channel(1).1)
    }
}

impl StreamWriter {
    /// Accepts the stream.
    pub(crate) async fn accept(&self) -> Result<(), Broken> {
        let reply = Frame::SynReply { stream: self.id, fin: Fin::No, headers: Headers::default() };
        self.outbox.answers.send(reply).await.map_err(|_| Broken)
    }

    /// Sends bytes; waits while the client does not read.
    pub(crate) async fn data(&self, mut bytes: Bytes) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(DATA_PIECE_BYTES_MAX));
            if !self.outbox.table().is_writable(self.id) {
                return Err(Broken);
            }
            let frame = Frame::Data { stream: self.id, fin: Fin::No, bytes: piece };
            self.outbox.data.send(frame).await.map_err(|_| Broken)?;
        }
        Ok(())
    }

    /// Ends our direction.
    pub(crate) async fn finish(&self) -> Result<(), Broken> {
        if !self.outbox.table().local_over(self.id) {
            return Ok(());
        }
        let frame = Frame::Data { stream: self.id, fin: Fin::Yes, bytes: Bytes::new() };
        self.outbox.data.send(frame).await.map_err(|_| Broken)
    }

    /// Ends both directions at once, after what was sent before.
    pub(crate) async fn reset(&self, code: ResetCode) -> Result<(), Broken> {
        if !self.outbox.table().reset(self.id) {
            return Ok(());
        }
        self.outbox.data.send(Frame::Reset { stream: self.id, code }).await.map_err(|_| Broken)
    }
}

impl Outbox {
    fn table(&self) -> MutexGuard<'_, Table<mpsc::Sender<Piece>>> {
        // No step of the table leaves it half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Reader<Io> {
    source: ReadHalf<Io>,
    peer: Peer,
    activity: Activity,
    on_stall: OnStall,
    opened: mpsc::Sender<NewStream>,
    outbox: Outbox,
    gone: Gone,
}

/// The connection ends.
struct Over;

impl<Io: AsyncRead> Reader<Io> {
    async fn run(mut self, guard: GoneGuard) {
        let mut decoder = Decoder::default();
        let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
        loop {
            let step = match decoder.next(&mut buffer) {
                Ok(Some(frame)) => self.frame(frame).await,
                Ok(None) => self.fill(&mut buffer).await,
                Err(error) => {
                    tracing::debug!(%error, "a client of a stream sent what is no SPDY");
                    let last = self.outbox.table().go_away();
                    let _ = self.outbox.data.try_send(Frame::GoAway { last, status: 1 });
                    Err(Over)
                }
            };
            if step.is_err() {
                break;
            }
        }
        self.outbox.table().clear();
        drop(guard);
    }

    async fn fill(&mut self, buffer: &mut BytesMut) -> Result<(), Over> {
        buffer.reserve(BUFFER_BYTES);
        loop {
            let read = tokio::select! {
                read = timeout(self.activity.left(), self.source.read_buf(buffer)) => read,
                () = self.gone.heard() => return Err(Over),
            };
            match read {
                Ok(Ok(count)) if count > 0 => {
                    self.activity.happened();
                    return Ok(());
                }
                Ok(_) => return Err(Over),
                Err(_) if self.activity.is_idle() => {
                    tracing::debug!("a stream was idle for too long");
                    return Err(Over);
                }
                Err(_) => {}
            }
        }
    }

    async fn frame(&mut self, frame: Frame) -> Result<(), Over> {
        match frame {
            Frame::SynStream { stream, fin, unidirectional, headers } => {
                self.opened(stream, fin, unidirectional, headers)
            }
            Frame::Data { stream, fin, bytes } => self.data(stream, fin, bytes).await,
            Frame::Reset { stream, .. } => {
                self.outbox.table().reset(stream);
                Ok(())
            }
            // A ping of ours would have an even number, and there are none.
            Frame::Ping(id) if id % 2 == 1 => {
                let _ = self.outbox.answers.try_send(Frame::Ping(id));
                Ok(())
            }
            Frame::GoAway { .. } => {
                self.outbox.table().go_away();
                Ok(())
            }
            Frame::Headers { stream, fin: Fin::Yes, .. } => self.data(stream, Fin::Yes, Bytes::new()).await,
            Frame::SynReply { .. }
            | Frame::Ping(_)
            | Frame::Headers { .. }
            | Frame::Settings(_)
            | Frame::WindowUpdate { .. } => Ok(()),
        }
    }

    fn opened(&mut self, id: StreamId, fin: Fin, unidirectional: bool, headers: Headers) -> Result<(), Over> {
        let (sender, receiver) = mpsc::channel(STREAM_QUEUE_PIECES);
        if fin == Fin::Yes {
            // An empty queue takes it.
            let _ = sender.try_send(Piece::End);
        }
        let opening = self.outbox.table().open(id, fin, unidirectional, sender);
        match opening {
            Opening::Ignored => Ok(()),
            Opening::Refused(code) => self.refuse(id, code),
            Opening::Accepted => {
                let writer = StreamWriter { id, outbox: self.outbox.clone() };
                let stream = NewStream { id, headers, reader: StreamReader(receiver), writer };
                if self.opened.try_send(stream).is_err() {
                    self.outbox.table().reset(id);
                    return self.refuse(id, ResetCode::REFUSED_STREAM);
                }
                Ok(())
            }
        }
    }

    /// A client that cannot even be refused has sent much and read nothing.
    fn refuse(&self, stream: StreamId, code: ResetCode) -> Result<(), Over> {
        self.outbox.answers.try_send(Frame::Reset { stream, code }).map_err(|_| Over)
    }

    async fn data(&mut self, stream: StreamId, fin: Fin, bytes: Bytes) -> Result<(), Over> {
        // What is sent to a stream that is gone is thrown away: it may have been on its way.
        let Some(reader) = self.outbox.table().reader(stream).cloned() else { return Ok(()) };
        if !bytes.is_empty() {
            self.pass_on(stream, &reader, Piece::Data(bytes)).await?;
        }
        if fin == Fin::Yes {
            self.pass_on(stream, &reader, Piece::End).await?;
            self.outbox.table().remote_over(stream);
        }
        Ok(())
    }

    async fn pass_on(
        &mut self,
        id: StreamId,
        reader: &mpsc::Sender<Piece>,
        piece: Piece,
    ) -> Result<(), Over> {
        let piece = match reader.try_send(piece) {
            Ok(()) | Err(TrySendError::Closed(_)) => return Ok(()),
            Err(TrySendError::Full(piece)) => piece,
        };
        let patience = match self.on_stall {
            OnStall::Reset(patience) if self.outbox.table().len() > 1 => patience,
            OnStall::Reset(_) | OnStall::Wait => Duration::MAX,
        };
        tokio::select! {
            sent = timeout(patience, reader.send(piece)) => {
                if sent.is_err() && self.outbox.table().reset(id) {
                    return self.refuse(id, ResetCode::FLOW_CONTROL_ERROR);
                }
                Ok(())
            }
            () = self.peer.left() => Err(Over),
            () = self.gone.heard() => Err(Over),
        }
    }
}

struct Writer<Io> {
    sink: WriteHalf<Io>,
    activity: Activity,
    encoder: Encoder,
}

impl<Io: AsyncWrite> Writer<Io> {
    async fn run(
        mut self,
        mut answers: mpsc::Receiver<Frame>,
        mut data: mpsc::Receiver<Frame>,
        guard: GoneGuard,
    ) {
        let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
        loop {
            // Answers first: a stream is accepted before it is written to.
            let first = tokio::select! {
                biased;
                Some(frame) = answers.recv() => frame,
                Some(frame) = data.recv() => frame,
                else => break,
            };
            let mut next = Some(first);
            let mut farewell = false;
            while let Some(frame) = next {
                self.encoder.write(&frame, &mut buffer);
                farewell |= matches!(frame, Frame::GoAway { .. });
                if farewell || buffer.len() >= BUFFER_BYTES {
                    break;
                }
                next = answers.try_recv().or_else(|_| data.try_recv()).ok();
            }
            if self.sink.write_all(&buffer).await.is_err() || self.sink.flush().await.is_err() {
                drop(guard);
                return;
            }
            buffer.clear();
            self.activity.happened();
            if farewell {
                break;
            }
        }
        let _ = self.sink.shutdown().await;
        // The client may still be reading; its leaving is heard by the other task.
        guard.keep();
    }
}
