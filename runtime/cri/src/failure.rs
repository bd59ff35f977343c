//! What goes wrong with a call, and which status of gRPC that is.
//!
//! Owns: the codes. kubelet tells by them whether an object is gone, and tries everything else again. Never: says more than the error of the
//! runtime does, whose text is made for people and shown by `kubectl describe pod`.

use mainstay_messages::Error;
use mainstay_messages::error::PullFault;
use thiserror::Error as ThisError;
use tonic::{Code, Status};

/// What the text begins with of a pull that failed for want of a registry: kubelet shows such a pod as `RegistryUnavailable`.
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";

/// The result of a call.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, ThisError)]
pub(crate) enum Failure {
    /// The runtime says why.
    #[error(transparent)]
    Runtime(#[from] Error),
    /// The pod or container is there, and was asked for in other words or cannot be used any more.
    #[error(
        "{what} is there already as {holder}, with another configuration or at its end; remove that one first or ask for another attempt"
    )]
    Another {
        /// What it is to whoever asks.
        what: String,
        /// The id of the one that is there.
        holder: String,
    },
    /// There is no such call here.
    #[error("{call} is not implemented: {reason}")]
    Unimplemented {
        /// The call.
        call: &'static str,
        /// Why not.
        reason: &'static str,
    },
}

impl Failure {
    /// A call that there is not.
    pub(crate) fn unimplemented(call: &'static str, reason: &'static str) -> Self {
        Self::Unimplemented { call, reason }
    }

    /// The failure to make something, of which the runtime speaks by a name that nobody else knows.
    pub(crate) fn to_make(what: impl FnOnce() -> String, error: Error) -> Self {
        match error {
            Error::NameTaken { holder, .. } => Self::Another { what: what(), holder },
            error => Self::Runtime(error),
        }
    }

    /// A field that is not acceptable.
    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Runtime(Error::invalid(field, value, expected))
    }

    fn code(&self) -> Code {
        let error = match self {
            Self::Unimplemented { .. } => return Code::Unimplemented,
            Self::Another { .. } => return Code::AlreadyExists,
            Self::Runtime(error) => error,
        };
        match error {
            Error::NotFound { .. } => Code::NotFound,
            Error::NameTaken { .. } => Code::AlreadyExists,
            Error::Ambiguous { .. } | Error::InvalidArgument { .. } => Code::InvalidArgument,
            Error::WrongPhase { .. }
            | Error::Terminating { .. }
            | Error::Unsupported { .. }
            | Error::HookFailed { .. }
            | Error::StartFailed { .. } => Code::FailedPrecondition,
            Error::InProgress { .. } | Error::Unavailable { .. } => Code::Unavailable,
            Error::DeadlineExceeded { .. } => Code::DeadlineExceeded,
            Error::ResourceExhausted { .. } => Code::ResourceExhausted,
            Error::PermissionDenied { .. } => Code::PermissionDenied,
            Error::Internal { .. } => Code::Internal,
            Error::PullFailed { fault, .. } => of_pull(*fault),
        }
    }
}

fn of_pull(fault: PullFault) -> Code {
    match fault {
        PullFault::NotFound => Code::NotFound,
        PullFault::Denied => Code::PermissionDenied,
        // Of an unknown error alone does kubelet look at the text.
        PullFault::Registry => Code::Unknown,
        PullFault::Stalled => Code::DeadlineExceeded,
        PullFault::Platform => Code::FailedPrecondition,
        PullFault::Content => Code::DataLoss,
        PullFault::Storage => Code::Unavailable,
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let text = match &failure {
            Failure::Runtime(Error::PullFailed { fault: PullFault::Registry, .. }) => {
                format!("{REGISTRY_UNAVAILABLE}: {failure}")
            }
            failure => failure.to_string(),
        };
        Self::new(failure.code(), text)
    }
}

#[cfg(test)]
mod tests {
    use mainstay_messages::error::Kind;

    use super::*;

    #[test]
    fn codes_are_those_that_kubelet_knows() {
        let of = |error: Error| Status::from(Failure::from(error)).code();
        assert_eq!(of(Error::not_found(Kind::Container, "x")), Code::NotFound);
        assert_eq!(of(Error::invalid("a", "b", "c")), Code::InvalidArgument);
        assert_eq!(of(Error::unavailable("a", "b")), Code::Unavailable);
        assert_eq!(of(Error::pull("a", PullFault::Registry, "b")), Code::Unknown);
        assert_eq!(Status::from(Failure::unimplemented("A", "b")).code(), Code::Unimplemented);
    }

    #[test]
    fn a_registry_that_is_away_is_told_so_that_kubelet_sees_it() {
        let status = Status::from(Failure::from(Error::pull("a/b:c", PullFault::Registry, "no answer")));
        assert_eq!(status.message(), "RegistryUnavailable: cannot pull a/b:c: no answer");
    }
}
