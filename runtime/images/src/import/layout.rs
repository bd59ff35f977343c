//! An OCI layout in a directory. Only what its index leads to is read; every path is opened inside the directory, through no
//! link.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use mainstay_oci_image::{DOCUMENT_LENGTH_MAX, Descriptor, Digest, Document, Index};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

use crate::disk::failed;
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::import::{Candidate, ImportOptions, choose, store_blob};
use crate::observer::Observer;

pub(crate) fn read(
    hold: &Hold,
    directory: &Path,
    options: &ImportOptions,
    observer: &Observer,
) -> Result<Vec<Candidate>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(directory, flags, Mode::empty())
        .map_err(|error| failed("opening", directory)(error.into()))?;
    let mut text = Vec::new();
    let index = open(&root, "index.json", directory)?;
    index
        .take(DOCUMENT_LENGTH_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(failed("reading", &directory.join("index.json")))?;
    let index = Index::parse(&text).map_err(|source| {
        let (what, digest) = ("index", Digest::of(&text));
        ImagesError::Document { what, digest, source }
    })?;
    let store = |descriptor: &Descriptor| {
        let path = format!("blobs/{}/{}", descriptor.digest.algorithm().name(), descriptor.digest.hex());
        let mut file = open(&root, &path, directory)?;
        store_blob(
            hold,
            descriptor,
            |buffer| file.read(buffer).map_err(failed("reading", &directory.join(&path))),
            observer,
        )
    };
    let found = choose::images(&index, &options.platform, |descriptor| {
        store(descriptor)?;
        hold.document(descriptor)
    })?;
    for candidate in &found {
        if let Document::Manifest(manifest) = hold.document(&candidate.manifest)? {
            store(&manifest.config)?;
            manifest.layers.iter().try_for_each(&store)?;
        }
    }
    Ok(found)
}

fn open(root: &OwnedFd, path: &str, directory: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fail = |error: rustix::io::Errno| failed("opening", &directory.join(path))(error.into());
    // A handle first: a FIFO is not opened to find out that it is one.
    let handle = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).map_err(fail)?;
    if FileType::from_raw_mode(fstat(&handle).map_err(fail)?.st_mode) != FileType::RegularFile {
        let problem = format!("{} is no regular file", directory.join(path).display());
        return Err(ImagesError::Import { problem });
    }
    openat2(root, path, flags, Mode::empty(), resolve).map(File::from).map_err(fail)
}
