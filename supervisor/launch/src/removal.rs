//! The removal of a directory with all that is in it.
//!
//! Its contents are a stranger's (P12). Nothing is followed: every step goes by descriptor from the directory above. Nothing that
//! is mounted is entered: the kernel is asked with every directory that is opened, which costs nothing, where a look through
//! the mounts of the machine would cost more with every pod. And no tree is too deep: what lies below
//! [`DESCENT_DEPTH_MAX`] directories is moved up and emptied from there, so that neither the stack nor the descriptors of this process
//! end before the tree does.
//!
//! Never: takes mounts away. Whoever meets one decides what becomes of it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, open, openat2, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// Directories that are entered one below the other, each of which holds a descriptor.
const DESCENT_DEPTH_MAX: usize = 64;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What has become of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Removal {
    /// It is gone, or was not there.
    Gone,
    /// Something is mounted at or below it. All of that is as it was, other things may be gone.
    Mounted,
}

/// Removes a directory with all that is in it, but for what is mounted there.
///
/// # Errors
/// What the kernel says. Some of it may be gone then.
pub fn remove_directory(directory: &Path) -> io::Result<Removal> {
    match remove_named(directory) {
        Ok(()) => Ok(Removal::Gone),
        Err(Errno::XDEV | Errno::BUSY) => Ok(Removal::Mounted),
        Err(error) => Err(error.into()),
    }
}

fn remove_named(directory: &Path) -> rustix::io::Result<()> {
    let (Some(above), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(Errno::INVAL);
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
    let above = open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let Some(above) = if_there(above)? else { return Ok(()) };
    let Some(top) = if_there(enter(above.as_fd(), &name))? else { return Ok(()) };
    let mut moved = Moved { top: top.as_fd(), count: 0 };
    loop {
        let before = moved.count;
        empty(top.as_fd(), 0, &mut moved)?;
        if moved.count == before {
            break;
        }
    }
    remove_emptied(above.as_fd(), &name)
}

/// What was moved up to the top because it lay too deep.
struct Moved<'a> {
    top: BorrowedFd<'a>,
    count: u64,
}

/// Removes what is in a directory, but for what is moved up.
fn empty(directory: BorrowedFd<'_>, depth: usize, moved: &mut Moved<'_>) -> rustix::io::Result<()> {
    for entry in Dir::read_from(directory)? {
        // Others may remove it too, and have been faster.
        let Some(entry) = if_there(entry)? else { return Ok(()) };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entry.file_type() != FileType::Directory {
            match unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                // Not every file system says what its entries are.
                Err(Errno::ISDIR) => {}
                Err(error) => return Err(error),
            }
        }
        if depth == DESCENT_DEPTH_MAX {
            moved.take(directory, name)?;
            continue;
        }
        let Some(inner) = if_there(enter(directory, name))? else { continue };
        empty(inner.as_fd(), depth + 1, moved)?;
        remove_emptied(directory, name)?;
    }
    Ok(())
}

impl Moved<'_> {
    fn take(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
        loop {
            self.count += 1;
            let up = format!(".deep-{}", self.count);
            match renameat_with(directory, name, self.top, up.as_str(), RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(()),
                done => return done,
            }
        }
    }
}

/// Opens a directory by its name in another one, unless something is mounted there.
fn enter(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let inside = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    loop {
        match openat2(directory, name, DIRECTORY, Mode::empty(), inside) {
            // Something was moved elsewhere on the machine meanwhile: the kernel wants to be asked again.
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
}

fn remove_emptied(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    if_there(unlinkat(directory, name, AtFlags::REMOVEDIR)).map(drop)
}

/// What was done, unless what it was done to was not there any more.
fn if_there<T>(done: rustix::io::Result<T>) -> rustix::io::Result<Option<T>> {
    match done {
        Err(Errno::NOENT) => Ok(None),
        done => done.map(Some),
    }
}
