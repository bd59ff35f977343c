//! The images of the machine, opened when they are first needed.
//!
//! One process at a time has them open. A daemon keeps them; a private one, which lives as long as a command, lets go of them
//! as soon as nothing of it is at work on them, so that commands beside each other take turns and none waits for a
//! container of another. What its containers stand on is kept by [leases](super::leases), which are on the disk.
//!
//! Owns: opening, waiting for another process, and the engine of pulls. Images that cannot be opened are an error of the call
//! that needs them, and of nothing else (P9).

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use mainstay_actors::image::ProgressSink;
use mainstay_actors::ports::{ImageSource, ResolvedImage};
use mainstay_image_pull::PullEngine;
use mainstay_image_pull::figures::MANIFEST_PART;
use mainstay_images::{Images, ImagesError, Tenure};
use mainstay_messages::error::PullFault;
use mainstay_messages::image::{ImageId, PullActivity, PullProgress, PullSpec};
use mainstay_messages::{Error, Result};
use tokio::sync::{Mutex, Notify, oneshot};

use super::failure::told;
use crate::config::ImageSettings;

/// How long a call waits for another process that is at work on the images, in milliseconds.
pub const IMAGES_WAIT_MS: u64 = 60_000;
/// How long it waits for one that keeps them open as long as it runs, as a daemon does, in milliseconds: that one may be ending.
pub const IMAGES_KEPT_WAIT_MS: u64 = 3_000;
/// How often it looks whether that one has let go, in milliseconds.
const IMAGES_LOOK_MS: u64 = 50;

/// See the module.
pub(crate) struct ImageStore {
    settings: Arc<Opening>,
    keep: Keep,
    slot: Mutex<Slot>,
    /// Something is there that no image needs.
    garbage: Notify,
}

/// How the images are opened.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) directory: PathBuf,
    pub(crate) boot_id: String,
    pub(crate) settings: ImageSettings,
}

/// How long images that were opened stay so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// As long as the runtime.
    WhileRunning,
    /// As long as something is at work on them.
    WhileUsed,
}

impl Keep {
    fn tenure(self) -> Tenure {
        match self {
            Self::WhileRunning => Tenure::Kept,
            Self::WhileUsed => Tenure::InTurn,
        }
    }
}

/// Images that are open, with what brings more of them.
pub(crate) struct Opened {
    pub(crate) images: Images,
    engine: PullEngine,
}

#[derive(Default)]
enum Slot {
    #[default]
    Shut,
    Kept(Arc<Opened>),
    Used(Weak<Opened>),
}

impl ImageStore {
    pub(crate) fn new(settings: Opening, keep: Keep) -> Self {
        Self { settings: Arc::new(settings), keep, slot: Mutex::default(), garbage: Notify::new() }
    }

    /// Whether there is anything to open: what nobody has used is not made for looking at it.
    pub(crate) fn is_there(&self) -> bool {
        self.settings.directory.is_dir()
    }

    pub(crate) fn keep(&self) -> Keep {
        self.keep
    }

    /// Says that there is something that no image needs.
    pub(crate) fn littered(&self) {
        self.garbage.notify_one();
    }

    /// Waits until somebody says so.
    pub(crate) async fn garbage(&self) {
        self.garbage.notified().await;
    }

    /// The images. Waits for another process that has them open, up to [`IMAGES_WAIT_MS`] or [`IMAGES_KEPT_WAIT_MS`].
    pub(crate) async fn open(&self) -> Result<Arc<Opened>> {
        let mut slot = self.slot.lock().await;
        if let Some(opened) = slot.get() {
            return Ok(opened);
        }
        // Dropped with this future: then nobody waits for the images any more.
        let (caller, _wanted) = oneshot::channel();
        let (settings, tenure) = (Arc::clone(&self.settings), self.keep.tenure());
        let opened = tokio::task::spawn_blocking(move || wait_and_open(&settings, tenure, &caller)).await;
        let opened = Arc::new(opened.map_err(|_| Error::internal("the images", "opening them panicked"))??);
        *slot = match self.keep {
            Keep::WhileRunning => Slot::Kept(Arc::clone(&opened)),
            Keep::WhileUsed => Slot::Used(Arc::downgrade(&opened)),
        };
        Ok(opened)
    }

    /// Opens them for a pull, which hears that it waits.
    async fn open_for(&self, events: &ProgressSink) -> Result<Arc<Opened>> {
        if let Some(opened) = self.slot.try_lock().ok().and_then(|slot| slot.get()) {
            return Ok(opened);
        }
        let part = MANIFEST_PART.to_owned();
        events.tell(PullProgress::Part { part, activity: PullActivity::Waiting, bytes: 0, of: None });
        self.open().await
    }

    /// Lets go of the images; what is at work on them ends first.
    pub(crate) async fn shut(&self) {
        *self.slot.lock().await = Slot::Shut;
    }
}

impl Slot {
    fn get(&self) -> Option<Arc<Opened>> {
        match self {
            Self::Shut => None,
            Self::Kept(opened) => Some(Arc::clone(opened)),
            Self::Used(opened) => opened.upgrade(),
        }
    }
}

/// Opens the images; blocks. Ends early when the caller has left.
fn wait_and_open(opening: &Opening, tenure: Tenure, caller: &oneshot::Sender<()>) -> Result<Opened> {
    let Opening { directory, boot_id, settings } = opening;
    let refused =
        |error| Error::unavailable(format!("the directory of images {}", directory.display()), error);
    if let Some(above) = directory.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(above).map_err(refused)?;
    }
    let of_images = mainstay_images::Settings {
        limits: settings.limits(),
        tenure,
        ..mainstay_images::Settings::new(boot_id.clone())
    };
    let until = Instant::now() + Duration::from_millis(IMAGES_WAIT_MS);
    // Counts from when it was kept last: many take turns, and what one of them has written may be read as another begins.
    let mut kept_until = None;
    let opened = loop {
        let now = Instant::now();
        let (error, may_wait) = match Images::open(directory, of_images.clone()) {
            Err(error @ ImagesError::Locked { tenure: Tenure::Kept, .. }) => {
                let until = *kept_until.get_or_insert(now + Duration::from_millis(IMAGES_KEPT_WAIT_MS));
                (error, now < until)
            }
            Err(error @ ImagesError::Locked { tenure: Tenure::InTurn, .. }) => {
                kept_until = None;
                (error, now < until)
            }
            opened => break opened.map_err(|error| told(&error))?,
        };
        if !may_wait || caller.is_closed() {
            return Err(told(&error));
        }
        std::thread::sleep(Duration::from_millis(IMAGES_LOOK_MS));
    };
    if let Some(aside) = &opened.set_aside {
        tracing::error!(aside = %aside.display(), "the records of images could not be read and were set aside");
    }
    let engine = PullEngine::new(opened.images.clone(), settings.registry(), settings.engine())?;
    Ok(Opened { images: opened.images, engine })
}

/// The source of images, as the actors see it.
pub(crate) struct Source(pub(crate) Arc<ImageStore>);

impl ImageSource for Source {
    fn resolve(&self, spec: PullSpec, events: ProgressSink) -> BoxFuture<'static, Result<ResolvedImage>> {
        let store = Arc::clone(&self.0);
        async move { store.open_for(&events).await?.engine.resolve(spec, events).await }.boxed()
    }

    fn fetch(&self, wanted: Arc<ResolvedImage>, events: ProgressSink) -> BoxFuture<'static, Result<ImageId>> {
        let store = Arc::clone(&self.0);
        async move {
            let fetched = store.open_for(&events).await?.engine.fetch(wanted, events).await;
            if let Err(Error::PullFailed { fault: PullFault::Storage, .. }) = &fetched {
                // The parts that did come have to make room on a full disk.
                store.littered();
            }
            fetched
        }
        .boxed()
    }

    fn name(&self, wanted: Arc<ResolvedImage>, image: ImageId) -> BoxFuture<'static, Result<()>> {
        let store = Arc::clone(&self.0);
        async move { store.open().await?.engine.name(wanted, image).await }.boxed()
    }
}

impl fmt::Debug for ImageStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageStore").field("settings", &self.settings).field("keep", &self.keep).finish()
    }
}
