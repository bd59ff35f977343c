//! What goes wrong with images, as callers see it.

use mainstay_images::ImagesError;
use mainstay_messages::Error;
use mainstay_messages::error::Kind;
use mainstay_messages::error::chain;

/// The error for a caller.
pub(super) fn told(error: &ImagesError) -> Error {
    match error {
        ImagesError::NoImage { image } => Error::not_found(Kind::Image, image),
        ImagesError::AmbiguousImage { image, .. } => {
            Error::invalid("image", format!("{image:?}"), "more digits of the id: several images begin so")
        }
        ImagesError::Name(_) => Error::invalid("image", "a name", chain(error)),
        ImagesError::Import { .. }
        | ImagesError::Platform(_)
        | ImagesError::WrongDigest { .. }
        | ImagesError::WrongSize { .. }
        | ImagesError::WrongDiffId { .. }
        | ImagesError::Stream { .. }
        | ImagesError::Archive { .. }
        | ImagesError::Entry { .. }
        | ImagesError::Limit { .. }
        | ImagesError::Document { .. }
        | ImagesError::BlobTooLarge { .. }
        | ImagesError::Configuration { .. } => Error::unavailable("the image", chain(error)),
        _ => Error::unavailable("the store of images", chain(error)),
    }
}
