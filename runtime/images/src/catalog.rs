//! The images as they were last published. Reads are answered from here, and wait for no disk and no change (P6).
//!
//! Owns: finding an image by what callers write. Never: reads records or files, or changes.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_oci_image::{Digest, ImageConfig, Reference};

use crate::error::{ImagesError, Result};
use crate::records::ImageRecord;

/// The shortest beginning of a digest that names an image.
pub const DIGEST_PREFIX_LENGTH_MIN: usize = 4;

/// All images at one moment.
#[derive(Debug, Default)]
pub struct Catalog {
    images: Arc<[Arc<ImageRecord>]>,
    /// By manifest.
    details: HashMap<Digest, Arc<Details>>,
}

/// What is known of an image beside its record.
#[derive(Debug)]
pub struct Details {
    /// The configuration, without its history; none where it cannot be read.
    pub config: Option<ImageConfig>,
    /// Bytes of the contents of its layers.
    pub unpacked_bytes: u64,
}

impl Catalog {
    /// The images, sorted by name, with what `details` tells of each manifest that the catalog before did not know whole.
    pub(crate) fn after(
        before: &Self,
        images: Vec<ImageRecord>,
        mut details: impl FnMut(&ImageRecord) -> Details,
    ) -> Self {
        let images: Arc<[_]> = images.into_iter().map(Arc::new).collect();
        let mut known = HashMap::new();
        for image in &*images {
            let manifest = &image.manifest.digest;
            if known.contains_key(manifest) {
                continue;
            }
            let kept = before.details.get(manifest).filter(|details| details.config.is_some());
            known.insert(manifest.clone(), kept.map_or_else(|| Arc::new(details(image)), Arc::clone));
        }
        Self { images, details: known }
    }

    /// All images, by name.
    pub fn list(&self) -> &Arc<[Arc<ImageRecord>]> {
        &self.images
    }

    /// What is known of an image of this catalog beside its record.
    pub fn details(&self, image: &ImageRecord) -> Option<&Details> {
        self.details.get(&image.manifest.digest).map(AsRef::as_ref)
    }

    /// The image of a name, with the digest that a tag led to as well as with the tag; of a digest (of its manifest, of what
    /// its name led to, or of its configuration), or of the beginning of one.
    pub fn find(&self, text: &str) -> Result<Arc<ImageRecord>> {
        let missing = || ImagesError::NoImage { image: text.to_owned() };
        if let Some(image) = self.named(text) {
            return Ok(image);
        }
        if let Ok(name) = text.parse::<Reference>()
            && let Some(image) = self.named(&name.to_string()).or_else(|| self.of_repository(&name))
        {
            return Ok(image);
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
        let mut found: Vec<_> = self.images.iter().filter(fits).collect();
        found.dedup_by(|one, other| one.manifest.digest == other.manifest.digest);
        match found[..] {
            [] => Err(missing()),
            [image] => Ok(Arc::clone(image)),
            _ => Err(ImagesError::AmbiguousImage { image: text.to_owned(), count: found.len() }),
        }
    }

    /// The image of exactly this name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<ImageRecord>> {
        self.images.iter().find(|image| image.name == name).cloned()
    }

    /// The image that a name of this repository led to, by the digest in a reference.
    fn of_repository(&self, name: &Reference) -> Option<Arc<ImageRecord>> {
        let digest = name.digest()?;
        let of_it = |image: &&Arc<ImageRecord>| {
            let led_to_it = [&image.target, &image.manifest].iter().any(|found| found.digest == *digest);
            let of_name = |known: Reference| known.repository() == name.repository();
            led_to_it && image.name.parse().is_ok_and(of_name)
        };
        self.images.iter().find(of_it).cloned()
    }
}
