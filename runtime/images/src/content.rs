//! The content store: blobs by digest.
//!
//! ```text
//!   claim ─► Present
//!         ├► Running ──► wait, or read along
//!         └► Write ─► bytes ─► commit: length, digest, fsync, rename, fsync, record ─► Present
//!                        └► dropped: the bytes stay for the next try
//! ```
//!
//! A blob under its final name was verified and synced. Bytes that stayed are hashed again by the next try, and dropped
//! when the machine was started anew in between: they were never synced.

mod reader;
mod writer;

use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::Arc;

use mainstay_oci_image::{Descriptor, Digest, Event, Hasher, Part, Step};

use crate::activity::Work;
use crate::disk::{self, failed};
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::images::Inner;
use crate::observer::Observer;
use crate::records::rows;

pub use reader::BlobReader;
pub use writer::BlobWriter;

/// Bytes that are read at a time.
pub(crate) const READ_BYTES: usize = 256 << 10;

/// What a caller finds who wants a blob.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is taken apart at once")]
#[derive(Debug)]
pub enum BlobClaim {
    /// It is there.
    Present,
    /// It is the caller's to fetch.
    Write(BlobWriter),
    /// Somebody else is fetching it.
    Running(RunningBlob),
}

/// A blob that somebody else is fetching.
#[derive(Debug)]
pub struct RunningBlob {
    digest: Digest,
    work: Arc<Work>,
}

impl RunningBlob {
    /// Waits for the end; an error where the other one stopped, and then it can be claimed again. Blocks.
    pub fn wait(&self) -> Result<()> {
        self.work.finished(|| format!("blob {}", self.digest))
    }
}

impl Hold {
    /// Claims a blob, and keeps it from garbage collection as long as this lives. Blocks while bytes of an earlier try,
    /// or a blob that is in doubt, are hashed.
    pub fn blob(&self, descriptor: &Descriptor, observer: &Observer) -> Result<BlobClaim> {
        let inner = self.inner();
        let (digest, max) = (&descriptor.digest, inner.settings.limits.blob_bytes_max);
        if descriptor.size > max {
            return Err(ImagesError::BlobTooLarge { digest: digest.clone(), size: descriptor.size, max });
        }
        let work = {
            let mut tables = inner.activity.tables();
            self.keep_blob(&mut tables, digest);
            if let Some(work) = tables.blobs.get(digest) {
                return Ok(BlobClaim::Running(RunningBlob {
                    digest: digest.clone(),
                    work: Arc::clone(work),
                }));
            }
            if is_present(inner, descriptor)? {
                return Ok(BlobClaim::Present);
            }
            let work = Arc::new(Work::default());
            tables.blobs.insert(digest.clone(), Arc::clone(&work));
            work
        };
        let writer = BlobWriter::open(Arc::clone(inner), descriptor.clone(), work)?;
        writer.begin(observer)
    }

    /// Reads a blob that is there, or that is being fetched while it is read.
    pub fn read_blob(&self, descriptor: &Descriptor) -> Result<BlobReader> {
        let inner = self.inner();
        let mut tables = inner.activity.tables();
        self.keep_blob(&mut tables, &descriptor.digest);
        if let Some(work) = tables.blobs.get(&descriptor.digest) {
            let path = inner.disk.partial(&descriptor.digest);
            let file = match File::open(&path) {
                // It has moved to its final place, and is about to be recorded.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    open_blob(inner, &descriptor.digest)?
                }
                result => result.map_err(failed("opening", &path))?,
            };
            return Ok(BlobReader::following(file, Arc::clone(work), descriptor.clone()));
        }
        open_blob(inner, &descriptor.digest).map(|file| BlobReader::complete(file, descriptor.clone()))
    }
}

/// Opens a blob that is there.
pub(crate) fn open_blob(inner: &Inner, digest: &Digest) -> Result<File> {
    let path = inner.disk.blob(digest);
    match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(ImagesError::NoBlob { digest: digest.clone() })
        }
        result => result.map_err(failed("opening", &path)),
    }
}

/// Reads a small blob, a document, and checks its digest.
pub(crate) fn read_document(inner: &Inner, digest: &Digest) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_blob(inner, digest)?;
    let max = mainstay_oci_image::DOCUMENT_LENGTH_MAX as u64;
    file.take(max + 1).read_to_end(&mut bytes).map_err(failed("reading", &inner.disk.blob(digest)))?;
    let mut hasher = Hasher::new(digest.algorithm());
    hasher.update(&bytes);
    let found = hasher.finish();
    if found != *digest {
        let bytes = bytes.len() as u64;
        return Err(ImagesError::WrongDigest { expected: digest.clone(), found, bytes });
    }
    Ok(bytes)
}

/// Computes the digest of what is left of a file, and reports it.
pub(crate) fn hash(file: &mut File, digest: &Digest, observer: &Observer) -> io::Result<(Hasher, u64)> {
    let mut hasher = Hasher::new(digest.algorithm());
    let mut buffer = vec![0; READ_BYTES];
    let mut length = 0;
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => return Ok((hasher, length)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..count]);
        length += count as u64;
        observer.event(Event::new(Part::Blob(digest.clone()), Step::Verifying { bytes: count as u64 }));
    }
}

/// Whether a blob is recorded, and its file is there with the right length; or, not recorded, its file is: a file under
/// its final name is whole. What does not fit is forgotten.
fn is_present(inner: &Inner, descriptor: &Descriptor) -> Result<bool> {
    let digest = &descriptor.digest;
    let path = inner.disk.blob(digest);
    let length = match fs::symlink_metadata(&path) {
        Ok(metadata) => Some(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed("looking at", &path)(error)),
    };
    let recorded = inner.records.read("looking up a blob", |connection| rows::blob(connection, digest))?;
    match (recorded, length) {
        (Some(row), Some(length)) if row.size == length && !row.doubted => {
            if length == descriptor.size {
                return Ok(true);
            }
            let (expected, found) = (descriptor.size, length);
            Err(ImagesError::WrongSize { digest: digest.clone(), expected, found })
        }
        (None, Some(length)) if length == descriptor.size => {
            inner
                .records
                .change("recording a blob", |transaction| rows::put_blob(transaction, digest, length))?;
            Ok(true)
        }
        (Some(_), _) | (None, Some(_)) => {
            inner
                .records
                .change("forgetting a blob", |transaction| rows::delete_blob(transaction, digest))?;
            if length == Some(descriptor.size) {
                // In doubt: its bytes are those of an earlier try, and are looked at as such.
                disk::settle(&path, &inner.disk.partial(digest))?;
            } else {
                disk::remove(&path)?;
            }
            Ok(false)
        }
        (None, None) => Ok(false),
    }
}
