//! Unpacking one layer into a directory, from a stream of a stranger's bytes.
//!
//! ```text
//!   blob ─► decompress ═► DiffID ─► archive ─► entries ─► directory      (═► = to another thread)
//!            limits                             │
//!                                               └─ asks the layers below, where an entry leans on them
//! ```
//!
//! A layer is unpacked beside the others, and overlayfs puts them together. Most layers never look at those below. One
//! does where an entry is in a directory that the layer does not bring along (the directory is then made like the one
//! below, or the entry goes where the symbolic link below leads, as it would on top of the finished image), where a hard
//! link leads to a file below (which is then copied), and for whiteouts, which are made last, and only for what is there.
//! Whiteouts hide what is below, wherever in the layer they stand, and never what the layer itself brings.
//!
//! | module | owns |
//! |---|---|
//! | `stream` | decompression, limits on bytes |
//! | `ahead` | doing that on a thread of its own; DiffID |
//! | `path` | names of entries |
//! | `tree` | directories of the layer, by descriptor |
//! | `below` | what the layers below show at a path |
//! | `extract` | making entries |
//! | `whiteout` | hiding what is below |
//! | `metadata` | owners, modes, attributes, times |
//!
//! Every file system call takes a descriptor of a directory inside the target and one name, and follows no link. Never
//! writes outside the target, never records anything.

mod ahead;
mod below;
mod extract;
mod metadata;
mod path;
mod stream;
mod tree;
mod whiteout;

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mainstay_oci_image::{Digest, Event, Part, Step};

use crate::error::{ImagesError, Result};
use crate::observer::Observer;
use crate::settings::{Limits, OverlayAttributes};
use crate::sync;
use crate::tar::{Archive, ArchiveError};

use ahead::Ahead;
use extract::Extractor;
use stream::{Breach, Counts};

pub(crate) use stream::Stream;

/// Time between two reports of progress, at least, in milliseconds. Something happens before each of them.
const PROGRESS_INTERVAL_MS: u64 = 100;

/// The layers below the one that is unpacked.
pub(crate) trait Below {
    /// Whether there are none.
    fn is_empty(&self) -> bool;
    /// The roots of the layers, the uppermost first: directories of ours, found by path because there may be more than a
    /// process may have open. Waits until they are all unpacked.
    fn roots(&self) -> Result<&[PathBuf]>;
}

/// What is unpacked, and how.
pub(crate) struct Job<'a> {
    /// The blob of the layer, for errors and reports.
    pub(crate) layer: &'a Digest,
    /// The digest that its content must have.
    pub(crate) diff_id: &'a Digest,
    /// The empty directory that it goes to.
    pub(crate) target: OwnedFd,
    pub(crate) below: &'a dyn Below,
    pub(crate) limits: &'a Limits,
    pub(crate) overlay: OverlayAttributes,
    pub(crate) observer: &'a Observer,
    /// Called when all entries are made: what it writes becomes durable with them.
    pub(crate) made: &'a dyn Fn(Totals) -> Result<()>,
}

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Entries of the archive.
    pub(crate) entries: u64,
    /// Bytes of the contents of files, without holes.
    pub(crate) bytes: u64,
}

/// Why an entry was not made.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It cannot be, or must not be.
    Refused(String),
    /// The file system refused a call.
    Write(&'static str, io::Error),
    /// There is too much of something.
    Limit { what: &'static str, setting: &'static str, max: u64 },
    /// The archive ended or is malformed.
    Archive(ArchiveError),
    /// The layers below could not be had, or the caller gave up.
    Failed(Box<ImagesError>),
}

/// Reports of one layer, not more than a few a second.
pub(crate) struct Reports<'a> {
    observer: &'a Observer,
    layer: &'a Digest,
    entries: u64,
    bytes: u64,
    last: Instant,
}

/// Unpacks a layer and makes it durable.
pub(crate) fn unpack(job: Job<'_>, source: impl Read + Send + 'static) -> Result<Totals> {
    let layer = job.layer.clone();
    let observer = job.observer;
    let report = |step| observer.event(Event::new(Part::Layer(layer.clone()), step));
    let unreadable = |source| ImagesError::Stream { layer: layer.clone(), bytes: 0, source };
    let stream = Stream::new(source, job.limits).map_err(unreadable)?;
    let counts = stream.counts();
    let mut content = Ahead::start(stream, job.diff_id.algorithm()).map_err(unreadable)?;
    let (diff_id, root) = (job.diff_id.clone(), rustix::io::dup(&job.target));
    let root = root.map_err(|error| write_failed(&layer, "duplicating a descriptor", error.into()))?;
    let made = job.made;
    let totals = entries(job, &mut content, &counts)?;
    made(totals)?;
    let found = content.digest();
    if found != diff_id {
        return Err(ImagesError::WrongDiffId { layer, expected: diff_id, found });
    }
    sync::telling(root.as_fd(), &|| report(Step::Syncing), || Ok(rustix::fs::syncfs(&root)?))
        .map_err(|error| write_failed(&layer, "syncing the file system", error))?;
    Ok(totals)
}

fn entries(job: Job<'_>, content: &mut Ahead, counts: &Counts) -> Result<Totals> {
    let (layer, limits, observer) = (job.layer, job.limits, job.observer);
    let mut reports = Reports { observer, layer, entries: 0, bytes: 0, last: Instant::now() };
    let mut archive = Archive::new(content);
    let mut extractor = Extractor::new(job)?;
    let mut totals = Totals::default();
    let failed = |entry: u64, path: &[u8], fault: Fault| {
        let path = || String::from_utf8_lossy(&path[..path.len().min(256)]).into_owned();
        let layer = layer.clone();
        match (fault, counts.breach()) {
            (Fault::Archive(ArchiveError::Read(_)), Some(Breach { what, setting, max })) => {
                ImagesError::Limit { layer, what, setting, max }
            }
            (Fault::Archive(ArchiveError::Read(source)), None) => {
                ImagesError::Stream { layer, bytes: counts.bytes(), source }
            }
            (Fault::Archive(ArchiveError::Malformed { member, problem }), _) => {
                ImagesError::Archive { layer, entry: member, problem }
            }
            (Fault::Refused(problem), _) => ImagesError::Entry { layer, entry, path: path(), problem },
            (Fault::Write(operation, source), _) => {
                ImagesError::Write { layer, entry, path: path(), operation, source }
            }
            (Fault::Limit { what, setting, max }, _) => ImagesError::Limit { layer, what, setting, max },
            (Fault::Failed(error), _) => *error,
        }
    };
    loop {
        let member =
            archive.next().map_err(|error| failed(archive_number(&archive), b"", Fault::Archive(error)))?;
        let Some(member) = member else { break };
        totals.entries += 1;
        if totals.entries > limits.layer_entries_max {
            let (what, setting) = ("entries", "layer_entries_max");
            return Err(ImagesError::Limit {
                layer: layer.clone(),
                what,
                setting,
                max: limits.layer_entries_max,
            });
        }
        let written = extractor.entry(&member, &mut archive, &mut reports);
        totals.bytes += written.map_err(|fault| failed(archive.number(), &member.path, fault))?;
        reports.entry(0);
        if observer.is_cancelled() {
            return Err(ImagesError::Cancelled { layer: layer.clone() });
        }
    }
    extractor.finish(&mut reports).map_err(|(path, fault)| failed(0, &path, fault))?;
    reports.flush();
    Ok(totals)
}

fn archive_number<R: Read>(archive: &Archive<R>) -> u64 {
    archive.number()
}

fn write_failed(layer: &Digest, operation: &'static str, source: io::Error) -> ImagesError {
    ImagesError::Write { layer: layer.clone(), entry: 0, path: ".".to_owned(), operation, source }
}

impl Reports<'_> {
    /// An entry was made, or something was done for one.
    fn entry(&mut self, bytes: u64) {
        self.entries += 1;
        self.moved(bytes);
    }

    /// Bytes of an entry were written.
    fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.last.elapsed() >= Duration::from_millis(PROGRESS_INTERVAL_MS) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let (entries, bytes) = (std::mem::take(&mut self.entries), std::mem::take(&mut self.bytes));
        let step = Step::Extracted { entries, bytes };
        self.observer.event(Event::new(Part::Layer(self.layer.clone()), step));
        self.last = Instant::now();
    }

    /// Whether the caller gave up.
    fn is_cancelled(&self) -> bool {
        self.observer.is_cancelled()
    }
}

impl Fault {
    /// A call that failed.
    pub(crate) fn write(operation: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |error| Self::Write(operation, error.into())
    }
}

impl From<ArchiveError> for Fault {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<ImagesError> for Fault {
    fn from(error: ImagesError) -> Self {
        Self::Failed(Box::new(error))
    }
}

#[cfg(test)]
mod tests;
