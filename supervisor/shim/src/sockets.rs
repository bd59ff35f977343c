//! The two sockets that the supervisor bound for the shim.
//!
//! Owns: taking them over, and that only a process of the same user gets through. Never: speaks a protocol.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

use crate::logger;

/// How long accepting pauses after a failure, in milliseconds: without it a full table of descriptors would make the
/// shim spin.
const ACCEPT_PAUSE_MS: u64 = 100;

/// Takes over an inherited descriptor, of which there is no other owner.
pub(crate) fn inherit(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 3 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the descriptor is one of standard input and output",
        ));
    }
    // SAFETY: the supervisor passed the number for this purpose, and it is taken once, at the start; F_GETFD on a
    // number that is not open only fails.
    let fd = unsafe {
        if libc::fcntl(fd, libc::F_GETFD) < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Takes over an inherited listening socket.
pub(crate) fn listener(fd: RawFd) -> io::Result<UnixListener> {
    let socket = std::os::unix::net::UnixListener::from(inherit(fd)?);
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket)
}

/// The next connection of a process of our own user.
pub(crate) async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match accept_checked(listener).await {
            Ok(socket) => return socket,
            Err(error) => {
                logger::warning!("a connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
            }
        }
    }
}

async fn accept_checked(listener: &UnixListener) -> io::Result<UnixStream> {
    let (socket, _) = listener.accept().await?;
    let peer = socket.peer_cred()?.uid();
    if peer != geteuid().as_raw() {
        let reason = format!("the peer's user is {peer}, expected {}", geteuid().as_raw());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(socket)
}
