//! Work inside of a pod's network namespace.
//!
//! Owns: how a socket of that namespace is come by. Never: moves a thread of a caller; the one that enters the namespace is
//! made for it and ends.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::NetworkError;

/// Which namespace it is, however it was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceId {
    device: u64,
    inode: u64,
}

impl NamespaceId {
    pub(crate) fn of(netns: BorrowedFd<'_>) -> Result<Self, NetworkError> {
        let stat = fstat(netns).map_err(|errno| cannot("it is not an open file", errno.into()))?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// The namespace of this thread.
pub(crate) fn current() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Runs `work` on a thread in the namespace.
pub(crate) fn within<T: Send>(
    netns: BorrowedFd<'_>,
    work: impl FnOnce() -> Result<T, NetworkError> + Send,
) -> Result<T, NetworkError> {
    thread::scope(|scope| {
        let entered = thread::Builder::new().name("pod-network".into()).spawn_scoped(scope, || {
            move_into_link_name_space(netns, Some(LinkNameSpaceType::Network))
                .map_err(|errno| cannot("it is not a network namespace that can be entered", errno.into()))?;
            work()
        });
        let thread = entered.map_err(|error| cannot("no thread could be started to enter it", error))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Two sockets of a namespace that lead nowhere yet, for connections within it. A protocol that the host does not have has none.
#[derive(Debug)]
pub struct TcpSockets {
    /// For IPv4.
    pub v4: Option<OwnedFd>,
    /// For IPv6.
    pub v6: Option<OwnedFd>,
}

/// Makes sockets in a namespace. They do not block, and stay in it wherever they are used; no thread of the caller's enters it.
///
/// # Errors
/// [`NetworkError::Namespace`] when it is none, or cannot be entered.
pub fn tcp_sockets(netns: BorrowedFd<'_>) -> Result<TcpSockets, NetworkError> {
    let socket = |family| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match socket_with(family, SocketType::STREAM, flags, None) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AFNOSUPPORT) => Ok(None),
            Err(errno) => Err(cannot("no socket could be made in it", errno.into())),
        }
    };
    within(netns, || Ok(TcpSockets { v4: socket(AddressFamily::INET)?, v6: socket(AddressFamily::INET6)? }))
}

fn cannot(reason: &str, source: io::Error) -> NetworkError {
    NetworkError::Namespace { reason: reason.into(), source: Some(source) }
}
