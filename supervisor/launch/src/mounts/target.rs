//! The container's root directory, and how paths inside it are found: by descriptor, never leaving the root.
//!
//! Everything that an image or a volume can influence is looked up here: with `openat2(RESOLVE_IN_ROOT)` a symbolic link, or
//! a `..`, that leads out of the root ends inside it. Magic links (`/proc/self/fd/…`) are never followed. Nothing here ever
//! opens a file for reading or writing: an `O_PATH` descriptor cannot hang on a FIFO and touches no device.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2, readlinkat};
use rustix::io::Errno;

/// How often a look-up is repeated that the kernel broke off because something was renamed meanwhile.
const RACE_RETRIES: usize = 64;
/// How many symbolic links one path may go through, as in the kernel.
const LINKS_MAX: usize = 40;

/// Whether symbolic links inside the root are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Links {
    /// They are, and stay inside the root.
    Inside,
    /// A path with one is an error (`ELOOP`).
    Refuse,
}

/// What a mount point must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Directory,
    File,
}

/// The root of a container.
pub(crate) struct ContainerRoot {
    fd: OwnedFd,
}

impl AsFd for ContainerRoot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ContainerRoot {
    pub(crate) fn new(fd: OwnedFd) -> ContainerRoot {
        ContainerRoot { fd }
    }

    /// Opens what is at `path` as a handle (`O_PATH`).
    pub(crate) fn find(&self, path: &Path, links: Links) -> io::Result<OwnedFd> {
        self.open(path, OFlags::PATH, links)
    }

    fn open(&self, path: &Path, flags: OFlags, links: Links) -> io::Result<OwnedFd> {
        let mut resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        if links == Links::Refuse {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        let path = inside(path);
        for _ in 0..RACE_RETRIES {
            match openat2(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                result => return Ok(result?),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Opens the directory at `path`, made with its parents where it is missing.
    pub(crate) fn directory(&self, path: &Path, links: Links) -> io::Result<OwnedFd> {
        match self.open(path, OFlags::PATH | OFlags::DIRECTORY, links) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make(path, Kind::Directory, links),
            result => result,
        }
    }

    /// Opens the mount point at `path` for a source of this kind, made with its parents where it is missing.
    pub(crate) fn mount_point(&self, path: &Path, kind: Kind) -> io::Result<OwnedFd> {
        if kind == Kind::Directory {
            return self.directory(path, Links::Inside);
        }
        let found = match self.find(path, Links::Inside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.make(path, Kind::File, Links::Inside);
            }
            result => result?,
        };
        if FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Directory {
            return Err(Errno::ISDIR.into());
        }
        Ok(found)
    }

    /// Makes what is missing of `path`, one component after the other. Links are followed by text here, within the root;
    /// every directory is then opened without following any, so a path that changes meanwhile fails and never leads out.
    fn make(&self, path: &Path, kind: Kind, links: Links) -> io::Result<OwnedFd> {
        let mut done = PathBuf::new();
        let mut ahead: VecDeque<OsString> = components(path).collect();
        let mut followed = 0;
        while let Some(name) = ahead.pop_front() {
            if name == ".." {
                done.pop();
                continue;
            }
            let parent = self.open(&done, OFlags::PATH | OFlags::DIRECTORY, Links::Refuse)?;
            match readlinkat(&parent, name.as_os_str(), Vec::new()) {
                Ok(target) => {
                    followed += 1;
                    if links == Links::Refuse || followed > LINKS_MAX {
                        return Err(Errno::LOOP.into());
                    }
                    let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
                    if target.is_absolute() {
                        done.clear();
                    }
                    for component in components(&target).collect::<Vec<_>>().into_iter().rev() {
                        ahead.push_front(component);
                    }
                    continue;
                }
                // There, and no link.
                Err(Errno::INVAL) => {}
                Err(Errno::NOENT) if ahead.is_empty() && kind == Kind::File => make_file(&parent, &name)?,
                Err(Errno::NOENT) => make_directory(&parent, &name)?,
                Err(error) => return Err(error.into()),
            }
            done.push(&name);
        }
        let flags = if kind == Kind::Directory { OFlags::PATH | OFlags::DIRECTORY } else { OFlags::PATH };
        self.open(&done, flags, Links::Refuse)
    }
}

fn make_directory(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn make_file(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    // A node rather than an open: it follows no link and opens nothing.
    match rustix::fs::mknodat(parent, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The path relative to the root; `.` for the root itself.
fn inside(path: &Path) -> &Path {
    let relative = path.strip_prefix("/").unwrap_or(path);
    if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
}

fn components(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// The path under which mount(2) reaches exactly what `fd` is a handle of, however names change meanwhile. Valid while the
/// host's `/proc` is at `/proc`, that is before the root is changed.
pub(crate) fn handle_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Opens a directory of the host as a handle.
pub(crate) fn open_host_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens what `name` is in `directory`, itself and not what it may link to.
pub(crate) fn open_entry(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

/// Removes what `name` is in `directory`, when it is no directory.
pub(crate) fn remove_entry(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
}

#[cfg(test)]
mod tests;
