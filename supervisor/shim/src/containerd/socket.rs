//! The socket that a shim under containerd listens on.
//!
//! Owns: its name, and that there is one shim behind it. Never: speaks on it.

use std::fmt::Write;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
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

/// Whether somebody listens on it.
fn is_alive(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// Takes the place, unless somebody has it. Those who ask at the same time get it one after the other.
pub(super) fn take(path: &Path) -> Result<Place, Sentence> {
    let directory = path.parent().unwrap_or(Path::new(SOCKET_DIRECTORY));
    let of = |doing: &str| failed(format!("{doing} {directory:?}"));
    std::fs::DirBuilder::new().recursive(true).mode(0o711).create(directory).map_err(of("making"))?;
    let lock = File::open(directory).map_err(of("opening"))?;
    // Given back when it is closed.
    flock(&lock, FlockOperation::LockExclusive).map_err(failed(format!("locking {directory:?}")))?;
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            if is_alive(path) {
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
pub(super) fn remove_dead(path: &Path) {
    if !is_alive(path) {
        remove(path);
    }
}

/// Removes a socket; somebody else may have done it.
pub(super) fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

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
