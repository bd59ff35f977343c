//! The socket to which a runtime sends the master of a terminal that it has made.
//!
//! Owns: the socket, and that what arrives is a terminal. Never: waits longer than its caller, who has the limit.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mainstay_launch::WindowSize;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

use crate::failure::Failure;

/// How many connections are looked at before it is given up. A runtime makes one.
const CONNECTIONS_MAX: usize = 8;
/// The longest text that comes with a terminal, in bytes.
const TEXT_MAX_BYTES: usize = 4 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Console {
    socket: UnixListener,
}

impl Console {
    /// Listens; the path is removed by whoever has chosen it.
    pub(super) fn listen(path: &Path) -> Result<Self, Failure> {
        let failed = |source| Failure::File { path: path.to_owned(), doing: "listened at", source };
        let socket = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { socket })
    }

    /// The terminal.
    pub(super) async fn master(&self) -> Result<OwnedFd, Failure> {
        for _ in 0..CONNECTIONS_MAX {
            let (connection, _) =
                self.socket.accept().await.map_err(Failure::system("waiting for a terminal"))?;
            if let Some(master) = receive(&connection).await {
                return Ok(master);
            }
        }
        Err(no_terminal())
    }

    /// The same, of what has been sent already.
    pub(super) fn master_at_once(&self) -> Result<OwnedFd, Failure> {
        use futures::FutureExt;
        self.master().now_or_never().unwrap_or_else(|| Err(no_terminal()))
    }
}

/// Sets the size of a terminal that has just been made; when it fails, it is tried again with every resize.
pub(super) fn set_size(master: &OwnedFd, WindowSize { rows, columns }: WindowSize) {
    let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let _ = rustix::termios::tcsetwinsize(master, size);
}

fn no_terminal() -> Failure {
    Failure::System {
        doing: "waiting for the terminal that the runtime was to make",
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, "it has sent none"),
    }
}

async fn receive(connection: &UnixStream) -> Option<OwnedFd> {
    loop {
        connection.readable().await.ok()?;
        let received = connection.try_io(Interest::READABLE, || Ok(take(connection)?));
        match received {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            received => return received.ok().flatten(),
        }
    }
}

/// The first descriptor of a message, if it is a terminal; any others are closed.
fn take(connection: &UnixStream) -> Result<Option<OwnedFd>, Errno> {
    let mut text = [0; TEXT_MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        connection.as_fd(),
        &mut [IoSliceMut::new(&mut text)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    let mut found = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            found = fds.into_iter().find(|fd| rustix::termios::isatty(fd)).or(found);
        }
    }
    Ok(found)
}
