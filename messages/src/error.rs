//! The one error type that callers see, over every door: the crate, the admin RPC, CRI.
//!
//! A variant is something that a caller may want to tell apart. Its text is one sentence that names the
//! field, the value and what would be right.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::shortage::explained;
use crate::time::Timestamp;

/// An error with its causes, in one sentence, and the way out where the machine is short of something.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.downcast_ref::<io::Error>().map_or_else(|| error.to_string(), explained));
        cause = error.source();
    }
    text
}

/// The result of an operation of the runtime.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of object that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A pod sandbox.
    Sandbox,
    /// A container.
    Container,
    /// An exec.
    Exec,
    /// A pod or a container: the name could have been that of either.
    Either,
    /// An image.
    Image,
    /// A plugin.
    Plugin,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandbox => "pod",
            Self::Container => "container",
            Self::Exec => "exec",
            Self::Either => "pod or container",
            Self::Image => "image",
            Self::Plugin => "plugin",
        })
    }
}

/// Why an operation was not done.
#[derive(Clone, Debug, PartialEq, Eq, ThisError, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Error {
    /// No such object.
    #[error("no {kind} {id:?}{}", instead(.kind, .nearest))]
    NotFound {
        /// What was looked for.
        kind: Kind,
        /// The id or name that was given.
        id: String,
        /// The known id or name that is most like it.
        nearest: Option<String>,
    },
    /// A prefix that fits more than one object.
    #[error("{kind} {prefix:?} is ambiguous: it fits {first} and {second}; give more characters")]
    Ambiguous {
        /// What was looked for.
        kind: Kind,
        /// The prefix that was given.
        prefix: String,
        /// One object that it fits.
        first: String,
        /// Another one.
        second: String,
    },
    /// The name is in use.
    #[error("the {kind} name {name:?} is taken by {holder}; remove that one first or choose another name")]
    NameTaken {
        /// Whose name.
        kind: Kind,
        /// The name.
        name: String,
        /// The id of the object that has it.
        holder: String,
    },
    /// A field of the request is not acceptable.
    #[error("{field}: {value} is not valid; expected {expected}")]
    InvalidArgument {
        /// The field's name.
        field: String,
        /// The value as it was given, quoted.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// The object is in a phase in which this cannot be done.
    #[error("{kind} {id} is {phase}; {operation} needs it to be {needed}")]
    WrongPhase {
        /// What it is.
        kind: Kind,
        /// Which one.
        id: String,
        /// The phase it is in.
        phase: String,
        /// What was asked for.
        operation: String,
        /// The phase or phases that would do.
        needed: String,
    },
    /// Another operation on the same object has not ended.
    #[error("{operation} of {id} is in progress since {since}, at step {step:?}; ask again later")]
    InProgress {
        /// The object.
        id: String,
        /// What is going on.
        operation: String,
        /// The step that it is at.
        step: String,
        /// When it began.
        since: Timestamp,
    },
    /// Something took longer than its limit.
    #[error("{what} did not finish within {after_ms} ms")]
    DeadlineExceeded {
        /// What was waited for, and on whom.
        what: String,
        /// The limit.
        after_ms: u64,
    },
    /// A limit is reached (P11).
    #[error("{what}: the limit of {limit} is reached; try again later or raise the limit")]
    ResourceExhausted {
        /// Which limit.
        what: String,
        /// Its value.
        limit: u64,
    },
    /// The container's process could not be started.
    #[error("{reason}")]
    StartFailed {
        /// What failed, in one sentence.
        reason: String,
    },
    /// A setting cannot be honoured, or an operation not be done: the machine cannot, or a shim that is older than this program.
    #[error("{setting}: not supported: {reason}")]
    Unsupported {
        /// The setting or operation.
        setting: String,
        /// What is missing, and where.
        reason: String,
    },
    /// A part that is needed does not work now; the request changed nothing.
    #[error("{what} is not available: {reason}")]
    Unavailable {
        /// Which part.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The object is on its way out.
    #[error("{kind} {id} is being removed")]
    Terminating {
        /// What it is.
        kind: Kind,
        /// Which one.
        id: String,
    },
    /// The caller may not do this.
    #[error("{what}: permission denied: {reason}")]
    PermissionDenied {
        /// What was tried.
        what: String,
        /// Who may.
        reason: String,
    },
    /// A fault of the runtime itself.
    #[error("internal fault in {what}: {reason}")]
    Internal {
        /// Which part.
        what: String,
        /// What happened.
        reason: String,
    },
    /// An image could not be pulled. Nothing of it is listed; what was fetched is kept for the next try.
    #[error("cannot pull {image}: {reason}")]
    PullFailed {
        /// Which one, as it was asked for.
        image: String,
        /// What kind of failure it was.
        fault: PullFault,
        /// What happened, in one sentence that names the host, the blob and the status as far as there are any.
        reason: String,
    },
    /// A plugin said no, or was not heard and has to be. The request changed nothing.
    #[error("{hook}: plugin {plugin}: {reason}")]
    HookFailed {
        /// The event, as in `RunPodSandbox`.
        hook: String,
        /// Which plugin, with its index.
        plugin: String,
        /// What it said, or why it was not heard.
        reason: String,
    },
}

/// Why an image could not be pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullFault {
    /// The registry has no such image, or says so to this caller.
    NotFound,
    /// The registry does not give it to this caller.
    Denied,
    /// The registry does not answer, or not as it should, or has no capacity.
    Registry,
    /// Nothing moved for the whole time-out.
    Stalled,
    /// There is none for this platform.
    Platform,
    /// What came is not what its digest says, or is no image that can be run.
    Content,
    /// It could not be stored.
    Storage,
}

impl Error {
    /// A field that is not acceptable.
    pub fn invalid(field: impl Into<String>, value: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::InvalidArgument { field: field.into(), value: value.into(), expected: expected.into() }
    }

    /// An unknown object, without a proposal.
    pub fn not_found(kind: Kind, id: impl fmt::Display) -> Self {
        Self::NotFound { kind, id: id.to_string(), nearest: None }
    }

    /// A part that does not work now.
    pub fn unavailable(what: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self::Unavailable { what: what.into(), reason: reason.to_string() }
    }

    /// An image that could not be pulled.
    pub fn pull(image: impl fmt::Display, fault: PullFault, reason: impl fmt::Display) -> Self {
        Self::PullFailed { image: image.to_string(), fault, reason: reason.to_string() }
    }

    /// A fault of the runtime itself.
    pub fn internal(what: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self::Internal { what: what.into(), reason: reason.to_string() }
    }
}

/// What would be right where something is not there.
fn instead(kind: &Kind, nearest: &Option<String>) -> String {
    match (kind, nearest) {
        (_, Some(nearest)) => format!("; did you mean {nearest:?}?"),
        (Kind::Image, None) => " here; pull it first (`mainstay pull`), or import it".to_owned(),
        (_, None) => String::new(),
    }
}
