//! The volumes that a container has because its image says so: directories of its own, filled with what the image has there.
//!
//! They are below the container's layer, and go with it. The image is looked at through a mount that has no place in any
//! mount namespace, and is gone with its last descriptor: nothing of it is left by a program that is killed. Its paths are a
//! stranger's: they are looked up inside the image's root, by descriptor, and nothing of it is opened but plain files and
//! directories (P12).
//!
//! Owns: making and filling them. Never: mounts them for the container, or removes them.

mod copy;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use mainstay_messages::record::ContainerRecord;
use mainstay_messages::spec::Rootfs;
use mainstay_messages::{Error, Result};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};

use crate::files::{at, create_private, remove_tree};
use crate::movement::Movement;
use crate::paths::Directories;

/// Makes the volumes of a container, anew where an earlier attempt has left some. Blocks, and says what moves: the contents may be of
/// any size.
pub(crate) fn fill(directories: &Directories, record: &ContainerRecord, movement: &Movement) -> Result<()> {
    let Rootfs::Layers(root) = &record.spec.rootfs else { return Ok(()) };
    let layer = directories.layer(&record.id);
    remove_tree(&layer.volumes)?;
    create_private(&layer.volumes).map_err(at(&layer.volumes))?;
    let image = view(&root.layers, &layer.work).map_err(at(&layer.directory))?;
    root.volumes.iter().enumerate().try_for_each(|(index, place)| {
        let target = layer.volume(index);
        let filled = match find(&image, place)? {
            Some(source) => copy::directory(Path::new(&handle_path(&source)), &target, movement),
            None => make_empty(&target),
        };
        filled.map_err(at(&target))
    })
}

/// A look at the image as a whole. Of one layer it is the layer itself.
fn view(layers: &[PathBuf], empty: &Path) -> io::Result<OwnedFd> {
    let directory = |path: &Path| {
        open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    };
    // An overlay without a writable layer wants two at least.
    let layers = layers.iter().map(PathBuf::as_path).chain([empty]);
    let layers: Vec<OwnedFd> = layers.map(directory).collect::<Result<_, Errno>>()?;
    Ok(overlay(&layers)?)
}

fn overlay(layers: &[OwnedFd]) -> rustix::io::Result<OwnedFd> {
    let handles: Vec<String> = layers.iter().map(handle_path).collect();
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let one_by_one =
        handles.iter().try_for_each(|handle| fsconfig_set_string(&context, "lowerdir+", handle.as_str()));
    let context = match one_by_one {
        Ok(()) => context,
        // Before Linux 6.7 all have to fit into one option.
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
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// The directory that the image has at a place, its links followed inside of it; none when it has nothing there.
fn find(image: &OwnedFd, place: &Path) -> Result<Option<OwnedFd>> {
    let wrong = |found: &str| {
        let expected = format!("a place where the image has a directory, or nothing ({found})");
        Error::invalid("volumes", format!("{place:?}"), expected)
    };
    let inside = place.strip_prefix("/").unwrap_or(place);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = match openat2(image, inside, flags, Mode::empty(), resolve) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR) => return Err(wrong("it has a file above it")),
        Err(Errno::LOOP) => return Err(wrong("its links lead in circles")),
        Err(error) => return Err(at(place)(error.into())),
    };
    let stat = fstat(&found).map_err(|error| at(place)(error.into()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(Some(found)),
        _ => Err(wrong("it has no directory there")),
    }
}

fn make_empty(target: &Path) -> io::Result<()> {
    fs::create_dir(target)?;
    // Whatever the umask is.
    fs::set_permissions(target, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

fn handle_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[cfg(test)]
mod tests;
