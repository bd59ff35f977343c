//! The server: takes connections on the socket and gives each a task of its own.
//!
//! It owns the socket file and the limits that all connections share. It never looks into a request.
//!
//! ```text
//!   bind ──► listening ──► serving ──shutdown──► draining ──► gone
//!                                     │ no new connections, socket file removed,
//!                                     │ streams and questions ended, operations answered
//! ```

use std::io::{self, Write};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::Error;
use mainstay_messages::admin::{ServerBody, ServerFrame};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::limits::{ACCEPT_RETRY_MS, CONNECTION_WAIT_MS, Limits};
use crate::wire::ServerMessage;

mod connection;
mod request;
mod socket;
mod table;

pub use socket::{BindError, Socket, check_peer};

/// A socket that nobody is served on yet.
#[derive(Debug)]
pub struct Server {
    socket: Socket,
    limits: Limits,
}

/// What all connections share.
pub(crate) struct Host {
    backend: Arc<dyn Backend>,
    limits: Limits,
    /// Bytes of requests that the backend may be given yet.
    requests: Arc<Semaphore>,
}

/// Whether the server goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    ShuttingDown,
}

impl Server {
    /// Binds the socket: its directory is made with mode 0700, the socket has mode 0600. A socket file that a
    /// dead daemon left is removed; one that somebody answers on is an error.
    ///
    /// May be called outside a tokio runtime.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, BindError> {
        Ok(Self { socket: Socket::bind(path.as_ref())?, limits: Limits::default() })
    }

    /// Sets other limits than the default ones.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Serves until `shutdown` resolves. Then the socket file is removed, streams and questions are ended
    /// with [`Error::Unavailable`], and operations get [`Limits::shutdown_drain_ms`] to be answered; those
    /// that take longer go on without an answer.
    ///
    /// When this future is dropped, all connections are closed at once. Fails when the runtime cannot drive
    /// the socket.
    pub async fn serve(
        self,
        backend: Arc<dyn Backend>,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let listener = UnixListener::from_std(self.socket.listener()?)?;
        let host = Arc::new(Host {
            backend,
            limits: self.limits,
            requests: Arc::new(Semaphore::new(self.limits.request_bytes_max)),
        });
        let (phase, _) = watch::channel(Phase::Serving);
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = connections.join_next() => report(ended),
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => admit(stream, &host, &phase, &mut connections).await,
                    Err(error) => {
                        tracing::warn!(%error, "admin connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                    }
                },
            }
        }
        drop(listener);
        drop(self.socket);
        phase.send_replace(Phase::ShuttingDown);
        // Each connection ends by itself within the drain and flush times.
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
        Ok(())
    }
}

/// Starts a connection, or tells the client why not.
async fn admit(
    stream: UnixStream,
    host: &Arc<Host>,
    phase: &watch::Sender<Phase>,
    connections: &mut JoinSet<()>,
) {
    if let Err(error) = socket::check_peer(&stream, "the admin socket") {
        tracing::warn!(%error, "admin connection refused");
        return refuse(stream, error);
    }
    let limit = host.limits.connections_max;
    while let Some(ended) = connections.try_join_next() {
        report(ended);
    }
    if connections.len() >= limit {
        // Clients that have just left may still hold their places.
        let wait = Duration::from_millis(CONNECTION_WAIT_MS);
        match tokio::time::timeout(wait, connections.join_next()).await {
            Ok(Some(ended)) => report(ended),
            _ => {
                tracing::warn!(limit, "admin connection refused: too many");
                let what = "connections_max, the connections to the admin socket".to_owned();
                return refuse(stream, Error::ResourceExhausted { what, limit: limit as u64 });
            }
        }
    }
    connections.spawn(connection::run(stream, host.clone(), phase.subscribe()));
}

/// Writes one error frame, without waiting, and closes. It fits into the buffer of a fresh socket.
fn refuse(stream: UnixStream, error: Error) {
    let frame = ServerMessage::Frame(ServerFrame { request: 0, body: ServerBody::Reply(Err(error)) });
    let Ok(frame) = frame.seal("the refusal") else { return };
    if let Ok(mut stream) = stream.into_std() {
        // A client that has left does not need the reason.
        let _ = stream.write_all(&frame);
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "the task of an admin connection failed");
    }
}
