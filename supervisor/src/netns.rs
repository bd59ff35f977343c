//! The network namespaces of pods, by names that tools know.
//!
//! ```text
//!  netns_dir/mainstay-HASH-POD ──link──► /proc/SHIM/fd/N ──► the namespace ◄── a descriptor of this process
//! ```
//!
//! A shim makes the namespace, so that it belongs to the pod's user namespace where there is one, and holds it. The name
//! leads to what the shim holds, and `ip netns exec`, nsenter and CNI plugins take it as they take one that is mounted.
//! Nothing is mounted: every mount on the host is copied to the mount namespace of each shim, and with a thousand pods that
//! would be a million of them; and a mount that a container has copied as well keeps its place from being removed. This process
//! has a descriptor of its own, so that the namespace outlives a shim that dies, until the network is taken back.
//!
//! The name has a hash of the state directory in it, by which a runtime knows its own.
//!
//! Owns: these names. Never: trusts one whose shim is not surely the process that it leads to (P10).

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use mainstay_messages::{ProcessIdentity, SandboxId};
use rustix::fs::fstatfs;

use crate::identity::{self, Fate};

/// Where tools look for network namespaces.
pub const NETNS_DIRECTORY_DEFAULT: &str = "/run/netns";
/// The mode of that directory when it is made, as iproute2 has it.
const NETNS_DIRECTORY_MODE: u32 = 0o755;
/// What the names of all runtimes begin with.
const PREFIX: &str = "mainstay-";
/// The magic number of the file system of namespaces (`NSFS_MAGIC`).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// The names of one runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceNames {
    directory: PathBuf,
    prefix: String,
}

impl NamespaceNames {
    /// Those in `directory` of the runtime with this state directory.
    pub fn new(directory: &Path, state_dir: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let hash = crc32fast::hash(state_dir.as_os_str().as_bytes());
        Self { directory: directory.to_owned(), prefix: format!("{PREFIX}{hash:08x}-") }
    }

    /// Where the names are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The name of a pod's namespace, as a path.
    pub fn path(&self, sandbox: &SandboxId) -> PathBuf {
        self.directory.join(format!("{}{sandbox}", self.prefix))
    }

    /// The pod that a file of the directory is the name of the namespace of; none for what is not this runtime's.
    pub fn pod_of(&self, file: &str) -> Option<SandboxId> {
        file.strip_prefix(&self.prefix)?.parse().ok()
    }

    /// Makes the name of what is at `place`, a path below `/proc`; one that was there leads there from now on.
    pub(crate) fn make(&self, sandbox: &SandboxId, place: &Path) -> io::Result<()> {
        let path = self.path(sandbox);
        match symlink(place, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(NETNS_DIRECTORY_MODE).create(&self.directory)?;
                symlink(place, &path)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(sandbox)?;
                symlink(place, &path)
            }
            made => made,
        }
    }

    /// Removes a name. One that is not there counts as success.
    pub(crate) fn remove(&self, sandbox: &SandboxId) -> io::Result<()> {
        match fs::remove_file(self.path(sandbox)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The namespace of a pod with this shim; none when the shim does not run or holds none.
    pub fn namespace_of(&self, sandbox: &SandboxId, shim: &ProcessIdentity) -> Option<File> {
        let runs = || matches!(identity::fate(shim), Ok(Fate::Runs));
        let found = runs().then(|| self.open(sandbox, shim.pid))??;
        // Else it was that of a process that has got the shim's number meanwhile.
        runs().then_some(found)
    }

    /// The namespace that a pod's name leads to, if that is one of the process `shim`, which the caller knows to run.
    pub(crate) fn open(&self, sandbox: &SandboxId, shim: u32) -> Option<File> {
        let path = self.path(sandbox);
        let place = fs::read_link(&path).ok()?;
        place.starts_with(format!("/proc/{shim}")).then(|| open(&place).ok())?
    }
}

/// Opens a namespace by its path.
pub(crate) fn open(place: &Path) -> io::Result<File> {
    let file = File::open(place)?;
    // Its number may have been given to something else.
    match fstatfs(&file)?.f_type as u64 {
        NSFS_MAGIC => Ok(file),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no namespace")),
    }
}

/// A path of an open namespace, for another process.
pub(crate) fn place_of(namespace: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_knows_its_own_names() {
        let temp = tempfile::tempdir().expect("a directory");
        let names = NamespaceNames::new(&temp.path().join("netns"), Path::new("/run/mainstay"));
        let others = NamespaceNames::new(&temp.path().join("netns"), Path::new("/run/other"));
        let pod: SandboxId = "pod".parse().expect("an id");
        let own = PathBuf::from("/proc/self/ns/net");
        names.make(&pod, &own).expect("made, with its directory");
        names.make(&pod, &own).expect("made again");
        let file = names.path(&pod).file_name().expect("a name").to_str().expect("text").to_owned();
        assert_eq!(names.pod_of(&file), Some(pod.clone()));
        assert_eq!(others.pod_of(&file), None);
        assert_eq!(names.pod_of("cni-1234"), None);
        names.remove(&pod).expect("removed");
        names.remove(&pod).expect("removed again");
    }

    /// A process that has got the number of a shim that is gone must not be taken for it, nor a file for a namespace.
    #[test]
    fn only_a_namespace_of_that_shim_is_opened() {
        let temp = tempfile::tempdir().expect("a directory");
        let names = NamespaceNames::new(temp.path(), Path::new("/run/mainstay"));
        let (pod, me): (SandboxId, _) = ("pod".parse().expect("an id"), std::process::id());
        assert!(names.open(&pod, me).is_none(), "there is no name");
        names.make(&pod, &PathBuf::from(format!("/proc/{me}/ns/net"))).expect("made");
        assert!(names.open(&pod, me).is_some());
        assert!(names.open(&pod, me + 1).is_none());
        names.make(&pod, &PathBuf::from(format!("/proc/{me}/status"))).expect("made");
        assert!(names.open(&pod, me).is_none());
    }
}
