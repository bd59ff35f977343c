//! Looking for damage, and healing it.
//!
//! A blob is hashed. A layer is unpacked again from its blob, beside itself, and compared: entries, contents, owners, modes,
//! times, attributes. One that differs is replaced by the new one at once; containers that run on it keep the old one. A
//! damaged blob is dropped: the images that need it are told, and their next pull fetches it. Until then each verification
//! says that it is missing: an answer is how the images are, and not what has changed since the last one.

mod compare;

#[cfg(test)]
pub(crate) use compare::difference;

use std::collections::HashSet;
use std::sync::Arc;

use mainstay_oci_image::Digest;

use crate::content::{self, BlobReader};
use crate::disk;
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::images::{Images, Inner};
use crate::layer::LayerClaim;
use crate::observer::Observer;
use crate::records::{ImageLayer, ImageRecord, rows};

/// What was looked at, and what was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blobs that were hashed.
    pub blobs: u64,
    /// Layers that were compared.
    pub layers: u64,
    /// What was damaged.
    pub damage: Vec<Damage>,
}

/// Something that was damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What.
    pub what: Damaged,
    /// In which way, in one sentence.
    pub how: String,
    /// What was done about it.
    pub remedy: Remedy,
    /// The names of the images that it belongs to.
    pub images: Vec<String>,
}

/// What was damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// A blob.
    Blob(Digest),
    /// The unpacked layer of this chain.
    Layer(Digest),
}

/// What was done about damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It is whole again.
    Healed,
    /// It was dropped; the next pull of the images fetches it.
    Dropped,
    /// None: it is not there, and a pull of the images fetches it.
    Missing,
}

/// The state of one verification.
struct Verification<'a> {
    inner: &'a Arc<Inner>,
    hold: Hold,
    observer: &'a Observer,
    found: Verified,
}

impl Images {
    /// Looks at all images, or at one, and heals what it can. Blocks, for as long as reading and unpacking everything takes.
    pub fn verify(&self, image: Option<&str>, observer: &Observer) -> Result<Verified> {
        let inner = self.inner();
        let images = match image {
            Some(image) => vec![self.find(image)?],
            None => self.list().to_vec(),
        };
        let mut work = Verification { inner, hold: self.hold(), observer, found: Verified::default() };
        let (mut blobs, mut chains) = (HashSet::new(), HashSet::new());
        for image in &images {
            for digest in image.blobs() {
                if blobs.insert(digest.clone()) {
                    work.blob(digest)?;
                }
            }
            for (index, layer) in image.layers.iter().enumerate() {
                if chains.insert(layer.chain.clone()) {
                    work.layer(&image.layers, index)?;
                }
            }
        }
        Ok(work.found)
    }
}

impl Verification<'_> {
    fn blob(&mut self, digest: &Digest) -> Result<()> {
        self.found.blobs += 1;
        let how = match content::open_blob(self.inner, digest) {
            Err(ImagesError::NoBlob { .. }) => {
                self.drop_blob(digest)?;
                self.report(Damaged::Blob(digest.clone()), "it is missing".to_owned(), Remedy::Missing);
                return Ok(());
            }
            Err(error) => return Err(error),
            Ok(mut file) => match content::hash(&mut file, digest, self.observer) {
                Ok((hasher, length)) => {
                    let found = hasher.finish();
                    if found == *digest {
                        return Ok(());
                    }
                    format!("its {length} bytes have the digest {found}")
                }
                Err(error) => format!("it cannot be read: {error}"),
            },
        };
        self.drop_blob(digest)?;
        self.report(Damaged::Blob(digest.clone()), how, Remedy::Dropped);
        Ok(())
    }

    /// Drops a blob and its record, unless somebody is fetching it at this time.
    fn drop_blob(&self, digest: &Digest) -> Result<()> {
        let tables = self.inner.activity.tables();
        if tables.blobs.contains_key(digest) {
            return Ok(());
        }
        self.inner.records.change("dropping a damaged blob", |transaction| {
            rows::delete_blob(transaction, digest)?;
            // What was unpacked from it is whole as far as is known, but cannot be compared any more.
            let layers = rows::layers(transaction)?.into_iter();
            let chains = layers.filter(|layer| layer.blob == *digest).map(|layer| layer.chain);
            rows::doubt(transaction, [], chains.collect::<Vec<_>>())
        })?;
        match self.inner.disk.discard(&self.inner.disk.blob(digest))? {
            Some(path) => disk::remove(&path),
            None => Ok(()),
        }
    }

    fn layer(&mut self, layers: &[ImageLayer], index: usize) -> Result<()> {
        let layer = &layers[index];
        let row = self
            .inner
            .records
            .read("looking up a layer", |connection| rows::ready_layer(connection, &layer.chain))?;
        let directory = row.map(|row| self.inner.disk.layer_fs(row.id)).filter(|path| path.is_dir());
        let damaged = || Damaged::Layer(layer.chain.clone());
        let blob = match content::open_blob(self.inner, &layer.blob.digest) {
            Ok(file) => BlobReader::complete(file, layer.blob.clone()),
            Err(ImagesError::NoBlob { .. }) => {
                if directory.is_none() {
                    self.report(damaged(), "it is missing".to_owned(), Remedy::Missing);
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        // One that somebody is unpacking at this time is verified by that.
        let LayerClaim::Unpack(unpacking) = self.hold.layer_anew(layers, index)? else { return Ok(()) };
        self.found.layers += 1;
        let Some(directory) = directory else {
            unpacking.run(blob, self.observer)?;
            self.report(damaged(), "it was not there".to_owned(), Remedy::Healed);
            return Ok(());
        };
        let totals = unpacking.unpack(blob, self.observer)?;
        let fresh = self.inner.disk.unpacking(unpacking.id()).join("fs");
        match compare::difference(&directory, &fresh)? {
            None => unpacking.withdraw(),
            Some(how) => {
                unpacking.finish(totals, self.observer)?;
                self.report(damaged(), how, Remedy::Healed);
            }
        }
        Ok(())
    }

    fn report(&mut self, what: Damaged, how: String, remedy: Remedy) {
        let catalog = self.inner.catalog();
        let has = |image: &&Arc<ImageRecord>| match &what {
            Damaged::Blob(digest) => image.blobs().any(|blob| blob == digest),
            Damaged::Layer(chain) => image.layers.iter().any(|layer| layer.chain == *chain),
        };
        let images = catalog.list().iter().filter(has).map(|image| image.name.clone()).collect();
        tracing::error!(?what, how, ?remedy, ?images, "damage in the images");
        self.found.damage.push(Damage { what, how, remedy, images });
    }
}
