//! Paths inside the container that are hidden (masked) or made read-only.
//!
//! Both are found by descriptor inside the root; a path that does not exist needs no protection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Stat, fstat, major, minor};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};

use super::options::{Bind, attr};
use super::target::{ContainerRoot, Links};
use super::{attach, clone_handle};
use crate::error::{Context, Result, Step};
use crate::syscall::{Depth, mount_setattr};

/// Device number of `/dev/null`.
const NULL_DEVICE: (u32, u32) = (1, 3);

/// Makes each path, with the mounts below it, read-only.
pub(crate) fn make_read_only(root: &ContainerRoot, paths: &[String]) -> Result<()> {
    for path in paths {
        let Some(handle) = existing(root, path).context(Step::ReadonlyPaths, || format!("{path:?}"))? else {
            continue;
        };
        read_only_copy(&handle).context(Step::ReadonlyPaths, || format!("{path:?}"))?;
    }
    Ok(())
}

fn read_only_copy(handle: &OwnedFd) -> io::Result<()> {
    let tree = clone_handle(handle.as_fd(), Bind::Recursive)?;
    mount_setattr(tree.as_fd(), Depth::Recursive, attr::RDONLY, 0, 0)?;
    attach(tree.as_fd(), handle)
}

/// Hides each path: a file behind the container's null device, a directory behind an empty read-only one.
pub(crate) fn mask(root: &ContainerRoot, paths: &[String]) -> Result<()> {
    let mut covers = Covers { null: None, empty: None };
    for path in paths {
        let Some(handle) = existing(root, path).context(Step::MaskedPaths, || format!("{path:?}"))? else {
            continue;
        };
        let stat = fstat(&handle).context(Step::MaskedPaths, || format!("{path:?}"))?;
        let covered = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            covers.cover_directory(&handle)
        } else {
            covers
                .null(root)
                .and_then(|null| attach(clone_handle(null.as_fd(), Bind::Single)?.as_fd(), &handle))
        };
        covered.context(Step::MaskedPaths, || format!("{path:?}"))?;
    }
    Ok(())
}

/// What is laid over masked paths, made when the first needs it and copied for each further one.
struct Covers {
    null: Option<OwnedFd>,
    /// Mounted on the first masked directory: before Linux 6.15 only an attached mount can be copied.
    empty: Option<OwnedFd>,
}

impl Covers {
    fn null(&mut self, root: &ContainerRoot) -> io::Result<&OwnedFd> {
        if self.null.is_none() {
            let null = root.find(Path::new("/dev/null"), Links::Inside)?;
            if !is_null_device(&fstat(&null)?) {
                let what = "/dev/null in the container is not the device 1:3, files cannot be masked with it";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            self.null = Some(null);
        }
        Ok(self.null.as_ref().expect("set just above"))
    }

    fn cover_directory(&mut self, target: &OwnedFd) -> io::Result<()> {
        match &self.empty {
            Some(empty) => attach(clone_handle(empty.as_fd(), Bind::Single)?.as_fd(), target),
            None => {
                let empty = empty_directory()?;
                attach(empty.as_fd(), target)?;
                self.empty = Some(empty);
                Ok(())
            }
        }
    }
}

/// A detached, read-only, empty tmpfs.
pub(crate) fn empty_directory() -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "mode", "0755")?;
    fsconfig_set_string(context.as_fd(), "nr_inodes", "2")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Whether it is the null device.
pub(crate) fn is_null_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (major(stat.st_rdev), minor(stat.st_rdev)) == NULL_DEVICE
}

fn existing(root: &ContainerRoot, path: &str) -> io::Result<Option<OwnedFd>> {
    match root.find(Path::new(path), Links::Inside) {
        Ok(handle) => Ok(Some(handle)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(None),
        Err(error) => Err(error),
    }
}
