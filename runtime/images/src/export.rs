//! Bringing images out: an OCI archive, which Docker, containerd, skopeo and podman read, and which can be unpacked into an
//! OCI layout. Docker's own `manifest.json` is written beside, for older readers of `docker save`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::sync::Arc;

use mainstay_oci_image::media::OCI_INDEX;
use mainstay_oci_image::{Descriptor, Digest, Index, Reference};
use serde::Serialize;
use tar::{EntryType, Header};

use crate::content;
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::images::Images;
use crate::records::ImageRecord;

/// What containerd names an image with.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// What the OCI names an image with: here the tag, as skopeo and containerd have it.
const OCI_NAME: &str = "org.opencontainers.image.ref.name";

/// One image in Docker's words.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Vec<String>,
    layers: Vec<String>,
}

impl Images {
    /// Writes images as one OCI archive. Blobs are hashed on their way; damage is an error, not an archive. Blocks.
    pub fn export(&self, names: &[&str], to: impl Write) -> Result<()> {
        let hold = self.hold();
        let mut images = Vec::new();
        for name in names {
            let image = self.find(name)?;
            let mut tables = self.inner().activity.tables();
            image.blobs().for_each(|digest| hold.keep_blob(&mut tables, digest));
            images.push(image);
        }
        let mut archive = tar::Builder::new(to);
        directory(&mut archive, "blobs/")?;
        directory(&mut archive, "blobs/sha256/")?;
        let mut written = BTreeSet::new();
        let mut index = Index {
            schema_version: 2,
            media_type: Some(OCI_INDEX.into()),
            manifests: Vec::new(),
            annotations: BTreeMap::new(),
        };
        let mut saved = Vec::new();
        for image in &images {
            for digest in image.blobs() {
                // The index that an image was chosen from names images that are not here; the manifest stands alone.
                let is_foreign_index =
                    *digest == image.target.digest && image.target.digest != image.manifest.digest;
                if !is_foreign_index && written.insert(digest.clone()) {
                    blob(&hold, &mut archive, digest)?;
                }
            }
            index.manifests.push(entry(image));
            saved.push(docker(image));
        }
        let text = |error: serde_json::Error| failed(error.into());
        document(&mut archive, "index.json", &serde_json::to_vec(&index).map_err(text)?)?;
        document(&mut archive, "manifest.json", &serde_json::to_vec(&saved).map_err(text)?)?;
        document(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        archive.into_inner().and_then(|mut to| to.flush()).map_err(failed)
    }
}

fn entry(image: &Arc<ImageRecord>) -> Descriptor {
    let mut entry = image.manifest.clone();
    if let Ok(name) = image.name.parse::<Reference>() {
        entry.annotations.insert(CONTAINERD_NAME.to_owned(), image.name.clone());
        if let Some(tag) = name.tag() {
            entry.annotations.insert(OCI_NAME.to_owned(), tag.to_owned());
        }
    }
    entry
}

fn docker(image: &Arc<ImageRecord>) -> Saved {
    let path = |digest: &Digest| format!("blobs/{}/{}", digest.algorithm().name(), digest.hex());
    let tagged =
        image.name.parse::<Reference>().ok().filter(|name| name.tag().is_some() && name.digest().is_none());
    Saved {
        config: path(&image.config.digest),
        repo_tags: tagged.map(|name| name.to_string()).into_iter().collect(),
        layers: image.layers.iter().map(|layer| path(&layer.blob.digest)).collect(),
    }
}

fn blob(hold: &Hold, archive: &mut tar::Builder<impl Write>, digest: &Digest) -> Result<()> {
    let file = content::open_blob(hold.inner(), digest)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut hashed = Hashed { file, hasher: mainstay_oci_image::Hasher::new(digest.algorithm()) };
    let name = format!("blobs/{}/{}", digest.algorithm().name(), digest.hex());
    append(archive, &name, EntryType::Regular, length, &mut hashed)?;
    let found = hashed.hasher.finish();
    if found != *digest {
        return Err(ImagesError::WrongDigest { expected: digest.clone(), found, bytes: length });
    }
    Ok(())
}

struct Hashed {
    file: std::fs::File,
    hasher: mainstay_oci_image::Hasher,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

fn directory(archive: &mut tar::Builder<impl Write>, name: &str) -> Result<()> {
    append(archive, name, EntryType::Directory, 0, io::empty())
}

fn document(archive: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> Result<()> {
    append(archive, name, EntryType::Regular, bytes.len() as u64, bytes)
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    name: &str,
    kind: EntryType,
    size: u64,
    data: impl Read,
) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
    header.set_size(size);
    archive.append_data(&mut header, name, data).map_err(failed)
}

fn failed(source: io::Error) -> ImagesError {
    ImagesError::File { operation: "writing the archive that is exported".to_owned(), source }
}
