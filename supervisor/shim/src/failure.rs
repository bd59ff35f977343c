//! Why a request was not done, and what the caller is told.
//!
//! Owns: the sentence and the status of each failure. Never: decides that something failed.

use std::io;
use std::path::PathBuf;

use mainstay_cgroups::CgroupError;
use mainstay_launch::{LaunchError, Step};
use mainstay_messages::shortage::Shortage;
use mainstay_task_api::convert::{ConvertError, ProcessKey};
use thiserror::Error;

use crate::backend::task_shim::{CallError, LaunchShimError};
use crate::logger::Chain;
use crate::output::log::LogError;
use crate::task::Refusal;

/// Why a request was not done.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// No such process.
    #[error("{process} is not known to this shim")]
    NotFound {
        /// What was asked for.
        process: ProcessKey,
    },
    /// The process that a signal is for has ended.
    #[error("{process} has exited")]
    Gone {
        /// What was asked for.
        process: ProcessKey,
    },
    /// The id is in use.
    #[error("{process} exists already; delete it first or choose another id")]
    Exists {
        /// What was asked for.
        process: ProcessKey,
    },
    /// The process is in a phase in which this cannot be done.
    #[error("{process} {refusal}")]
    Refused {
        /// What was asked for.
        process: ProcessKey,
        /// Why not.
        refusal: Refusal,
    },
    /// The process has not ended.
    #[error("{process} is running; kill it and wait for its exit before it is deleted")]
    Running {
        /// What was asked for.
        process: ProcessKey,
    },
    /// A field of the request is not acceptable.
    #[error("{field}: {value} is not valid; expected {expected}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// Its value, quoted.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// An id of the request is not acceptable.
    #[error(transparent)]
    Id(#[from] ConvertError),
    /// The bundle's `config.json` cannot be read.
    #[error("{path:?} cannot be read as an OCI runtime spec")]
    Spec {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// A file operation.
    #[error("{path:?} cannot be {doing}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A system call on something that has no path.
    #[error("{doing} failed")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The process could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The process ended before it ran.
    #[error("{process} ended before its program ran: {how}")]
    EndedEarly {
        /// Which.
        process: ProcessKey,
        /// How it ended.
        how: String,
    },
    /// A runtime refused.
    #[error("{runtime} {verb}: {reason}")]
    Runtime {
        /// Its name.
        runtime: String,
        /// What it was asked to do.
        verb: &'static str,
        /// What it said.
        reason: String,
    },
    /// A runtime has told of a process that is not there.
    #[error("{process}: the runtime says that it is process {pid}, which is no child of this shim")]
    NoChild {
        /// Which.
        process: ProcessKey,
        /// What it said.
        pid: i32,
    },
    /// A runtime has told of a child that is another one.
    #[error("{process}: the runtime says that it is process {pid}, which {why}")]
    Mistaken {
        /// Which.
        process: ProcessKey,
        /// What it said.
        pid: i32,
        /// What that is.
        why: &'static str,
    },
    /// The cgroup cannot be made, limited or read.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The container has no log.
    #[error("{process} was created without a log file")]
    NoLog {
        /// What was asked for.
        process: ProcessKey,
    },
    /// Another shim, which makes the containers.
    #[error(transparent)]
    Shim(#[from] CallError),
    /// Another shim, which could not be started.
    #[error(transparent)]
    LaunchShim(#[from] LaunchShimError),
    /// Something took longer than its limit.
    #[error("{what} did not finish within {after_ms} ms{place}")]
    Deadline {
        /// What.
        what: String,
        /// The limit.
        after_ms: u64,
        /// Where it hangs, if that is known.
        place: String,
    },
    /// A limit is reached.
    #[error("{what}: the limit of {limit} is reached; delete or acknowledge some first")]
    Exhausted {
        /// Which.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Not offered.
    #[error("{what} is not supported by this shim")]
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// The shim is on its way out.
    #[error("this shim is shutting down")]
    Closing,
}

impl Failure {
    /// A system call on something that has no path.
    pub(crate) fn system(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }

    /// What the machine is short of, where that is why: then nobody's request is at fault, and it may work another time.
    fn shortage(&self) -> Option<Shortage> {
        match self {
            Self::File { source, .. } | Self::System { source, .. } => Shortage::of(source),
            Self::Log(LogError::Open { source, .. } | LogError::Directory { source, .. }) => {
                Shortage::of(source)
            }
            Self::Launch(LaunchError::System { step, source, .. }) => {
                Shortage::of(source).filter(|shortage| match shortage {
                    // A root that is read-only is what was asked for.
                    Shortage::Writable => false,
                    // Of namespaces and cgroups the kernel says "no space" where a limit is reached.
                    Shortage::Space => !matches!(step, Step::Clone | Step::Namespaces | Step::Cgroup),
                    _ => true,
                })
            }
            // The files of cgroups are on no disk, and some of them say "no space" of their own.
            Self::Cgroup(CgroupError::Io { source, .. }) => Shortage::of_code(source.raw_os_error())
                .filter(|shortage| matches!(shortage, Shortage::Descriptors | Shortage::OpenFiles)),
            _ => None,
        }
    }

    fn code(&self) -> ttrpc::Code {
        use ttrpc::Code;
        if self.shortage().is_some() {
            return Code::UNAVAILABLE;
        }
        match self {
            Self::NotFound { .. } | Self::Gone { .. } => Code::NOT_FOUND,
            Self::Exists { .. } => Code::ALREADY_EXISTS,
            Self::NoLog { .. }
            | Self::Refused { .. }
            | Self::Running { .. }
            | Self::EndedEarly { .. }
            | Self::Runtime { .. }
            | Self::NoChild { .. }
            | Self::Mistaken { .. } => Code::FAILED_PRECONDITION,
            Self::Invalid { .. } | Self::Id(_) | Self::Spec { .. } => Code::INVALID_ARGUMENT,
            Self::Launch(error) => match error {
                LaunchError::Spec { .. } | LaunchError::Unsupported { .. } | LaunchError::User { .. } => {
                    Code::INVALID_ARGUMENT
                }
                LaunchError::Machine { .. } => Code::UNIMPLEMENTED,
                LaunchError::Command { .. } => Code::NOT_FOUND,
                LaunchError::Internal { .. } => Code::INTERNAL,
                LaunchError::Hook { .. }
                | LaunchError::System { .. }
                | LaunchError::TargetGone
                | LaunchError::ChildGone => Code::FAILED_PRECONDITION,
            },
            Self::Cgroup(error) => match error {
                CgroupError::Invalid { .. }
                | CgroupError::Refused { .. }
                | CgroupError::MemoryBelowUsage { .. } => Code::INVALID_ARGUMENT,
                CgroupError::NotFound { .. } => Code::NOT_FOUND,
                CgroupError::Busy { .. } => Code::UNAVAILABLE,
                _ => Code::FAILED_PRECONDITION,
            },
            Self::Log(error) => match error {
                LogError::Path { .. } => Code::INVALID_ARGUMENT,
                _ => Code::FAILED_PRECONDITION,
            },
            Self::File { .. } | Self::System { .. } => Code::FAILED_PRECONDITION,
            Self::Shim(CallError::Refused { code, .. }) => *code,
            Self::Shim(CallError::Silent { .. }) | Self::LaunchShim(LaunchShimError::Deadline { .. }) => {
                Code::DEADLINE_EXCEEDED
            }
            Self::Shim(CallError::Gone { .. } | CallError::Nonsense { .. }) | Self::LaunchShim(_) => {
                Code::FAILED_PRECONDITION
            }
            Self::Deadline { .. } => Code::DEADLINE_EXCEEDED,
            Self::Exhausted { .. } => Code::RESOURCE_EXHAUSTED,
            Self::Unsupported { .. } => Code::UNIMPLEMENTED,
            Self::Closing => Code::UNAVAILABLE,
        }
    }

    /// The whole story in one sentence.
    pub(crate) fn sentence(&self) -> String {
        match self.shortage() {
            Some(shortage) => format!("{}; {}", Chain(self), shortage.remedy()),
            None => Chain(self).to_string(),
        }
    }
}

impl From<Failure> for ttrpc::Error {
    fn from(failure: Failure) -> Self {
        Self::RpcStatus(ttrpc::get_status(failure.code(), failure.sentence()))
    }
}
