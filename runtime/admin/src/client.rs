//! The client: many calls and streams at the same time over one connection.
//!
//! It owns the connection's task. It has no time-outs of its own, since a call such as Wait may take for
//! ever; but the end of the connection ends all that is open, with [`Error::Unavailable`]. When the last
//! clone and the last stream are dropped, the connection is closed.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::admin::{ClientBody, ClientFrame, Request, Response, StreamRequest};
use mainstay_messages::{Error, Result};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::outgoing::{self, Outgoing};
use crate::wire::ClientMessage;

mod calls;
mod connection;
mod pending;
mod stream;

use connection::Connection;
use pending::Pending;
pub use stream::{InputSender, StreamHandle};

/// How long a daemon whose queue of new connections is full is asked again, in milliseconds.
pub const CONNECT_TIMEOUT_MS: u64 = 5_000;
/// The pause between two such attempts, in milliseconds.
pub const CONNECT_RETRY_MS: u64 = 5;
/// The largest answer that is put together from parts, in bytes of frame bodies.
pub const ANSWER_LENGTH_MAX: usize = 1024 * 1024 * 1024;

/// A connection to the daemon. Clones share it.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// What clients and streams hold together; the connection is closed with it.
struct Shared {
    pending: Arc<Pending>,
    outgoing: Outgoing,
    _connection: Connection,
}

impl Client {
    /// Connects to the daemon's socket. Whether the daemon takes this client is known from the first answer.
    ///
    /// Must be called in a tokio runtime that drives IO and time.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let stream = dial(path).await?;
        let (reading, writing) = stream.into_split();
        let (outgoing, writer) = outgoing::queue();
        let (pending, cancels) = Pending::new(format!("the daemon at {}", path.display()));
        let connection =
            Connection::start(reading, writing, writer, outgoing.clone(), pending.clone(), cancels);
        Ok(Self { shared: Arc::new(Shared { pending, outgoing, _connection: connection }) })
    }

    /// Asks, and waits for the answer however long it takes. When this future is dropped, the daemon is told
    /// that nobody waits; what changes something goes on.
    pub async fn call(&self, request: Request) -> Result<Response> {
        let (mut claim, answer) = self.shared.pending.call()?;
        let body = ClientBody::Call(request);
        let frame = ClientMessage::Frame(ClientFrame { request: claim.request(), body }).seal()?;
        if let Ok(room) = self.shared.outgoing.room(frame.len()).await {
            room.push(frame);
            claim.sent();
        }
        // When there was no room, the connection has ended, and its end answers.
        answer.await.unwrap_or_else(|_| Err(self.shared.pending.reason()))
    }

    /// Opens a stream. That it could not be opened is said by its end.
    pub async fn open(&self, request: StreamRequest) -> Result<StreamHandle> {
        StreamHandle::open(self.shared.clone(), request).await
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

async fn dial(path: &Path) -> Result<UnixStream> {
    const START: &str = "is the daemon running? start it with `mainstay daemon`";
    let deadline = Instant::now() + Duration::from_millis(CONNECT_TIMEOUT_MS);
    let what = format!("the daemon at {}", path.display());
    loop {
        let error = match UnixStream::connect(path).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        return Err(match error.kind() {
            // Linux does not queue: it says at once that the listener's queue is full.
            ErrorKind::WouldBlock if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(CONNECT_RETRY_MS)).await;
                continue;
            }
            ErrorKind::WouldBlock => Error::unavailable(
                what,
                format_args!("it has taken no new connection for {CONNECT_TIMEOUT_MS} ms"),
            ),
            ErrorKind::NotFound => Error::unavailable(what, format_args!("there is no socket; {START}")),
            ErrorKind::ConnectionRefused => {
                Error::unavailable(what, format_args!("nobody answers on the socket; {START}"))
            }
            ErrorKind::PermissionDenied => Error::PermissionDenied {
                what: format!("connecting to {what}"),
                reason: "only root and the user that the daemon runs as may do it".to_owned(),
            },
            _ => Error::unavailable(what, error),
        });
    }
}
