//! The endpoint: an answer to `GET /metrics`, on a socket that somebody else has bound.
//!
//! ```text
//!   accept ─► a place free? ─► one request, one answer ─► closed
//!                 │ no            │ not within its time
//!                 └─► closed      └─► closed
//! ```
//!
//! A scraper is not trusted (P11, P12): the head of a request, the number of connections and the time of each are limited, a
//! body is not read, and each connection is for one request, so that none can be held for nothing. Never: asks anything of
//! the runtime but the text.

mod answer;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::{Metrics, MetricsSettings};

/// Scrapers that are served at the same time on one listener, when nothing else is set.
pub const CONNECTIONS_MAX: usize = 16;
/// Time for a scraper to ask and to read the answer, in milliseconds, when nothing else is set.
pub const CONNECTION_TIMEOUT_MS: u64 = 10_000;
/// The longest head of a request, in bytes.
pub const HEAD_LENGTH_MAX: usize = 16 * 1024;
/// The most fields of a head.
pub const HEAD_FIELDS_MAX: usize = 64;
/// The pause after a failed accept, in milliseconds: descriptors may have run out.
const ACCEPT_RETRY_MS: u64 = 100;

/// Where scrapers come from.
#[derive(Debug)]
pub enum Listener {
    /// A unix socket. Only root and the user that this process runs as are served.
    Unix(UnixListener),
    /// A loopback address. Everybody on this machine is served.
    Tcp(TcpListener),
}

/// Serves until it is dropped, which closes all connections.
pub async fn serve(listener: Listener, metrics: Arc<Metrics>, settings: MetricsSettings) -> Infallible {
    let places = Arc::new(Semaphore::new(settings.connections_max));
    let limit = Duration::from_millis(settings.connection_timeout_ms);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = match &listener {
            Listener::Unix(unix) => unix.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            Listener::Tcp(tcp) => tcp.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a scraper could not be accepted");
                tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(limit = settings.connections_max, "a scraper was sent away: too many");
            continue;
        };
        let metrics = Arc::clone(&metrics);
        connections.spawn(async move {
            let _place = place;
            // What is not over by then is cut off: nobody needs to know.
            let _ = tokio::time::timeout(limit, stream.serve(metrics)).await;
        });
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(tokio::net::TcpStream),
}

impl Stream {
    async fn serve(self, metrics: Arc<Metrics>) {
        match self {
            Self::Unix(stream) => match check_peer(&stream) {
                Ok(()) => answer_one(stream, metrics).await,
                Err(error) => tracing::warn!(%error, "a scraper was refused"),
            },
            Self::Tcp(stream) => answer_one(stream, metrics).await,
        }
    }
}

async fn answer_one(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, metrics: Arc<Metrics>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer::answer(&request, &metrics);
        async move { Ok::<Response<Full<Bytes>>, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(HEAD_LENGTH_MAX)
        .max_headers(HEAD_FIELDS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a scraper was not served");
    }
}

/// Only root and the user that this process runs as may scrape a unix socket.
fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let (own, peer) = (geteuid().as_raw(), stream.peer_cred()?.uid());
    if peer == 0 || peer == own {
        return Ok(());
    }
    let reason = format!("user {peer} may not read the metrics; only root and user {own} may");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

#[cfg(test)]
mod tests;
