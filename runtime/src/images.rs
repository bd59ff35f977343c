//! Images through the handle: pulled, looked at, removed, brought in and out, and containers made of them.
//!
//! Owns: the wiring between the handle, the actors' pulls and the images of the machine. What is decided about pulls is in
//! `mainstay_actors::image`, what is done with files in `mainstay_images`.
//!
//! | module | owns |
//! |---|---|
//! | `store` | opening the images of the machine, beside other processes |
//! | `node` | what the calls do |
//! | `leases` | what keeps the layers of containers |
//! | `archive` | archives as streams |
//! | `view` | images as callers see them |

mod archive;
mod failure;
mod leases;
mod node;
mod store;
mod view;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use mainstay_actors::image::Pull;
use mainstay_images::Partials;
use mainstay_messages::image::{
    Collected, Damage, Image, ImageId, ImageName, PullProgress, PullSpec, Removed,
};
use mainstay_messages::router::CreateContainer;
use mainstay_messages::spec::Rootfs;
use mainstay_messages::supervisor::DiskUsage;
use mainstay_messages::{ContainerId, ContainerSpec, Error, Result, SandboxId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

pub use archive::{Export, Import};
pub(crate) use archive::{PIECE_BYTES_MAX, Piece};
pub(crate) use node::{NodeImages, Records};
pub use store::{IMAGES_KEPT_WAIT_MS, IMAGES_WAIT_MS};
pub(crate) use store::{ImageStore, Keep, Opening, Source};

use crate::closing::Closed;
use crate::runtime::Runtime;

/// An image that is being pulled. Dropping it ends the caller's part in the pull; the pull itself ends with the last one.
pub struct ImagePull {
    pull: Pull,
    end: Closed,
}

impl ImagePull {
    /// The next of its news; none when it has ended. A caller that is slow gets the newest state of each part, and
    /// holds up nobody. May be dropped while it waits: nothing is lost.
    pub async fn progress(&mut self) -> Option<PullProgress> {
        self.end.or(self.pull.progress()).await.ok().flatten()
    }

    /// The image, once it is here. May be dropped while it waits, and asked again.
    ///
    /// # Errors
    /// [`Error::PullFailed`]; [`Error::InvalidArgument`] for a name, platform or credentials that cannot be;
    /// [`Error::ResourceExhausted`] when too many pulls run; [`Error::Unavailable`] when the images cannot be opened, or the
    /// runtime is closed.
    pub async fn image(&mut self) -> Result<ImageId> {
        let answer = self.end.or(self.pull.image()).await?;
        match answer {
            // Its actor ended with the runtime.
            Err(Error::Internal { .. }) if self.end.was_said() => Err(crate::closing::closed()),
            answer => answer,
        }
    }
}

/// The documents of an image, as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDocuments {
    /// The manifest, JSON.
    pub manifest: String,
    /// The configuration, JSON.
    pub configuration: String,
    /// The digest of all of its layers together (OCI image specification, "Layer ChainID"); none where it has no layer.
    pub chain: Option<String>,
}

impl fmt::Debug for ImagePull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ImagePull")
    }
}

impl Runtime {
    /// Begins to pull an image, or joins the pull of it that runs. It lives while anything moves (P8): only when nothing
    /// does for the whole `pull_progress_timeout_ms` is it given up. Errors are in the answer: see [`ImagePull::image`].
    pub fn pull_image(&self, spec: PullSpec) -> ImagePull {
        ImagePull { pull: self.system().pulls.pull(spec), end: self.closed() }
    }

    /// All images.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when they cannot be opened: of the directory another process may have them.
    pub async fn images(&self) -> Result<Vec<Image>> {
        self.system().images.list().await
    }

    /// The image of a name, of an id, or of the beginning of an id.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InvalidArgument`] for a beginning that several have; as [`Self::images`].
    pub async fn image(&self, image: &ImageName) -> Result<Image> {
        self.system().images.image(image.clone()).await
    }

    /// The documents of an image, as they came.
    ///
    /// # Errors
    /// As [`Self::image`]; [`Error::Unavailable`] where they were lost.
    pub async fn image_documents(&self, image: &ImageName) -> Result<ImageDocuments> {
        let documents = self.system().images.documents(image.clone()).await?;
        let text = |bytes| String::from_utf8(bytes).map_err(|e| Error::unavailable("the image", e));
        Ok(ImageDocuments {
            manifest: text(documents.manifest)?,
            configuration: text(documents.config)?,
            chain: documents.chain.map(|chain| chain.to_string()),
        })
    }

    /// Where images are kept.
    pub fn image_directory(&self) -> PathBuf {
        self.config().images.directory_in(&self.config().root_dir)
    }

    /// What all images take there, as the records have it: nothing is counted on the disk. What a pull fetches at the moment is not among it.
    ///
    /// # Errors
    /// As [`Self::images`].
    pub async fn image_footprint(&self) -> Result<DiskUsage> {
        let mainstay_images::Usage { bytes, inodes } = self.system().images.footprint().await?;
        Ok(DiskUsage { bytes, inodes })
    }

    /// Takes a name from its image, or with an id all names of an image. An image without a name is gone; what containers
    /// stand on stays until they are.
    ///
    /// # Errors
    /// As [`Self::image`].
    pub async fn remove_image(&self, image: &ImageName) -> Result<Removed> {
        self.system().images.remove(image.clone()).await
    }

    /// Reads all blobs and layers of an image, or of all, against their digests. What can be made anew from what is whole is;
    /// the rest is dropped, and the next pull of the images brings it.
    ///
    /// # Errors
    /// As [`Self::image`].
    pub async fn verify_images(&self, image: Option<&ImageName>) -> Result<Vec<Damage>> {
        self.system().images.verify(image.cloned()).await
    }

    /// Gives back the room of what no image, no container and no pull needs.
    ///
    /// # Errors
    /// As [`Self::images`], and of removing files.
    pub async fn collect_images(&self) -> Result<Collected> {
        let collected = self.system().images.collect(Partials::All).await?;
        let mainstay_images::Collected { blobs, layers, bytes, .. } = collected;
        Ok(Collected { blobs, layers, bytes })
    }

    /// Takes images from an archive: an OCI layout as a tar file, or what `docker save` writes, compressed or not. `name` is
    /// for an archive with one image.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name that is none. All others are in the answer: see [`Import::images`].
    pub fn import_images(
        &self,
        mut from: impl AsyncRead + Unpin + Send + 'static,
        name: Option<ImageName>,
    ) -> Result<Import> {
        let (import, pieces) = self.begin_import(name)?;
        tokio::spawn(async move {
            loop {
                let mut bytes = Vec::with_capacity(PIECE_BYTES_MAX);
                let piece = match (&mut from).take(PIECE_BYTES_MAX as u64).read_to_end(&mut bytes).await {
                    Ok(0) => Piece::End,
                    Ok(_) => Piece::Bytes(bytes),
                    Err(error) => Piece::Failed(error),
                };
                let last = !matches!(piece, Piece::Bytes(_));
                if pieces.send(piece).await.is_err() || last {
                    break;
                }
            }
        });
        Ok(import)
    }

    pub(crate) fn begin_import(&self, name: Option<ImageName>) -> Result<(Import, mpsc::Sender<Piece>)> {
        Import::begin(Arc::clone(&self.system().images), name, self.closed())
    }

    /// Writes images as an OCI archive that Docker reads too.
    ///
    /// # Errors
    /// As [`Export::next`]; [`Error::Unavailable`] when it cannot be written.
    pub async fn export_images(&self, images: Vec<ImageName>, mut to: impl AsyncWrite + Unpin) -> Result<()> {
        let unwritten = |error| Error::unavailable("where the archive goes", error);
        let mut export = self.begin_export(images);
        while let Some(piece) = export.next().await? {
            to.write_all(&piece).await.map_err(unwritten)?;
        }
        to.flush().await.map_err(unwritten)
    }

    /// As [`Self::export_images`], piece by piece.
    pub fn begin_export(&self, images: Vec<ImageName>) -> Export {
        Export::begin(Arc::clone(&self.system().images), images, self.closed())
    }

    /// Makes a container of an image, or one that images are mounted into. Their leases are there before its record (P3), and
    /// kept until the record is there, also when the caller leaves meanwhile.
    pub(crate) async fn create_on_images(
        &self,
        sandbox: SandboxId,
        mut spec: ContainerSpec,
    ) -> Result<ContainerId> {
        let runtime = self.clone();
        let work = tokio::spawn(async move {
            let images = &runtime.system().images;
            let mut held = Vec::new();
            let mounted: Vec<_> =
                spec.mounted_images().map(|(index, image)| (index, image.clone())).collect();
            if let Some(image) = spec.image().map(|root| root.image.clone()) {
                let leased = images.lease(image).await?;
                spec = spec.on_image(&leased.image, leased.layers.clone())?;
                // The image is a stranger's (P12). Its layers are our own.
                ContainerSpec { rootfs: Rootfs::Host, ..spec.clone() }.check()?;
                held.push(leased);
            }
            for (index, image) in mounted {
                let leased = images.lease(image).await?;
                spec = spec.with_mounted_image(index, leased.image.id.clone(), leased.layers.clone());
                held.push(leased);
            }
            let made = runtime.send(CreateContainer { sandbox, spec }).await;
            drop(held);
            made
        });
        work.await.map_err(|_| Error::internal("a creation", "it panicked"))?
    }
}
