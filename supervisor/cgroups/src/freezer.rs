//! Freezing: stopping all processes of a group where they are.
//!
//! Owns: asking for it and reading how far it got. Never: waits. A process in an uninterruptible sleep freezes when
//! that sleep ends, so the state is to be polled with a deadline of the caller's.
//!
//! ```text
//!            freeze                 the last one stopped
//!  Running ─────────► Freezing ─────────────────────────► Frozen
//!     ▲                  │ thaw                             │ thaw
//!     └──────────────────┴──────────────────────────────────┘
//! ```

use rustix::io::Errno;

use crate::controllers::Controller;
use crate::error::CgroupError;
use crate::group::Cgroup;
use crate::hierarchy::{Node, keyed_number};
use crate::layout::Home;

/// How far a freeze got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezerState {
    /// Not frozen, and not asked to.
    Running,
    /// Asked to; some processes still run.
    Freezing,
    /// Every process has stopped.
    Frozen,
}

impl Cgroup {
    /// Asks the kernel to freeze the group and all groups below it. [`Cgroup::freezer_state`] tells when it has.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        self.write_freezer("1", "FROZEN")
    }

    /// Lets the group run again.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        self.write_freezer("0", "THAWED")
    }

    /// How far a freeze got.
    pub fn freezer_state(&self) -> Result<FreezerState, CgroupError> {
        let home = self.freezer()?;
        state(self.freezer_node(home), home)
            .map_err(|(file, errno)| self.freezer_error("read", home, file, errno))
    }

    fn write_freezer(&self, v2: &str, v1: &str) -> Result<(), CgroupError> {
        let home = self.freezer()?;
        let (file, value) = match home {
            Home::V2(_) => ("cgroup.freeze", v2),
            Home::V1(_) => ("freezer.state", v1),
        };
        let written = self.freezer_node(home).write(file, value);
        written.map_err(|errno| self.freezer_error("write", home, file, errno))
    }

    fn freezer(&self) -> Result<Home, CgroupError> {
        self.layout().home(Controller::Freezer).ok_or_else(|| {
            CgroupError::unsupported("freezer", self.path(), "neither a v2 tree nor a v1 freezer is mounted")
        })
    }

    fn freezer_node(&self, home: Home) -> Node<'_> {
        let (Home::V1(id) | Home::V2(id)) = home;
        self.node(id)
    }

    fn freezer_error(&self, action: &'static str, home: Home, file: &str, errno: Errno) -> CgroupError {
        match errno {
            Errno::NOENT => CgroupError::NotFound { path: self.path().clone() },
            errno => CgroupError::io(action, self.freezer_node(home).file(file), errno),
        }
    }
}

fn state(node: Node<'_>, home: Home) -> Result<FreezerState, (&'static str, Errno)> {
    let read = |file: &'static str| node.read(file).map_err(|errno| (file, errno));
    match home {
        Home::V1(_) => Ok(match read("freezer.state")?.trim() {
            "FROZEN" => FreezerState::Frozen,
            "FREEZING" => FreezerState::Freezing,
            _ => FreezerState::Running,
        }),
        Home::V2(_) if read("cgroup.freeze")?.trim() != "1" => Ok(FreezerState::Running),
        Home::V2(_) if keyed_number(&read("cgroup.events")?, "frozen") == Some(1) => Ok(FreezerState::Frozen),
        Home::V2(_) => Ok(FreezerState::Freezing),
    }
}
