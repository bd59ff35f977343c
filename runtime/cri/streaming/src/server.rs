//! The server: URLs for streams, and the connections that come for them.
//!
//! ```text
//!   issue ─► URL with a token ─► request ─► the token is good, the protocol is known? ─► upgraded ─► served ─► closed
//!                                                │ no
//!                                                └─► a status and a sentence
//! ```
//!
//! Owns: the listener, and a task for each connection. Never: lets anybody in without a token. Dropping it cuts all connections off.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::backend::{OpenPort, OpenProcess, Streams};
use crate::handshake::{Refusal, Transport, Upgrade, Wanted, negotiate};
use crate::peer::{GoneGuard, Peer};
use crate::session::Purpose;
use crate::settings::{SettingsError, StreamingSettings};
use crate::tls::{Tls, TlsError};
use crate::tokens::{IssueError, Tokens};
use crate::websocket::{self, tunnel};
use crate::{port_forward, remote_command};

/// The longest head of a request, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The most fields of a head.
pub const HEAD_FIELDS_MAX: usize = 64;
/// Time for a client to send the head of its request, and for the handshake of TLS, in milliseconds.
pub const HEAD_TIMEOUT_MS: u64 = 10_000;
/// Time after which the kernel asks whether the other end of a silent connection is still there, in seconds.
pub const KEEPALIVE_S: u64 = 30;
/// The pause after a failed accept, in milliseconds: descriptors may have run out.
const ACCEPT_RETRY_MS: u64 = 100;

/// What keeps the server from being started.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Settings that cannot be.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// TLS that cannot be.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address that cannot be had.
    #[error("{address} cannot be listened on")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A server of streams.
#[derive(Debug)]
pub struct Server {
    tokens: Arc<Tokens<Job>>,
    address: SocketAddr,
    /// What URLs begin with.
    base: String,
    accepting: JoinHandle<Infallible>,
}

/// What a token leads to.
enum Job {
    Process(Box<dyn OpenProcess>, Purpose, Streams),
    Ports(Vec<u16>, Arc<dyn OpenPort>),
}

/// What all connections share.
struct Shared {
    tokens: Arc<Tokens<Job>>,
    tls: Option<Tls>,
    idle: Duration,
}

/// An upgrade that was agreed on.
struct Agreed {
    job: Job,
    transport: Transport,
    upgraded: OnUpgrade,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(settings: &StreamingSettings) -> Result<Self, BindError> {
        settings.check()?;
        let tls = settings.tls.as_ref().map(Tls::load).transpose()?;
        let at = |source| BindError::Listen { address: settings.address, source };
        let listener = TcpListener::bind(settings.address).await.map_err(at)?;
        let address = listener.local_addr().map_err(at)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let lifetime = Duration::from_millis(settings.token_lifetime_ms);
        let tokens = Arc::new(Tokens::new(lifetime, settings.tokens_max));
        let idle = Duration::from_millis(settings.idle_timeout_ms);
        let shared = Arc::new(Shared { tokens: Arc::clone(&tokens), tls, idle });
        let base = format!("{scheme}://{}", reachable(address));
        let accepting = tokio::spawn(accept(listener, shared, settings.connections_max));
        Ok(Self { tokens, address, base, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL under which one client, once, runs a process of its own.
    ///
    /// # Errors
    /// [`IssueError::TooMany`].
    pub fn exec(&self, opener: Box<dyn OpenProcess>, streams: Streams) -> Result<String, IssueError> {
        self.issue("exec", Job::Process(opener, Purpose::Exec, streams))
    }

    /// A URL under which one client, once, attaches to a process.
    ///
    /// # Errors
    /// [`IssueError::TooMany`].
    pub fn attach(&self, opener: Box<dyn OpenProcess>, streams: Streams) -> Result<String, IssueError> {
        self.issue("attach", Job::Process(opener, Purpose::Attach, streams))
    }

    /// A URL under which one client, once, connects to ports, as often as it likes. `numbers` are those that are forwarded to a client
    /// that cannot name them itself.
    ///
    /// # Errors
    /// [`IssueError::TooMany`].
    pub fn port_forward(&self, ports: Arc<dyn OpenPort>, numbers: Vec<u16>) -> Result<String, IssueError> {
        self.issue("portforward", Job::Ports(numbers, ports))
    }

    fn issue(&self, path: &str, job: Job) -> Result<String, IssueError> {
        let token = self.tokens.issue(job, Instant::now())?;
        Ok(format!("{}/{path}/{token}", self.base))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The address by which this machine reaches a listener.
fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, connections_max: usize) -> Infallible {
    let places = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a client of a stream could not be accepted");
                tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(limit = connections_max, "a client of a stream was sent away: too many");
            continue;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = connection(stream, &shared).await {
                tracing::debug!(%error, "a client of a stream was not served");
            }
        });
    }
}

async fn connection(stream: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    set_socket_keepalive(&stream, true)?;
    set_tcp_keepidle(&stream, Duration::from_secs(KEEPALIVE_S))?;
    let peer = Peer::of(&stream)?;
    match &shared.tls {
        None => requests(stream, peer, shared).await,
        Some(tls) => {
            let handshake = tls.acceptor().accept(stream);
            match timeout(Duration::from_millis(HEAD_TIMEOUT_MS), handshake).await {
                Ok(accepted) => requests(accepted?, peer, shared).await,
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
    Ok(())
}

/// Answers requests until one is upgraded, and serves that.
async fn requests<Io>(io: Io, peer: Peer, shared: &Arc<Shared>)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let agreed: Arc<Mutex<Option<Agreed>>> = Arc::default();
    let service = {
        let (agreed, shared) = (Arc::clone(&agreed), Arc::clone(shared));
        service_fn(move |request: Request<Incoming>| {
            let response = match agree(request, &shared) {
                Ok((upgrade, headers)) => {
                    *agreed.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
                    let mut response = Response::new(Full::default());
                    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    *response.headers_mut() = headers;
                    response
                }
                Err(refusal) => refuse(refusal),
            };
            async move { Ok::<_, Infallible>(response) }
        })
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_TIMEOUT_MS))
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEAD_FIELDS_MAX)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a client of a stream spoke no HTTP");
    }
    let agreed = agreed.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Agreed { job, transport, upgraded }) = agreed else { return };
    match upgraded.await {
        Ok(upgraded) => serve(TokioIo::new(upgraded), peer, shared.idle, job, transport).await,
        Err(error) => tracing::debug!(%error, "a client of a stream left before it was upgraded"),
    }
}

async fn serve<Io>(io: Io, peer: Peer, idle: Duration, job: Job, transport: Transport)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match (job, transport) {
        (Job::Process(opener, purpose, streams), Transport::Spdy(version)) => {
            remote_command::spdy::serve(io, peer, idle, version, (opener, purpose, streams)).await;
        }
        (Job::Process(opener, purpose, streams), Transport::WebSocket(version, encoding)) => {
            let what = (opener, purpose, streams);
            remote_command::websocket::serve(io, peer, idle, (version, encoding), what).await;
        }
        (Job::Ports(_, ports), Transport::Spdy(_)) => port_forward::spdy::serve(io, peer, idle, ports).await,
        (Job::Ports(numbers, ports), Transport::WebSocket(_, encoding)) => {
            port_forward::websocket::serve(io, peer, idle, encoding, (numbers, ports)).await;
        }
        (Job::Ports(_, ports), Transport::Tunnel) => {
            let (outer, inner) = tunnel::ends();
            let (guard, gone) = GoneGuard::new();
            let (source, sink) = websocket::open(io, idle, gone).await;
            let forwarding = port_forward::spdy::serve(inner, peer, idle, ports);
            tokio::join!(tunnel::run(source, sink, outer), forwarding);
            drop(guard);
        }
        // Such a thing is not negotiated.
        (Job::Process(..), Transport::Tunnel) => {}
    }
}

fn agree(mut request: Request<Incoming>, shared: &Shared) -> Result<(Agreed, hyper::HeaderMap), Refusal> {
    let (kind, token) = target(request.uri().path())?;
    if ![Method::GET, Method::POST].contains(request.method()) {
        let sentence =
            format!("{} is not done here; a stream is asked for with GET or POST", request.method());
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, sentence));
    }
    let token = token.to_owned();
    let wanted = |job: &Job| {
        let wanted = match job {
            Job::Process(_, Purpose::Exec, _) if kind == "exec" => Wanted::Process,
            Job::Process(_, Purpose::Attach, _) if kind == "attach" => Wanted::Process,
            Job::Ports(..) if kind == "portforward" => Wanted::Ports,
            _ => return Err(no_stream()),
        };
        negotiate(wanted, request.method(), request.headers())
    };
    let taken = shared.tokens.take(&token, Instant::now(), wanted);
    let (job, Upgrade { transport, headers }) = taken.unwrap_or_else(|| Err(no_stream()))?;
    let upgraded = hyper::upgrade::on(&mut request);
    Ok((Agreed { job, transport, upgraded }, headers))
}

fn target(path: &str) -> Result<(&'static str, &str), Refusal> {
    for kind in ["exec", "attach", "portforward"] {
        let token = path.strip_prefix('/').and_then(|path| path.strip_prefix(kind)?.strip_prefix('/'));
        if let Some(token) = token {
            return Ok((kind, token));
        }
    }
    Err(Refusal::new(
        StatusCode::NOT_FOUND,
        "there are /exec, /attach and /portforward here, each with a token",
    ))
}

fn no_stream() -> Refusal {
    let sentence =
        "no stream waits for this token: it was used already, has expired, or never was; ask for a new URL";
    Refusal::new(StatusCode::NOT_FOUND, sentence)
}

fn refuse(refusal: Refusal) -> Response<Full<Bytes>> {
    tracing::debug!(status = %refusal.status, sentence = refusal.sentence, "a client of a stream was refused");
    let mut response = Response::new(Full::from(refusal.sentence + "\n"));
    *response.status_mut() = refusal.status;
    for (name, value) in refusal.headers {
        response.headers_mut().append(name, value);
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Process(_, Purpose::Exec, _) => "Exec",
            Self::Process(_, Purpose::Attach, _) => "Attach",
            Self::Ports(..) => "Ports",
        })
    }
}
