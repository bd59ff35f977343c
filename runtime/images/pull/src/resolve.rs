//! What a name means to a caller: the registry is asked with the caller's own credentials, every time. What the answer
//! leads to, manifests and indexes, is fetched once.

use std::sync::{Arc, Mutex, PoisonError};

use mainstay_actors::image::ProgressSink;
use mainstay_actors::ports::{ImageDocument, ResolvedImage};
use mainstay_messages::image::{Credentials, PullSpec};
use mainstay_oci_image::{Descriptor, Document, Event, MediaType, Part, Platform, Reference, Step};
use mainstay_registry::{INDEX_DEPTH_MAX, Reporter, Repository, Secret};

use crate::Shared;
use crate::document::ensure;
use crate::failure::PullError;
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
    let report = reporter(shared, events);
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
    for _ in 0..INDEX_DEPTH_MAX {
        match ensure(shared, &repository, &hold, &manifest).await? {
            Document::Manifest(_) => {
                return Ok(ResolvedImage {
                    name: reference.to_string(),
                    repository: reference.repository(),
                    target: document_of(&target),
                    manifest: document_of(&manifest),
                    platform: platform.to_string(),
                    spec,
                });
            }
            Document::Index(index) => manifest = index.select(&platform)?.clone(),
        }
    }
    let what = format!("indexes lead to indexes more than {INDEX_DEPTH_MAX} deep");
    Err(PullError::NotAnImage { digest: target.digest.to_string(), what })
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
