//! The server: the socket, who may connect, and the limits of connections.
//!
//! ```text
//!   bind ──► bound (clients wait) ──► serving ──shutdown──► draining ──► gone
//! ```
//! It never looks into a call.

mod deadline;

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, Stream};
use mainstay::Runtime;
use mainstay::daemon::Endpoint;
use mainstay::socket::{BindError, Socket, check_peer};
use mainstay_cri_api::image_service_server::ImageServiceServer;
use mainstay_cri_api::runtime_service_server::RuntimeServiceServer;
use mainstay_messages::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::codegen::http::{HeaderValue, Response};
use tonic::transport::server::{Connected, UdsConnectInfo};
use tower::util::MapResponseLayer;

use self::deadline::Deadline;

use crate::events;
use crate::limits::{
    ACCEPT_RETRY_MS, CALLS_PER_CONNECTION_MAX, CONNECTIONS_MAX, HEADERS_BYTES_MAX, KEEPALIVE_INTERVAL_MS,
    KEEPALIVE_TIMEOUT_MS, MESSAGE_BYTES_MAX, SHUTDOWN_DRAIN_MS,
};
use crate::node::Node;
use crate::service::{Calls, ended};

/// What errors call the socket.
const DOOR: &str = "the CRI socket";
/// The header of the status.
const STATUS_HEADER: &str = "grpc-status";
/// `OUT_OF_RANGE`, with which the library answers a message that is too large, and nothing else here.
const OUT_OF_RANGE: &str = "11";
/// `RESOURCE_EXHAUSTED`, with which gRPC answers it everywhere else.
const RESOURCE_EXHAUSTED: &str = "8";

/// A socket that nobody is served on yet.
#[derive(Debug)]
pub struct Server {
    socket: Socket,
}

impl Server {
    /// Binds the socket: its directory is made with mode 0700, the socket has mode 0600. Clients can connect from now on, and wait.
    ///
    /// # Errors
    /// Where somebody serves there, the path is not a socket's, or its directory is open to others.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        Ok(Self { socket: Socket::bind(path)? })
    }

    /// Serves until `shutdown` resolves; calls that run then have [`SHUTDOWN_DRAIN_MS`] to be answered.
    ///
    /// # Errors
    /// When the program's tokio cannot drive the socket.
    pub async fn serve_until(
        self,
        runtime: Runtime,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let listener = UnixListener::from_std(self.socket.listener()?)?;
        let node = Arc::new(Node::new(runtime));
        let keeper = tokio::spawn(events::keep(Arc::downgrade(&node)));
        // It is tried again when a stream is asked for; all else is served without.
        if let Err(error) = node.streams.server(&node).await {
            tracing::error!(%error, "streams cannot be served");
        }
        let (stop, ending) = watch::channel(());
        let calls = Calls::new(Arc::clone(&node), ending.clone());
        let runtime_service = RuntimeServiceServer::new(calls.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let image_service = ImageServiceServer::new(calls)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let router = tonic::transport::Server::builder()
            .max_concurrent_streams(CALLS_PER_CONNECTION_MAX)
            .http2_max_header_list_size(HEADERS_BYTES_MAX)
            .http2_keepalive_interval(Some(Duration::from_millis(KEEPALIVE_INTERVAL_MS)))
            .http2_keepalive_timeout(Some(Duration::from_millis(KEEPALIVE_TIMEOUT_MS)))
            .layer(tower::layer::layer_fn(Deadline))
            .layer(MapResponseLayer::new(with_usual_status::<tonic::body::Body>))
            .add_service(runtime_service)
            .add_service(image_service);
        let mut serving = pin!(router.serve_with_incoming_shutdown(clients(listener), ended(ending)));
        tokio::select! {
            served = &mut serving => return served.map_err(io::Error::other),
            () = shutdown => {}
        }
        // Whoever comes now finds no daemon, and not one that does not answer.
        drop(self.socket);
        drop(stop);
        let drained = tokio::time::timeout(Duration::from_millis(SHUTDOWN_DRAIN_MS), serving).await;
        keeper.abort();
        events::keep_now(&node).await;
        drained.unwrap_or(Ok(())).map_err(io::Error::other)
    }
}

impl Endpoint for Server {
    fn name(&self) -> &'static str {
        DOOR
    }

    fn serve(
        self: Box<Self>,
        runtime: Runtime,
        shutdown: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            self.serve_until(runtime, shutdown).await.map_err(|error| Error::unavailable(DOOR, error))
        })
    }
}

/// A client, with its place among [`CONNECTIONS_MAX`].
struct Client {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
}

/// The clients that may connect, as they come, and as there is room.
fn clients(listener: UnixListener) -> impl Stream<Item = io::Result<Client>> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    stream::unfold((listener, places), |(listener, places)| async move {
        loop {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await.ok()?;
            match listener.accept().await {
                Ok((stream, _)) => match check_peer(&stream, DOOR) {
                    Ok(()) => return Some((Ok(Client { stream, _place: place }), (listener, places))),
                    Err(error) => tracing::warn!(%error, "connection refused"),
                },
                Err(error) => {
                    tracing::warn!(%error, "CRI connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                }
            }
        }
    })
}

/// What is too large is answered as everywhere else.
fn with_usual_status<B>(mut response: Response<B>) -> Response<B> {
    if let Some(status) = response.headers_mut().get_mut(STATUS_HEADER)
        && status.as_bytes() == OUT_OF_RANGE.as_bytes()
    {
        *status = HeaderValue::from_static(RESOURCE_EXHAUSTED);
    }
    response
}

impl Connected for Client {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
