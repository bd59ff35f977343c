//! Reading tar archives of strangers, from a stream.
//!
//! Headers are read with the types of the `tar` crate. Its iterator is not used: it takes extension headers of any length into
//! memory, and knows only one of the four ways in which sparse files are written. Here every length has a limit, every
//! number is checked, and an error says which member it is about.
//!
//! | module | owns |
//! |---|---|
//! | `archive` | members, in order, with their extensions applied |
//! | `number` | numbers of headers |
//! | `pax` | records of extended headers |
//! | `sparse` | maps of sparse files |
//!
//! Never touches a file system.

mod archive;
mod number;
mod pax;
mod sparse;

pub(crate) use archive::{Archive, ArchiveError};

use crate::tar::sparse::SparseMap;

/// The longest extended header, long name or long link that is read, in bytes. An extended attribute has at most 64 KiB.
pub const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    Character,
    Block,
    Fifo,
}

/// A point in time, as files have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    /// Seconds since 1970.
    pub(crate) seconds: i64,
    /// Nanoseconds of the second.
    pub(crate) nanoseconds: u32,
}

/// A member of an archive, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its name as it was written.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    /// What a link points to.
    pub(crate) link: Vec<u8>,
    /// Bytes of data that follow in the archive.
    pub(crate) size: u64,
    /// Where the data goes, in a file with holes.
    pub(crate) sparse: Option<SparseMap>,
    /// The permissions, with set-id and sticky bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified: Time,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
    /// Extended attributes.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Member {
    /// The length of the file, holes included.
    pub(crate) fn length(&self) -> u64 {
        self.sparse.as_ref().map_or(self.size, |map| map.length)
    }
}

#[cfg(test)]
mod tests;
