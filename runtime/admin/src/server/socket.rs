//! The socket file: making it safely, taking over a stale one, removing it, and who may connect.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use mainstay_messages::Error;
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use thiserror::Error as ThisError;

/// Mode of the socket's directory.
pub const DIRECTORY_MODE: u32 = 0o700;
/// Mode of the socket.
pub const SOCKET_MODE: u32 = 0o600;
/// The longest path of a socket that the kernel takes (`sun_path` less the final zero), in bytes.
pub const PATH_LENGTH_MAX: usize = 107;

/// Why the server cannot have its socket.
#[derive(Debug, ThisError)]
pub enum BindError {
    /// The kernel does not take paths of this length.
    #[error("socket path {path:?} has {length} bytes; the kernel takes at most {PATH_LENGTH_MAX}")]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// Somebody is serving there.
    #[error("another daemon answers on {path:?}; stop it first or choose another socket")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Somebody else is taking the same socket at this moment.
    #[error("another daemon is starting on {path:?}; wait for it or choose another socket")]
    Starting {
        /// The socket.
        path: PathBuf,
    },
    /// The path is taken by something that is not a socket, and that is not removed.
    #[error("{path:?} exists and is not a socket; remove it or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The directory could be changed or searched by others.
    #[error(
        "directory {path:?} has mode {mode:04o} and owner {owner}; expected 0700 and owner {expected}: the \
             socket needs a directory of its own"
    )]
    DirectoryOpen {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Its owner's uid.
        owner: u32,
        /// The daemon's own uid.
        expected: u32,
    },
    /// The operating system refused.
    #[error("{operation} {path:?} failed")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// A bound socket; its file is removed with it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that a successor's is never removed.
    file: (u64, u64),
}

impl Socket {
    /// Binds it: its directory is made with mode 0700, the socket has mode 0600. A socket file that a dead daemon left is
    /// removed.
    ///
    /// # Errors
    /// Where somebody serves there, the path is not a socket's, or its directory is open to others.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let length = path.as_os_str().len();
        if length > PATH_LENGTH_MAX {
            return Err(BindError::PathTooLong { path: path.to_owned(), length });
        }
        make_directory(path)?;
        // Two daemons that start at once must not both find the socket stale: held until it is bound.
        let lock_path = lock_path(path);
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(SOCKET_MODE)
            .open(&lock_path)
            .map_err(failed("opening", &lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| BindError::Starting { path: path.to_owned() })?;
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(failed("binding", path))?;
        // Nobody else can search the directory: there is no moment at which the mode matters.
        fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(failed("chmod of", path))?;
        listener.set_nonblocking(true).map_err(failed("preparing", path))?;
        let metadata = fs::symlink_metadata(path).map_err(failed("looking at", path))?;
        Ok(Self { listener, path: path.to_owned(), file: (metadata.dev(), metadata.ino()) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A handle on the listening socket.
    ///
    /// # Errors
    /// When descriptors have run out.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.file);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a socket could not be removed");
        }
    }
}

/// Only root and the user that the daemon runs as may connect; `door` is what errors call the socket, as "the admin socket".
///
/// # Errors
/// [`Error::PermissionDenied`].
pub fn check_peer(stream: &tokio::net::UnixStream, door: &str) -> Result<(), Error> {
    let own = geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own => Ok(()),
        Ok(peer) => Err(Error::PermissionDenied {
            what: format!("{door} for user {}", peer.uid()),
            reason: format!("only root and user {own}, whom the daemon runs as, may use it"),
        }),
        Err(error) => Err(Error::PermissionDenied {
            what: door.to_owned(),
            reason: format!("the kernel does not say who is connecting: {error}"),
        }),
    }
}

fn make_directory(socket: &Path) -> Result<(), BindError> {
    let path = match socket.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
        .map_err(failed("making directory", path))?;
    // It may have been there before. It is not changed then: it could be /tmp.
    let metadata = fs::metadata(path).map_err(failed("looking at", path))?;
    let (mode, owner, expected) = (metadata.mode() & 0o7777, metadata.uid(), geteuid().as_raw());
    if mode & 0o077 != 0 || owner != expected {
        return Err(BindError::DirectoryOpen { path: path.to_owned(), mode, owner, expected });
    }
    Ok(())
}

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed("looking at", path)(source)),
    };
    if !metadata.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    match probe(path) {
        // Somebody listens, perhaps with so many connections waiting that there is no room for this one.
        Ok(()) | Err(rustix::io::Errno::AGAIN) => Err(BindError::InUse { path: path.to_owned() }),
        Err(rustix::io::Errno::CONNREFUSED) => {
            tracing::info!(path = %path.display(), "removing the socket of a daemon that is gone");
            fs::remove_file(path).map_err(failed("removing", path))
        }
        Err(error) => Err(failed("connecting to", path)(error.into())),
    }
}

/// Connects and hangs up, without ever waiting.
fn probe(path: &Path) -> rustix::io::Result<()> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    drop(UnixStream::from(socket));
    Ok(())
}

fn lock_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BindError {
    let path = path.to_owned();
    move |source| BindError::Io { operation, path, source }
}

#[cfg(test)]
mod tests;
