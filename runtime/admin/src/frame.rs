//! Reading frames from a socket. A body takes memory only as its bytes come, and never more than its
//! format's limit. It never interprets what it read.

use std::io;
use std::time::Duration;

use mainstay_messages::codec::{CodecError, Format, HEADER_LENGTH};
use serde::de::DeserializeOwned;
use thiserror::Error as ThisError;
use tokio::io::{AsyncRead, AsyncReadExt, BufReader};

use crate::wire::request_of;

/// What is read ahead, in bytes, so that a small frame takes one system call.
const READ_AHEAD: usize = 16 * 1024;

/// How long to wait for the rest of a frame that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// For ever, or until the connection ends.
    Endless,
    /// So many milliseconds.
    Milliseconds(u64),
}

/// Why no frame could be read. After any of them the stream is at no frame's beginning.
#[derive(Debug, ThisError)]
pub(crate) enum ReadError {
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the rest of a frame did not come within {after_ms} ms")]
    TooSlow { after_ms: u64 },
    #[error("a frame cannot be read")]
    Malformed { request: u64, source: CodecError },
}

/// A message and what it took.
#[derive(Debug)]
pub(crate) struct Received<T> {
    pub message: T,
    /// Bytes of its body.
    pub length: usize,
}

/// The reading half of a connection.
pub(crate) struct FrameReader<R> {
    io: BufReader<R>,
    format: Format,
    patience: Patience,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(io: R, format: Format, patience: Patience) -> Self {
        Self { io: BufReader::with_capacity(READ_AHEAD, io), format, patience }
    }

    /// The next frame; none when the other side has ended the connection between two frames. A caller that
    /// drops this future must not read on.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Received<T>>, ReadError> {
        let mut header = [0; HEADER_LENGTH];
        if self.io.read(&mut header[..1]).await? == 0 {
            return Ok(None);
        }
        let patience = self.patience;
        let rest = self.rest(header);
        match patience {
            Patience::Endless => rest.await,
            Patience::Milliseconds(after_ms) => {
                match tokio::time::timeout(Duration::from_millis(after_ms), rest).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(ReadError::TooSlow { after_ms }),
                }
            }
        }
        .map(Some)
    }

    async fn rest<T: DeserializeOwned>(
        &mut self,
        mut header: [u8; HEADER_LENGTH],
    ) -> Result<Received<T>, ReadError> {
        let mut found = 1;
        while found < HEADER_LENGTH {
            match self.io.read(&mut header[found..]).await? {
                0 => return Err(malformed(0, CodecError::Truncated { found, expected: HEADER_LENGTH })),
                count => found += count,
            }
        }
        let header = self.format.header(&header).map_err(|e| malformed(0, e))?;
        let mut body = Vec::new();
        (&mut self.io).take(header.length as u64).read_to_end(&mut body).await?;
        match self.format.open_body(header, &body) {
            Ok(message) => Ok(Received { message, length: body.len() }),
            // The checksum is right: so is the request.
            Err(e @ (CodecError::Decode(_) | CodecError::Trailing { .. })) => {
                Err(malformed(request_of(&body), e))
            }
            Err(e) => Err(malformed(0, e)),
        }
    }
}

fn malformed(request: u64, source: CodecError) -> ReadError {
    ReadError::Malformed { request, source }
}
