//! What a name means to a caller: the registry is asked with the caller's own credentials, every time. What the answer
//! leads to, manifests and indexes, is fetched once.

use std::sync::{Arc, Mutex, PoisonError};

use mainstay_actors::image::ProgressSink;
use mainstay_actors::ports::{ImageDocument, ResolvedImage};
use mainstay_images::Hold;
use mainstay_messages::image::{Credentials, PullSpec};
use mainstay_oci_image::{
    Descriptor, Document, Event, Manifest, MediaType, NoPlatform, Part, Platform, Reference, Step,
};
use mainstay_registry::{INDEX_DEPTH_MAX, Reporter, Repository, Secret};
use tokio::sync::watch;

use crate::Shared;
use crate::blob::{self, Stage, blocking};
use crate::document::ensure;
use crate::failure::PullError;
use crate::fetch::check;
use crate::figures::{Figures, Kind, MANIFEST_PART};

/// See the module.
pub(crate) async fn resolve(
    shared: &Shared,
    spec: PullSpec,
    events: ProgressSink,
) -> Result<ResolvedImage, PullError> {
    let reference: Reference = spec.image.as_str().parse()?;
    let platform = match &spec.platform {
        Some(text) => text.parse().map_err(|_| PullError::NoPlatform(text.clone()))?,
        None => Platform::host(),
    };
    let report = reporter(shared, events.clone());
    let _room = match shared.questions.try_acquire() {
        Ok(room) => room,
        Err(_) => {
            report(Event::new(Part::Manifest(reference.to_string()), Step::Waiting));
            // The semaphore is never closed.
            shared.questions.acquire().await.expect("slots are never taken away")
        }
    };
    let repository = open(shared, &reference, &spec, report).await?;
    let target = repository.resolve().await?;
    let hold = Arc::new(shared.images.hold());
    let mut manifest = target.clone();
    // Only an index says what its images are for, and not all do.
    let mut is_chosen = false;
    for _ in 0..INDEX_DEPTH_MAX {
        match ensure(shared, &repository, &hold, &manifest).await? {
            Document::Manifest(found) => {
                if spec.platform.is_some() && !is_chosen {
                    let described = (&manifest, &found);
                    check_platform(shared, &repository, &hold, described, &platform, &events).await?;
                }
                return Ok(ResolvedImage {
                    name: reference.to_string(),
                    repository: reference.repository(),
                    target: document_of(&target),
                    manifest: document_of(&manifest),
                    platform: platform.to_string(),
                    spec,
                });
            }
            Document::Index(index) => {
                let entry = index.select(&platform)?;
                is_chosen = entry.platform.is_some();
                manifest = entry.clone();
            }
        }
    }
    let what = format!("indexes lead to indexes more than {INDEX_DEPTH_MAX} deep");
    Err(PullError::NotAnImage { digest: target.digest.to_string(), what })
}

/// Whether an image that no index tells the platform of is for the one that was asked for: its configuration says it, or nobody
/// does.
async fn check_platform(
    shared: &Shared,
    repository: &Repository,
    hold: &Arc<Hold>,
    (described, manifest): (&Descriptor, &Manifest),
    wanted: &Platform,
    events: &ProgressSink,
) -> Result<(), PullError> {
    check(described, manifest)?;
    let interest = shared.audience.join(&[(Kind::Document, &manifest.config)], events);
    let stage = watch::Sender::new(Stage::Unknown);
    blob::fetch(shared, repository, hold, &interest, &manifest.config, &stage).await?;
    let (of, described) = (Arc::clone(hold), described.clone());
    match blocking(move || of.platform(&described)).await?? {
        Some(platform) if wanted.rank(&platform).is_none() => {
            Err(NoPlatform { wanted: wanted.clone(), offered: vec![platform] }.into())
        }
        _ => Ok(()),
    }
}

/// The repository of a pull.
pub(crate) async fn open(
    shared: &Shared,
    reference: &Reference,
    spec: &PullSpec,
    report: Reporter,
) -> Result<Repository, PullError> {
    let credentials = spec.credentials.clone().map(|credentials| match credentials {
        Credentials::Password { user, password } => {
            mainstay_registry::Credentials::Basic { user, password: Secret::new(password) }
        }
        Credentials::IdentityToken(token) => {
            mainstay_registry::Credentials::IdentityToken(Secret::new(token))
        }
        Credentials::RegistryToken(token) => {
            mainstay_registry::Credentials::RegistryToken(Secret::new(token))
        }
    });
    Ok(shared.registry.open(reference, credentials, report).await?)
}

/// Tells what happens to the manifest to this pull, and what happens to a blob to everyone who wants it.
pub(crate) fn reporter(shared: &Shared, events: ProgressSink) -> Reporter {
    let audience = Arc::clone(&shared.audience);
    let manifest = Mutex::new(Figures::new(MANIFEST_PART, Kind::Document, None));
    Arc::new(move |event: Event| match event.part {
        Part::Manifest(_) => {
            // The figures are sound after each step.
            let mut figures = manifest.lock().unwrap_or_else(PoisonError::into_inner);
            events.tell(figures.take(&event.part, &event.step));
        }
        Part::Blob(_) | Part::Layer(_) => audience.tell(&event),
    })
}

fn document_of(descriptor: &Descriptor) -> ImageDocument {
    ImageDocument {
        digest: descriptor.digest.to_string(),
        media_type: descriptor.media_type.to_string(),
        bytes: descriptor.size,
    }
}

/// The descriptor of a document that was resolved.
pub(crate) fn descriptor_of(document: &ImageDocument) -> Result<Descriptor, PullError> {
    let media_type = MediaType::from(document.media_type.as_str());
    Ok(Descriptor::new(media_type, document.digest.parse()?, document.bytes))
}
