//! Pulls: from a registry into the images of a node. It joins the registry client, which knows no store, with the
//! images, which know no network, behind the port of the actors, which know neither.
//!
//! ```text
//!   ImagePull (actor) ── fetch ─► PullEngine ─┬─ blobs: each fetched once ───► mainstay-registry ─► content store
//!                                             ├─ layers: each unpacked once ◄─ bytes as they come ────┘
//!                                             └─ the record of the image, last
//! ```
//!
//! Whoever wants a blob or a layer passes its gate, one at a time; who comes later finds it there, or, when the one
//! before had to give up, goes on where that one stopped, with its own credentials. So nobody fails for another's
//! reasons. Everyone who wants a part hears what happens to it, whoever is at work ([`audience`]).
//!
//! It runs on threads of its own, so that neither the actors nor the caller wait for a hash or a disk. It decides
//! nothing about callers and time-outs: that is done in `mainstay_actors::image`.
//!
//! | module | owns |
//! |---|---|
//! | [`settings`] | every limit |
//! | `resolve` | what a name means |
//! | `fetch` | one pull, from its manifest to its record |
//! | `blob`, `writer` | a blob, and the thread that writes it |
//! | `layers` | in which order layers are unpacked, and when |
//! | `document` | manifests and indexes, kept in the store |
//! | [`audience`], [`figures`] | who hears of what, and in which words |
//! | `gate` | one at a time |
//! | `failure` | errors, as callers see them |

pub mod audience;
mod blob;
mod document;
mod failure;
mod fetch;
pub mod figures;
mod gate;
mod layers;
mod resolve;
pub mod settings;
mod writer;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use mainstay_actors::image::ProgressSink;
use mainstay_actors::ports::{ImageSource, ResolvedImage};
use mainstay_images::Images;
use mainstay_messages::image::{ImageId, PullSpec};
use mainstay_messages::{Error, Result};
use mainstay_oci_image::Digest;
use mainstay_registry::Registry;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub use settings::Settings;

use audience::Audience;
use failure::PullError;
use gate::Gates;

/// The source of images for the actors. Dropped, it ends what still goes on.
pub struct PullEngine {
    shared: Arc<Shared>,
    /// None only while it is dropped.
    runtime: Option<Runtime>,
}

/// What all pulls share.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) images: Images,
    pub(crate) audience: Arc<Audience>,
    /// Who is at a blob, or at a manifest.
    pub(crate) blobs: Arc<Gates<Digest>>,
    /// Who is at a layer, by its chain.
    pub(crate) chains: Arc<Gates<Digest>>,
    pub(crate) downloads: Arc<Semaphore>,
    pub(crate) unpacks: Arc<Semaphore>,
    pub(crate) questions: Arc<Semaphore>,
}

/// A task that ends when nobody waits for it any more.
struct Task<T>(JoinHandle<T>);

impl PullEngine {
    /// An engine that fetches from registries with these settings into these images.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when its threads cannot be started.
    pub fn new(images: Images, registry: mainstay_registry::Settings, settings: Settings) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(settings::WORKERS)
            .max_blocking_threads(settings::BLOCKING_THREADS_MAX)
            .thread_name("mainstay-pull")
            .enable_all()
            .build()
            .map_err(|error| Error::unavailable("threads for pulls", error))?;
        let registry = mainstay_registry::Settings { downloads_max: settings.downloads_max, ..registry }
            .within(settings.progress_timeout);
        let room = |count: usize| Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        let shared = Arc::new(Shared {
            registry: Registry::new(registry),
            images,
            audience: Arc::default(),
            blobs: Arc::default(),
            chains: Arc::default(),
            downloads: room(settings.downloads_max),
            unpacks: room(settings.unpacks_max),
            questions: room(settings::QUESTIONS_MAX),
        });
        Ok(Self { shared, runtime: Some(runtime) })
    }

    /// Runs a pull's work on the engine's own threads.
    fn run<T: Send + 'static>(
        &self,
        image: String,
        work: impl Future<Output = Result<T, PullError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let Some(runtime) = &self.runtime else {
            return std::future::ready(Err(Error::internal("the pull engine", "it is being ended"))).boxed();
        };
        let mut task = Task(runtime.spawn(work));
        async move {
            match (&mut task.0).await {
                Ok(result) => result.map_err(|error| error.told(&image)),
                Err(error) if error.is_panic() => Err(Error::internal("the pull engine", "it panicked")),
                Err(_) => Err(Error::unavailable("the pull engine", "it was ended in the middle of a pull")),
            }
        }
        .boxed()
    }
}

impl ImageSource for PullEngine {
    fn resolve(&self, spec: PullSpec, events: ProgressSink) -> BoxFuture<'static, Result<ResolvedImage>> {
        let (shared, image) = (Arc::clone(&self.shared), spec.image.to_string());
        self.run(image, async move { resolve::resolve(&shared, spec, events).await })
    }

    fn fetch(&self, wanted: Arc<ResolvedImage>, events: ProgressSink) -> BoxFuture<'static, Result<ImageId>> {
        let (shared, image) = (Arc::clone(&self.shared), wanted.spec.image.to_string());
        self.run(image, async move { fetch::fetch(&shared, &wanted, events).await })
    }

    fn name(&self, wanted: Arc<ResolvedImage>, _image: ImageId) -> BoxFuture<'static, Result<()>> {
        let (shared, image) = (Arc::clone(&self.shared), wanted.spec.image.to_string());
        self.run(image, async move { fetch::record(Arc::new(shared.images.hold()), &wanted).await.map(drop) })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for PullEngine {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Nobody waits: what is cut off here is as a crash would leave it.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for PullEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PullEngine")
    }
}
