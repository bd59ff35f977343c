//! Exec and attach over SPDY.
//!
//! ```text
//!   upgraded ─► the client opens its streams ─► session ─► output ends, the outcome on the error stream, goodbye
//!                      └─► not all of them in time ─► the error stream says so
//! ```
//!
//! Owns: the streams of one process. Never: reads ahead of the process.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use super::{Told, tell};
use crate::backend::{OpenProcess, OutputStream, Streams, TerminalSize};
use crate::peer::Peer;
use crate::resize::SizeReader;
use crate::session::{self, FromClient, Purpose, ToClient};
use crate::settings::STREAM_CREATION_MS;
use crate::spdy::connection::{Connection, NewStream, OnStall, Piece, StreamReader, StreamWriter};
use crate::spdy::frame::ResetCode;
use crate::status::{Outcome, Version};

/// The header that says what a stream is for.
const STREAM_TYPE: &str = "streamtype";

/// The streams of a client, as far as they are open.
#[derive(Default)]
struct Opened {
    error: Option<StreamWriter>,
    stdin: Option<(StreamReader, StreamWriter)>,
    stdout: Option<StreamWriter>,
    stderr: Option<StreamWriter>,
    resize: Option<(StreamReader, StreamWriter)>,
}

/// Serves one process.
pub(crate) async fn serve<Io>(
    io: Io,
    peer: Peer,
    idle: Duration,
    version: Version,
    (opener, purpose, streams): (Box<dyn OpenProcess>, Purpose, Streams),
) where
    Io: AsyncRead + AsyncWrite + Send + 'static,
{
    let (connection, mut arriving) = Connection::start(io, peer, idle, OnStall::Wait);
    let mut opened = Opened::default();
    let outcome = match opened.wait(&mut arriving, streams, version).await {
        Waited::Complete => {
            // A stream beyond those is refused by the end of this receiver.
            drop(arriving);
            let from = opened.client_side(&connection);
            session::run(opener, purpose, streams, from, &mut opened).await
        }
        Waited::TooLong(missing) => {
            let limit = STREAM_CREATION_MS;
            Some(Outcome::Failed(format!("stream {missing:?} was not opened within {limit} ms")))
        }
        Waited::Gone => None,
    };
    if let Some(outcome) = outcome {
        // Else it is cut off.
        if tell(opened.finish(&outcome, version), connection.gone()).await == Told::All {
            connection.close().await;
        }
    }
}

enum Waited {
    Complete,
    /// This one did not come.
    TooLong(&'static str),
    Gone,
}

impl Opened {
    async fn wait(
        &mut self,
        arriving: &mut mpsc::Receiver<NewStream>,
        streams: Streams,
        version: Version,
    ) -> Waited {
        let deadline = Instant::now() + Duration::from_millis(STREAM_CREATION_MS);
        while let Some(missing) = self.missing(streams, version) {
            match timeout_at(deadline, arriving.recv()).await {
                Ok(Some(stream)) => self.take(stream).await,
                Ok(None) => return Waited::Gone,
                Err(_) => return Waited::TooLong(missing),
            }
        }
        Waited::Complete
    }

    fn missing(&self, streams: Streams, version: Version) -> Option<&'static str> {
        [
            ("error", true, self.error.is_some()),
            ("stdin", streams.stdin, self.stdin.is_some()),
            ("stdout", streams.stdout, self.stdout.is_some()),
            ("stderr", streams.stderr, self.stderr.is_some()),
            ("resize", streams.terminal && version >= Version::V3, self.resize.is_some()),
        ]
        .into_iter()
        .find_map(|(name, is_wanted, is_there)| (is_wanted && !is_there).then_some(name))
    }

    /// Accepts a stream if it is one of these, and the first of its kind.
    async fn take(&mut self, stream: NewStream) {
        let NewStream { headers, reader, writer, .. } = stream;
        let accepted = writer.clone();
        match headers.get(STREAM_TYPE) {
            Some("error") if self.error.is_none() => self.error = Some(writer),
            Some("stdin") if self.stdin.is_none() => self.stdin = Some((reader, writer)),
            Some("stdout") if self.stdout.is_none() => self.stdout = Some(writer),
            Some("stderr") if self.stderr.is_none() => self.stderr = Some(writer),
            Some("resize") if self.resize.is_none() => self.resize = Some((reader, writer)),
            kind => {
                tracing::debug!(?kind, "a client opened a stream that exec and attach do not have");
                let _ = writer.reset(ResetCode::PROTOCOL_ERROR).await;
                return;
            }
        }
        let _ = accepted.accept().await;
    }

    fn client_side(&mut self, connection: &Connection) -> FromClient {
        let stdin = match &mut self.stdin {
            Some((reader, _)) => reader.take(),
            None => mpsc::channel(1).1,
        };
        let (seen, sizes) = watch::channel(None);
        if let Some((reader, _)) = &mut self.resize {
            tokio::spawn(read_sizes(reader.take(), seen));
        }
        FromClient { stdin, sizes, gone: connection.gone() }
    }

    async fn finish(&self, outcome: &Outcome, version: Version) {
        for output in [&self.stdout, &self.stderr].into_iter().flatten() {
            let _ = output.finish().await;
        }
        if let Some(error) = &self.error {
            let _ = error.data(outcome.text(version).into()).await;
            let _ = error.finish().await;
        }
        for (_, input) in [&self.stdin, &self.resize].into_iter().flatten() {
            let _ = input.finish().await;
        }
    }
}

impl ToClient for Opened {
    async fn output(&mut self, stream: OutputStream, bytes: Bytes) {
        let writer = match stream {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        };
        if let Some(writer) = writer {
            let _ = writer.data(bytes).await;
        }
    }
}

async fn read_sizes(mut pieces: mpsc::Receiver<Piece>, seen: watch::Sender<Option<TerminalSize>>) {
    let mut reader = SizeReader::default();
    while let Some(Piece::Data(bytes)) = pieces.recv().await {
        if let Some(size) = reader.read(&bytes) {
            seen.send_replace(Some(size));
        }
    }
}
