//! The socket on which plugins connect.
//!
//! Owns: its file and its directory, and looking at who connects. Never: takes the socket from a runtime that still
//! listens on it, or waits for what a plugin says.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::handshake::{Accepted, HandshakeError, Peer};

/// How many plugins may be between connecting and being configured at once; the next ones wait in the kernel.
pub const HANDSHAKES_MAX: usize = 32;
/// How many connections wait in the kernel.
const BACKLOG: i32 = 64;
/// Nobody else may look into the directory.
const DIRECTORY_MODE: u32 = 0o700;
/// Nobody else may connect.
const SOCKET_MODE: u32 = 0o600;
/// Write permission of group and others.
const OTHERS_WRITE: u32 = 0o022;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody listens there.
    #[error("another runtime listens on {}; end it, or set another path", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{} is in the way: it is not a socket", path.display())]
    NotASocket {
        /// What is there.
        path: PathBuf,
    },
    /// Others could put something in its place.
    #[error("the directory {} has mode {mode:o} and user {uid}; it must be of user {own} and writable by nobody else", path.display())]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Its user.
        uid: u32,
        /// Ours.
        own: u32,
    },
    /// The system refused.
    #[error("{} cannot be made a socket for plugins", path.display())]
    Io {
        /// The socket, or its directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Why a connection was not accepted. The next one may be.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// It is of a stranger.
    #[error("process {pid:?} of user {uid} connected; only user {own} may")]
    Stranger {
        /// The process.
        pid: Option<i32>,
        /// Its user.
        uid: u32,
        /// Ours.
        own: u32,
    },
    /// The system refused.
    #[error("a connection of a plugin cannot be accepted")]
    Io(#[from] io::Error),
    /// It ended at once.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// The socket on which plugins connect. Its file goes with it.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
    handshakes: Arc<Semaphore>,
}

impl Listener {
    /// Makes the socket, and its directory where there is none. Must be called in a tokio runtime.
    pub fn bind(path: &Path) -> Result<Self, ListenError> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        prepare_directory(directory)?;
        clear(path)?;
        let io_error = |source| ListenError::Io { path: path.to_owned(), source };
        let listener = make(path).map_err(io_error)?;
        let inode = fs::symlink_metadata(path).map_err(io_error)?.ino();
        let listener = UnixListener::from_std(listener).map_err(io_error)?;
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        Ok(Self { listener, path: path.to_owned(), inode, handshakes })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection.
    pub async fn accept(&self) -> Result<Accepted, AcceptError> {
        let permit = Arc::clone(&self.handshakes).acquire_owned().await.map_err(io::Error::other)?;
        let (socket, _) = self.listener.accept().await?;
        let peer = peer_of(&socket)?;
        let own = rustix::process::geteuid().as_raw();
        if peer.uid != own {
            return Err(AcceptError::Stranger { pid: peer.pid, uid: peer.uid, own });
        }
        Ok(Accepted::new(socket, peer, None, Some(permit)).await?)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another may have taken its place.
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn peer_of(socket: &UnixStream) -> io::Result<Peer> {
    let peer = socket.peer_cred()?;
    // 0 stands for a process that cannot be named here.
    Ok(Peer { pid: peer.pid().filter(|pid| *pid > 0), uid: peer.uid(), gid: peer.gid() })
}

fn prepare_directory(path: &Path) -> Result<(), ListenError> {
    let io_error = |source| ListenError::Io { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path).map_err(io_error)?;
    let found = fs::metadata(path).map_err(io_error)?;
    let (mode, uid, own) = (found.mode() & 0o7777, found.uid(), rustix::process::geteuid().as_raw());
    if uid != own || mode & OTHERS_WRITE != 0 {
        return Err(ListenError::Exposed { path: path.to_owned(), mode, uid, own });
    }
    Ok(())
}

/// Takes away the socket of a runtime that is gone.
fn clear(path: &Path) -> Result<(), ListenError> {
    let path_buf = || path.to_owned();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(ListenError::Io { path: path_buf(), source }),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket { path: path_buf() });
        }
        Ok(_) => {}
    }
    if StdUnixStream::connect(path).is_ok() {
        return Err(ListenError::InUse { path: path_buf() });
    }
    fs::remove_file(path).map_err(|source| ListenError::Io { path: path_buf(), source })
}

/// Its mode is set before anybody can connect.
fn make(path: &Path) -> io::Result<StdUnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}
