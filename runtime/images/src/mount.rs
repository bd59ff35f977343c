//! Read-only views of images, and what writable layers use.
//!
//! The root of a container is mounted by whoever launches it, from [`RootfsPlan::lower`](crate::RootfsPlan). A view is for
//! looking into an image without a container. Layers are given as handles: short whatever their paths are, and free of the
//! separators of overlayfs.

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::io;
use std::iter::successors;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};

use crate::disk;
use crate::error::{ImagesError, Result};
use crate::images::Images;
use crate::rootfs::RootfsPlan;

/// How a directory is opened that is looked through: only when it is one, and no link to one.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a directory uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files and directories, the directory itself among them; several names of one file count once.
    pub inodes: u64,
}

impl Images {
    /// Mounts a read-only view of a root at a directory, until it is unmounted there. Whoever wants it leases the layers first
    /// ([`Images::lease`]) and releases them afterwards. Blocks.
    pub fn mount_view(&self, plan: &RootfsPlan, at: &Path) -> Result<()> {
        let mut layers: Vec<PathBuf> = plan.lower.clone();
        // An overlay without a writable layer wants two layers at least.
        layers.push(self.inner().disk.empty());
        let layers = layers.iter().map(|path| disk::open_directory(path)).collect::<Result<Vec<_>>>()?;
        let operation = format!("mounting a view of {} layers at {}", layers.len(), at.display());
        mount(&layers, at).map_err(|error| ImagesError::file(operation)(error.into()))
    }
}

/// Unmounts a view. Files that are open in it stay usable.
pub fn unmount_view(at: &Path) -> Result<()> {
    unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(|error| ImagesError::file(format!("unmounting {}", at.display()))(error.into()))
}

fn mount(layers: &[OwnedFd], at: &Path) -> rustix::io::Result<()> {
    let handles: Vec<String> = layers.iter().map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd())).collect();
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let one_by_one =
        handles.iter().try_for_each(|handle| fsconfig_set_string(&context, "lowerdir+", handle.as_str()));
    let context = match one_by_one {
        Ok(()) => context,
        // Before Linux 6.7 all have to fit into one option, of a page with its final zero.
        Err(Errno::INVAL) => {
            let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_set_string(&context, "lowerdir", handles.join(":"))?;
            context
        }
        Err(error) => return Err(error),
    };
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    move_mount(&mounted, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// What a directory, a container's writable layer above all, uses. What vanishes meanwhile is not counted. Does not follow
/// links, even one that takes a directory's place meanwhile, and does not leave the file system. Before each entry it asks
/// whether to go on, and gives up with [`io::ErrorKind::Interrupted`] when it is told not to. Blocks.
pub fn usage(directory: &Path, mut go_on: impl FnMut() -> bool) -> io::Result<Usage> {
    let top = openat(CWD, directory, DIRECTORY, Mode::empty())?;
    let itself = fstat(&top)?;
    let mut usage = Usage::default();
    let mut counted = HashSet::new();
    count(&itself, &mut usage);
    // Files are counted where they are found: only directories wait.
    let mut ahead = vec![None];
    while let Some(place) = ahead.pop() {
        asked(&mut go_on)?;
        let Some(mut entries) = entries(&top, place.as_deref())? else { continue };
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            asked(&mut go_on)?;
            let found = match statat(entries.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                found => found?,
            };
            let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
            let counts = found.st_dev == itself.st_dev
                && (is_directory || found.st_nlink <= 1 || counted.insert(found.st_ino));
            if counts {
                count(&found, &mut usage);
            }
            if counts && is_directory {
                ahead.push(Some(Rc::new(Place { above: place.clone(), name: name.to_owned() })));
            }
        }
    }
    Ok(usage)
}

/// Where a directory is below another. Siblings share what is above them, so that many deep ones are small.
struct Place {
    above: Option<Rc<Place>>,
    name: CString,
}

impl Place {
    fn path(&self) -> PathBuf {
        let mut names: Vec<&OsStr> =
            successors(Some(self), |place| place.above.as_deref()).map(|place| place.name()).collect();
        names.reverse();
        names.into_iter().collect()
    }

    fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.name.to_bytes())
    }
}

fn asked(go_on: &mut impl FnMut() -> bool) -> io::Result<()> {
    let stop = || io::Error::new(io::ErrorKind::Interrupted, "nobody waits for the count any more");
    if go_on() { Ok(()) } else { Err(stop()) }
}

fn count(found: &Stat, usage: &mut Usage) {
    usage.inodes += 1;
    usage.bytes += u64::try_from(found.st_blocks).unwrap_or(0) * 512;
}

/// The entries of a directory, none when it is not there any more, or something else is.
fn entries(top: &OwnedFd, place: Option<&Place>) -> io::Result<Option<Dir>> {
    let path = place.map_or_else(|| PathBuf::from("."), Place::path);
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(top, path, DIRECTORY, Mode::empty(), inside) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => Ok(Some(Dir::new(opened?)?)),
    }
}
