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
        error if is_of_the_content(error) => Error::unavailable("the image", chain(error)),
        _ => Error::unavailable("the store of images", chain(error)),
    }
}

/// The error for a caller who brings images along: what is wrong with them is the caller's to mend.
pub(super) fn told_of_import(error: &ImagesError) -> Error {
    if is_of_the_content(error) {
        let expected = format!("images in an OCI or Docker archive that can be taken ({})", chain(error));
        return Error::invalid("archive", "what came", expected);
    }
    told(error)
}

fn is_of_the_content(error: &ImagesError) -> bool {
    matches!(
        error,
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
    )
}
