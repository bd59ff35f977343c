//! The socket that a shim under containerd listens on.
//!
//! Owns: its name, and that there is one shim behind it. Never: speaks on it.

use std::fmt::Write;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use sha2::{Digest, Sha256};

use super::{CONTAINERD_SHIM_NAME, Sentence, failed};

/// The directory of all sockets of shims.
const SOCKET_DIRECTORY: &str = "/run/containerd/s";
/// What stands before its path in an address.
const SCHEME: &str = "unix://";

/// Where a shim is.
pub(super) enum Place {
    /// It is there already.
    Taken,
    /// Nobody was there: this socket listens.
    Free(UnixListener),
}

/// The socket for a group of containers of a containerd. The shim's name is a part of it: a shim of another make that has
/// the same group is none of ours.
pub(super) fn path(address: &str, namespace: &str, group: &str) -> PathBuf {
    let hash = Sha256::digest(
        Path::new(address)
            .join(namespace)
            .join(group)
            .join(CONTAINERD_SHIM_NAME)
            .as_os_str()
            .as_encoded_bytes(),
    );
    let mut name = String::with_capacity(2 * hash.len());
    for byte in hash {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    Path::new(SOCKET_DIRECTORY).join(name)
}

/// The address of a socket.
pub(super) fn address(path: &Path) -> String {
    format!("{SCHEME}{}", path.display())
}

/// The socket of an address.
pub(super) fn of_address(address: &str) -> Option<&Path> {
    address.trim().strip_prefix(SCHEME).map(Path::new)
}

/// Whether somebody listens on it. One who is slow to take connections lives all the same, and nobody waits for him here.
fn is_alive(path: &Path) -> Result<bool, Sentence> {
    let failed = |error| failed(format!("looking who listens on {path:?}"))(error);
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Whoever looks at a socket and then makes or removes one has this meanwhile. Given back when it is closed.
fn lock(directory: &Path) -> Result<File, Sentence> {
    let lock = File::open(directory).map_err(failed(format!("opening {directory:?}")))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(failed(format!("locking {directory:?}")))?;
    Ok(lock)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(SOCKET_DIRECTORY))
}

/// Takes the place, unless somebody has it. Those who ask at the same time get it one after the other.
pub(super) fn take(path: &Path) -> Result<Place, Sentence> {
    let directory = directory_of(path);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(directory)
        .map_err(failed(format!("making {directory:?}")))?;
    let _lock = lock(directory)?;
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            if is_alive(path)? {
                return Ok(Place::Taken);
            }
            remove(path);
            bind(path)
        }
        Ok(listener) => own(path, listener),
        Err(error) => Err(failed(format!("listening on {path:?}"))(error)),
    }
}

fn bind(path: &Path) -> Result<Place, Sentence> {
    let listener = UnixListener::bind(path).map_err(failed(format!("listening on {path:?}")))?;
    own(path, listener)
}

fn own(path: &Path, listener: UnixListener) -> Result<Place, Sentence> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(failed(format!("giving {path:?} its mode")))?;
    Ok(Place::Free(listener))
}

/// Removes a socket that nobody listens on.
pub(super) fn remove_dead(path: &Path) -> Result<(), Sentence> {
    let _lock = lock(directory_of(path))?;
    if !is_alive(path)? {
        remove(path);
    }
    Ok(())
}

/// Removes a socket; somebody else may have done it.
pub(super) fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// A socket that is listened on, and whose queue of connections is full; it is so for as long as what is returned lives.
#[cfg(test)]
pub(super) fn without_room(path: &Path) -> (UnixListener, std::os::unix::net::UnixStream) {
    let listener = UnixListener::bind(path).expect("bound");
    rustix::net::listen(&listener, 0).expect("it listens");
    let stream = std::os::unix::net::UnixStream::connect(path).expect("there is room for one");
    (listener, stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever asked for a shim waited for one that was stopped, with the lock in his hands, and with him every other start
    /// of the machine.
    #[test]
    fn one_who_takes_no_connections_lives() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let full = without_room(&path);
        assert!(matches!(take(&path), Ok(Place::Taken)));
        remove_dead(&path).expect("looked at");
        assert!(path.exists());
        drop(full);
        remove_dead(&path).expect("looked at");
        assert!(!path.exists());
    }

    #[test]
    fn each_group_of_each_containerd_has_its_own() {
        let first = path("/run/c.sock", "default", "web");
        assert_eq!(first, path("/run/c.sock", "default", "web"));
        assert_eq!(first.parent(), Some(Path::new(SOCKET_DIRECTORY)));
        assert_eq!(first.file_name().map(|name| name.len()), Some(64));
        for other in [
            ("/run/d.sock", "default", "web"),
            ("/run/c.sock", "k8s.io", "web"),
            ("/run/c.sock", "default", "db"),
        ] {
            assert_ne!(first, path(other.0, other.1, other.2));
        }
        assert_eq!(of_address(&address(&first)), Some(first.as_path()));
    }

    #[test]
    fn a_dead_socket_is_taken_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let Ok(Place::Free(first)) = take(&path) else { panic!("nobody is there") };
        assert!(matches!(take(&path), Ok(Place::Taken)));
        drop(first);
        assert!(path.exists(), "a shim that was killed leaves it");
        assert!(matches!(take(&path), Ok(Place::Free(_))));
    }
}
