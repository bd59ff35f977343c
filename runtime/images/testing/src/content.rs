//! Images, and a registry's good answers for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_oci_image::{Descriptor, Digest, MediaType, media};

use crate::stub::{Reply, Request};

/// Blobs and manifests of one repository.
#[derive(Clone, Default)]
pub struct Content {
    blobs: BTreeMap<String, Arc<Vec<u8>>>,
    manifests: BTreeMap<String, (String, Arc<Vec<u8>>)>,
}

impl Content {
    /// Bytes that are no pattern, so that one that is missing or doubled is noticed.
    pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..length).map(|_| random.u8(..)).collect()
    }

    /// Adds a blob.
    pub fn blob(&mut self, bytes: Vec<u8>) -> Descriptor {
        let digest = Digest::of(&bytes);
        let layer = MediaType::from(media::OCI_LAYER);
        let descriptor = Descriptor::new(layer, digest.clone(), bytes.len() as u64);
        self.blobs.insert(digest.to_string(), Arc::new(bytes));
        descriptor
    }

    /// Adds a manifest or index under its digest, and under a tag where there is one.
    pub fn document(&mut self, media_type: &str, text: String, tag: Option<&str>) -> Descriptor {
        let bytes = text.into_bytes();
        let digest = Digest::of(&bytes);
        let descriptor = Descriptor::new(MediaType::from(media_type), digest.clone(), bytes.len() as u64);
        let entry = (media_type.to_owned(), Arc::new(bytes));
        self.manifests.insert(digest.to_string(), entry.clone());
        self.manifests.extend(tag.map(|tag| (tag.to_owned(), entry)));
        descriptor
    }

    /// An image with one layer under a tag; its manifest and its layer.
    pub fn image(&mut self, tag: &str) -> (Descriptor, Descriptor) {
        let layer = self.blob(Self::bytes(100_000, 7));
        let config = self.blob(format!(r#"{{"rootfs":{{"diff_ids":["{}"]}}}}"#, layer.digest).into_bytes());
        let text = format!(
            r#"{{"schemaVersion":2,"mediaType":"{}","config":{{"mediaType":"{}","digest":"{}","size":{}}},
            "layers":[{{"mediaType":"{}","digest":"{}","size":{}}}]}}"#,
            media::OCI_MANIFEST,
            media::OCI_CONFIG,
            config.digest,
            config.size,
            layer.media_type,
            layer.digest,
            layer.size
        );
        (self.document(media::OCI_MANIFEST, text, Some(tag)), layer)
    }

    /// What a good registry answers.
    pub fn serve(&self, request: &Request) -> Reply {
        let last = request.path.rsplit('/').next().unwrap_or_default();
        if let Some((media_type, bytes)) =
            self.manifests.get(last).filter(|_| request.path.contains("/manifests/"))
        {
            return Reply::new(200, bytes.to_vec())
                .header("content-type", media_type)
                .header("docker-content-digest", Digest::of(bytes));
        }
        let Some(bytes) = self.blobs.get(last).filter(|_| request.path.contains("/blobs/")) else {
            let code = if request.path.contains("/blobs/") { "BLOB_UNKNOWN" } else { "MANIFEST_UNKNOWN" };
            let body = format!(r#"{{"errors":[{{"code":"{code}","message":"there is no {last}"}}]}}"#);
            return Reply::new(404, body);
        };
        let from = request.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        match from.and_then(|from| from.parse::<usize>().ok()) {
            Some(from) if from < bytes.len() => {
                let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
                Reply::new(206, bytes[from..].to_vec()).header("content-range", range)
            }
            Some(_) => Reply::new(416, ""),
            None => Reply::new(200, bytes.to_vec()),
        }
    }
}
