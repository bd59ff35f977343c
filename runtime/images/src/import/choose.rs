//! Which images the index of a layout names.
//!
//! Each entry is an image, or an index of one image for several platforms. An entry is named by its annotations: containerd
//! writes the whole name, others only the tag, or anything.

use mainstay_oci_image::{Descriptor, Document, Index, Platform, Reference};

use crate::error::{ImagesError, Result};
use crate::import::Candidate;

/// What containerd names an image with.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// What the OCI names an image with; often only a tag.
const OCI_NAME: &str = "org.opencontainers.image.ref.name";
/// How deep indexes may lie in one another.
const INDEX_DEPTH_MAX: usize = 4;

/// The images of a layout. `fetch` gets a blob into the store and reads it as a manifest or index.
pub(crate) fn images(
    index: &Index,
    platform: &Platform,
    mut fetch: impl FnMut(&Descriptor) -> Result<Document>,
) -> Result<Vec<Candidate>> {
    let mut found = Vec::new();
    for entry in &index.manifests {
        if entry.artifact_type.is_some() || entry.platform.as_ref().is_some_and(|one| !one.is_known()) {
            // Signatures and attestations are no images.
            continue;
        }
        let named = name(entry);
        // Several images of a list without names are one image for several platforms.
        if named.is_none() && index.manifests.len() > 1 && entry.platform.is_some() {
            let fits = |one: &Platform| platform.rank(one).is_some();
            if !entry.platform.as_ref().is_some_and(fits) {
                continue;
            }
        }
        let manifest = descend(entry, platform, &mut fetch)?;
        found.push(Candidate { name: named, target: entry.clone(), manifest });
    }
    Ok(found)
}

fn descend(
    entry: &Descriptor,
    platform: &Platform,
    fetch: &mut impl FnMut(&Descriptor) -> Result<Document>,
) -> Result<Descriptor> {
    let mut entry = entry.clone();
    for _ in 0..INDEX_DEPTH_MAX {
        match fetch(&entry)? {
            Document::Manifest(_) => return Ok(entry),
            Document::Index(index) => {
                entry = index.select(platform).map_err(ImagesError::Platform)?.clone();
            }
        }
    }
    let problem = format!("indexes lie more than {INDEX_DEPTH_MAX} deep in one another");
    Err(ImagesError::Import { problem })
}

/// The name of an entry; none where it has none that is whole.
fn name(entry: &Descriptor) -> Option<Reference> {
    let annotation = |key: &str| entry.annotations.get(key);
    if let Some(name) = annotation(CONTAINERD_NAME).and_then(|text| text.parse().ok()) {
        return Some(name);
    }
    // A bare word is a tag of nothing, and no name.
    annotation(OCI_NAME).filter(|text| text.contains(['/', ':'])).and_then(|text| text.parse().ok())
}
