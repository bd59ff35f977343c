//! Connections to the ports of a pod, from inside of it: to what listens on its loopback alone as well.
//!
//! ```text
//!   the pod's namespace ─► two sockets of it ─► 127.0.0.1 ─► ::1, when nothing listens there ─► connected
//! ```
//!
//! Owns: finding the namespace of a pod that surely is its (P10), and which address is tried. Never: enters it with a thread of the
//! caller's, or forks.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use mainstay_messages::error::{Kind, chain};
use mainstay_messages::record::{SandboxPhase, SandboxRecord};
use mainstay_messages::spec::Network;
use mainstay_messages::{Error, Result, SandboxId};
use mainstay_network::{TcpSockets, tcp_sockets};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use crate::runtime::Runtime;

/// Time for a process in a pod to accept a connection, in milliseconds. Who listens and has room for it takes none.
pub const CONNECT_MS: u64 = 10_000;
/// The most namespaces that are entered at once, each by a thread of its own for a moment; others wait for their turn.
const ENTERING_MAX: usize = 16;

/// Turns of entering a namespace, of all runtimes of this process.
static TURNS: Semaphore = Semaphore::const_new(ENTERING_MAX);

impl Runtime {
    /// Connects to a TCP port of a pod's loopback: 127.0.0.1, or ::1 when nothing listens there.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for port 0; [`Error::NotFound`]; [`Error::WrongPhase`] when the pod is not Ready;
    /// [`Error::Unavailable`] when nothing listens there; [`Error::DeadlineExceeded`] when what listens does not accept it within
    /// [`CONNECT_MS`].
    pub async fn connect(&self, sandbox: &SandboxId, port: u16) -> Result<TcpStream> {
        if port == 0 {
            return Err(Error::invalid("port", "0", "a number from 1 to 65535"));
        }
        let snapshot = self.sandbox(sandbox)?;
        if snapshot.record.phase != SandboxPhase::Ready {
            return Err(Error::WrongPhase {
                kind: Kind::Sandbox,
                id: sandbox.to_string(),
                phase: snapshot.record.phase.to_string(),
                operation: "connecting to a port".into(),
                needed: SandboxPhase::Ready.to_string(),
            });
        }
        let sockets = self.sockets(&snapshot.record).await?;
        let what = format!("port {port} of pod {sandbox}");
        let connecting = tokio::time::timeout(Duration::from_millis(CONNECT_MS), connect(sockets, port));
        match connecting.await {
            Ok(connected) => connected.map_err(|error| Error::unavailable(what, chain(&error))),
            Err(_) => {
                Err(Error::DeadlineExceeded { what: format!("connecting to {what}"), after_ms: CONNECT_MS })
            }
        }
    }

    async fn sockets(&self, record: &SandboxRecord) -> Result<Sockets> {
        if record.spec.network == Network::Host {
            return Ok([TcpSocket::new_v4().ok(), TcpSocket::new_v6().ok()]);
        }
        let what = format!("the network namespace of pod {}", record.id);
        let lost = || Error::unavailable(&what, "its shim does not hold it");
        let shim = record.shim.as_ref().ok_or_else(lost)?.process.clone();
        let (names, sandbox) = (self.system().networks.namespace_names().clone(), record.id.clone());
        // It is never closed.
        let _turn = TURNS.acquire().await;
        let work =
            move || names.namespace_of(&sandbox, &shim).map(|namespace| tcp_sockets(namespace.as_fd()));
        let made =
            tokio::task::spawn_blocking(work).await.map_err(|_| Error::internal(&what, "it panicked"))?;
        let TcpSockets { v4, v6 } =
            made.ok_or_else(lost)?.map_err(|error| Error::unavailable(&what, chain(&error)))?;
        let unconnected = |fd| TcpSocket::from_std_stream(std::net::TcpStream::from(fd));
        Ok([v4.map(unconnected), v6.map(unconnected)])
    }
}

/// For IPv4 and for IPv6, where the host has them.
type Sockets = [Option<TcpSocket>; 2];

async fn connect(sockets: Sockets, port: u16) -> io::Result<TcpStream> {
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    let mut first = None;
    for (socket, ip) in sockets.into_iter().zip(loopback) {
        let Some(socket) = socket else { continue };
        match socket.connect(SocketAddr::new(ip, port)).await {
            Ok(stream) => return Ok(stream),
            // That of the first is told: most listen there.
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}
