//! The images of one runtime: what its calls do with them, and the collection of what no image needs in the background.

use std::collections::HashSet;
use std::fmt;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainstay_actors::Directory;
use mainstay_images::{Collected, Images, Partials};
use mainstay_messages::image::{Damage, Image, ImageId, ImageName, Removed};
use mainstay_messages::{Error, Result};

use super::failure::told;
use super::leases::{Owner, Pin, Pins};
use super::store::{ImageStore, Keep, Opened};
use super::view;

/// See the module.
pub(crate) struct NodeImages {
    store: Arc<ImageStore>,
    owner: Owner,
    pins: Pins,
    directory: Directory,
    records: Records,
}

/// Whether the records of all containers could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    Whole,
    /// One of them may stand on an image: no lease is let go.
    Damaged,
}

/// An image that a container is made on: pinned until this is dropped, and leased.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) image: Image,
    /// The uppermost first.
    pub(crate) layers: Vec<PathBuf>,
    _pin: Pin,
}

impl NodeImages {
    pub(crate) fn new(
        store: Arc<ImageStore>,
        root_dir: PathBuf,
        directory: Directory,
        records: Records,
    ) -> Self {
        let owner = Owner { keep: store.keep(), root_dir };
        Self { store, owner, pins: Pins::default(), directory, records }
    }

    /// Does something with the images, where blocking is allowed.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Images) -> mainstay_images::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.blocking(work).await?.map_err(|error| told(&error))
    }

    /// The same, for who tells callers of its failures in words of its own.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Images) -> mainstay_images::Result<T> + Send + 'static,
    ) -> Result<mainstay_images::Result<T>> {
        let opened = self.open().await?;
        let done = tokio::task::spawn_blocking(move || work(&opened.images)).await;
        done.map_err(|_| Error::internal("the images", "work on them panicked"))
    }

    pub(super) async fn open(&self) -> Result<Arc<Opened>> {
        self.store.open().await
    }

    pub(super) async fn list(&self) -> Result<Vec<Image>> {
        Ok(view::list(&self.open().await?.images.catalog()))
    }

    pub(super) async fn image(&self, name: ImageName) -> Result<Image> {
        let found = view::find(&self.open().await?.images.catalog(), name.as_str());
        found.map(|(image, _)| image).map_err(|error| told(&error))
    }

    pub(super) async fn documents(&self, name: ImageName) -> Result<mainstay_images::Documents> {
        self.with(move |images| images.documents(name.as_str())).await
    }

    pub(super) async fn footprint(&self) -> Result<mainstay_images::Usage> {
        self.with(mainstay_images::Images::footprint).await
    }

    pub(super) async fn remove(&self, name: ImageName) -> Result<Removed> {
        let removed = self.with(move |images| {
            let names = view::names_of(&images.catalog(), name.as_str())?;
            let gone = names.iter().map(|name| images.remove(name)).collect::<Result<_, _>>()?;
            Ok(view::removed(gone, &images.list()))
        });
        let removed = removed.await?;
        self.store.littered();
        Ok(removed)
    }

    pub(super) async fn verify(&self, name: Option<ImageName>) -> Result<Vec<Damage>> {
        self.with(move |images| {
            let before = images.list();
            let found =
                images.verify(name.as_ref().map(ImageName::as_str), &mainstay_images::Observer::none())?;
            Ok(found.damage.into_iter().map(|damage| view::damage(damage, &before)).collect())
        })
        .await
    }

    /// Lets go of what no container needs any more, and removes what nothing reaches.
    pub(super) async fn collect(self: &Arc<Self>, partials: Partials) -> Result<Collected> {
        let this = Arc::clone(self);
        self.with(move |images| {
            this.let_go(images)?;
            images.collect(partials)
        })
        .await
    }

    fn let_go(&self, images: &Images) -> mainstay_images::Result<()> {
        if self.records == Records::Damaged {
            return Ok(());
        }
        let holders = images.holders()?;
        self.pins.with(|pins| {
            let of_containers = self.directory.containers(None).into_iter();
            let stood_on =
                of_containers.flat_map(|it| it.record.spec.stands_on().cloned().collect::<Vec<_>>());
            let wanted: HashSet<ImageId> = pins.keys().cloned().chain(stood_on).collect();
            let stale = |holder: &&String| self.owner.is_stale(holder, &wanted, |path| path.exists());
            holders.iter().filter(stale).try_for_each(|holder| images.release(holder))
        })
    }

    /// An image for a container that is made now. Its lease is durable when this returns (P3).
    pub(crate) async fn lease(self: &Arc<Self>, name: ImageName) -> Result<Leased> {
        let this = Arc::clone(self);
        self.with(move |images| {
            let Self { pins, owner, .. } = &*this;
            if owner.keep == Keep::WhileUsed {
                // Where there are commands alone, nobody collects: those that were before are let go here.
                this.let_go(images)?;
            }
            loop {
                let (image, record) = view::find(&images.catalog(), name.as_str())?;
                let pin = pins.pin(image.id.clone());
                let plan = images.lease(&owner.holder(&image.id), &record.name)?;
                // Else the name was given to another image in between.
                if view::id(&plan.image) == image.id {
                    return Ok(Leased { image, layers: plan.lower, _pin: pin });
                }
            }
        })
        .await
    }

    /// Collects from time to time, after removals, and after pulls that found no room. Ends with its task.
    pub(crate) async fn collect_forever(self: Arc<Self>, interval_ms: u64) {
        if self.store.keep() == Keep::WhileUsed {
            return;
        }
        loop {
            let tick = async {
                match interval_ms {
                    0 => pending().await,
                    interval_ms => tokio::time::sleep(Duration::from_millis(interval_ms)).await,
                }
            };
            tokio::select! {
                () = tick => {}
                () = self.store.garbage() => {}
            }
            if self.store.is_there() {
                match self.collect(Partials::Aged).await {
                    Ok(Collected { blobs: 0, layers: 0, partials: 0, .. }) => {}
                    Ok(collected) => tracing::info!(?collected, "what no image needs was removed"),
                    Err(error) => tracing::error!(%error, "what no image needs was not removed"),
                }
            }
        }
    }

    /// Lets go of the images.
    pub(crate) async fn shut(&self) {
        self.store.shut().await;
    }
}

impl fmt::Debug for NodeImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeImages")
            .field("store", &self.store)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
