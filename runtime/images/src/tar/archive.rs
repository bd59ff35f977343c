//! The members of an archive, in order.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, Header};
use thiserror::Error as ThisError;

use crate::tar::sparse::{self, SparseMap, TextMap};
use crate::tar::{EXTENSION_BYTES_MAX, Kind, Member, Time, number, pax};

const BLOCK_BYTES: usize = 512;

/// Why an archive cannot be read on.
#[derive(Debug, ThisError)]
pub(crate) enum ArchiveError {
    /// Its bytes cannot be had.
    #[error("the archive cannot be read")]
    Read(#[source] io::Error),
    /// Its bytes are no archive.
    #[error("member {member} of the archive: {problem}")]
    Malformed {
        /// The number of the member, from 1.
        member: u64,
        /// What is wrong.
        problem: String,
    },
}

type Result<T> = std::result::Result<T, ArchiveError>;

/// An archive that is read from a stream.
pub(crate) struct Archive<R> {
    source: R,
    /// Members that were begun.
    members: u64,
    /// Bytes of the current member's data that were not read yet.
    remaining: u64,
    /// Bytes that fill the last block of the current member.
    padding: u64,
    /// Records that hold for all members that follow.
    global: Vec<pax::Record>,
}

/// What extension members said about the member that follows.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Vec<pax::Record>,
}

/// What records say about sparseness.
#[derive(Default)]
struct SparseRecords {
    version_1: bool,
    length: Option<u64>,
    name: Option<Vec<u8>>,
    pairs: Vec<(u64, u64)>,
    offset: Option<u64>,
    present: bool,
}

impl<R: Read> Archive<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, members: 0, remaining: 0, padding: 0, global: Vec::new() }
    }

    /// The number of the current member, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.members
    }

    /// Reads from the data of the current member; 0 at its end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let wanted = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let count = self.source.read(&mut buffer[..wanted]).or_else(|error| match error.kind() {
            io::ErrorKind::Interrupted => self.source.read(&mut buffer[..wanted]),
            _ => Err(error),
        });
        match count.map_err(ArchiveError::Read)? {
            0 => Err(self.cut_short()),
            count => {
                self.remaining -= count as u64;
                Ok(count)
            }
        }
    }

    /// The whole data of the current member, which is known to be small.
    pub(crate) fn read_all(&mut self, max: u64) -> Result<Vec<u8>> {
        if self.remaining > max {
            return Err(self.malformed(format!("{} bytes; at most {max} are read here", self.remaining)));
        }
        let mut bytes = vec![0; self.remaining as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += self.read(&mut bytes[filled..])?;
        }
        Ok(bytes)
    }

    /// Goes to the next member; none at the end of the archive. What follows the end is read and dropped.
    pub(crate) fn next(&mut self) -> Result<Option<Member>> {
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let mut header = Header::new_old();
            if !self.block(header.as_mut_bytes())? {
                return self.finish(&extensions);
            }
            self.members += 1;
            if header.as_bytes().iter().all(|byte| *byte == 0) {
                self.members -= 1;
                return self.finish(&extensions);
            }
            self.check_sum(&header)?;
            self.set_size(self.unsigned(&header.as_old().size, "size")?);
            match header.entry_type() {
                EntryType::GNULongName => extensions.path = Some(self.long_text()?),
                EntryType::GNULongLink => extensions.link = Some(self.long_text()?),
                EntryType::XHeader => extensions.records = self.records()?,
                EntryType::XGlobalHeader => self.global = self.records()?,
                kind if kind.as_byte() == b'V' => {}
                _ => return self.member(&header, extensions).map(Some),
            }
        }
    }

    fn finish(&mut self, extensions: &Extensions) -> Result<Option<Member>> {
        if extensions.path.is_some() || extensions.link.is_some() || !extensions.records.is_empty() {
            return Err(self.malformed("the archive ends after an extended header".to_owned()));
        }
        let mut buffer = [0; 8192];
        loop {
            match self.source.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ArchiveError::Read(error)),
            }
        }
    }

    fn member(&mut self, header: &Header, extensions: Extensions) -> Result<Member> {
        let old = header.as_old();
        let mut path = extensions.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let mut link =
            extensions.link.or_else(|| header.link_name_bytes().map(|l| l.into_owned())).unwrap_or_default();
        let mut uid = self.unsigned(&old.uid, "owner")?;
        let mut gid = self.unsigned(&old.gid, "group")?;
        let mut modified = Time { seconds: self.signed(&old.mtime, "time")?, nanoseconds: 0 };
        let mode = (self.signed(&old.mode, "mode")? & 0o7777) as u32;
        let mut size = None;
        let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut sparse = SparseRecords::default();
        let records = std::mem::take(&mut self.global);
        for pax::Record { key, value } in records.iter().chain(&extensions.records) {
            let bad = || {
                let key = String::from_utf8_lossy(key);
                self.malformed(format!("extended header: {key} has the value {:?}", shown(value)))
            };
            match key.as_slice() {
                // An empty value takes back what a global header said.
                b"path" if !value.is_empty() => path.clone_from(value),
                b"linkpath" if !value.is_empty() => link.clone_from(value),
                b"size" => size = Some(pax::number(value).ok_or_else(bad)?),
                b"uid" => uid = pax::number(value).ok_or_else(bad)?,
                b"gid" => gid = pax::number(value).ok_or_else(bad)?,
                b"mtime" => modified = pax::time(value).ok_or_else(bad)?,
                _ if key.starts_with(b"GNU.sparse.") => sparse.take(&key[11..], value).ok_or_else(bad)?,
                _ => {
                    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                        xattrs.retain(|(known, _)| known != name);
                        xattrs.push((name.to_vec(), value.clone()));
                    }
                }
            }
        }
        self.global = records;
        let mut kind = self.kind(header)?;
        if kind == Kind::File && path.ends_with(b"/") {
            // Archives from before directories had a type of their own.
            kind = Kind::Directory;
        }
        match (kind, size) {
            (Kind::File, Some(size)) => self.set_size(size),
            (Kind::File, None) => {}
            // Links have their target's length in the header, and no data. Go reads all kinds but files so.
            _ => self.set_size(0),
        }
        let map = if kind == Kind::File { self.sparse_map(header, &mut path, sparse)? } else { None };
        let id = |value: u64, what: &str| {
            u32::try_from(value)
                .ok()
                .filter(|id| *id != u32::MAX)
                .ok_or_else(|| self.malformed(format!("{what} {value}; ids go from 0 to {}", u32::MAX - 1)))
        };
        let (uid, gid) = (id(uid, "owner")?, id(gid, "group")?);
        let device = match kind {
            Kind::Character | Kind::Block => self.device(header)?,
            _ => (0, 0),
        };
        let size = if kind == Kind::File { self.remaining } else { 0 };
        Ok(Member { path, kind, link, size, sparse: map, mode, uid, gid, modified, device, xattrs })
    }

    fn kind(&self, header: &Header) -> Result<Kind> {
        Ok(match header.entry_type().as_byte() {
            b'0' | b'\0' | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::Character,
            b'4' => Kind::Block,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => return Err(self.malformed(format!("type {:?} is not known", char::from(other)))),
        })
    }

    fn sparse_map(
        &mut self,
        header: &Header,
        path: &mut Vec<u8>,
        records: SparseRecords,
    ) -> Result<Option<SparseMap>> {
        let (length, pieces) = if header.entry_type() == EntryType::GNUSparse {
            self.gnu_map(header)?
        } else if records.present {
            if let Some(name) = records.name {
                *path = name;
            }
            let Some(length) = records.length else {
                return Err(self.malformed("a sparse file without its length".to_owned()));
            };
            let pieces = if records.version_1 { self.text_map()? } else { records.pairs };
            (length, pieces)
        } else {
            return Ok(None);
        };
        let map = SparseMap::checked(length, pieces, self.remaining);
        map.map(Some)
            .ok_or_else(|| self.malformed("the map of the sparse file contradicts itself".to_owned()))
    }

    fn gnu_map(&mut self, header: &Header) -> Result<(u64, Vec<(u64, u64)>)> {
        let Some(gnu) = header.as_gnu() else {
            return Err(self.malformed("a sparse file in an archive that is not GNU's".to_owned()));
        };
        let length = self.unsigned(&gnu.realsize, "length")?;
        let mut pieces = Vec::new();
        for piece in gnu.sparse.iter().filter(|piece| !piece.is_empty()) {
            pieces.push((self.unsigned(&piece.offset, "offset")?, self.unsigned(&piece.numbytes, "piece")?));
        }
        let mut more = gnu.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            if !self.block(block.as_mut_bytes())? {
                return Err(self.cut_short());
            }
            for piece in block.sparse().iter().filter(|piece| !piece.is_empty()) {
                pieces.push((
                    self.unsigned(&piece.offset, "offset")?,
                    self.unsigned(&piece.numbytes, "piece")?,
                ));
            }
            if pieces.len() > sparse::PIECES_MAX {
                return Err(self.malformed(format!("more than {} pieces", sparse::PIECES_MAX)));
            }
            more = block.is_extended();
        }
        Ok((length, pieces))
    }

    fn text_map(&mut self) -> Result<Vec<(u64, u64)>> {
        let mut map = TextMap::default();
        loop {
            let mut block = [0; BLOCK_BYTES];
            let mut filled = 0;
            while filled < BLOCK_BYTES {
                match self.read(&mut block[filled..])? {
                    0 => return Err(self.cut_short()),
                    count => filled += count,
                }
            }
            match map.take(&block) {
                Some(true) => return Ok(map.pairs()),
                Some(false) => {}
                None => return Err(self.malformed("the map of the sparse file is malformed".to_owned())),
            }
        }
    }

    fn device(&self, header: &Header) -> Result<(u32, u32)> {
        let bytes = header.as_bytes();
        let part = |range: std::ops::Range<usize>, what: &str| {
            let value = self.unsigned(&bytes[range], what)?;
            u32::try_from(value).map_err(|_| self.malformed(format!("{what} number {value} of a device")))
        };
        Ok((part(329..337, "major")?, part(337..345, "minor")?))
    }

    fn long_text(&mut self) -> Result<Vec<u8>> {
        let mut text = self.read_all(EXTENSION_BYTES_MAX)?;
        if let Some(end) = text.iter().position(|byte| *byte == 0) {
            text.truncate(end);
        }
        Ok(text)
    }

    fn records(&mut self) -> Result<Vec<pax::Record>> {
        let bytes = self.read_all(EXTENSION_BYTES_MAX)?;
        pax::records(&bytes).ok_or_else(|| self.malformed("an extended header is malformed".to_owned()))
    }

    fn check_sum(&self, header: &Header) -> Result<()> {
        let bytes = header.as_bytes();
        let expected = self.unsigned(&header.as_old().cksum, "checksum")?;
        let blank = |at: usize| (148..156).contains(&at);
        let sum: u64 = (0..BLOCK_BYTES).map(|at| if blank(at) { 32 } else { u64::from(bytes[at]) }).sum();
        if sum != expected {
            return Err(
                self.malformed("the checksum of its header is wrong; this is no tar archive".to_owned())
            );
        }
        Ok(())
    }

    fn set_size(&mut self, size: u64) {
        self.remaining = size;
        self.padding = (BLOCK_BYTES as u64 - size % BLOCK_BYTES as u64) % BLOCK_BYTES as u64;
    }

    /// Passes over what is left of the current member.
    fn skip(&mut self) -> Result<()> {
        self.skip_data()?;
        self.skip_padding()
    }

    /// Passes over what fills the last block of a member. An archive may end there: some tools write neither the padding
    /// nor the end, and everyone takes that. What is missing of the data itself shows in the DiffID at the latest.
    fn skip_padding(&mut self) -> Result<()> {
        let mut rest = (&mut self.source).take(std::mem::take(&mut self.padding));
        io::copy(&mut rest, &mut io::sink()).map(drop).map_err(ArchiveError::Read)
    }

    fn skip_data(&mut self) -> Result<()> {
        let mut buffer = [0; 8192];
        while self.read(&mut buffer)? > 0 {}
        Ok(())
    }

    /// Fills a block; false where the archive ends before it.
    fn block(&mut self, block: &mut [u8; BLOCK_BYTES]) -> Result<bool> {
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match self.source.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.cut_short()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ArchiveError::Read(error)),
            }
        }
        Ok(true)
    }

    fn unsigned(&self, bytes: &[u8], what: &str) -> Result<u64> {
        let value = self.signed(bytes, what)?;
        u64::try_from(value).map_err(|_| self.malformed(format!("{what} {value} is negative")))
    }

    fn signed(&self, bytes: &[u8], what: &str) -> Result<i64> {
        number::field(bytes).ok_or_else(|| self.malformed(format!("{what} {:?} is no number", shown(bytes))))
    }

    fn malformed(&self, problem: String) -> ArchiveError {
        ArchiveError::Malformed { member: self.members, problem }
    }

    fn cut_short(&self) -> ArchiveError {
        self.malformed("the archive is cut short".to_owned())
    }
}

impl SparseRecords {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"major" => self.version_1 = pax::number::<u32>(value)? == 1,
            b"size" | b"realsize" => self.length = Some(pax::number(value)?),
            b"name" => self.name = Some(value.to_vec()),
            b"map" => self.pairs = sparse::pairs(value)?,
            b"offset" => self.offset = Some(pax::number(value)?),
            b"numbytes" if self.pairs.len() < sparse::PIECES_MAX => {
                self.pairs.push((self.offset.take()?, pax::number(value)?));
            }
            b"minor" | b"numblocks" => {}
            _ => return None,
        }
        self.present = true;
        Some(())
    }
}

/// The beginning of a value, for an error.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}
