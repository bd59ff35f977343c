//! Where the files of pods and containers are.
//!
//! ```text
//! <state>/lock                     locked by the runtime that has the directory
//! <state>/p/<pod>/                 0700, gone with the pod; on tmpfs as a rule
//!     pod.json                     its record, as it was when it was made
//!     shim.json                    the identity of its shim
//!     ids.json                     which ids of the host it has, with a user namespace
//!     shim.sock  streams.sock      0600
//!     shim.log  shm/
//!     c/<container>/               the bundle: config.json, container.json (its record), rootfs/, exit records
//! <state>/nri/<pod>.json           which plugins were told of it
//! <root>/layers/<container>/       upper/ and work/ of a copy-on-write root, volumes/0, volumes/1, …
//! <root>/logs/<pod>/<container>.log
//! ```
//!
//! Owns: these names, and making the directories above a pod. Never: reads or removes anything.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mainstay_messages::{ContainerId, SandboxId};

/// The longest path of a unix socket, in bytes (`sun_path` holds one more, for the NUL).
pub const SOCKET_PATH_LENGTH_MAX: usize = 107;
/// The mode of directories that only the runtime may look into.
pub const PRIVATE_DIRECTORY_MODE: u32 = 0o700;

/// The directories of a supervisor.
#[derive(Clone, Debug)]
pub struct Directories {
    state: PathBuf,
    root: PathBuf,
}

/// The directories of a copy-on-write layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Holds the others.
    pub directory: PathBuf,
    /// What the container changed.
    pub upper: PathBuf,
    /// The kernel's own.
    pub work: PathBuf,
    /// Holds the volumes of the image that the container has, by their number.
    pub volumes: PathBuf,
}

impl Layer {
    /// The volume of this number, in the order of the record.
    pub fn volume(&self, index: usize) -> PathBuf {
        self.volumes.join(index.to_string())
    }
}

impl Directories {
    /// Those below a state directory (gone after a reboot) and a root directory (kept).
    pub fn new(state: impl Into<PathBuf>, root: impl Into<PathBuf>) -> Self {
        Self { state: state.into(), root: root.into() }
    }

    /// The file that is locked by the runtime that the state directory belongs to.
    pub fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    /// Holds the directories of all pods.
    pub fn pods(&self) -> PathBuf {
        self.state.join("p")
    }

    /// Holds the layers of all containers.
    pub fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    /// Holds the logs of all pods that name no place of their own.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Holds what plugins were told.
    pub fn told(&self) -> PathBuf {
        self.state.join("nri")
    }

    /// The directory of a pod.
    pub fn pod(&self, sandbox: &SandboxId) -> PathBuf {
        self.pods().join(sandbox.as_str())
    }

    /// The ttrpc socket of a pod's shim.
    pub fn shim_socket(&self, sandbox: &SandboxId) -> PathBuf {
        self.pod(sandbox).join("shim.sock")
    }

    /// The stream socket of a pod's shim, for attach.
    pub fn streams_socket(&self, sandbox: &SandboxId) -> PathBuf {
        self.pod(sandbox).join("streams.sock")
    }

    /// What a shim says of itself.
    pub fn shim_log(&self, sandbox: &SandboxId) -> PathBuf {
        self.pod(sandbox).join("shim.log")
    }

    /// The identity of a pod's shim, as written when it was started.
    pub fn shim_identity(&self, sandbox: &SandboxId) -> PathBuf {
        self.pod(sandbox).join("shim.json")
    }

    /// The record of a pod, as it was when it was made.
    pub fn pod_record(&self, sandbox: &SandboxId) -> PathBuf {
        self.pod(sandbox).join("pod.json")
    }

    /// Which ids of the host a pod with a user namespace has.
    pub fn pod_ids(&self, sandbox: &SandboxId) -> PathBuf {
        self.pod(sandbox).join("ids.json")
    }

    /// The record of a container, as it was when it was made.
    pub fn container_record(&self, sandbox: &SandboxId, container: &ContainerId) -> PathBuf {
        self.bundle(sandbox, container).join("container.json")
    }

    /// Holds the bundles of a pod's containers.
    pub fn bundles(&self, sandbox: &SandboxId) -> PathBuf {
        self.pod(sandbox).join("c")
    }

    /// The bundle of a container.
    pub fn bundle(&self, sandbox: &SandboxId, container: &ContainerId) -> PathBuf {
        self.bundles(sandbox).join(container.as_str())
    }

    /// The copy-on-write layer of a container.
    pub fn layer(&self, container: &ContainerId) -> Layer {
        let directory = self.layers().join(container.as_str());
        let [upper, work, volumes] = ["upper", "work", "volumes"].map(|name| directory.join(name));
        Layer { directory, upper, work, volumes }
    }

    /// Holds the logs of a pod's containers that name no place of their own.
    pub fn pod_logs(&self, sandbox: &SandboxId) -> PathBuf {
        self.logs().join(sandbox.as_str())
    }

    /// The log of a container that names no place of its own.
    pub fn container_log(&self, sandbox: &SandboxId, container: &ContainerId) -> PathBuf {
        self.pod_logs(sandbox).join(format!("{container}.log"))
    }

    /// Makes what is above the pods, closed to others.
    pub fn prepare(&self) -> Result<(), (PathBuf, io::Error)> {
        for directory in [&self.state, &self.root] {
            create_private_all(directory).map_err(|error| (directory.clone(), error))?;
        }
        for directory in [self.pods(), self.layers(), self.logs()] {
            let made = create_private_all(&directory).and_then(|()| {
                fs::set_permissions(&directory, Permissions::from_mode(PRIVATE_DIRECTORY_MODE))
            });
            made.map_err(|error| (directory, error))?;
        }
        Ok(())
    }
}

/// Makes a directory and what is above it, with mode 0700.
pub fn create_private_all(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY_MODE).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_closed_directories_and_closes_open_ones() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let directories = Directories::new(temp.path().join("run/mainstay"), temp.path().join("lib"));
        fs::create_dir_all(directories.pods()).expect("made");
        fs::set_permissions(directories.pods(), Permissions::from_mode(0o777)).expect("opened");
        directories.prepare().expect("prepared");
        for directory in [directories.pods(), directories.layers(), directories.logs()] {
            let mode = fs::metadata(&directory).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, PRIVATE_DIRECTORY_MODE, "{}", directory.display());
        }
    }

    #[test]
    fn says_which_directory_cannot_be_made() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        fs::write(temp.path().join("file"), "").expect("written");
        let directories = Directories::new(temp.path().join("file/state"), temp.path().join("root"));
        let (path, _) = directories.prepare().expect_err("below a file");
        assert!(path.ends_with("file/state"));
    }
}
