//! The members of an archive, in order: its blocks, and the extensions that stand before a member.
//!
//! What a header says is read in `member`, where the holes of a file are in `holes`.

use std::io::{self, Read};

use tar::{EntryType, Header};
use thiserror::Error as ThisError;

use crate::tar::{EXTENSION_BYTES_MAX, Member, number, pax};

mod holes;
mod member;

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

/// The beginning of a value, for an error.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}
