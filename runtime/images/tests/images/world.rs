//! Images in a directory of the test's own, and images made by hand to put into them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainstay_images::{
    BlobClaim, Hold, ImageRecord, Images, ImagesError, LayerClaim, NewImage, Observer, Settings,
};
pub use mainstay_images_testing::peer::is_root;
use mainstay_oci_image::media::{OCI_CONFIG, OCI_LAYER, OCI_MANIFEST};
use mainstay_oci_image::{Descriptor, Digest};
use tempfile::TempDir;

/// A boot id for tests.
pub const BOOT: &str = "11111111-1111-1111-1111-111111111111";

pub struct World {
    pub images: Images,
    directory: TempDir,
}

/// An image as a registry would have it.
#[derive(Clone, Debug)]
pub struct Made {
    pub blobs: BTreeMap<Digest, Vec<u8>>,
    pub manifest: Descriptor,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

impl World {
    pub fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let images = open(&directory.path().join("images"));
        Self { images, directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn root(&self) -> PathBuf {
        self.path("images")
    }

    /// Closes the images and opens them again.
    pub fn reopened(self) -> Self {
        let Self { images, directory } = self;
        drop(images);
        let images = open(&directory.path().join("images"));
        Self { images, directory }
    }

    /// Closes the images; their directory stays as long as what is answered.
    pub fn closed(self) -> TempDir {
        self.directory
    }

    /// Names in a directory below the root.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.root().join(directory))
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    pub fn pull(&self, name: &str, image: &Made) -> Arc<ImageRecord> {
        pull(&self.images, name, image).expect("pulled")
    }
}

pub fn open(root: &Path) -> Images {
    Images::open(root, Settings::new(BOOT)).expect("opened").images
}

/// An image of these layers, gzip'd. Each layer is a list of files with their contents.
pub fn image(layers: &[&[(&str, &str)]]) -> Made {
    let archives: Vec<Vec<u8>> = layers.iter().map(|files| archive(files)).collect();
    image_of(&archives)
}

pub fn image_of(archives: &[Vec<u8>]) -> Made {
    let mut blobs = BTreeMap::new();
    let mut keep = |media_type: &str, bytes: Vec<u8>| {
        let descriptor = Descriptor::new(media_type.into(), Digest::of(&bytes), bytes.len() as u64);
        blobs.insert(descriptor.digest.clone(), bytes);
        descriptor
    };
    let diff_ids: Vec<String> = archives.iter().map(|bytes| Digest::of(bytes).to_string()).collect();
    let layers: Vec<_> =
        archives.iter().map(|bytes| keep(&format!("{OCI_LAYER}+gzip"), gzip(bytes))).collect();
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux", "config": { "Cmd": ["sh"] },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = keep(OCI_CONFIG, config.to_string().into_bytes());
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers,
    });
    let manifest = keep(OCI_MANIFEST, manifest.to_string().into_bytes());
    Made { blobs, manifest, config, layers }
}

pub fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, contents) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000);
        header.set_size(contents.len() as u64);
        builder.append_data(&mut header, name, contents.as_bytes()).expect("written");
    }
    builder.into_inner().expect("written")
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

/// Puts one blob into the store.
pub fn fetch(hold: &Hold, descriptor: &Descriptor, image: &Made) -> Result<(), ImagesError> {
    match hold.blob(descriptor, &Observer::none())? {
        BlobClaim::Present => Ok(()),
        BlobClaim::Running(other) => other.wait(),
        BlobClaim::Write(mut writer) => {
            let bytes = &image.blobs[&descriptor.digest];
            let offset = usize::try_from(writer.offset()).expect("small");
            for piece in bytes[offset..].chunks(1000) {
                writer.write(piece)?;
            }
            writer.commit(&Observer::none())
        }
    }
}

/// Pulls an image as a registry client would, every layer on a thread of its own, unpacked while it is fetched.
pub fn pull(images: &Images, name: &str, image: &Made) -> Result<Arc<ImageRecord>, ImagesError> {
    let hold = images.hold();
    fetch(&hold, &image.manifest, image)?;
    fetch(&hold, &image.config, image)?;
    let layers = hold.layers(&image.manifest)?;
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for index in 0..layers.len() {
            let (claim, hold, layers) = (hold.layer(&layers, index)?, &hold, &layers);
            running.push(scope.spawn(move || match claim {
                LayerClaim::Ready => fetch(hold, &layers[index].blob, image),
                LayerClaim::Running(other) => {
                    other.wait().and_then(|()| fetch(hold, &layers[index].blob, image))
                }
                LayerClaim::Unpack(unpacking) => {
                    let descriptor = &layers[index].blob;
                    match hold.blob(descriptor, &Observer::none())? {
                        BlobClaim::Write(mut writer) => {
                            let reader = writer.reader()?;
                            let bytes = image.blobs[&descriptor.digest].clone();
                            let fetching = std::thread::spawn(move || {
                                let offset = usize::try_from(writer.offset()).expect("small");
                                for piece in bytes[offset..].chunks(1000) {
                                    writer.write(piece)?;
                                }
                                writer.commit(&Observer::none())
                            });
                            let unpacked = unpacking.run(reader, &Observer::none());
                            fetching.join().expect("fetched")?;
                            unpacked
                        }
                        BlobClaim::Present | BlobClaim::Running(_) => {
                            unpacking.run(hold.read_blob(descriptor)?, &Observer::none())
                        }
                    }
                }
            }));
        }
        running.into_iter().try_for_each(|thread| thread.join().expect("unpacked"))
    })?;
    let (target, manifest) = (image.manifest.clone(), image.manifest.clone());
    let name = Some(name.parse().expect("a name"));
    hold.record(NewImage { name, target, manifest })
}

pub fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("readable")
}
