//! The handle of the images of a node, and what it owns.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use mainstay_messages::Timestamp;
use mainstay_oci_image::{Descriptor, Digest, Document, ImageConfig, Manifest, Platform, Reference};

use crate::activity::Activity;
use crate::catalog::{Catalog, Details};
use crate::content;
use crate::disk::{self, Disk};
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::mount::Usage;
use crate::records::{Boot, ImageLayer, ImageRecord, LayerState, Records, rows};
use crate::settings::Settings;

/// The images of a node: a handle, cheap to clone. Reads of images answer from memory; every other call blocks, and
/// belongs on a thread that may.
#[derive(Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

/// Images that were opened.
#[derive(Debug)]
pub struct Opened {
    /// The images.
    pub images: Images,
    /// Where damaged records were moved to. The layers and blobs are there still, the images have to be pulled anew.
    pub set_aside: Option<PathBuf>,
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) disk: Disk,
    pub(crate) records: Records,
    pub(crate) activity: Activity,
    published: RwLock<Arc<Catalog>>,
    /// Held while a catalog is made, so that of two changes the later one is published last.
    publishing: Mutex<()>,
}

/// An image to record.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// Its name; without one it goes by the digest of its manifest.
    pub name: Option<Reference>,
    /// What the name led to: the manifest, or an index that it was chosen from, whose blob is in the store too.
    pub target: Descriptor,
    /// The manifest.
    pub manifest: Descriptor,
}

/// An image with its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The record.
    pub record: Arc<ImageRecord>,
    /// The manifest.
    pub manifest: Manifest,
    /// The configuration.
    pub config: ImageConfig,
}

/// The documents of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    /// The manifest, JSON.
    pub manifest: Vec<u8>,
    /// The configuration, JSON.
    pub config: Vec<u8>,
    /// The digest of all of its layers together (OCI image specification, "Layer ChainID"); none where it has no layer.
    pub chain: Option<Digest>,
}

impl Images {
    /// Opens the images in a directory, or makes it; its parent must exist. Blocks.
    pub fn open(root: impl AsRef<Path>, settings: Settings) -> Result<Opened> {
        let root = root.as_ref();
        disk::make_private(root)?;
        let (records, found) = Records::open(root, &settings)?;
        let disk = Disk::open(root)?;
        let (published, publishing) = (RwLock::default(), Mutex::default());
        let inner = Inner { settings, disk, records, activity: Activity::default(), published, publishing };
        if found.set_aside.is_some() {
            inner.recover()?;
        } else if found.boot == Boot::Other {
            inner.after_boot()?;
        }
        inner.publish()?;
        Ok(Opened { images: Self { inner: Arc::new(inner) }, set_aside: found.set_aside })
    }

    /// Begins an operation that needs blobs and layers to stay.
    pub fn hold(&self) -> Hold {
        Hold::new(Arc::clone(&self.inner))
    }

    /// All images, by name. Never waits for work.
    pub fn list(&self) -> Arc<[Arc<ImageRecord>]> {
        Arc::clone(self.inner.catalog().list())
    }

    /// The image of a name or digest: see [`Catalog::find`]. Never waits for work.
    pub fn find(&self, text: &str) -> Result<Arc<ImageRecord>> {
        self.inner.catalog().find(text)
    }

    /// All images with what is known of them. Never waits for work.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog()
    }

    /// An image with its manifest and configuration.
    pub fn inspect(&self, text: &str) -> Result<Inspected> {
        let record = self.find(text)?;
        let manifest = self.inner.manifest(&record.manifest)?;
        let config = self.inner.config(&record.config)?;
        Ok(Inspected { record, manifest, config })
    }

    /// An image as it came: its documents, byte by byte.
    pub fn documents(&self, text: &str) -> Result<Documents> {
        let record = self.find(text)?;
        let read = |digest| content::read_document(&self.inner, digest);
        let (manifest, config) = (read(&record.manifest.digest)?, read(&record.config.digest)?);
        Ok(Documents { manifest, config, chain: record.layers.last().map(|layer| layer.chain.clone()) })
    }

    /// What all blobs and layers take, as the records have it: nothing is counted on the disk. What is being fetched or unpacked at the moment is
    /// not among it.
    pub fn footprint(&self) -> Result<Usage> {
        let (blobs, layers) = self.inner.records.read("adding up the images", |connection| {
            Ok((rows::blobs(connection)?, rows::layers(connection)?))
        })?;
        let bytes = blobs.values().chain(layers.iter().map(|layer| &layer.bytes)).sum();
        let inodes = blobs.len() as u64 + layers.iter().map(|layer| layer.entries).sum::<u64>();
        Ok(Usage { bytes, inodes })
    }

    /// Removes the image of exactly this name from the list. Its blobs and layers go with the next garbage collection,
    /// unless others need them; those the next pull looks at anew before it uses them.
    pub fn remove(&self, name: &str) -> Result<Arc<ImageRecord>> {
        let found = self.inner.catalog().named(name);
        let image = found.ok_or_else(|| ImagesError::NoImage { image: name.to_owned() })?;
        self.inner.records.change("removing an image", |transaction| {
            rows::delete_image(transaction, &image.name)?;
            let chains = image.layers.iter().map(|layer| layer.chain.clone());
            rows::doubt(transaction, image.blobs().cloned(), chains)
        })?;
        self.inner.publish()?;
        Ok(image)
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Hold {
    /// Records an image whose blobs are in the store and whose layers are unpacked. From then on it is listed.
    pub fn record(&self, image: NewImage) -> Result<Arc<ImageRecord>> {
        let inner = self.inner();
        let manifest = inner.manifest(&image.manifest)?;
        let config = inner.config(&manifest.config)?;
        let layers = inner.layers_of(&image.manifest.digest, &manifest, &config)?;
        let name = image.name.map_or_else(|| image.manifest.digest.to_string(), |name| name.to_string());
        let record = ImageRecord {
            name,
            target: image.target,
            manifest: image.manifest,
            config: manifest.config,
            layers,
            pulled_at: Timestamp::from_system(SystemTime::now()),
        };
        inner.checkpoint("image-complete");
        let record = {
            let mut tables = inner.activity.tables();
            for digest in record.blobs() {
                self.keep_blob(&mut tables, digest);
            }
            for layer in &record.layers {
                self.keep_chain(&mut tables, &layer.chain);
            }
            let known = inner.records.change("recording an image", |transaction| {
                for digest in record.blobs() {
                    if rows::blob(transaction, digest)?.is_none() {
                        return Ok(Err(ImagesError::NoBlob { digest: digest.clone() }));
                    }
                }
                for layer in &record.layers {
                    if rows::ready_layer(transaction, &layer.chain)?.is_none() {
                        let (image, chain) = (record.name.clone(), layer.chain.clone());
                        return Ok(Err(ImagesError::NoLayer { image, chain }));
                    }
                }
                // A pull that brought nothing writes nothing, and waits for no disk.
                let known = rows::image(transaction, &record.name)?;
                if let Some(known) = known.filter(|known| known.is_same(&record)) {
                    return Ok(Ok(Some(known)));
                }
                rows::put_image(transaction, &record).map(|()| Ok(None))
            })?;
            known?.unwrap_or(record)
        };
        inner.checkpoint("image-recorded");
        inner.publish()?;
        Ok(Arc::new(record))
    }

    /// The layers of an image whose manifest and configuration are in the store, to be claimed one by one.
    pub fn layers(&self, manifest: &Descriptor) -> Result<Vec<ImageLayer>> {
        let inner = self.inner();
        let document = inner.manifest(manifest)?;
        let config = inner.config(&document.config)?;
        inner.layers_of(&manifest.digest, &document, &config)
    }

    /// What an image is for whose manifest and configuration are in the store, where it says it.
    pub fn platform(&self, manifest: &Descriptor) -> Result<Option<Platform>> {
        let inner = self.inner();
        let document = inner.manifest(manifest)?;
        Ok(inner.config(&document.config)?.platform())
    }

    /// Reads and checks a document that is in the store.
    pub fn document(&self, descriptor: &Descriptor) -> Result<Document> {
        let bytes = content::read_document(self.inner(), &descriptor.digest)?;
        let declared = (!descriptor.media_type.as_str().is_empty()).then_some(&descriptor.media_type);
        Document::parse(&bytes, declared).map_err(document_error("manifest", &descriptor.digest))
    }
}

impl Inner {
    pub(crate) fn checkpoint(&self, name: &'static str) {
        (self.settings.checkpoint)(name);
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        // The lock guards one assignment.
        Arc::clone(&self.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn manifest(&self, descriptor: &Descriptor) -> Result<Manifest> {
        let bytes = content::read_document(self, &descriptor.digest)?;
        Manifest::parse(&bytes).map_err(document_error("manifest", &descriptor.digest))
    }

    pub(crate) fn config(&self, descriptor: &Descriptor) -> Result<ImageConfig> {
        let bytes = content::read_document(self, &descriptor.digest)?;
        ImageConfig::parse(&bytes).map_err(document_error("configuration", &descriptor.digest))
    }

    fn layers_of(
        &self,
        digest: &Digest,
        manifest: &Manifest,
        config: &ImageConfig,
    ) -> Result<Vec<ImageLayer>> {
        ImageLayer::of(manifest, config).map_err(document_error("manifest", digest))
    }

    /// Makes what is recorded visible. Readers see the catalog before, however long this takes.
    pub(crate) fn publish(&self) -> Result<()> {
        let _turn = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let (images, layers) = self.records.read("listing the images", |connection| {
            Ok((rows::images(connection)?, rows::layers(connection)?))
        })?;
        let ready = layers.into_iter().filter(|layer| layer.state == LayerState::Ready);
        let unpacked: HashMap<_, _> = ready.map(|layer| (layer.chain, layer.bytes)).collect();
        let catalog = Catalog::after(&self.catalog(), images, |image| Details {
            config: self.config_to_show(image),
            unpacked_bytes: image.layers.iter().filter_map(|layer| unpacked.get(&layer.chain)).sum(),
        });
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
        Ok(())
    }

    /// An image whose configuration was lost is listed all the same: it can be removed, or pulled again.
    fn config_to_show(&self, image: &ImageRecord) -> Option<ImageConfig> {
        match self.config(&image.config) {
            Ok(config) => Some(ImageConfig { history: Vec::new(), ..config }),
            Err(error) => {
                tracing::warn!(image = image.name, %error, "the configuration of an image cannot be read");
                None
            }
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("root", &self.disk.root()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").field("root", &self.inner.disk.root()).finish_non_exhaustive()
    }
}

fn document_error(
    what: &'static str,
    digest: &Digest,
) -> impl FnOnce(mainstay_oci_image::DocumentError) -> ImagesError + use<> {
    let digest = digest.clone();
    move |source| ImagesError::Document { what, digest, source }
}
