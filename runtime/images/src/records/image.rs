//! The record of an image.

use mainstay_messages::Timestamp;
use mainstay_oci_image::{Algorithm, Descriptor, Digest, DocumentError, Hasher, ImageConfig, Manifest};
use serde::{Deserialize, Serialize};

/// An image that is whole: its blobs are in the store, its layers are unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// The whole reference, or the digest of the manifest where there is no name.
    pub name: String,
    /// What the name led to: the manifest, or an index that it was chosen from.
    pub target: Descriptor,
    /// The manifest.
    pub manifest: Descriptor,
    /// The configuration.
    pub config: Descriptor,
    /// The layers, the lowest first.
    pub layers: Vec<ImageLayer>,
    /// When it was pulled or imported; a pull that finds it as it is leaves that.
    pub pulled_at: Timestamp,
}

/// A layer of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageLayer {
    /// The blob.
    pub blob: Descriptor,
    /// The digest of its content.
    pub diff_id: Digest,
    /// The digest of this layer and those below it (OCI image specification, "Layer ChainID").
    pub chain: Digest,
}

impl ImageLayer {
    /// The layers of an image, the lowest first; an error where manifest and configuration disagree.
    pub fn of(manifest: &Manifest, config: &ImageConfig) -> Result<Vec<Self>, DocumentError> {
        let mut layers: Vec<Self> = Vec::new();
        for (blob, diff_id) in manifest.layers_with_diff_ids(config)? {
            let chain = chain(layers.last().map(|below| &below.chain), diff_id);
            layers.push(Self { blob: blob.clone(), diff_id: diff_id.clone(), chain });
        }
        Ok(layers)
    }
}

impl ImageRecord {
    /// Bytes of its blobs. Layers that other images have too are counted in each of them.
    pub fn size(&self) -> u64 {
        let layers = self.layers.iter().map(|layer| layer.blob.size);
        layers.chain([self.manifest.size, self.config.size]).sum()
    }

    /// Whether another one is the same image under the same name, whenever it was pulled.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let Self { name, target, manifest, config, layers, pulled_at: _ } = self;
        (name, target, manifest) == (&other.name, &other.target, &other.manifest)
            && (config, layers) == (&other.config, &other.layers)
    }

    /// All blobs that it needs.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &Digest> {
        let layers = self.layers.iter().map(|layer| &layer.blob.digest);
        layers.chain([&self.target.digest, &self.manifest.digest, &self.config.digest])
    }
}

/// The chain of a layer over another.
fn chain(below: Option<&Digest>, diff_id: &Digest) -> Digest {
    let Some(below) = below else { return diff_id.clone() };
    let mut hasher = Hasher::new(Algorithm::Sha256);
    hasher.update(format!("{below} {diff_id}").as_bytes());
    hasher.finish()
}
