//! The files of one call of a runtime.
//!
//! Owns: their names, and that they go with the call. Never: reads or writes them.

use std::path::PathBuf;

use super::Oci;
use crate::container::Container;
use crate::shim::Shim;

/// The files of one call; they go with it.
#[derive(Debug)]
pub(super) struct Files {
    /// The runtime's own state; it stays for the next call.
    pub(super) root: PathBuf,
    pub(super) log: PathBuf,
    pub(super) pid: PathBuf,
    pub(super) process: PathBuf,
    pub(super) console: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.log, &self.pid, &self.process, &self.console] {
            // Most calls have only some of them.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Oci {
    /// Those of the next call.
    pub(super) fn files(&self, shim: &Shim, container: &Container) -> Files {
        let number = self.calls.get();
        self.calls.set(number + 1);
        let in_bundle = |name: &str| container.bundle.join(format!("{name}-{number}"));
        Files {
            root: self.state_directory(shim),
            log: in_bundle("oci-log"),
            pid: in_bundle("oci-pid"),
            process: in_bundle("oci-process"),
            // The path of a socket is short.
            console: shim.arguments.directory.join(format!("con{number}")),
        }
    }
}
