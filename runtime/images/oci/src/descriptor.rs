//! A pointer to a blob: what it is, its digest, its size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::or_default;
use crate::{Digest, MediaType, Platform};

/// A pointer to a blob (OCI image specification, "Content Descriptors").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the blob is.
    #[serde(default)]
    pub media_type: MediaType,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Other places to get it from. They are strangers: no credentials go there.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// Remarks of whoever made it.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The platform of the manifest it points to, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// What kind of artifact the manifest it points to is, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
}

impl Descriptor {
    /// A pointer with nothing but the necessary.
    pub fn new(media_type: MediaType, digest: Digest, size: u64) -> Self {
        Self {
            media_type,
            digest,
            size,
            urls: Vec::new(),
            annotations: BTreeMap::new(),
            platform: None,
            artifact_type: None,
        }
    }
}
