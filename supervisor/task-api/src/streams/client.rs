//! The client's end of the stream socket.
//!
//! Owns: connecting, the opening, reading and writing frames. Never: reconnects; a stream that broke is over,
//! and what was missed cannot be had again.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::codec::{CodecError, HEADER_LENGTH};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::frame::{Decoder, FRAME_PAYLOAD_MAX_BYTES, Frame, FrameError, FrameKind, data_header};
use super::{OPEN_FORMAT, OpenAnswer, OpenRefusal, OpenRequest, Opened};

/// How long a shim may take to answer an opening, in milliseconds.
pub const OPEN_DEADLINE_MS: u64 = 10_000;

/// An open stream.
#[derive(Debug)]
pub struct Streams {
    /// What the shim said.
    pub opened: Opened,
    /// The process's output.
    pub reader: StreamReader,
    /// The process's input.
    pub writer: StreamWriter,
}

/// The process's output. Dropping both halves detaches.
///
/// The halves share the socket instead of splitting it: a dropped half of a split socket shuts its direction
/// down, which would look to the shim as if the client had left.
#[derive(Debug)]
pub struct StreamReader {
    socket: Arc<UnixStream>,
    decoder: Decoder,
    buffer: Box<[u8]>,
}

/// The process's input.
#[derive(Debug)]
pub struct StreamWriter {
    socket: Arc<UnixStream>,
}

/// Why a stream does not work.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The socket failed.
    #[error("{doing} the shim's stream socket failed")]
    Socket {
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The shim did not answer.
    #[error("the shim did not answer the opening of a stream within {after_ms} ms")]
    Deadline {
        /// The limit.
        after_ms: u64,
    },
    /// The shim refused.
    #[error(transparent)]
    Refused(#[from] OpenRefusal),
    /// The opening could not be understood.
    #[error("the opening of a stream is malformed")]
    Codec(#[from] CodecError),
    /// A frame could not be understood.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The connection ended before the stream did.
    #[error("the shim closed the stream in the middle")]
    Cut,
}

impl Streams {
    /// Connects to the stream socket of a shim and opens the streams of one process.
    pub async fn open(path: &Path, request: &OpenRequest) -> Result<Self, StreamError> {
        let after = Duration::from_millis(OPEN_DEADLINE_MS);
        timeout(after, Self::open_unbounded(path, request))
            .await
            .unwrap_or(Err(StreamError::Deadline { after_ms: OPEN_DEADLINE_MS }))
    }

    async fn open_unbounded(path: &Path, request: &OpenRequest) -> Result<Self, StreamError> {
        let failed = |doing| move |source| StreamError::Socket { doing, source };
        let mut socket = UnixStream::connect(path).await.map_err(failed("connecting to"))?;
        socket.write_all(&OPEN_FORMAT.seal(request)?).await.map_err(failed("writing to"))?;
        let mut header = [0; HEADER_LENGTH];
        socket.read_exact(&mut header).await.map_err(failed("reading from"))?;
        let header = OPEN_FORMAT.header(&header)?;
        let mut body = vec![0; header.length];
        socket.read_exact(&mut body).await.map_err(failed("reading from"))?;
        let opened = OPEN_FORMAT.open_body::<OpenAnswer>(header, &body)??;
        let socket = Arc::new(socket);
        let buffer = vec![0; FRAME_PAYLOAD_MAX_BYTES].into_boxed_slice();
        let reader = StreamReader { socket: socket.clone(), decoder: Decoder::default(), buffer };
        Ok(Self { opened, reader, writer: StreamWriter { socket } })
    }
}

impl StreamReader {
    /// The next frame; [`Frame::End`] and [`Frame::Lagged`] are the last. May be cancelled without loss.
    pub async fn next(&mut self) -> Result<Frame, StreamError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(frame);
            }
            let failed = |source| StreamError::Socket { doing: "reading from", source };
            self.socket.readable().await.map_err(failed)?;
            match self.socket.try_read(&mut self.buffer) {
                Ok(0) => return Err(StreamError::Cut),
                Ok(count) => self.decoder.push(&self.buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

impl StreamWriter {
    /// Writes bytes to the process's input; waits while the process does not read.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        for chunk in bytes.chunks(FRAME_PAYLOAD_MAX_BYTES) {
            self.send(&data_header(FrameKind::Stdin, chunk.len())).await?;
            self.send(chunk).await?;
        }
        Ok(())
    }

    /// Says that no more input comes: the process reads its end.
    pub async fn close_stdin(&mut self) -> Result<(), StreamError> {
        self.send(&data_header(FrameKind::StdinEof, 0)).await
    }

    async fn send(&mut self, mut bytes: &[u8]) -> Result<(), StreamError> {
        let failed = |source| StreamError::Socket { doing: "writing to", source };
        while !bytes.is_empty() {
            self.socket.writable().await.map_err(failed)?;
            match self.socket.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}
