//! What the shim keeps beside the containers' bundles for another shim behind it: `x` in the pod's directory.
//!
//! ```text
//!  x/e          socket for its events          x/mainstay-shim-logger   link to this very program
//!  x/l          socket for the loggers         x/r                      where its runtime keeps its state
//!  x/b          bundle of the pod as a whole   x/s                      its own sockets, instead of /run/containerd/s
//!  x/f/N        FIFOs of one process
//! ```
//!
//! Owns: the paths, and that the sockets which shims make in `/run/containerd/s` land in the pod's directory: they go with it,
//! however everything ends. That directory itself is made on the host where there is none, and stays there empty: containerd
//! has it too, and other pods have theirs mounted over it.

use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::failure::Failure;

/// Where the shims of containerd have their sockets.
const CONTAINERD_SOCKETS: &str = "/run/containerd/s";
/// The name under which this program is a logger.
pub(crate) const LOGGER_NAME: &str = "mainstay-shim-logger";
/// The program that this process runs.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The paths.
#[derive(Debug)]
pub(crate) struct Home {
    directory: PathBuf,
}

impl Home {
    /// Makes the directories, below the shim's own.
    pub(crate) fn make(shim: &Path) -> Result<Self, Failure> {
        let home = Self { directory: shim.join("x") };
        for path in ["", "b", "b/rootfs", "r", "s", "f"].map(|name| home.directory.join(name)) {
            let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&path);
            made.map_err(|source| Failure::File { path, doing: "made", source })?;
        }
        let path = home.logger();
        // The descriptor of /proc stays good for as long as this process lives, and so do its loggers' starts.
        let program = PathBuf::from(OWN_PROGRAM.replace("self", &std::process::id().to_string()));
        match symlink(&program, &path) {
            Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Failure::File { path, doing: "made", source });
            }
            _ => {}
        }
        home.keep_sockets()?;
        Ok(home)
    }

    /// In this mount namespace alone.
    fn keep_sockets(&self) -> Result<(), Failure> {
        let path = PathBuf::from(CONTAINERD_SOCKETS);
        let failed = |doing| {
            let path = path.clone();
            move |source| Failure::File { path, doing, source }
        };
        let made = std::fs::DirBuilder::new().mode(0o711).recursive(true).create(&path);
        made.map_err(failed("made"))?;
        let bound = mount_bind(self.directory.join("s"), &path);
        bound.map_err(std::io::Error::from).map_err(failed("mounted"))
    }

    /// Where events are taken.
    pub(crate) fn events(&self) -> PathBuf {
        self.directory.join("e")
    }

    /// Where loggers bring their pipes.
    pub(crate) fn loggers(&self) -> PathBuf {
        loggers(&self.directory)
    }

    /// The program that is started as a logger.
    pub(crate) fn logger(&self) -> PathBuf {
        self.directory.join(LOGGER_NAME)
    }

    /// The bundle of the pod as a whole.
    pub(crate) fn bundle(&self) -> PathBuf {
        self.directory.join("b")
    }

    /// Where a runtime keeps its state.
    pub(crate) fn runtime_root(&self) -> PathBuf {
        self.directory.join("r")
    }

    /// A directory for the FIFOs of a process; there is none of this name yet.
    pub(crate) fn fifos(&self, number: u64) -> PathBuf {
        self.directory.join("f").join(number.to_string())
    }

    /// A file for what an exec is to be.
    pub(crate) fn exec(&self, number: u64) -> PathBuf {
        self.directory.join("f").join(format!("{number}.json"))
    }

    /// What stands for the daemon's own address. Nobody listens there; shims make the name of their socket of it.
    pub(crate) fn address(&self) -> PathBuf {
        self.directory.join("daemon")
    }
}

impl Drop for Home {
    /// Of a pod that came to nothing, or that ends.
    fn drop(&mut self) {
        // It need not be there.
        let _ = unmount(CONTAINERD_SOCKETS, UnmountFlags::DETACH);
        if let Err(error) = crate::delete::remove_own(&self.directory) {
            crate::logger::warning!("{:?} stays: {error}", self.directory);
        }
    }
}

/// The socket for loggers, beside the program that is started as one.
pub(crate) fn loggers(directory: &Path) -> PathBuf {
    directory.join("l")
}
