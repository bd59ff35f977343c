//! Read-only views of images, and what writable layers use.
//!
//! The root of a container is mounted by whoever launches it, from [`RootfsPlan::lower`](crate::RootfsPlan). A view is for
//! looking into an image without a container. Layers are given as handles: short whatever their paths are, and free of the
//! separators of overlayfs.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};

use crate::disk;
use crate::error::{ImagesError, Result};
use crate::images::Images;
use crate::rootfs::RootfsPlan;

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
    move_mount(&mounted, "", rustix::fs::CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// What a directory, a container's writable layer above all, uses. What vanishes meanwhile is not counted. Does not follow
/// links, and does not leave the file system. Blocks.
pub fn usage(directory: &Path) -> io::Result<Usage> {
    let top = fs::symlink_metadata(directory)?;
    let mut usage = Usage::default();
    let mut counted = HashSet::new();
    let mut ahead = vec![(directory.to_owned(), top.clone())];
    while let Some((path, metadata)) = ahead.pop() {
        if metadata.dev() != top.dev()
            || (metadata.nlink() > 1 && !metadata.is_dir() && !counted.insert(metadata.ino()))
        {
            continue;
        }
        usage.inodes += 1;
        usage.bytes += metadata.blocks() * 512;
        if !metadata.is_dir() {
            continue;
        }
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                metadata => ahead.push((path, metadata?)),
            }
        }
    }
    Ok(usage)
}
