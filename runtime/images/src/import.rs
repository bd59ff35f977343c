//! Bringing images in: OCI layouts as directories, OCI archives and Docker archives from any stream.
//!
//! An archive is read once, from its beginning to its end, because standard input cannot be rewound: blobs go into the store
//! as they come, the files that say what they mean are looked at when the end is reached. All of it is a stranger's: blobs
//! have to be what their digests say, documents are read with their limits, names lead nowhere. What an import leaves when it
//! fails is garbage, and listed nowhere.
//!
//! | module | owns |
//! |---|---|
//! | `archive` | the members of an archive |
//! | `layout` | a directory |
//! | `docker` | the manifest of a Docker archive |
//! | `choose` | which images an index names, and for which platform |

mod archive;
mod choose;
mod docker;
mod layout;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use mainstay_oci_image::{Descriptor, Digest, Platform, Reference};

use crate::content::BlobClaim;
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::images::{Images, NewImage};
use crate::layer::LayerClaim;
use crate::observer::Observer;
use crate::records::ImageRecord;

/// The most images that one import brings.
pub const IMPORTED_IMAGES_MAX: usize = 1024;
/// The most members of an archive that are kept by name until its end.
pub const IMPORTED_MEMBERS_MAX: usize = 65_536;

/// How an import is made.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The name of the image, instead of what the archive says. Then there must be one image.
    pub name: Option<Reference>,
    /// Which image of an index is taken.
    pub platform: Platform,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { name: None, platform: Platform::host() }
    }
}

/// An image that an import found, its blobs in the store, or where they can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    name: Option<Reference>,
    target: Descriptor,
    manifest: Descriptor,
}

impl Images {
    /// Imports an OCI archive or a Docker archive (`docker save`, compressed or not) from a stream. Blocks.
    pub fn import(
        &self,
        source: impl Read,
        options: &ImportOptions,
        observer: &Observer,
    ) -> Result<Vec<Arc<ImageRecord>>> {
        let hold = self.hold();
        let found = archive::read(&hold, source, options, observer)?;
        finish(&hold, found, options, observer)
    }

    /// Imports an OCI layout from a directory, which may be a stranger's as well. Blocks.
    pub fn import_layout(
        &self,
        directory: &Path,
        options: &ImportOptions,
        observer: &Observer,
    ) -> Result<Vec<Arc<ImageRecord>>> {
        let hold = self.hold();
        let found = layout::read(&hold, directory, options, observer)?;
        finish(&hold, found, options, observer)
    }
}

/// Unpacks what was found, and records it.
fn finish(
    hold: &Hold,
    mut found: Vec<Candidate>,
    options: &ImportOptions,
    observer: &Observer,
) -> Result<Vec<Arc<ImageRecord>>> {
    if let Some(name) = &options.name {
        found.dedup_by(|one, other| one.manifest.digest == other.manifest.digest);
        match &mut found[..] {
            [one] => one.name = Some(name.clone()),
            _ => {
                let problem = format!("there are {} images, and one name for them", found.len());
                return Err(ImagesError::Import { problem });
            }
        }
    }
    if found.is_empty() {
        return Err(ImagesError::Import { problem: "there is no image in it".to_owned() });
    }
    if found.len() > IMPORTED_IMAGES_MAX {
        let problem = format!("there are {} images; at most {IMPORTED_IMAGES_MAX} are taken", found.len());
        return Err(ImagesError::Import { problem });
    }
    let mut records = Vec::new();
    for candidate in found {
        unpack_all(hold, &candidate.manifest, observer)?;
        let Candidate { name, target, manifest } = candidate;
        records.push(hold.record(NewImage { name, target, manifest })?);
    }
    Ok(records)
}

/// Unpacks all layers of an image whose blobs are in the store, one after the other.
fn unpack_all(hold: &Hold, manifest: &Descriptor, observer: &Observer) -> Result<()> {
    let layers = hold.layers(manifest)?;
    for index in 0..layers.len() {
        loop {
            match hold.layer(&layers, index)? {
                LayerClaim::Ready => break,
                LayerClaim::Unpack(unpacking) => {
                    unpacking.run(hold.read_blob(&layers[index].blob)?, observer)?;
                    break;
                }
                LayerClaim::Running(other) => {
                    // Where the other one failed, it is this one's turn.
                    let _ = other.wait();
                }
            }
        }
    }
    Ok(())
}

/// Puts a blob into the store from a stream of exactly its bytes.
fn store_blob(
    hold: &Hold,
    descriptor: &Descriptor,
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
    observer: &Observer,
) -> Result<()> {
    let mut buffer = vec![0; crate::content::READ_BYTES];
    loop {
        match hold.blob(descriptor, observer)? {
            BlobClaim::Present => return Ok(()),
            BlobClaim::Running(other) => {
                let _ = other.wait();
            }
            BlobClaim::Write(mut writer) => {
                // The stream starts at the beginning, whatever an earlier try left.
                let mut skip = writer.offset();
                loop {
                    let count = read(&mut buffer)?;
                    if count == 0 {
                        return writer.commit(observer);
                    }
                    let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(count);
                    skip -= skipped as u64;
                    writer.write(&buffer[skipped..count])?;
                }
            }
        }
    }
}

/// Puts a document that we made into the store.
fn store_document(hold: &Hold, media_type: &str, bytes: &[u8], observer: &Observer) -> Result<Descriptor> {
    let descriptor = Descriptor::new(media_type.into(), Digest::of(bytes), bytes.len() as u64);
    let mut left = bytes;
    let read = |buffer: &mut [u8]| {
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        left = &left[count..];
        Ok(count)
    };
    store_blob(hold, &descriptor, read, observer)?;
    Ok(descriptor)
}
