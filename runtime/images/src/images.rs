//! The handle of the images of a node, and what it owns.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use mainstay_messages::Timestamp;
use mainstay_oci_image::{Descriptor, Digest, Document, ImageConfig, Manifest, Reference};

use crate::activity::Activity;
use crate::content;
use crate::disk::{self, Disk};
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::records::{Boot, ImageLayer, ImageRecord, LayerRow, LayerState, Records, rows};
use crate::settings::Settings;

/// Who holds the layers that were found when the records were lost: containers may run on them.
pub(crate) const RECOVERED_HOLDER: &str = "recovered";
/// The shortest beginning of a digest that names an image.
pub const DIGEST_PREFIX_LENGTH_MIN: usize = 4;

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
    published: RwLock<Arc<[Arc<ImageRecord>]>>,
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

impl Images {
    /// Opens the images in a directory, or makes it; its parent must exist. Blocks.
    pub fn open(root: impl AsRef<Path>, settings: Settings) -> Result<Opened> {
        let root = root.as_ref();
        disk::make_private(root)?;
        let (records, found) = Records::open(root, &settings)?;
        let disk = Disk::open(root)?;
        let published = RwLock::new(Arc::from([]));
        let inner = Inner { settings, disk, records, activity: Activity::default(), published };
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
        self.inner.list()
    }

    /// The image of a name, with the digest that a tag led to as well as with the tag; of a digest (of its manifest, of what
    /// its name led to, or of its configuration), or of the beginning of one. Never waits for work.
    pub fn find(&self, text: &str) -> Result<Arc<ImageRecord>> {
        self.inner.find(text)
    }

    /// An image with its manifest and configuration.
    pub fn inspect(&self, text: &str) -> Result<Inspected> {
        let record = self.inner.find(text)?;
        let manifest = self.inner.manifest(&record.manifest)?;
        let config = self.inner.config(&record.config)?;
        Ok(Inspected { record, manifest, config })
    }

    /// The configuration of an image.
    pub fn config(&self, image: &ImageRecord) -> Result<ImageConfig> {
        self.inner.config(&image.config)
    }

    /// Bytes of the contents of each layer that is unpacked, by its chain.
    pub fn unpacked(&self) -> Result<HashMap<Digest, u64>> {
        let layers = self.inner.records.read("listing the layers", rows::layers)?;
        let ready = layers.into_iter().filter(|layer| layer.state == LayerState::Ready);
        Ok(ready.map(|layer| (layer.chain, layer.bytes)).collect())
    }

    /// Removes the image of exactly this name from the list. Its blobs and layers go with the next garbage collection,
    /// unless others need them; those the next pull looks at anew before it uses them.
    pub fn remove(&self, name: &str) -> Result<Arc<ImageRecord>> {
        let known = self.inner.list();
        let found = known.iter().find(|image| image.name == name);
        let image = found.ok_or_else(|| ImagesError::NoImage { image: name.to_owned() })?;
        self.inner.records.change("removing an image", |transaction| {
            rows::delete_image(transaction, &image.name)?;
            let chains = image.layers.iter().map(|layer| layer.chain.clone());
            rows::doubt(transaction, image.blobs().cloned(), chains)
        })?;
        self.inner.publish()?;
        Ok(Arc::clone(image))
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

    pub(crate) fn list(&self) -> Arc<[Arc<ImageRecord>]> {
        // The lock guards one assignment.
        Arc::clone(&self.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn find(&self, text: &str) -> Result<Arc<ImageRecord>> {
        let images = self.list();
        let missing = || ImagesError::NoImage { image: text.to_owned() };
        let exact = |name: &str| images.iter().find(|image| image.name == name).cloned();
        if let Some(image) = exact(text) {
            return Ok(image);
        }
        if let Ok(name) = text.parse::<Reference>() {
            let here = exact(&name.to_string()).or_else(|| {
                let digest = name.digest()?;
                let of_it = |image: &&Arc<ImageRecord>| {
                    let led_to_it =
                        [&image.target, &image.manifest].iter().any(|found| found.digest == *digest);
                    let of_name = |known: Reference| known.repository() == name.repository();
                    led_to_it && image.name.parse().is_ok_and(of_name)
                };
                images.iter().find(of_it).cloned()
            });
            if let Some(image) = here {
                return Ok(image);
            }
        }
        let prefix = text.strip_prefix("sha256:").unwrap_or(text);
        let digits = prefix.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if prefix.len() < DIGEST_PREFIX_LENGTH_MIN || !digits {
            return Err(missing());
        }
        let fits = |image: &&Arc<ImageRecord>| {
            [&image.manifest, &image.target, &image.config]
                .iter()
                .any(|descriptor| descriptor.digest.hex().starts_with(prefix))
        };
        let mut found: Vec<_> = images.iter().filter(fits).collect();
        found.dedup_by(|one, other| one.manifest.digest == other.manifest.digest);
        match found[..] {
            [] => Err(missing()),
            [image] => Ok(Arc::clone(image)),
            _ => Err(ImagesError::AmbiguousImage { image: text.to_owned(), count: found.len() }),
        }
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

    /// Makes what is recorded visible.
    pub(crate) fn publish(&self) -> Result<()> {
        // Held while reading, so that of two changes the later one is published last.
        let mut published = self.published.write().unwrap_or_else(PoisonError::into_inner);
        let images = self.records.read("listing the images", rows::images)?;
        *published = images.into_iter().map(Arc::new).collect();
        Ok(())
    }

    /// The machine was started anew: nothing runs on layers that were recovered, and bytes that were never synced are not
    /// to be trusted.
    fn after_boot(&self) -> Result<()> {
        self.records.change("releasing recovered layers", |transaction| {
            rows::delete_leases(transaction, RECOVERED_HOLDER)
        })?;
        for name in disk::names(&self.disk.partials())? {
            disk::remove(&self.disk.partials().join(name))?;
        }
        Ok(())
    }

    /// Fills fresh records from the directories. Every layer is kept until the next boot, as containers may run on it.
    fn recover(&self) -> Result<()> {
        let mut layers = Vec::new();
        for name in disk::names(&self.disk.layers())? {
            let directory = self.disk.layers().join(&name);
            if let (Ok(id), Some(note)) = (name.parse(), disk::read_note(&directory)) {
                layers.push(LayerRow {
                    id: crate::records::LayerId(id),
                    chain: note.chain,
                    diff_id: note.diff_id,
                    blob: note.blob,
                    // The newest of a chain is taken first below.
                    state: LayerState::Ready,
                    doubted: false,
                    entries: note.entries,
                    bytes: note.bytes,
                });
            }
        }
        layers.sort_by_key(|layer| std::cmp::Reverse(layer.id));
        self.records.change("recovering layers", |transaction| {
            let mut chains = std::collections::HashSet::new();
            for mut layer in layers {
                if !chains.insert(layer.chain.clone()) {
                    layer.state = LayerState::Retired;
                }
                rows::restore_layer(transaction, &layer)?;
                rows::put_lease(transaction, RECOVERED_HOLDER, layer.id)?;
            }
            Ok(())
        })
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
