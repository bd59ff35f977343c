//! The place of a fault shim in a test. Owns: the folder with the program's name in it, the plan, the calls, and that none of its
//! shims outlives it. Never: starts one.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// The name of the program.
pub const PROGRAM: &str = "containerd-shim-fault-v2";

/// A folder that holds a fault shim, its plan and what it was asked. The shim's sockets are in it too.
#[derive(Debug)]
pub struct Place {
    folder: PathBuf,
}

impl Place {
    /// Makes one for the program, which calls [`crate::program`] as its `main`.
    ///
    /// # Panics
    ///
    /// When the folder cannot be made: a test has nothing to go on with then.
    pub fn make(folder: &Path, program: &Path) -> Self {
        std::fs::create_dir(folder).expect("the folder is made");
        std::os::unix::fs::symlink(program, folder.join(PROGRAM)).expect("the link is made");
        Self { folder: folder.to_path_buf() }
    }

    /// The path to start it by.
    pub fn program(&self) -> PathBuf {
        self.folder.join(PROGRAM)
    }

    /// From now on this is the plan. A shim that runs heeds it from its next call on.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub fn plan(&self, lines: &[&str]) {
        // Written beside it and renamed: a shim may be reading it.
        let new = self.folder.join("plan.new");
        std::fs::write(&new, lines.join("\n")).expect("written");
        std::fs::rename(new, self.folder.join("plan")).expect("renamed");
    }

    /// What all shims of this place were asked so far.
    pub fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How often a call of this beginning came.
    pub fn count(&self, beginning: &str) -> usize {
        self.calls().iter().filter(|call| call.starts_with(beginning)).count()
    }

    /// The shims of this place that run, and commands of it that hang.
    pub fn running(&self) -> Vec<u32> {
        let beginning = format!("{}\0", self.program().display());
        let is_ours = |pid: &u32| {
            // A zombie has no command line.
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(beginning.as_bytes())
        };
        let names = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).filter(is_ours).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.running() {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                // It may just have ended.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
