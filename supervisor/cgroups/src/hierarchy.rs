//! One mounted hierarchy, and the files of one group in it.
//!
//! Owns: the descriptor of the mount point, opened at first use, and reading and writing below it. Never:
//! knows what the files mean.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::controllers::Controllers;
use crate::error::CgroupError;

/// What a read of a cgroup file starts with; longer files are read on.
const READ_CHUNK_BYTES: usize = 4096;
/// The most of one file that is read: the process list of a group with half a million processes.
const READ_MAX_BYTES: usize = 4 << 20;
/// The mode of new groups: all may look, only root changes.
const GROUP_DIR_MODE: Mode = Mode::from_raw_mode(0o755);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    New,
    Already,
}

#[derive(Debug)]
pub(crate) struct Hierarchy {
    pub version: Version,
    pub mount_point: PathBuf,
    pub controllers: Controllers,
    root: OnceLock<OwnedFd>,
}

/// The files of one group in one hierarchy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a> {
    pub hierarchy: &'a Hierarchy,
    pub relative: &'a Path,
}

impl Hierarchy {
    pub fn new(version: Version, mount_point: PathBuf, controllers: Controllers) -> Self {
        Hierarchy { version, mount_point, controllers, root: OnceLock::new() }
    }

    /// The same hierarchy at another place, not opened yet.
    pub fn moved_to(&self, mount_point: PathBuf) -> Self {
        Hierarchy::new(self.version, mount_point, self.controllers)
    }

    /// The descriptor that all paths start from. Opened once, so that a file costs one look-up of a short
    /// relative path.
    pub fn root(&self) -> Result<BorrowedFd<'_>, Errno> {
        if let Some(root) = self.root.get() {
            return Ok(root.as_fd());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&self.mount_point, flags, Mode::empty())?;
        Ok(self.root.get_or_init(|| opened).as_fd())
    }

    pub fn node<'a>(&'a self, relative: &'a Path) -> Node<'a> {
        Node { hierarchy: self, relative }
    }
}

impl<'a> Node<'a> {
    pub fn dir(&self) -> PathBuf {
        self.hierarchy.mount_point.join(self.relative)
    }

    pub fn file(&self, file: &str) -> PathBuf {
        self.dir().join(file)
    }

    pub fn exists(&self) -> Result<bool, CgroupError> {
        match self.stat() {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(CgroupError::io("look for", self.dir(), errno)),
        }
    }

    fn stat(&self) -> Result<(), Errno> {
        rustix::fs::accessat(
            self.hierarchy.root()?,
            self.relative,
            rustix::fs::Access::EXISTS,
            AtFlags::empty(),
        )
    }

    /// A descriptor for `clone3`, BPF and as the start of a walk.
    pub fn open(&self, access: OFlags) -> Result<OwnedFd, Errno> {
        let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.hierarchy.root()?, self.relative, flags, Mode::empty())
    }

    /// Makes the directory; those above it must be there.
    pub fn make(&self) -> Result<Made, Errno> {
        match rustix::fs::mkdirat(self.hierarchy.root()?, self.relative, GROUP_DIR_MODE) {
            Ok(()) => Ok(Made::New),
            Err(Errno::EXIST) => Ok(Made::Already),
            Err(errno) => Err(errno),
        }
    }

    pub fn read(&self, file: &str) -> Result<String, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat(self.hierarchy.root()?, self.relative.join(file), flags, Mode::empty())?;
        read_to_end(opened.as_fd())
    }

    /// The first number in a file; `None` for `max` and for what is not a number.
    pub fn read_number(&self, file: &str) -> Result<Option<u64>, Errno> {
        Ok(self.read(file)?.split_whitespace().next().and_then(|word| word.parse().ok()))
    }

    pub fn write(&self, file: &str, value: &str) -> Result<(), Errno> {
        self.write_each(file, [value])
    }

    /// Writes values one after the other through one descriptor; each `write(2)` is a command of its own to
    /// the kernel.
    pub fn write_each<'v>(&self, file: &str, values: impl IntoIterator<Item = &'v str>) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat(self.hierarchy.root()?, self.relative.join(file), flags, Mode::empty())?;
        for value in values {
            rustix::io::retry_on_intr(|| rustix::io::write(&opened, value.as_bytes()))?;
        }
        Ok(())
    }
}

/// Reads a file of a directory that is held open, as on a walk.
pub(crate) fn read_at(dir: BorrowedFd<'_>, file: &str) -> Result<String, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(dir, file, flags, Mode::empty())?;
    read_to_end(opened.as_fd())
}

fn read_to_end(file: BorrowedFd<'_>) -> Result<String, Errno> {
    let mut content = vec![0; READ_CHUNK_BYTES];
    let mut filled = 0;
    loop {
        let got = rustix::io::retry_on_intr(|| rustix::io::read(file, &mut content[filled..]))?;
        filled += got;
        if got == 0 {
            break;
        }
        if filled == content.len() {
            if filled >= READ_MAX_BYTES {
                return Err(Errno::FBIG);
            }
            content.resize(filled * 2, 0);
        }
    }
    content.truncate(filled);
    Ok(String::from_utf8(content)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The number behind `key` in a file of `key number` lines.
pub(crate) fn keyed_number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok()).flatten()
    })
}

/// A name as the kernel lists it.
pub(crate) type EntryName = CString;
