//! The image of the benchmark, made anew for each run: the same shape is the same image.

use std::fs::{File, create_dir_all};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Compression, Shape};

/// The seed of everything that is random in an image.
const SEED: u64 = 0x6d61_696e_7374_6179;
/// Bytes of one piece of a file, which compresses well or not at all.
const PIECE_BYTES: usize = 1024;
/// Different words that what compresses well is made of, about as well as programs do.
const WORDS: usize = 512;
/// Files in one directory.
const FILES_PER_DIRECTORY: u32 = 50;
/// Bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;

/// An image that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Made {
    /// The digest of the configuration, whose file it is.
    pub config: String,
    /// The digest of the manifest, whose file it is.
    pub manifest: String,
    /// The lowest first.
    pub layers: Vec<Layer>,
}

/// One layer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Layer {
    /// The digest of the blob, whose file it is.
    pub digest: String,
    /// Bytes of the blob.
    pub size: u64,
    /// The digest of the archive.
    pub diff_id: String,
    /// Bytes of the archive.
    pub content: u64,
}

/// Bytes of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Of all blobs of layers.
    pub blobs: u64,
    /// Of all archives in them.
    pub content: u64,
}

impl Made {
    /// Makes an image in an empty directory.
    pub fn make(shape: &Shape, directory: &Path) -> io::Result<Self> {
        create_dir_all(directory)?;
        let mut random = fastrand::Rng::with_seed(SEED);
        let words: Vec<Vec<u8>> = (0..WORDS).map(|_| word(&mut random)).collect();
        let layers = (0..shape.layers)
            .map(|index| layer(shape, index, &words, &mut random, directory))
            .collect::<io::Result<Vec<_>>>()?;
        let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = serde_json::json!({
            "architecture": architecture,
            "os": "linux",
            "config": { "Cmd": ["true"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = document(directory, &config)?;
        let of_layer = |layer: &Layer| {
            serde_json::json!({
                "mediaType": shape.compression.media_type(),
                "digest": layer.digest,
                "size": layer.size,
            })
        };
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config.0,
                "size": config.1,
            },
            "layers": layers.iter().map(of_layer).collect::<Vec<_>>(),
        });
        let manifest = document(directory, &manifest)?.0;
        Ok(Self { config: config.0, manifest, layers })
    }

    /// How much it is.
    pub fn bytes(&self) -> Bytes {
        self.layers.iter().fold(Bytes::default(), |sum, layer| Bytes {
            blobs: sum.blobs + layer.size,
            content: sum.content + layer.content,
        })
    }
}

/// The media type of the manifest.
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

impl Compression {
    fn media_type(self) -> &'static str {
        match self {
            Self::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
            Self::Plain => "application/vnd.oci.image.layer.v1.tar",
        }
    }

    fn compress(self, mut content: impl Read, blob: impl Write) -> io::Result<()> {
        match self {
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(blob, flate2::Compression::new(6));
                io::copy(&mut content, &mut encoder)?;
                encoder.finish()?.flush()
            }
            Self::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(blob, 3)?;
                io::copy(&mut content, &mut encoder)?;
                encoder.finish()?.flush()
            }
            Self::Plain => {
                let mut blob = blob;
                io::copy(&mut content, &mut blob)?;
                blob.flush()
            }
        }
    }
}

/// Where a blob, a document or an archive lies, by its digest.
pub fn file(directory: &Path, digest: &str) -> PathBuf {
    directory.join(digest.trim_start_matches("sha256:"))
}

fn layer(
    shape: &Shape,
    index: u32,
    words: &[Vec<u8>],
    random: &mut fastrand::Rng,
    directory: &Path,
) -> io::Result<Layer> {
    let share = |all: u64| {
        let (index, layers) = (u64::from(index), u64::from(shape.layers));
        all * (index + 1) / layers - all * index / layers
    };
    let files = share(shape.files.into()).max(1);
    let bytes = share(u64::from(shape.size_mib) << 20);
    let (archive, blob) = (directory.join("archive"), directory.join("blob"));
    let mut builder = tar::Builder::new(BufWriter::new(File::create(&archive)?));
    for number in 0..files {
        let place = format!("layer-{index}/{}", number / u64::from(FILES_PER_DIRECTORY));
        if number % u64::from(FILES_PER_DIRECTORY) == 0 {
            builder.append_data(&mut header(tar::EntryType::Directory, 0o755, 0), &place, io::empty())?;
        }
        let length = bytes * (number + 1) / files - bytes * number / files;
        let mut header = header(tar::EntryType::Regular, 0o644, length);
        let content = Content { words, random: &mut *random, shape, piece: Vec::new(), at: 0 };
        builder.append_data(&mut header, format!("{place}/file-{number}"), content.take(length))?;
    }
    builder.into_inner()?.into_inner()?.sync_all()?;
    shape.compression.compress(File::open(&archive)?, BufWriter::new(File::create(&blob)?))?;
    let (diff_id, content) = digest_of(&archive)?;
    let (digest, size) = digest_of(&blob)?;
    std::fs::rename(&blob, file(directory, &digest))?;
    // A plain layer is its archive.
    std::fs::rename(&archive, file(directory, &diff_id))?;
    Ok(Layer { digest, size, diff_id, content })
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(1);
    header
}

/// What a file holds: pieces of words, and pieces that are random.
struct Content<'a> {
    words: &'a [Vec<u8>],
    random: &'a mut fastrand::Rng,
    shape: &'a Shape,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            self.piece.clear();
            self.at = 0;
            if self.random.u32(0..100) < self.shape.compressible {
                while self.piece.len() < PIECE_BYTES {
                    self.piece.extend_from_slice(&self.words[self.random.usize(0..self.words.len())]);
                }
            } else {
                self.piece.resize(PIECE_BYTES, 0);
                self.random.fill(&mut self.piece);
            }
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

fn word(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = random.usize(2..12);
    (0..length).map(|_| random.u8(..)).collect()
}

fn document(directory: &Path, document: &serde_json::Value) -> io::Result<(String, u64)> {
    let bytes = serde_json::to_vec(document)?;
    let digest = text(Sha256::digest(&bytes).as_slice());
    std::fs::write(file(directory, &digest), &bytes)?;
    Ok((digest, bytes.len() as u64))
}

fn digest_of(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut length = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((text(hasher.finalize().as_slice()), length)),
            count => {
                hasher.update(&buffer[..count]);
                length += count as u64;
            }
        }
    }
}

fn text(digest: &[u8]) -> String {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_shape_is_the_same_image() {
        let shape =
            Shape { layers: 2, size_mib: 1, files: 7, compressible: 50, compression: Compression::Gzip };
        let directory = std::env::temp_dir().join(format!("mainstay-bench-image-{}", std::process::id()));
        let made = [1, 2].map(|n| Made::make(&shape, &directory.join(n.to_string())).expect("a directory"));
        std::fs::remove_dir_all(&directory).expect("it was made");
        assert_eq!(made[0].manifest, made[1].manifest);
        let bytes = made[0].bytes();
        assert!(bytes.content > 1 << 20 && bytes.blobs < bytes.content, "{bytes:?}");
    }
}
