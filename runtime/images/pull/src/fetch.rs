//! One pull, from its manifest to its record, which is written last.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join_all;
use mainstay_actors::image::ProgressSink;
use mainstay_actors::ports::ResolvedImage;
use mainstay_images::{Hold, NewImage};
use mainstay_messages::image::{ImageId, LayerSize, PullProgress};
use mainstay_oci_image::{Descriptor, Digest, Document, Manifest, Reference};
use tokio::sync::watch;

use crate::Shared;
use crate::blob::{self, Stage, blocking};
use crate::document::ensure;
use crate::failure::PullError;
use crate::figures::Kind;
use crate::layers;
use crate::resolve::{descriptor_of, open, reporter};

/// See the module.
pub(crate) async fn fetch(
    shared: &Shared,
    wanted: &ResolvedImage,
    events: ProgressSink,
) -> Result<ImageId, PullError> {
    let reference: Reference = wanted.name.parse()?;
    let hold = Arc::new(shared.images.hold());
    let repository = open(shared, &reference, &wanted.spec, reporter(shared, events.clone())).await?;
    let (target, described) = (descriptor_of(&wanted.target)?, descriptor_of(&wanted.manifest)?);
    if target.digest != described.digest {
        ensure(shared, &repository, &hold, &target).await?;
    }
    let manifest = match ensure(shared, &repository, &hold, &described).await? {
        Document::Manifest(manifest) => manifest,
        Document::Index(_) => {
            let what = "it is an index, and was a manifest before".to_owned();
            return Err(PullError::NotAnImage { digest: described.digest.to_string(), what });
        }
    };
    check(&described, &manifest)?;
    events.tell(resolved(wanted, &manifest));
    let parts: Vec<(Kind, &Descriptor)> = std::iter::once((Kind::Document, &manifest.config))
        .chain(manifest.layers.iter().map(|layer| (Kind::Layer, layer)))
        .collect();
    let interest = shared.audience.join(&parts, &events);

    // A layer may be in an image twice.
    let stages: BTreeMap<&Digest, (&Descriptor, watch::Sender<Stage>)> = manifest
        .layers
        .iter()
        .map(|layer| (&layer.digest, (layer, watch::Sender::new(Stage::Unknown))))
        .collect();
    let blobs: Vec<watch::Receiver<Stage>> =
        manifest.layers.iter().map(|layer| stages[&layer.digest].1.subscribe()).collect();
    let mut first_come = Vec::new();
    for layer in &manifest.layers {
        if !first_come.contains(&&layer.digest) {
            first_come.push(&layer.digest);
        }
    }
    let transfers = first_come.into_iter().map(|digest| {
        let (descriptor, stage) = &stages[digest];
        blob::fetch(shared, &repository, &hold, &interest, descriptor, stage)
    });
    let unpacked = async {
        let stage = watch::Sender::new(Stage::Unknown);
        blob::fetch(shared, &repository, &hold, &interest, &manifest.config, &stage).await?;
        let (of, descriptor) = (Arc::clone(&hold), described.clone());
        let layers = blocking(move || of.layers(&descriptor)).await??;
        layers::unpack(shared, &hold, &interest, layers.into(), &blobs).await
    };
    // The configuration first: nothing is unpacked before it is here.
    futures::future::try_join(unpacked, try_join_all(transfers)).await?;
    record(hold, wanted).await
}

/// Records an image under the name it was asked for. All of it has to be here.
pub(crate) async fn record(hold: Arc<Hold>, wanted: &ResolvedImage) -> Result<ImageId, PullError> {
    let image = NewImage {
        name: Some(wanted.name.parse()?),
        target: descriptor_of(&wanted.target)?,
        manifest: descriptor_of(&wanted.manifest)?,
    };
    let record = blocking(move || hold.record(image)).await??;
    Ok(ImageId(record.config.digest.to_string()))
}

/// What can be told before anything is fetched.
pub(crate) fn check(described: &Descriptor, manifest: &Manifest) -> Result<(), PullError> {
    let digest = || described.digest.to_string();
    if !manifest.config.media_type.is_config() {
        let what = format!("its configuration is {}, which is no image", manifest.config.media_type);
        return Err(PullError::NotAnImage { digest: digest(), what });
    }
    match manifest.layers.iter().find(|layer| layer.media_type.compression().is_none()) {
        None => Ok(()),
        Some(layer) => {
            let what = format!("layer {} is {}, which cannot be unpacked", layer.digest, layer.media_type);
            Err(PullError::NotAnImage { digest: digest(), what })
        }
    }
}

fn resolved(wanted: &ResolvedImage, manifest: &Manifest) -> PullProgress {
    let layers = manifest
        .layers
        .iter()
        .map(|layer| LayerSize { digest: layer.digest.to_string(), bytes: layer.size })
        .collect();
    PullProgress::Resolved { digest: wanted.manifest.digest.clone(), layers }
}
