//! What can go wrong in a pull, and what a caller is told of it.

use mainstay_images::ImagesError;
use mainstay_messages::Error;
use mainstay_messages::error::{PullFault, chain};
use mainstay_oci_image::{DigestError, DocumentError, NoPlatform, ReferenceError};
use mainstay_registry::{Problem, RegistryError};
use thiserror::Error as ThisError;

/// What can go wrong in a pull.
#[derive(Debug, ThisError)]
pub(crate) enum PullError {
    /// The registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The images of this node.
    #[error(transparent)]
    Images(#[from] ImagesError),
    /// A manifest that is in the store.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The name.
    #[error(transparent)]
    Name(#[from] ReferenceError),
    /// A digest of ours.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// There is none for the platform.
    #[error(transparent)]
    Platform(#[from] NoPlatform),
    /// The platform is none.
    #[error("{0:?} is no platform")]
    NoPlatform(String),
    /// It is no image.
    #[error("manifest {digest}: {what}")]
    NotAnImage {
        /// Which.
        digest: String,
        /// What it is instead.
        what: String,
    },
    /// A thread of ours.
    #[error("a thread that had work of the pull panicked, or was ended")]
    Thread,
}

impl PullError {
    /// What a caller is told.
    pub(crate) fn told(self, image: &str) -> Error {
        let fault = match &self {
            Self::Registry(error) => of_registry(&error.problem),
            Self::Images(error) => of_images(error),
            Self::Document(_) | Self::NotAnImage { .. } => PullFault::Content,
            Self::Platform(_) => PullFault::Platform,
            Self::Name(error) => {
                return Error::invalid("image", format!("{image:?}"), format!("an image name ({error})"));
            }
            Self::NoPlatform(platform) => {
                return Error::invalid("platform", format!("{platform:?}"), "a platform as linux/arm64/v8");
            }
            Self::Digest(_) | Self::Thread => return Error::internal("the pull engine", chain(&self)),
        };
        Error::pull(image, fault, chain(&self))
    }
}

fn of_registry(problem: &Problem) -> PullFault {
    match problem {
        Problem::Unauthorized { .. } | Problem::Forbidden { .. } => PullFault::Denied,
        Problem::NotFound { .. } => PullFault::NotFound,
        Problem::Platform(_) => PullFault::Platform,
        Problem::WrongDigest { .. }
        | Problem::WrongSize { .. }
        | Problem::TooLong { .. }
        | Problem::DigestHeader(_)
        | Problem::Document(_)
        | Problem::IndexDepth { .. } => PullFault::Content,
        Problem::Sink(_) => PullFault::Storage,
        _ => PullFault::Registry,
    }
}

fn of_images(error: &ImagesError) -> PullFault {
    match error {
        ImagesError::WrongDigest { .. }
        | ImagesError::WrongSize { .. }
        | ImagesError::BlobTooLarge { .. }
        | ImagesError::Stream { .. }
        | ImagesError::Archive { .. }
        | ImagesError::Entry { .. }
        | ImagesError::Limit { .. }
        | ImagesError::WrongDiffId { .. }
        | ImagesError::Document { .. } => PullFault::Content,
        _ => PullFault::Storage,
    }
}
