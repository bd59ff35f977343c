//! What the layers below show at a path, as overlayfs would put them together.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fgetxattr, openat, statat};
use rustix::io::Errno;

use crate::settings::OverlayAttributes;
use crate::unpack::Fault;

/// What is there: its directory, opened, and what stat(2) says.
pub(crate) struct Found {
    pub(crate) directory: OwnedFd,
    pub(crate) stat: Stat,
}

impl Found {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

/// Looks a path up, layer by layer, the uppermost first. The path has no links in it as far as directories go: a link on
/// the way hides what is below it, as a file does.
pub(crate) fn look_up(
    roots: &[PathBuf],
    path: &[u8],
    overlay: OverlayAttributes,
) -> Result<Option<Found>, Fault> {
    for root in roots {
        match in_layer(root, path, overlay).map_err(Fault::write("looking at a layer below"))? {
            InLayer::Found(found) => return Ok(Some(*found)),
            InLayer::Hidden => return Ok(None),
            InLayer::Absent => {}
        }
    }
    Ok(None)
}

/// Whether an opened directory hides those below it.
pub(crate) fn is_opaque(directory: impl AsFd, overlay: OverlayAttributes) -> rustix::io::Result<bool> {
    let mut value = [0; 4];
    match fgetxattr(directory, overlay.opaque(), &mut value) {
        Ok(length) => Ok(value[..length] == *b"y"),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether this is what overlayfs takes for a whiteout.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens the root of a layer.
pub(crate) fn open_root(root: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(root, FLAGS, Mode::empty())
}

enum InLayer {
    Found(Box<Found>),
    /// Not here, and the layers below may have it.
    Absent,
    /// Not here, and nothing of the layers below shows.
    Hidden,
}

fn in_layer(root: &Path, path: &[u8], overlay: OverlayAttributes) -> rustix::io::Result<InLayer> {
    let mut directory = open_root(root)?;
    let mut opaque = false;
    let missing = |opaque: bool| if opaque { InLayer::Hidden } else { InLayer::Absent };
    let mut components = path.split(|byte| *byte == b'/').peekable();
    while let Some(name) = components.next() {
        if components.peek().is_none() {
            return match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if is_whiteout(&stat) => Ok(InLayer::Hidden),
                Ok(stat) => Ok(InLayer::Found(Box::new(Found { directory, stat }))),
                Err(Errno::NOENT) => Ok(missing(opaque)),
                Err(error) => Err(error),
            };
        }
        directory = match openat(&directory, name, FLAGS, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(missing(opaque)),
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(InLayer::Hidden),
            Err(error) => return Err(error),
        };
        opaque = opaque || is_opaque(&directory, overlay)?;
    }
    Ok(missing(opaque))
}
