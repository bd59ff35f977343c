//! Writing a blob.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use mainstay_oci_image::{Descriptor, Digest, Event, Hasher, Part, Step};

use crate::activity::{End, Work};
use crate::content::{BlobClaim, BlobReader, hash};
use crate::disk::{self, failed};
use crate::error::{ImagesError, Result};
use crate::images::Inner;
use crate::observer::Observer;
use crate::records::rows;
use crate::sync;

/// Writes one blob, from [`BlobWriter::offset`] on. Dropped before [`BlobWriter::commit`], it leaves its bytes for the next
/// try, unless the disk was full. Every call blocks.
#[derive(Debug)]
pub struct BlobWriter {
    inner: Arc<Inner>,
    descriptor: Descriptor,
    work: Arc<Work>,
    file: File,
    hasher: Hasher,
    written: u64,
    end: End,
}

impl BlobWriter {
    pub(crate) fn open(inner: Arc<Inner>, descriptor: Descriptor, work: Arc<Work>) -> Result<Self> {
        let path = inner.disk.partial(&descriptor.digest);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        match file {
            Ok(file) => {
                let hasher = Hasher::new(descriptor.digest.algorithm());
                Ok(Self { inner, descriptor, work, file, hasher, written: 0, end: End::Stopped })
            }
            Err(error) => {
                inner.activity.tables().blobs.remove(&descriptor.digest);
                work.change(|state| state.end = Some(End::Stopped));
                Err(failed("opening", &path)(error))
            }
        }
    }

    /// Looks at the bytes of an earlier try. Where they are the whole blob already, it is committed.
    pub(crate) fn begin(mut self, observer: &Observer) -> Result<BlobClaim> {
        let path = self.inner.disk.partial(&self.descriptor.digest);
        let (hasher, length) =
            hash(&mut self.file, &self.descriptor.digest, observer).map_err(failed("reading", &path))?;
        if length > self.descriptor.size {
            self.restart()?;
        } else if length > 0 && length == self.descriptor.size {
            if hasher.clone().finish() != self.descriptor.digest {
                self.restart()?;
                return Ok(BlobClaim::Write(self));
            }
            self.take_over(hasher, length);
            self.commit(observer)?;
            return Ok(BlobClaim::Present);
        } else {
            self.take_over(hasher, length);
        }
        Ok(BlobClaim::Write(self))
    }

    /// The blob.
    pub fn digest(&self) -> &Digest {
        &self.descriptor.digest
    }

    /// Bytes that are there; the next ones to write are those from here on.
    pub fn offset(&self) -> u64 {
        self.written
    }

    /// The digest of the bytes that are there, with the algorithm of the blob's own.
    pub fn found(&self) -> Digest {
        self.hasher.clone().finish()
    }

    /// Bytes that there will be.
    pub fn size(&self) -> u64 {
        self.descriptor.size
    }

    /// Reads what is written, while it is written.
    pub fn reader(&self) -> Result<BlobReader> {
        let path = self.inner.disk.partial(&self.descriptor.digest);
        let file = File::open(&path).map_err(failed("opening", &path))?;
        Ok(BlobReader::following(file, Arc::clone(&self.work), self.descriptor.clone()))
    }

    /// Takes the next bytes. Refuses more than the descriptor says, before they are written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let found = self.written + bytes.len() as u64;
        if found > self.descriptor.size {
            let (digest, expected) = (self.descriptor.digest.clone(), self.descriptor.size);
            return Err(ImagesError::WrongSize { digest, expected, found });
        }
        if let Err(error) = self.file.write_all(bytes) {
            let taken_back = match error.kind() {
                // On a full disk, others need the room more than the next try needs the bytes.
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.restart(),
                _ => self.take_back(),
            };
            if let Err(error) = taken_back {
                tracing::warn!(blob = %self.descriptor.digest, %error, "a failed write was not taken back");
            }
            return Err(ImagesError::file(format!("writing blob {}", self.descriptor.digest))(error));
        }
        self.hasher.update(bytes);
        self.written = found;
        self.work.change(|state| state.written = found);
        Ok(())
    }

    /// Part of a write may have been done: the next bytes must not go behind that.
    fn take_back(&mut self) -> Result<()> {
        let path = self.inner.disk.partial(&self.descriptor.digest);
        self.file
            .set_len(self.written)
            .and_then(|()| io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.written)))
            .map(drop)
            .map_err(failed("cutting", &path))
    }

    /// Drops all bytes; whoever reads along has to start anew.
    pub fn restart(&mut self) -> Result<()> {
        let path = self.inner.disk.partial(&self.descriptor.digest);
        self.file
            .set_len(0)
            .and_then(|()| io::Seek::seek(&mut self.file, io::SeekFrom::Start(0)))
            .map_err(failed("emptying", &path))?;
        self.hasher = Hasher::new(self.descriptor.digest.algorithm());
        self.written = 0;
        self.work.change(|state| {
            state.written = 0;
            state.round += 1;
        });
        Ok(())
    }

    /// Verifies the blob, makes it durable and records it. Wrong bytes are dropped, so that the next try starts anew; a
    /// blob that is too short keeps its bytes.
    pub fn commit(mut self, observer: &Observer) -> Result<()> {
        let Descriptor { digest, size, .. } = self.descriptor.clone();
        if self.written != size {
            return Err(ImagesError::WrongSize { digest, expected: size, found: self.written });
        }
        let found = self.hasher.clone().finish();
        if found != digest {
            self.restart()?;
            return Err(ImagesError::WrongDigest { expected: digest, found, bytes: size });
        }
        let part = Part::Blob(digest.clone());
        let (from, to) = (self.inner.disk.partial(&digest), self.inner.disk.blob(&digest));
        let tell = || observer.event(Event::new(part.clone(), Step::Syncing));
        sync::telling(self.file.as_fd(), &tell, || self.file.sync_all()).map_err(failed("syncing", &from))?;
        self.inner.checkpoint("blob-synced");
        disk::settle(&from, &to)?;
        self.inner.checkpoint("blob-settled");
        self.inner
            .records
            .change("recording a blob", |transaction| rows::put_blob(transaction, &digest, size))?;
        self.inner.checkpoint("blob-recorded");
        self.end = End::Complete;
        observer.event(Event::new(part, Step::Done));
        Ok(())
    }

    fn take_over(&mut self, hasher: Hasher, length: u64) {
        self.hasher = hasher;
        self.written = length;
        self.work.change(|state| state.written = length);
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        // Gone from the table first: whoever is woken finds either the blob or nobody at it.
        self.inner.activity.tables().blobs.remove(&self.descriptor.digest);
        let end = self.end;
        self.work.change(|state| state.end = Some(end));
    }
}
