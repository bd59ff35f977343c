//! Images as callers see them, out of the records that are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_images::{Catalog, ImageRecord, ImagesError};
use mainstay_messages::Timestamp;
use mainstay_messages::image::{Damage, Image, ImageId, ImageRun, Removed};
use mainstay_oci_image::{ImageConfig, Reference};

/// The platform of an image that does not say.
const NO_PLATFORM: &str = "unknown";

/// The id of an image.
pub(super) fn id(record: &ImageRecord) -> ImageId {
    ImageId(record.config.digest.to_string())
}

/// The name; none of one that has only the digest of its manifest, which could be taken for a name.
fn name(record: &ImageRecord) -> Option<Reference> {
    (record.name != record.manifest.digest.to_string()).then(|| record.name.parse().ok()).flatten()
}

/// The records by image.
pub(super) fn by_image(records: &[Arc<ImageRecord>]) -> BTreeMap<ImageId, Vec<Arc<ImageRecord>>> {
    let mut images: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for record in records {
        images.entry(id(record)).or_default().push(Arc::clone(record));
    }
    images
}

/// All images. One whose configuration was lost is among them: it can be removed, or pulled again.
pub(super) fn list(catalog: &Catalog) -> Vec<Image> {
    let all = by_image(catalog.list()).into_values();
    all.filter_map(|records| {
        let details = catalog.details(&records[0])?;
        image(&records, details.config.clone().unwrap_or_default(), details.unpacked_bytes)
    })
    .collect()
}

/// An image with all of its names, of which there is one at least.
fn image(records: &[Arc<ImageRecord>], config: ImageConfig, unpacked_bytes: u64) -> Option<Image> {
    let newest = records.iter().max_by_key(|record| record.pulled_at)?;
    let (mut tags, mut digests) = (Vec::new(), Vec::new());
    for record in records {
        let Some(name) = name(record) else { continue };
        if name.tag().is_some() {
            tags.push(record.name.clone());
        }
        digests.push(format!("{}@{}", name.repository(), record.target.digest));
    }
    digests.sort();
    digests.dedup();
    let platform = config.platform().map_or_else(|| NO_PLATFORM.to_owned(), |platform| platform.to_string());
    let created_at = config.created.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    let execution = config.config;
    Some(Image {
        id: id(newest),
        tags,
        digests,
        platform,
        created_at,
        pulled_at: newest.pulled_at,
        blob_bytes: newest.size(),
        unpacked_bytes,
        layers: newest.layers.iter().map(|layer| layer.diff_id.to_string()).collect(),
        run: ImageRun {
            entrypoint: execution.entrypoint,
            command: execution.cmd,
            environment: execution.env,
            user: execution.user,
            working_directory: execution.working_dir,
            stop_signal: execution.stop_signal.filter(|signal| !signal.is_empty()),
            volumes: execution.volumes.into_iter().collect(),
            ports: execution.exposed_ports.into_iter().collect(),
            labels: execution.labels,
        },
    })
}

/// The names that go when `text` is removed: the one that it is, or those that it is the digest or id of.
pub(super) fn names_of(catalog: &Catalog, text: &str) -> mainstay_images::Result<Vec<String>> {
    let found = catalog.find(text)?;
    let asked = text.parse::<Reference>().ok();
    if found.name == text || asked.as_ref().is_some_and(|asked| found.name == asked.to_string()) {
        return Ok(vec![found.name.clone()]);
    }
    let repository = asked.filter(|asked| asked.digest().is_some()).map(|asked| asked.repository());
    let of_image = |record: &&Arc<ImageRecord>| {
        record.config.digest == found.config.digest
            && repository
                .as_ref()
                .is_none_or(|repository| name(record).is_some_and(|name| name.repository() == *repository))
    };
    Ok(catalog.list().iter().filter(of_image).map(|record| record.name.clone()).collect())
}

/// What a removal has done.
pub(super) fn removed(gone: Vec<Arc<ImageRecord>>, left: &[Arc<ImageRecord>]) -> Removed {
    let left = by_image(left);
    let mut images: Vec<_> =
        gone.iter().map(|record| id(record)).filter(|image| !left.contains_key(image)).collect();
    images.dedup();
    Removed { names: gone.into_iter().map(|record| record.name.clone()).collect(), images }
}

/// What was found damaged.
pub(super) fn damage(found: mainstay_images::Damage, records: &[Arc<ImageRecord>]) -> Damage {
    use mainstay_images::{Damaged, Remedy};
    let mut images: Vec<_> = records
        .iter()
        .filter(|record| found.images.contains(&record.name))
        .map(|record| id(record))
        .collect();
    images.sort();
    images.dedup();
    let digest = match found.what {
        Damaged::Blob(digest) | Damaged::Layer(digest) => digest.to_string(),
    };
    let remedy = match found.remedy {
        Remedy::Healed => "it was made anew",
        Remedy::Dropped => "it was dropped, and the next pull brings it",
        Remedy::Missing => "pull the image again",
    };
    Damage { digest, reason: format!("{}; {remedy}", found.how), images }
}

/// The image of a name or id, and the record that was found.
pub(super) fn find(catalog: &Catalog, text: &str) -> mainstay_images::Result<(Image, Arc<ImageRecord>)> {
    let record = catalog.find(text)?;
    let lost = || ImagesError::NoBlob { digest: record.config.digest.clone() };
    let details = catalog.details(&record).ok_or_else(lost)?;
    let config = details.config.clone().ok_or_else(lost)?;
    let records = by_image(catalog.list()).remove(&id(&record)).unwrap_or_default();
    let missing = || ImagesError::NoImage { image: text.to_owned() };
    let image = image(&records, config, details.unpacked_bytes).ok_or_else(missing)?;
    Ok((image, record))
}
