//! Manifests, indexes, and telling them apart.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{DocumentError, or_default, read};
use crate::{Descriptor, Digest, ImageConfig, MediaType, NoPlatform, Platform};

/// The most layers that an image may have; the kernel takes 500 in an overlay.
pub const LAYERS_MAX: usize = 500;
/// The most manifests that an index may have.
pub const INDEX_ENTRIES_MAX: usize = 4096;

/// The manifest of one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// What it says that it is; may be missing in OCI documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<MediaType>,
    /// What kind of artifact it is, where it is no image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The configuration.
    pub config: Descriptor,
    /// The layers, the lowest first.
    #[serde(default, deserialize_with = "or_default")]
    pub layers: Vec<Descriptor>,
    /// Remarks of whoever made it.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// An index or manifest list: one image for several platforms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// What it says that it is; may be missing in OCI documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<MediaType>,
    /// The manifests.
    #[serde(default, deserialize_with = "or_default")]
    pub manifests: Vec<Descriptor>,
    /// Remarks of whoever made it.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What a reference or a digest leads to.
#[expect(clippy::large_enum_variant, reason = "there are never more than a few of them")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// One image.
    Manifest(Manifest),
    /// One image for several platforms.
    Index(Index),
}

/// The fields that tell the kind of a document.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    #[serde(default)]
    media_type: Option<MediaType>,
    #[serde(default)]
    config: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    layers: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    fs_layers: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    manifests: Option<serde::de::IgnoredAny>,
}

impl Document {
    /// Reads a manifest or an index. `declared` is what the transport or the descriptor said it is, if anything did;
    /// a document that says something else of itself is refused, and so is one that could be read both ways
    /// (CVE-2021-41190).
    pub fn parse(bytes: &[u8], declared: Option<&MediaType>) -> Result<Self, DocumentError> {
        let probe: Probe = read("manifest", bytes)?;
        let kind = |t: &MediaType| (t.is_manifest() || t.is_index()).then(|| t.is_index());
        if let Some(own) = &probe.media_type
            && let Some(declared) = declared
            && let (Some(a), Some(b)) = (kind(own), kind(declared))
            && a != b
        {
            let reason = format!("it came as {declared} and says of itself that it is {own}");
            return Err(DocumentError::Ambiguous { reason });
        }
        let schema_1 = probe.media_type.as_ref().or(declared).is_some_and(MediaType::is_schema_1);
        if schema_1 || probe.fs_layers.is_some() {
            let media_type = "application/vnd.docker.distribution.manifest.v1+json".to_owned();
            return Err(DocumentError::Unsupported { media_type });
        }
        if probe.manifests.is_some() && (probe.layers.is_some() || probe.config.is_some()) {
            let reason =
                "it has manifests as an index does, and layers or a config as a manifest does".to_owned();
            return Err(DocumentError::Ambiguous { reason });
        }
        // A type that says nothing of manifests, as `application/json`, leaves it to the fields.
        let named = probe.media_type.as_ref().and_then(kind).or_else(|| declared.and_then(kind));
        let is_index = match named {
            Some(is_index) => is_index,
            None if probe.manifests.is_some() => true,
            None if probe.config.is_some() => false,
            None => {
                let media_type = probe.media_type.as_ref().or(declared).map(MediaType::to_string);
                return Err(DocumentError::Unsupported { media_type: media_type.unwrap_or_default() });
            }
        };
        if is_index {
            Index::parse(bytes).map(Self::Index)
        } else {
            Manifest::parse(bytes).map(Self::Manifest)
        }
    }
}

impl Manifest {
    /// Reads a manifest that is known to be one.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let manifest: Self = read("manifest", bytes)?;
        if manifest.layers.len() > LAYERS_MAX {
            let count = manifest.layers.len();
            return Err(DocumentError::TooMany {
                what: "the manifest",
                items: "layers",
                count,
                max: LAYERS_MAX,
            });
        }
        Ok(manifest)
    }

    /// Each layer with its DiffID, the lowest first; an error where manifest and configuration disagree.
    pub fn layers_with_diff_ids<'a>(
        &'a self,
        config: &'a ImageConfig,
    ) -> Result<impl Iterator<Item = (&'a Descriptor, &'a Digest)>, DocumentError> {
        let (layers, diff_ids) = (self.layers.len(), config.rootfs.diff_ids.len());
        if layers != diff_ids {
            return Err(DocumentError::LayersDiffer { layers, diff_ids });
        }
        Ok(self.layers.iter().zip(&config.rootfs.diff_ids))
    }
}

impl Index {
    /// Reads an index that is known to be one.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let index: Self = read("index", bytes)?;
        if index.manifests.len() > INDEX_ENTRIES_MAX {
            let count = index.manifests.len();
            return Err(DocumentError::TooMany {
                what: "the index",
                items: "manifests",
                count,
                max: INDEX_ENTRIES_MAX,
            });
        }
        Ok(index)
    }

    /// The manifest that suits a platform best. Of equals the first one wins, as the specification has it. An entry
    /// that names no platform is taken only when no other suits; whether it does, its configuration tells.
    pub fn select(&self, wanted: &Platform) -> Result<&Descriptor, NoPlatform> {
        let images = || self.manifests.iter().filter(|entry| entry.artifact_type.is_none());
        let best = images()
            .filter_map(|entry| Some((wanted.rank(entry.platform.as_ref()?)?, entry)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, entry)| entry);
        best.or_else(|| images().find(|entry| entry.platform.is_none())).ok_or_else(|| NoPlatform {
            wanted: wanted.clone(),
            offered: images().filter_map(|entry| entry.platform.clone()).filter(Platform::is_known).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
