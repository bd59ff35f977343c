//! An archive from a stream: an OCI archive, a Docker archive, or both in one, as Docker writes them today.
//!
//! A member `blobs/ALGORITHM/HEX` says its own digest. Any other file that may be of use (configurations and layers of old
//! Docker archives) goes to a file without a name while it is hashed, and into the store then. Links among members are
//! remembered: old Docker archives have one for a layer that comes twice.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use mainstay_oci_image::{
    Algorithm, DOCUMENT_LENGTH_MAX, Descriptor, Digest, Document, Hasher, Index, MediaType,
};

use crate::content::READ_BYTES;
use crate::disk;
use crate::error::{ImagesError, Result};
use crate::hold::Hold;
use crate::import::{Candidate, IMPORTED_MEMBERS_MAX, ImportOptions, choose, docker, store_blob};
use crate::observer::Observer;
use crate::tar::{Archive, ArchiveError, Kind, Member};
use crate::unpack::Stream;

/// What is known of an archive when its end is reached.
#[derive(Default)]
pub(crate) struct Contents {
    /// The text of `index.json`.
    index: Option<Vec<u8>>,
    /// The text of Docker's `manifest.json`.
    pub(crate) docker: Option<Vec<u8>>,
    /// Members that are in the store, by name.
    pub(crate) stored: HashMap<String, Stored>,
    /// Links by name.
    links: HashMap<String, String>,
}

/// A member that is in the store.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// A file without a place in the store, removed at the end.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = disk::remove(&self.path) {
            tracing::warn!(%error, "a scratch file of an import is left until the next start");
        }
    }
}

pub(crate) fn read(
    hold: &Hold,
    source: impl Read,
    options: &ImportOptions,
    observer: &Observer,
) -> Result<Vec<Candidate>> {
    let limits = &hold.inner().settings.limits;
    let stream = Stream::new(source, limits).map_err(|source| unreadable(source.to_string()))?;
    let mut archive = Archive::new(stream);
    let mut contents = Contents::default();
    while let Some(member) = archive.next().map_err(archive_error)? {
        if contents.stored.len() + contents.links.len() >= IMPORTED_MEMBERS_MAX {
            return Err(unreadable(format!("it has more than {IMPORTED_MEMBERS_MAX} members")));
        }
        take(hold, &mut archive, &member, &mut contents, observer)?;
    }
    if let Some(text) = &contents.index {
        return from_index(hold, text, &contents, options);
    }
    if contents.docker.is_some() {
        return docker::images(hold, &contents, observer);
    }
    Err(unreadable("it has neither index.json (OCI) nor manifest.json (Docker)".to_owned()))
}

fn take<R: Read>(
    hold: &Hold,
    archive: &mut Archive<R>,
    member: &Member,
    contents: &mut Contents,
    observer: &Observer,
) -> Result<()> {
    let Some(name) = plain_name(&member.path) else { return Ok(()) };
    match member.kind {
        Kind::File if member.sparse.is_none() => {}
        Kind::Symlink => {
            let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
            if let Some(target) = resolve(directory, &member.link) {
                contents.links.insert(name, target);
            }
            return Ok(());
        }
        Kind::HardLink => {
            if let Some(target) = plain_name(&member.link) {
                contents.links.insert(name, target);
            }
            return Ok(());
        }
        _ => return Ok(()),
    }
    match name.as_str() {
        "index.json" => {
            contents.index = Some(archive.read_all(DOCUMENT_LENGTH_MAX as u64).map_err(archive_error)?)
        }
        "manifest.json" => {
            contents.docker = Some(archive.read_all(DOCUMENT_LENGTH_MAX as u64).map_err(archive_error)?);
        }
        "oci-layout" | "repositories" => {}
        _ if name.ends_with("/VERSION") => {}
        _ => {
            let stored = match blob_digest(&name) {
                Some(digest) => {
                    let descriptor = Descriptor::new(MediaType::default(), digest.clone(), member.size);
                    let read = |buffer: &mut [u8]| archive.read(buffer).map_err(archive_error);
                    store_blob(hold, &descriptor, read, observer)?;
                    Stored { digest, size: member.size }
                }
                None if name.ends_with(".json") || name.ends_with(".tar") => {
                    store_unknown(hold, archive, member, observer)?
                }
                None => return Ok(()),
            };
            contents.stored.insert(name, stored);
        }
    }
    Ok(())
}

/// Puts a file into the store whose digest is not known before it was read.
fn store_unknown<R: Read>(
    hold: &Hold,
    archive: &mut Archive<R>,
    member: &Member,
    observer: &Observer,
) -> Result<Stored> {
    let max = hold.inner().settings.limits.blob_bytes_max;
    if member.size > max {
        let name = String::from_utf8_lossy(&member.path).into_owned();
        return Err(unreadable(format!(
            "{name:?} has {} bytes; at most {max} are taken (images.blob_bytes_max)",
            member.size
        )));
    }
    let (path, file) = hold.inner().disk.scratch()?;
    let mut scratch = Scratch { path, file };
    let mut hasher = Hasher::new(Algorithm::Sha256);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = archive.read(&mut buffer).map_err(archive_error)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        scratch.file.write_all(&buffer[..count]).map_err(disk::failed("writing", &scratch.path))?;
    }
    let digest = hasher.finish();
    scratch.file.seek(SeekFrom::Start(0)).map_err(disk::failed("reading", &scratch.path))?;
    let descriptor = Descriptor::new(MediaType::default(), digest.clone(), member.size);
    let path = scratch.path.clone();
    let read = |buffer: &mut [u8]| scratch.file.read(buffer).map_err(disk::failed("reading", &path));
    store_blob(hold, &descriptor, read, observer)?;
    Ok(Stored { digest, size: member.size })
}

fn from_index(
    hold: &Hold,
    text: &[u8],
    contents: &Contents,
    options: &ImportOptions,
) -> Result<Vec<Candidate>> {
    let index = Index::parse(text).map_err(|source| {
        let (what, digest) = ("index", Digest::of(text));
        ImagesError::Document { what, digest, source }
    })?;
    let need = |descriptor: &Descriptor| {
        let found = contents.stored.values().find(|stored| stored.digest == descriptor.digest);
        match found {
            Some(stored) if stored.size == descriptor.size => Ok(()),
            Some(stored) => {
                let (digest, expected, found) = (descriptor.digest.clone(), descriptor.size, stored.size);
                Err(ImagesError::WrongSize { digest, expected, found })
            }
            None => Err(unreadable(format!("blob {} is not in it", descriptor.digest))),
        }
    };
    let found = choose::images(&index, &options.platform, |descriptor| {
        need(descriptor)?;
        hold.document(descriptor)
    })?;
    for candidate in &found {
        if let Document::Manifest(manifest) = hold.document(&candidate.manifest)? {
            need(&manifest.config)?;
            manifest.layers.iter().try_for_each(need)?;
        }
    }
    Ok(found)
}

impl Contents {
    /// The member of a name, through links.
    pub(crate) fn member(&self, name: &str) -> Option<&Stored> {
        let mut name = name;
        // A chain of links is no longer than there are links; a circle ends.
        for _ in 0..=self.links.len().min(64) {
            if let Some(stored) = self.stored.get(name) {
                return Some(stored);
            }
            name = self.links.get(name)?;
        }
        None
    }
}

/// The digest that a name says.
fn blob_digest(name: &str) -> Option<Digest> {
    let (algorithm, hex) = name.strip_prefix("blobs/")?.split_once('/')?;
    format!("{algorithm}:{hex}").parse().ok()
}

/// A name from the root of the archive; none for one that leads out of it, or is no text.
fn plain_name(path: &[u8]) -> Option<String> {
    resolve("", path)
}

fn resolve(directory: &str, path: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(path).ok()?;
    let mut names: Vec<&str> = directory.split('/').filter(|name| !name.is_empty()).collect();
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    (!names.is_empty()).then(|| names.join("/"))
}

pub(crate) fn unreadable(problem: String) -> ImagesError {
    ImagesError::Import { problem }
}

fn archive_error(error: ArchiveError) -> ImagesError {
    match error {
        ArchiveError::Read(source) => {
            ImagesError::File { operation: "reading the archive that is imported".to_owned(), source }
        }
        error => unreadable(error.to_string()),
    }
}
