//! The directories of a layer that is being unpacked, each found by a descriptor of the one above it.
//!
//! Owns: making them, what becomes of them when nothing is put into them any more, and how many are open. How a name leads to
//! one is in `walk`.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

use crate::settings::{Limits, OverlayAttributes};
use crate::tar::Time;
use crate::unpack::below::{self, Found};
use crate::unpack::metadata::{self, DEFAULT_ACL, Metadata};
use crate::unpack::path::join;
use crate::unpack::{Below, Fault};

mod walk;

use walk::Missing;

/// How many directories are kept open. Three layers at a time stay far below the usual limit of 1,024 descriptors.
const DIRECTORIES_OPEN_MAX: usize = 64;

/// A directory of the layer.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) fd: OwnedFd,
    /// Its path from the root of the layer, without links; empty for the root.
    pub(crate) path: Vec<u8>,
}

/// What is done to a directory when nothing is put into it any more.
#[derive(Debug, Default)]
struct Ending {
    modified: Option<Time>,
    default_acl: Option<Vec<u8>>,
}

pub(crate) struct Tree<'a> {
    root: Rc<Directory>,
    below: &'a dyn Below,
    overlay: OverlayAttributes,
    path_bytes_max: u64,
    /// Open directories by the names that lead to them.
    open: HashMap<Vec<u8>, Rc<Directory>>,
    endings: HashMap<Vec<u8>, Ending>,
    /// The time of directories that nothing describes.
    pub(crate) time: Time,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(
        root: OwnedFd,
        below: &'a dyn Below,
        overlay: OverlayAttributes,
        limits: &Limits,
    ) -> Self {
        let root = Rc::new(Directory { fd: root, path: Vec::new() });
        let (open, endings) = (HashMap::new(), HashMap::new());
        let (path_bytes_max, time) = (limits.path_bytes_max, Time::default());
        Self { root, below, overlay, path_bytes_max, open, endings, time }
    }

    pub(crate) fn root(&self) -> Rc<Directory> {
        Rc::clone(&self.root)
    }

    /// Finds a directory, and makes what is missing.
    pub(crate) fn directory(&mut self, components: &[&[u8]]) -> Result<Rc<Directory>, Fault> {
        let found = self.resolve(components, Missing::Make)?;
        found.ok_or_else(|| Fault::Refused("its directory vanished".to_owned()))
    }

    /// Finds a directory. It is made where the layers below have it; none where it is nowhere.
    pub(crate) fn existing(&mut self, components: &[&[u8]]) -> Result<Option<Rc<Directory>>, Fault> {
        self.resolve(components, Missing::Leave)
    }

    /// What the layers below show at a path.
    pub(crate) fn below(&self, path: &[u8]) -> Result<Option<Found>, Fault> {
        if self.below.is_empty() {
            return Ok(None);
        }
        below::look_up(self.below.roots()?, path, self.overlay)
    }

    /// Whether there are layers below.
    pub(crate) fn is_lowest(&self) -> bool {
        self.below.is_empty()
    }

    pub(crate) fn below_roots(&self) -> Result<&'a [PathBuf], Fault> {
        Ok(self.below.roots()?)
    }

    /// Makes a directory, or takes the one that is there, and gives it what the archive says of it.
    pub(crate) fn make(
        &mut self,
        place: &Rc<Directory>,
        name: &[u8],
        metadata: &Metadata,
    ) -> Result<(), Fault> {
        let path = join(&place.path, name);
        let directory = self.make_empty(place, name, path)?;
        self.describe(&directory, metadata)
    }

    /// Gives a directory what is known of it.
    pub(crate) fn describe(&mut self, directory: &Directory, metadata: &Metadata) -> Result<(), Fault> {
        metadata.give_to(directory.fd.as_fd())?;
        let acl = metadata.xattrs.iter().find(|(name, _)| name == DEFAULT_ACL);
        let ending =
            Ending { modified: Some(metadata.modified), default_acl: acl.map(|(_, value)| value.clone()) };
        self.endings.insert(directory.path.clone(), ending);
        Ok(())
    }

    /// Forgets directories that may have become something else.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
    }

    /// Gives all directories their times.
    pub(crate) fn finish(&mut self) -> Result<(), (Vec<u8>, Fault)> {
        self.open.clear();
        self.describe_root().map_err(|fault| (Vec::new(), fault))?;
        for (path, ending) in std::mem::take(&mut self.endings) {
            let directory = match self.open_again(&path) {
                Ok(directory) => directory,
                // Another entry took its place.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err((path, Fault::Write("opening a directory", error.into()))),
            };
            let acl = ending.default_acl.map_or(Ok(()), |acl| metadata::set_default_acl(&directory, &acl));
            let end = acl.and_then(|()| ending.modified.map_or(Ok(()), |time| time.give_to(&directory)));
            end.map_err(|fault| (path, fault))?;
        }
        Ok(())
    }

    /// A root that the layer does not describe is that of the layer below.
    fn describe_root(&mut self) -> Result<(), Fault> {
        if self.endings.contains_key(&b""[..]) {
            return Ok(());
        }
        let Some(below) = self.below_roots()?.first() else {
            self.endings.insert(Vec::new(), Ending { modified: Some(Time::default()), default_acl: None });
            return Ok(());
        };
        let read = Fault::write("reading the root of the layer below");
        let below = below::open_root(below).map_err(&read)?;
        let stat = rustix::fs::fstat(&below).map_err(&read)?;
        let metadata = Metadata::of_file(below.as_fd(), &stat).map_err(&read)?;
        let root = self.root();
        self.describe(&root, &metadata)
    }

    fn make_empty(
        &mut self,
        here: &Rc<Directory>,
        name: &[u8],
        path: Vec<u8>,
    ) -> Result<Rc<Directory>, Fault> {
        for _ in 0..2 {
            match mkdirat(&here.fd, name, Mode::from_raw_mode(0o700)) {
                // Names that went through a link of this name go elsewhere now.
                Ok(()) => self.forget(),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(Fault::Write("making a directory", error.into())),
            }
            match openat(&here.fd, name, directory_flags(), Mode::empty()) {
                Ok(fd) => {
                    let made = Rc::new(Directory { fd, path: path.clone() });
                    self.keep(path, &made);
                    return Ok(made);
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    rustix::fs::unlinkat(&here.fd, name, AtFlags::empty())
                        .map_err(Fault::write("removing what a directory takes the place of"))?;
                }
                Err(error) => return Err(Fault::Write("opening a directory", error.into())),
            }
        }
        Err(Fault::Write("making a directory", Errno::EXIST.into()))
    }

    /// Opens a directory of the layer by its whole path, which has no links in it.
    fn open_again(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        openat2(&self.root.fd, path, directory_flags(), Mode::empty(), resolve)
    }

    fn keep(&mut self, name: Vec<u8>, directory: &Rc<Directory>) {
        if self.open.len() >= DIRECTORIES_OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(name, Rc::clone(directory));
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}
