//! The `manifest.json` of a Docker archive: each image's configuration, names and layers by their names in the archive.
//!
//! Such an archive has no manifest with digests. One is written here, in OCI's words, over the same configuration, so that
//! the image keeps the digest that Docker calls its id. Layers are what they are in the archive, mostly not compressed.

use mainstay_oci_image::media::{OCI_CONFIG, OCI_LAYER, OCI_MANIFEST};
use mainstay_oci_image::{Descriptor, Digest, DocumentError, ImageConfig, Manifest, Reference};
use serde::Deserialize;

use crate::content;
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::import::archive::{Contents, Stored, unreadable};
use crate::import::{Candidate, store_document};
use crate::observer::Observer;

/// One image of a Docker archive.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

pub(crate) fn images(hold: &Hold, contents: &Contents, observer: &Observer) -> Result<Vec<Candidate>> {
    let text = contents.docker.as_deref().unwrap_or_default();
    let saved: Vec<Saved> = serde_json::from_slice(text).map_err(|source| ImagesError::Document {
        what: "manifest.json",
        digest: Digest::of(text),
        source: DocumentError::Malformed { what: "manifest.json", source },
    })?;
    let mut found = Vec::new();
    for image in saved {
        let member = |name: &str| {
            contents.member(name.trim_start_matches("./")).ok_or_else(|| {
                let shown: String = name.chars().take(128).collect();
                unreadable(format!("manifest.json names {shown:?}, which is not in the archive"))
            })
        };
        let Stored { digest, size } = member(&image.config)?.clone();
        let config = Descriptor::new(OCI_CONFIG.into(), digest, size);
        let layers = image.layers.unwrap_or_default();
        let layers = layers.iter().map(|name| layer(hold, member(name)?)).collect::<Result<Vec<_>>>()?;
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(OCI_MANIFEST.into()),
            artifact_type: None,
            config,
            layers,
            annotations: Default::default(),
        };
        check(hold, &manifest)?;
        let bytes = serde_json::to_vec(&manifest).map_err(|error| unreadable(error.to_string()))?;
        let manifest = store_document(hold, OCI_MANIFEST, &bytes, observer)?;
        let names = image.repo_tags.unwrap_or_default();
        let names = names.iter().map(|name| name.parse::<Reference>().map_err(ImagesError::Name));
        let names = names.collect::<Result<Vec<_>>>()?;
        let candidate = |name| Candidate { name, target: manifest.clone(), manifest: manifest.clone() };
        if names.is_empty() {
            found.push(candidate(None));
        }
        found.extend(names.into_iter().map(|name| candidate(Some(name))));
    }
    Ok(found)
}

fn layer(hold: &Hold, stored: &Stored) -> Result<Descriptor> {
    use std::io::Read;
    let mut beginning = [0; 4];
    let mut file = content::open_blob(hold.inner(), &stored.digest)?;
    let path = hold.inner().disk.blob(&stored.digest);
    let count = file.read(&mut beginning).map_err(crate::disk::failed("reading", &path))?;
    let media_type = match &beginning[..count] {
        [0x1f, 0x8b, ..] => format!("{OCI_LAYER}+gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => format!("{OCI_LAYER}+zstd"),
        _ => OCI_LAYER.to_owned(),
    };
    Ok(Descriptor::new(media_type.as_str().into(), stored.digest.clone(), stored.size))
}

/// Says early, and in the words of the archive, what does not fit together.
fn check(hold: &Hold, manifest: &Manifest) -> Result<()> {
    let bytes = content::read_document(hold.inner(), &manifest.config.digest)?;
    let fault = |source| {
        let (what, digest) = ("configuration", manifest.config.digest.clone());
        ImagesError::Document { what, digest, source }
    };
    let config = ImageConfig::parse(&bytes).map_err(fault)?;
    manifest.layers_with_diff_ids(&config).map(drop).map_err(fault)
}
