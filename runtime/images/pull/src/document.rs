//! Manifests and indexes: fetched once, and kept in the store like any blob.

use std::sync::Arc;

use mainstay_images::{BlobClaim, BlobWriter, Hold, ImagesError, Observer};
use mainstay_oci_image::{Descriptor, Document};
use mainstay_registry::Repository;

use crate::Shared;
use crate::blob::{blocking, claim};
use crate::failure::PullError;

/// Reads a document out of the store; fetches it before when it is not there.
pub(crate) async fn ensure(
    shared: &Shared,
    repository: &Repository,
    hold: &Arc<Hold>,
    descriptor: &Descriptor,
) -> Result<Document, PullError> {
    let observer = Observer::none();
    loop {
        let _passage = shared.blobs.enter(&descriptor.digest, || ()).await;
        match claim(hold, descriptor, &observer).await? {
            BlobClaim::Present => {
                let (hold, descriptor) = (Arc::clone(hold), descriptor.clone());
                return Ok(blocking(move || hold.document(&descriptor)).await??);
            }
            BlobClaim::Running(running) => {
                // Whether it is there now, the next claim tells.
                let _ = blocking(move || running.wait()).await?;
            }
            BlobClaim::Write(writer) => {
                let fetched = repository.by_digest(&descriptor.digest).await?;
                blocking(move || keep(writer, &fetched.bytes)).await??;
                return Ok(fetched.document);
            }
        }
    }
}

fn keep(mut writer: BlobWriter, bytes: &[u8]) -> Result<(), ImagesError> {
    if writer.offset() > 0 {
        writer.restart()?;
    }
    writer.write(bytes)?;
    writer.commit(&Observer::none())
}
