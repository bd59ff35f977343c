//! A copy of a directory as root sees it: owners, modes, times, attributes, links, holes, nodes.
//!
//! Neither side changes while it is made, but by us: one is read-only, and into the other nobody but the runtime may look. So
//! what was seen to be a directory is one, and no name leads elsewhere.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr,
    lsetxattr, mknodat, seek, utimensat,
};
use rustix::io::Errno;

use crate::movement::Movement;

/// The longest value of an attribute, and the longest list of names, as the kernel has them.
const XATTR_BYTES_MAX: usize = 64 << 10;
/// The attribute that holds the capabilities of a program. A program that lost it does not work, so it is never passed over.
const CAPABILITY: &[u8] = b"security.capability";

/// What is copied of a file between two signs of life, in bytes: seconds on a disk that writes a megabyte in one.
const PIECE_BYTES: u64 = 8 << 20;

/// Where the names of a file went that has several.
type Names = HashMap<(u64, u64), PathBuf>;

/// Copies a directory, which is not there yet, with all that is below it. `source` may be a handle in `/proc`.
pub(super) fn directory(source: &Path, target: &Path, movement: &Movement) -> io::Result<()> {
    let mut names = Names::new();
    let top = fs::metadata(source)?;
    fs::create_dir(target)?;
    // Each with what it has to be given when nothing comes into it any more.
    let mut made = vec![(PathBuf::new(), top)];
    let mut next = 0;
    while let Some((inner, _)) = made.get(next) {
        let inner = inner.clone();
        for entry in fs::read_dir(source.join(&inner))? {
            let inner = inner.join(entry?.file_name());
            let (from, to) = (source.join(&inner), target.join(&inner));
            let metadata = fs::symlink_metadata(&from)?;
            if metadata.is_dir() {
                fs::create_dir(&to)?;
                made.push((inner, metadata));
            } else {
                entry_of(&from, &to, &metadata, &mut names, movement)?;
            }
            movement.moved();
        }
        next += 1;
    }
    // The inner ones first: what changes in a directory changes its time.
    made.iter().rev().try_for_each(|(inner, metadata)| {
        // The top may be a handle, which is a link itself.
        let from = source.join(inner).join(".");
        movement.moved();
        dress(&from, &target.join(inner), metadata)
    })
}

/// Copies what is no directory.
fn entry_of(
    from: &Path,
    to: &Path,
    metadata: &Metadata,
    names: &mut Names,
    movement: &Movement,
) -> io::Result<()> {
    if metadata.nlink() > 1 {
        let file = (metadata.dev(), metadata.ino());
        if let Some(first) = names.get(&file) {
            return fs::hard_link(first, to);
        }
        names.insert(file, to.to_owned());
    }
    let kind = metadata.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else if kind.is_file() {
        contents(from, to, metadata.len(), movement)?;
    } else {
        let node = if kind.is_fifo() {
            FileType::Fifo
        } else if kind.is_socket() {
            FileType::Socket
        } else if kind.is_block_device() {
            FileType::BlockDevice
        } else {
            FileType::CharacterDevice
        };
        mknodat(CWD, to, node, Mode::from_raw_mode(0o600), metadata.rdev())?;
    }
    dress(from, to, metadata)
}

/// Copies the bytes of a file. Its holes stay holes: they may be larger than any disk.
fn contents(from: &Path, to: &Path, length: u64, movement: &Movement) -> io::Result<()> {
    let source = File::open(from)?;
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    target.set_len(length)?;
    let mut offset = 0;
    while offset < length {
        let data = match seek(&source, SeekFrom::Data(offset)) {
            Ok(data) => data,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = seek(&source, SeekFrom::Hole(data))?;
        seek(&source, SeekFrom::Start(data))?;
        seek(&target, SeekFrom::Start(data))?;
        // In pieces, so that a large file on a slow disk is seen to move.
        offset = hole.min(data + PIECE_BYTES);
        io::copy(&mut (&source).take(offset - data), &mut target)?;
        movement.moved();
    }
    Ok(())
}

/// Gives a copy the owner, mode, attributes and times, in this order: a change of owner takes set-id bits and capabilities
/// away.
fn dress(from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
    lchown(to, Some(metadata.uid()), Some(metadata.gid()))?;
    if !metadata.is_symlink() {
        fs::set_permissions(to, fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
    }
    attributes(from, to)?;
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps {
        last_access: time(metadata.atime(), metadata.atime_nsec()),
        last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
    };
    Ok(utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn attributes(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = vec![0u8; XATTR_BYTES_MAX];
    let length = match llistxattr(from, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| is_taken(name)) {
        let name_text = OsStr::from_bytes(name);
        let mut value = vec![0u8; XATTR_BYTES_MAX];
        let length = lgetxattr(from, name_text, &mut value[..])?;
        match lsetxattr(to, name_text, &value[..length], XattrFlags::empty()) {
            // The file system of the copy may not have them.
            Err(Errno::OPNOTSUPP) if name != CAPABILITY => {}
            set => set?,
        }
    }
    Ok(())
}

/// Labels of security modules are the host's business.
fn is_taken(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"system.posix_acl_"];
    name == CAPABILITY || prefixes.iter().any(|prefix| name.starts_with(prefix))
}
