//! In which order the layers of an image are unpacked, and when.
//!
//! ```text
//!   Waits ─► Claimed ─► Admitted ─► Done        of the layer below: Claimed before Claimed, Admitted before Admitted
//! ```
//!
//! A layer is claimed after the one below it, and gets its slot after that one: a layer waits at its end for those below,
//! which must then not wait for its slot. It is unpacked while its bytes come. When those break off, because whoever
//! fetched them gave up, it is unpacked anew once they are all here.

use std::sync::Arc;

use futures::future::try_join_all;
use mainstay_images::{Hold, ImageLayer, ImagesError, LayerClaim, Unpacking};
use mainstay_oci_image::{Digest, Event, Part, Step};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::Shared;
use crate::audience::{Interest, Lane};
use crate::blob::{Stage, blocking};
use crate::failure::PullError;
use crate::gate::Passage;

/// Times that a layer is unpacked anew for what is not its own fault.
const ANEW_MAX: u32 = 8;

/// How far a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Waits,
    Claimed,
    Admitted,
    Done,
}

/// One layer of one pull.
struct Layer<'a> {
    shared: &'a Shared,
    hold: &'a Arc<Hold>,
    interest: &'a Interest,
    layers: &'a Arc<[ImageLayer]>,
    index: usize,
    blob: watch::Receiver<Stage>,
    below: Option<watch::Receiver<Place>>,
    place: &'a watch::Sender<Place>,
}

/// Unpacks all layers. `blobs` says of each how far its bytes are.
pub(crate) async fn unpack(
    shared: &Shared,
    hold: &Arc<Hold>,
    interest: &Interest,
    layers: Arc<[ImageLayer]>,
    blobs: &[watch::Receiver<Stage>],
) -> Result<(), PullError> {
    let places: Vec<_> = layers.iter().map(|_| watch::Sender::new(Place::Waits)).collect();
    let all = places.iter().zip(blobs).enumerate().map(|(index, (place, blob))| {
        let below = index.checked_sub(1).map(|below| places[below].subscribe());
        let layer =
            Layer { shared, hold, interest, layers: &layers, index, blob: blob.clone(), below, place };
        layer.unpack()
    });
    try_join_all(all).await.map(drop)
}

impl Layer<'_> {
    async fn unpack(mut self) -> Result<(), PullError> {
        self.below_is(Place::Claimed).await;
        let chain = &self.layers[self.index].chain;
        let mut passage = self
            .shared
            .chains
            .enter(chain, || self.interest.waits_for_another(self.digest(), Lane::Unpack))
            .await;
        let mut anew = 0;
        loop {
            let (hold, layers, index) = (Arc::clone(self.hold), Arc::clone(self.layers), self.index);
            let claim = blocking(move || hold.layer(&layers, index)).await??;
            self.reach(Place::Claimed);
            let unpacking = match claim {
                LayerClaim::Ready => break,
                // An import, or a repair, is at it.
                LayerClaim::Running(running) => {
                    self.waits();
                    // Whether it is there now, the next claim tells.
                    let _ = blocking(move || running.wait()).await?;
                    continue;
                }
                LayerClaim::Unpack(unpacking) => unpacking,
            };
            self.blob_is(Stage::Comes).await;
            self.below_is(Place::Admitted).await;
            let slot = self.slot().await;
            self.reach(Place::Admitted);
            // Whether all that it needs was here when it began, so that a failure is its own.
            let own = *self.blob.borrow() == Stage::Here
                && self.below.as_ref().is_none_or(|below| *below.borrow() == Place::Done);
            let (back, result) = self.run(unpacking, passage, slot).await?;
            passage = back;
            match result {
                Ok(()) => break,
                Err(error) if own || anew == ANEW_MAX => return Err(error.into()),
                Err(error) => {
                    anew += 1;
                    // Those above must not take the last slot, and wait in it for this one.
                    self.place.send_replace(Place::Claimed);
                    tracing::debug!(layer = %self.digest(), %error, "unpacked anew once all it needs is here");
                    self.waits();
                    self.blob_is(Stage::Here).await;
                    self.below_is(Place::Done).await;
                }
            }
        }
        let part = Part::Layer(self.digest().clone());
        self.shared.audience.tell(&Event::new(part, Step::Done));
        self.reach(Place::Done);
        drop(passage);
        Ok(())
    }

    /// Unpacks on a thread of its own, which keeps gate and slot until it is at its end, whoever still waits for it.
    async fn run(
        &self,
        unpacking: Unpacking,
        passage: Passage<Digest>,
        slot: OwnedSemaphorePermit,
    ) -> Result<(Passage<Digest>, Result<(), ImagesError>), PullError> {
        let (hold, blob) = (Arc::clone(self.hold), self.layers[self.index].blob.clone());
        let observer = self.shared.audience.observer(self.digest());
        blocking(move || {
            let result = hold.read_blob(&blob).and_then(|bytes| unpacking.run(bytes, &observer));
            drop(slot);
            (passage, result)
        })
        .await
    }

    async fn slot(&self) -> OwnedSemaphorePermit {
        let unpacks = Arc::clone(&self.shared.unpacks);
        match Arc::clone(&unpacks).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => {
                self.waits();
                // The semaphore is never closed.
                unpacks.acquire_owned().await.expect("slots are never taken away")
            }
        }
    }

    async fn blob_is(&mut self, stage: Stage) {
        // The sender lives as long as the pull.
        let _ = self.blob.wait_for(|reached| *reached >= stage).await;
    }

    async fn below_is(&mut self, place: Place) {
        if let Some(below) = &mut self.below {
            // The sender lives as long as the pull.
            let _ = below.wait_for(|reached| *reached >= place).await;
        }
    }

    fn reach(&self, place: Place) {
        self.place.send_if_modified(|reached| {
            let further = place > *reached;
            *reached = place.max(*reached);
            further
        });
    }

    fn waits(&self) {
        self.interest.waits(self.digest());
    }

    fn digest(&self) -> &Digest {
        &self.layers[self.index].blob.digest
    }
}
