//! Whiteouts: entries whose names begin with `.wh.` hide what layers below have.
//!
//! On disk a whiteout is what overlayfs takes for one: a character device 0:0, or, on a directory, the attribute that makes
//! it opaque. One is made only for what is there: overlayfs would list others as broken names.

use std::rc::Rc;

use std::collections::BTreeSet;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, XattrFlags, fsetxattr, mknodat, openat, statat, utimensat,
};
use rustix::io::Errno;

use crate::settings::OverlayAttributes;
use crate::tar::Time;
use crate::unpack::Fault;
use crate::unpack::below::{is_opaque, is_whiteout, open_root};
use crate::unpack::path::join;
use crate::unpack::tree::{Directory, Tree};

const PREFIX: &[u8] = b".wh.";
/// Names of AUFS's own bookkeeping, which old images contain.
const BOOKKEEPING_PREFIX: &[u8] = b".wh..wh.";
/// The name that makes its directory opaque.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Something to hide.
#[derive(Debug)]
pub(crate) enum Whiteout {
    /// One name in a directory.
    Name { parents: Vec<Vec<u8>>, name: Vec<u8> },
    /// Everything that layers below have in a directory.
    Directory { path: Vec<Vec<u8>> },
}

/// Whether an entry is bookkeeping of AUFS, or inside of it.
pub(crate) fn is_bookkeeping(names: &[&[u8]]) -> bool {
    names.iter().any(|name| name.starts_with(BOOKKEEPING_PREFIX) && *name != OPAQUE)
}

impl Whiteout {
    /// What an entry hides; none where it is no whiteout.
    pub(crate) fn parse(parents: &[&[u8]], name: &[u8]) -> Result<Option<Self>, Fault> {
        if parents.iter().any(|parent| parent.starts_with(PREFIX)) {
            return Err(Fault::Refused("it is inside of a whiteout".to_owned()));
        }
        let parents = || parents.iter().map(|parent| parent.to_vec()).collect();
        if name == OPAQUE {
            return Ok(Some(Self::Directory { path: parents() }));
        }
        let Some(hidden) = name.strip_prefix(PREFIX) else { return Ok(None) };
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Fault::Refused("a whiteout must name a file of its directory".to_owned()));
        }
        Ok(Some(Self::Name { parents: parents(), name: hidden.to_vec() }))
    }

    /// The path that it is about, for errors.
    pub(crate) fn path(&self) -> Vec<u8> {
        match self {
            Self::Name { parents, name } => join(&parents.join(&b'/'), name),
            Self::Directory { path } => path.join(&b'/'),
        }
    }

    /// Hides it.
    pub(crate) fn make(&self, tree: &mut Tree<'_>, overlay: OverlayAttributes) -> Result<(), Fault> {
        if tree.is_lowest() {
            return Ok(());
        }
        match self {
            Self::Name { parents, name } => match existing(tree, parents)? {
                Some(directory) => hide_name(tree, &directory, name, overlay),
                None => Ok(()),
            },
            Self::Directory { path } => match existing(tree, path)? {
                Some(directory) if directory.path.is_empty() => hide_root(tree, &directory, overlay),
                Some(directory) => make_opaque(&directory, overlay),
                None => Ok(()),
            },
        }
    }
}

fn existing(tree: &mut Tree<'_>, path: &[Vec<u8>]) -> Result<Option<Rc<Directory>>, Fault> {
    let path: Vec<&[u8]> = path.iter().map(Vec::as_slice).collect();
    tree.existing(&path)
}

fn hide_name(
    tree: &Tree<'_>,
    directory: &Directory,
    name: &[u8],
    overlay: OverlayAttributes,
) -> Result<(), Fault> {
    if is_opaque(&directory.fd, overlay).map_err(Fault::write("reading an attribute"))?
        || tree.below(&join(&directory.path, name))?.is_none()
    {
        return Ok(());
    }
    match statat(&directory.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = openat(&directory.fd, name, flags, Mode::empty())
                .map_err(Fault::write("opening a directory"))?;
            make_opaque(&Directory { fd, path: Vec::new() }, overlay)
        }
        // What this layer has of this name hides it already.
        Ok(_) => Ok(()),
        Err(Errno::NOENT) => {
            let mode = Mode::empty();
            let made = mknodat(&directory.fd, name, FileType::CharacterDevice, mode, 0);
            // The same layer is the same whenever it is unpacked.
            made.and_then(|()| {
                let times = Time::default().stamps();
                utimensat(&directory.fd, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            })
            .map_err(Fault::write("making a whiteout"))
        }
        Err(error) => Err(Fault::Write("looking at what a whiteout hides", error.into())),
    }
}

fn make_opaque(directory: &Directory, overlay: OverlayAttributes) -> Result<(), Fault> {
    fsetxattr(&directory.fd, overlay.opaque(), b"y", XattrFlags::empty())
        .map_err(Fault::write("making a directory opaque"))
}

/// Hides everything in the root, name by name: overlayfs does not look for the attribute on the root of a layer.
fn hide_root(tree: &Tree<'_>, root: &Directory, overlay: OverlayAttributes) -> Result<(), Fault> {
    let list = Fault::write("listing the root of a layer below");
    let mut names = BTreeSet::new();
    for layer in tree.below_roots()? {
        let layer = open_root(layer).map_err(&list)?;
        for entry in Dir::read_from(&layer).map_err(&list)? {
            let entry = entry.map_err(&list)?;
            let name = entry.file_name().to_bytes();
            let hidden =
                || statat(&layer, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| is_whiteout(&stat));
            if !matches!(name, b"." | b"..") && !hidden() {
                names.insert(name.to_vec());
            }
        }
    }
    names.iter().try_for_each(|name| hide_name(tree, root, name, overlay))
}
