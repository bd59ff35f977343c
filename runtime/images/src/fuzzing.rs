//! A door to unpacking, for the package `runtime/images/fuzz` and for nobody else.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use mainstay_oci_image::{Algorithm, Digest, Hasher};

use crate::error::Result;
use crate::observer::Observer;
use crate::settings::{Limits, OverlayAttributes};
use crate::unpack::{self, Below};
use crate::{disk, tar};

/// The layers below, the uppermost first.
struct Ready(Vec<PathBuf>);

impl Below for Ready {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn roots(&self) -> Result<&[PathBuf]> {
        Ok(&self.0)
    }
}

/// Unpacks an archive that is not compressed into an empty directory, over the layers below it.
pub fn unpack(archive: Vec<u8>, target: &Path, below: Vec<PathBuf>, limits: &Limits) -> Result<()> {
    let mut hasher = Hasher::new(Algorithm::Sha256);
    hasher.update(&archive);
    let job = unpack::Job {
        layer: &Digest::of(b"blob"),
        diff_id: &hasher.finish(),
        target: disk::open_directory(target)?,
        below: &Ready(below),
        limits,
        overlay: OverlayAttributes::Trusted,
        observer: &Observer::none(),
        made: &|_| Ok(()),
    };
    unpack::unpack(job, Cursor::new(archive)).map(drop)
}

/// Reads an archive to its end, or to its first fault; answers how many members it had.
pub fn members(archive: &[u8]) -> u64 {
    let mut archive = tar::Archive::new(archive);
    while let Ok(Some(_)) = archive.next() {}
    archive.number()
}
