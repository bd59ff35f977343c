//! Layers onto real file systems. What needs root, or GNU tar, says so and is skipped.

mod gnu;
mod hostile;
mod layers;

use std::io::Write;
use std::path::{Path, PathBuf};

use mainstay_oci_image::Digest;
use tempfile::TempDir;

use super::*;
use crate::disk::open_directory;
use crate::observer::Observer;

/// The layers below, ready.
struct Ready(Vec<PathBuf>);

impl Below for Ready {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn roots(&self) -> Result<&[PathBuf]> {
        Ok(&self.0)
    }
}

/// A directory for the layers of one test.
struct Bench {
    directory: TempDir,
    limits: Limits,
    /// The layers so far, the lowest first.
    layers: Vec<PathBuf>,
}

/// An entry to write into an archive.
#[derive(Clone)]
struct Entry {
    name: Vec<u8>,
    kind: tar::EntryType,
    link: Vec<u8>,
    data: Vec<u8>,
    mode: u32,
    owner: (u64, u64),
    time: u64,
    records: Vec<(String, Vec<u8>)>,
}

impl Bench {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        Self { directory, limits: Limits::default(), layers: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Unpacks a layer over those before.
    fn layer(&mut self, bytes: &[u8]) -> Result<(PathBuf, Totals)> {
        let path = self.path(&format!("layer{}", self.layers.len()));
        // What a layer that was refused left there.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("made");
        let lowers = self.layers.iter().rev().cloned().collect();
        let (below, blob, diff_id) = (Ready(lowers), Digest::of(b"the blob"), content_digest(bytes));
        let job = Job {
            layer: &blob,
            diff_id: &diff_id,
            target: open_directory(&path)?,
            below: &below,
            limits: &self.limits,
            overlay: OverlayAttributes::Trusted,
            observer: &Observer::none(),
            made: &|_| Ok(()),
        };
        let totals = unpack(job, io::Cursor::new(bytes.to_vec()))?;
        self.layers.push(path.clone());
        Ok((path, totals))
    }

    fn unpacked(&mut self, bytes: &[u8]) -> PathBuf {
        self.layer(bytes).expect("unpacked").0
    }

    fn refused(&mut self, entries: &[Entry]) -> String {
        self.layer(&archive(entries)).expect_err("refused").to_string()
    }
}

/// The digest of what is compressed in these bytes.
fn content_digest(bytes: &[u8]) -> Digest {
    let mut content = Vec::new();
    let _ = Stream::new(bytes, &Limits::default()).expect("readable").read_to_end(&mut content);
    Digest::of(&content)
}

impl Entry {
    fn new(kind: tar::EntryType, name: impl AsRef<[u8]>) -> Self {
        let mode = if kind == tar::EntryType::Directory { 0o755 } else { 0o644 };
        Self {
            name: name.as_ref().to_vec(),
            kind,
            link: Vec::new(),
            data: Vec::new(),
            mode,
            owner: (0, 0),
            time: 1_700_000_000,
            records: Vec::new(),
        }
    }

    fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    fn record(mut self, key: &str, value: &[u8]) -> Self {
        self.records.push((key.to_owned(), value.to_vec()));
        self
    }
}

fn directory(name: &str) -> Entry {
    Entry::new(tar::EntryType::Directory, name)
}

fn file(name: &str, data: &str) -> Entry {
    Entry { data: data.as_bytes().to_vec(), ..Entry::new(tar::EntryType::Regular, name) }
}

fn symlink(name: &str, target: &str) -> Entry {
    Entry { link: target.as_bytes().to_vec(), ..Entry::new(tar::EntryType::Symlink, name) }
}

fn hard_link(name: &str, target: &str) -> Entry {
    Entry { link: target.as_bytes().to_vec(), ..Entry::new(tar::EntryType::Link, name) }
}

/// An archive of these entries, written byte by byte: libraries refuse to write most of what is tried here.
fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let mut records = entry.records.clone();
        if entry.name.len() > 100 {
            records.push(("path".to_owned(), entry.name.clone()));
        }
        if entry.link.len() > 100 {
            records.push(("linkpath".to_owned(), entry.link.clone()));
        }
        if !records.is_empty() {
            let body: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
            member(&mut bytes, &Entry { data: body, ..Entry::new(tar::EntryType::XHeader, "PaxHeaders/x") });
        }
        member(&mut bytes, entry);
    }
    bytes.extend([0; 1024]);
    bytes
}

fn member(bytes: &mut Vec<u8>, entry: &Entry) {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(entry.kind);
    header.set_mode(entry.mode);
    header.set_uid(entry.owner.0);
    header.set_gid(entry.owner.1);
    header.set_mtime(entry.time);
    header.set_size(entry.data.len() as u64);
    let raw = header.as_mut_bytes();
    let name = &entry.name[..entry.name.len().min(100)];
    raw[..name.len()].copy_from_slice(name);
    let link = &entry.link[..entry.link.len().min(100)];
    raw[157..157 + link.len()].copy_from_slice(link);
    header.set_cksum();
    bytes.write_all(header.as_bytes()).expect("memory");
    bytes.write_all(&entry.data).expect("memory");
    bytes.extend(std::iter::repeat_n(0, (512 - entry.data.len() % 512) % 512));
}

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let body = [format!(" {key}=").as_bytes(), value, b"\n"].concat();
    let mut length = body.len() + 1;
    while length != body.len() + length.to_string().len() {
        length = body.len() + length.to_string().len();
    }
    [length.to_string().as_bytes(), &body].concat()
}

/// Whether this process is root; if not, it was said that the test is skipped.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let thread = std::thread::current();
        let _ = writeln!(io::stderr(), "skipped {}: this test needs root", thread.name().unwrap_or("a test"));
    }
    root
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("readable")
}
