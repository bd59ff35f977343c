//! One blob: it is there, or it is fetched, by one pull at a time.

use std::sync::Arc;

use mainstay_images::{BlobClaim, Hold, Observer};
use mainstay_oci_image::{Descriptor, Event, Part, Step};
use mainstay_registry::Repository;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::Shared;
use crate::audience::{Interest, Lane};
use crate::failure::PullError;
use crate::writer::{self, Room};

/// How far a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Nothing is known of it.
    Unknown,
    /// Its bytes come, and can be read as they come.
    Comes,
    /// It is here.
    Here,
}

/// Sees to it that a blob is in the store. `stage` is told how far it is.
pub(crate) async fn fetch(
    shared: &Shared,
    repository: &Repository,
    hold: &Arc<Hold>,
    interest: &Interest,
    descriptor: &Descriptor,
    stage: &watch::Sender<Stage>,
) -> Result<(), PullError> {
    let part = Part::Blob(descriptor.digest.clone());
    let waits = || interest.waits(&descriptor.digest);
    let observer = observer(shared);
    loop {
        let passage = shared
            .blobs
            .enter(&descriptor.digest, || interest.waits_for_another(&descriptor.digest, Lane::Fetch))
            .await;
        // What is there needs no slot, and what is not is claimed only with one: each claim keeps a file open.
        let slot =
            if looks_present(hold, descriptor).await? { None } else { Some(free(shared, waits).await) };
        match claim(hold, descriptor, &observer).await? {
            BlobClaim::Present => {
                shared.audience.tell(&Event::new(part, Step::Done));
                stage.send_replace(Stage::Here);
                return Ok(());
            }
            // An import is at it.
            BlobClaim::Running(running) => {
                drop((passage, slot));
                waits();
                // Whether it is there now, the next claim tells.
                let _ = blocking(move || running.wait()).await?;
            }
            BlobClaim::Write(writer) => {
                let there = writer.offset();
                let slot = match slot {
                    Some(slot) => slot,
                    None => free(shared, waits).await,
                };
                let room = Room { _passage: passage, _slot: slot };
                let (mut sink, thread) = writer::start(writer, observer.clone(), room);
                stage.send_replace(Stage::Comes);
                let fetched = repository.blob(descriptor, there, &mut sink).await;
                match fetched {
                    Ok(()) => {
                        sink.commit().await;
                        thread.end().await?;
                        stage.send_replace(Stage::Here);
                        return Ok(());
                    }
                    Err(error) => {
                        drop(sink);
                        // What is wrong with the disk goes before what the registry's side saw of it.
                        thread.end().await?;
                        return Err(error.into());
                    }
                }
            }
        }
    }
}

async fn looks_present(hold: &Arc<Hold>, descriptor: &Descriptor) -> Result<bool, PullError> {
    let (hold, descriptor) = (Arc::clone(hold), descriptor.clone());
    blocking(move || hold.read_blob(&descriptor).is_ok()).await
}

/// A slot for a download.
async fn free(shared: &Shared, waits: impl FnOnce()) -> OwnedSemaphorePermit {
    let downloads = Arc::clone(&shared.downloads);
    match Arc::clone(&downloads).try_acquire_owned() {
        Ok(slot) => slot,
        Err(_) => {
            waits();
            // The semaphore is never closed.
            downloads.acquire_owned().await.expect("slots are never taken away")
        }
    }
}

/// Claims a blob. Bytes of an earlier try are hashed on the way.
pub(crate) async fn claim(
    hold: &Arc<Hold>,
    descriptor: &Descriptor,
    observer: &Observer,
) -> Result<BlobClaim, PullError> {
    let (hold, descriptor, observer) = (Arc::clone(hold), descriptor.clone(), observer.clone());
    Ok(blocking(move || hold.blob(&descriptor, &observer)).await??)
}

/// An observer that tells everyone who wants the part.
pub(crate) fn observer(shared: &Shared) -> Observer {
    let audience = Arc::clone(&shared.audience);
    Observer::new(move |event| audience.tell(&event))
}

/// Does what blocks on a thread that may.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PullError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| PullError::Thread)
}
