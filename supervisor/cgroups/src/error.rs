//! What can go wrong with a group, and what was left out without being wrong.
//!
//! Owns: the error and warning types of this crate. Never: decides whether an error is fatal.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::controllers::Controller;
use crate::layout::Mode;
use crate::path::CgroupPath;

/// The place of a value in an OCI runtime spec, such as `linux.resources.memory.limit`.
pub type FieldName = Cow<'static, str>;

/// A failed operation on a group or on the machine's layout.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The machine mounts no cgroup file system that this process can see.
    #[error("no cgroup file system is mounted: /proc/self/mountinfo names neither cgroup2 nor cgroup")]
    NotMounted,
    /// A limit was asked for that no hierarchy of this machine can hold. Nothing was written.
    #[error(
        "{field} = {value} needs the {controller} controller, which this machine ({mode} layout) does not offer"
    )]
    ControllerMissing {
        /// The field that asked.
        field: FieldName,
        /// Its value.
        value: String,
        /// What is missing.
        controller: Controller,
        /// How the machine mounts its hierarchies.
        mode: Mode,
    },
    /// A value that no machine would take. Nothing was written.
    #[error("{field} = {value:?} is not valid: expected {expected}")]
    Invalid {
        /// The field.
        field: FieldName,
        /// Its value.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A valid value that this layout has no means to enforce. Nothing was written.
    #[error("{field} = {value} cannot be enforced here: {reason}")]
    Unsupported {
        /// The field.
        field: FieldName,
        /// Its value.
        value: String,
        /// Why not.
        reason: &'static str,
    },
    /// The kernel refused a value.
    #[error("{field} = {value:?} was refused by {}: expected {expected}", file.display())]
    Refused {
        /// The field.
        field: FieldName,
        /// The value as it was written.
        value: String,
        /// The file that refused it.
        file: PathBuf,
        /// What would be right.
        expected: &'static str,
        /// The kernel's answer.
        #[source]
        source: Errno,
    },
    /// The kernel has the controller but not the file that this value belongs to.
    #[error("{field} = {value:?} has no place to go: {} does not exist ({expected})", file.display())]
    FileMissing {
        /// The field.
        field: FieldName,
        /// The value.
        value: String,
        /// The file that was looked for.
        file: PathBuf,
        /// What the machine would have to offer.
        expected: &'static str,
    },
    /// The memory in use cannot be brought below the new limit.
    #[error("{field} = {limit} bytes is below the {usage} bytes that the group uses and cannot give back")]
    MemoryBelowUsage {
        /// The field.
        field: FieldName,
        /// The limit that was asked for.
        limit: u64,
        /// What is in use.
        usage: u64,
    },
    /// A v2 group has processes of its own, so that it cannot hand controllers to groups below it.
    #[error("{} holds processes itself, so it cannot give {controllers} to the groups below it", path.display())]
    InternalProcesses {
        /// The directory of that group.
        path: PathBuf,
        /// The controllers to be given, as written.
        controllers: String,
    },
    /// The group still has processes, so it cannot be removed yet. Try again when it is empty.
    #[error("{} still has processes", path.display())]
    Busy {
        /// The directory that could not be removed.
        path: PathBuf,
    },
    /// Somebody else holds the lock of the group.
    #[error("{} is locked by {}", path.display(), holder.map_or("another process".to_owned(), |pid| format!("process {pid}")))]
    Locked {
        /// The directory that is locked.
        path: PathBuf,
        /// Who holds it, where this process can see that.
        holder: Option<u32>,
    },
    /// More nested groups than are ever walked.
    #[error("{} has more than {limit} groups below it", path.display())]
    TreeTooLarge {
        /// The top of the tree.
        path: PathBuf,
        /// The bound.
        limit: usize,
    },
    /// The group does not exist in any hierarchy.
    #[error("there is no group {path}")]
    NotFound {
        /// The group.
        path: CgroupPath,
    },
    /// The kernel refused the program that holds the device rules.
    #[error("cannot {action} the device program of {}", path.display())]
    DeviceProgram {
        /// What was tried: `load`, `attach`, `list`, `detach`.
        action: &'static str,
        /// The group's directory.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: Errno,
    },
    /// Any other failure of a file operation.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: Errno,
    },
}

impl CgroupError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: Errno) -> Self {
        CgroupError::Io { action, path: path.into(), source }
    }

    pub(crate) fn invalid(field: impl Into<FieldName>, value: impl ToString, expected: &'static str) -> Self {
        CgroupError::Invalid { field: field.into(), value: value.to_string(), expected }
    }

    pub(crate) fn unsupported(
        field: impl Into<FieldName>,
        value: impl ToString,
        reason: &'static str,
    ) -> Self {
        CgroupError::Unsupported { field: field.into(), value: value.to_string(), reason }
    }
}

/// A setting that was left out on purpose; the group works without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The field that was left out.
    pub field: FieldName,
    /// Its value.
    pub value: String,
    /// Why it was left out.
    pub reason: &'static str,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} was left out: {}", self.field, self.value, self.reason)
    }
}
