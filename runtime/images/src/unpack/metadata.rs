//! Owners, modes, attributes and times of entries.
//!
//! In this order: the owner first, because changing it takes set-id bits and capabilities away; then the mode, then the
//! attributes, the times last.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chmod, chownat, fchmod, fchown,
    fgetxattr, flistxattr, fsetxattr, futimens, lsetxattr, openat, utimensat,
};
use rustix::io::Errno;

use crate::tar::{Member, Time};
use crate::unpack::Fault;

/// The attribute that holds the capabilities of a program. A program that lost it does not work, so it is never passed over.
const CAPABILITY: &[u8] = b"security.capability";
/// The attribute that new entries of a directory inherit; set when there will be no more.
pub(crate) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// The longest value of an attribute, as the kernel has it.
const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// The longest list of names of attributes, as the kernel has it.
const XATTR_LIST_BYTES_MAX: usize = 64 << 10;

/// What is known of a file beside its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified: Time,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Metadata {
    /// What the archive says.
    pub(crate) fn of_member(member: &Member) -> Self {
        let xattrs = member.xattrs.iter().filter(|(name, _)| is_taken(name)).cloned().collect();
        Self { mode: member.mode, uid: member.uid, gid: member.gid, modified: member.modified, xattrs }
    }

    /// That of a file or directory that is open for reading.
    pub(crate) fn of_file(file: BorrowedFd<'_>, stat: &Stat) -> rustix::io::Result<Self> {
        Ok(Self { xattrs: read_xattrs(file)?, ..Self::of_stat(stat) })
    }

    /// What stat(2) says.
    pub(crate) fn of_stat(stat: &Stat) -> Self {
        let modified = Time { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 };
        Self { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid, modified, xattrs: Vec::new() }
    }

    /// Gives it to an open file or directory; not the times.
    pub(crate) fn give_to(&self, file: BorrowedFd<'_>) -> Result<(), Fault> {
        fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
            .map_err(Fault::write("setting the owner"))?;
        fchmod(file, Mode::from_raw_mode(self.mode)).map_err(Fault::write("setting the mode"))?;
        for (name, value) in &self.xattrs {
            if name == DEFAULT_ACL {
                continue;
            }
            set(name, |name| fsetxattr(file, name, value, XattrFlags::empty()))?;
        }
        Ok(())
    }

    /// Gives it to what `name` is in `directory`, itself and not what it may link to.
    pub(crate) fn give_to_entry(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        node: Node,
    ) -> Result<(), Fault> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(Fault::write("setting the owner"))?;
        if node == Node::Special {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = openat(directory, name, flags, Mode::empty()).map_err(Fault::write("opening it"))?;
            chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::from_raw_mode(self.mode))
                .map_err(Fault::write("setting the mode"))?;
        }
        for (attribute, value) in &self.xattrs {
            let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
            path.extend_from_slice(name);
            set(attribute, |attribute| lsetxattr(&path, attribute, value, XattrFlags::empty()))?;
        }
        utimensat(directory, name, &self.modified.stamps(), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(Fault::write("setting the times"))
    }
}

/// Kinds of entries that are never opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A symbolic link, which has no mode.
    Link,
    /// A device or a FIFO.
    Special,
}

impl Time {
    /// For reading and for changing, the same.
    pub(crate) fn stamps(self) -> Timestamps {
        let time = Timespec { tv_sec: self.seconds, tv_nsec: self.nanoseconds.into() };
        Timestamps { last_access: time, last_modification: time }
    }

    /// Gives it to an open file or directory.
    pub(crate) fn give_to(self, file: impl AsFd) -> Result<(), Fault> {
        futimens(file, &self.stamps()).map_err(Fault::write("setting the times"))
    }
}

/// Sets the attribute that new entries inherit.
pub(crate) fn set_default_acl(directory: impl AsFd, value: &[u8]) -> Result<(), Fault> {
    set(DEFAULT_ACL, |name| fsetxattr(&directory, name, value, XattrFlags::empty()))
}

/// Whether an attribute is one of an image. Labels of security modules are the host's business, and those of overlayfs
/// would make it show what is not there.
fn is_taken(name: &[u8]) -> bool {
    let overlay = name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.");
    let kind = name.starts_with(b"user.") || name.starts_with(b"trusted.");
    !overlay && (kind || name == CAPABILITY || name == DEFAULT_ACL || name == b"system.posix_acl_access")
}

/// Sets an attribute; one that the file system or the kind of file cannot have is passed over, as GNU tar does.
fn set(name: &[u8], set: impl FnOnce(&str) -> rustix::io::Result<()>) -> Result<(), Fault> {
    let Ok(text) = std::str::from_utf8(name) else {
        return Err(Fault::Refused("the name of an extended attribute is no text".to_owned()));
    };
    match set(text) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::PERM) if name != CAPABILITY => {
            tracing::debug!(attribute = text, "an extended attribute was passed over");
            Ok(())
        }
        Err(error) => Err(Fault::Write("setting an extended attribute", error.into())),
    }
}

fn read_xattrs(file: BorrowedFd<'_>) -> rustix::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0u8; XATTR_LIST_BYTES_MAX];
    let length = match flistxattr(file, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error),
    };
    let mut xattrs = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| is_taken(name)) {
        let mut value = vec![0u8; XATTR_VALUE_BYTES_MAX];
        // The kernel ends each name with a zero byte, so there is none in it.
        let Ok(text) = CString::new(name) else { continue };
        let length = fgetxattr(file, text.as_c_str(), &mut value[..])?;
        value.truncate(length);
        xattrs.push((name.to_vec(), value));
    }
    Ok(xattrs)
}
