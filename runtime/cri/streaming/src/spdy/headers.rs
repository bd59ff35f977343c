//! Header blocks: names and values, compressed with one zlib stream for each direction of a connection.
//!
//! ```text
//!   count │ length name length value │ …        numbers of 32 bits, big endian; all of it deflated, flushed for each frame
//! ```
//!
//! Owns: the two zlib streams. Never: lets a block grow beyond its limits, however well it was compressed. A block that is wrong ends
//! the connection: what follows could not be inflated.

use bytes::{Buf, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::dictionary::dictionary;
use super::frame::FrameError;

/// The most fields of a header block. Clients of Kubernetes send three.
pub const HEADER_FIELDS_MAX: usize = 64;
/// The longest header block after inflating, in bytes.
pub const HEADER_BLOCK_BYTES_MAX: usize = 16 * 1024;
/// Bytes that are inflated, or deflated, at once.
const STEP_BYTES: usize = 4 * 1024;

/// The fields of a header block, in their order. Names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

/// What header blocks are compressed with.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn spdy_dictionary() -> Vec<u8> {
    dictionary()
}

/// Inflates the blocks of one direction.
#[derive(Debug)]
pub(super) struct BlockReader(Decompress);

/// Deflates the blocks of one direction.
#[derive(Debug)]
pub(super) struct BlockWriter(Compress);

impl Headers {
    /// These fields.
    pub fn new<N: Into<String>, V: Into<String>>(fields: impl IntoIterator<Item = (N, V)>) -> Self {
        Self(
            fields
                .into_iter()
                .map(|(name, value)| (name.into().to_ascii_lowercase(), value.into()))
                .collect(),
        )
    }

    /// The value of a field by its name in lower case; the first one of several values.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(field, _)| field == name)?;
        value.split('\0').next()
    }

    /// Name and value of each field.
    pub fn fields(&self) -> &[(String, String)] {
        &self.0
    }

    fn parse(mut block: Bytes) -> Result<Self, FrameError> {
        let count = number(&mut block)?;
        if count > HEADER_FIELDS_MAX {
            return Err(FrameError::HeaderFields { count });
        }
        let mut fields: Vec<(String, String)> = Vec::with_capacity(count);
        for _ in 0..count {
            let (name, value) = (text(&mut block)?, text(&mut block)?);
            if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                return Err(FrameError::HeaderName { name });
            }
            if fields.iter().any(|(earlier, _)| *earlier == name) {
                return Err(FrameError::HeaderTwice { name });
            }
            fields.push((name, value));
        }
        if block.has_remaining() {
            return Err(FrameError::HeaderBlock { reason: "it goes on after its last field" });
        }
        Ok(Self(fields))
    }

    fn write(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(64);
        block.extend_from_slice(&(self.0.len() as u32).to_be_bytes());
        for (name, value) in &self.0 {
            for text in [name, value] {
                block.extend_from_slice(&(text.len() as u32).to_be_bytes());
                block.extend_from_slice(text.as_bytes());
            }
        }
        block
    }
}

impl BlockReader {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// The fields of the next block of the connection.
    pub(super) fn read(&mut self, deflated: &[u8]) -> Result<Headers, FrameError> {
        let mut block = Vec::new();
        let mut rest = deflated;
        loop {
            if block.len() > HEADER_BLOCK_BYTES_MAX {
                return Err(FrameError::HeaderBlock { reason: "it is too long" });
            }
            block.reserve(STEP_BYTES);
            let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
            let step = self.0.decompress_vec(rest, &mut block, FlushDecompress::Sync);
            let consumed = (self.0.total_in() - before_in) as usize;
            rest = &rest[consumed..];
            match step {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&dictionary()).map_err(|_| FrameError::Inflate)?;
                    continue;
                }
                Err(_) => return Err(FrameError::Inflate),
                Ok(Status::StreamEnd) if !rest.is_empty() => return Err(FrameError::Inflate),
                Ok(_) => {}
            }
            let moved = consumed > 0 || self.0.total_out() > before_out;
            if !moved || (rest.is_empty() && block.len() < block.capacity()) {
                break;
            }
        }
        if !rest.is_empty() {
            return Err(FrameError::Inflate);
        }
        if block.len() > HEADER_BLOCK_BYTES_MAX {
            return Err(FrameError::HeaderBlock { reason: "it is too long" });
        }
        Headers::parse(block.into())
    }
}

impl BlockWriter {
    pub(super) fn new() -> Self {
        let mut deflate = Compress::new(Compression::fast(), true);
        // It fails for a stream that has begun alone.
        deflate.set_dictionary(&dictionary()).expect("a fresh zlib stream takes a dictionary");
        Self(deflate)
    }

    /// Appends the next block of the connection.
    pub(super) fn write(&mut self, headers: &Headers, out: &mut BytesMut) {
        let block = headers.write();
        let mut deflated = Vec::new();
        let start = self.0.total_in();
        loop {
            deflated.reserve(STEP_BYTES);
            let rest = &block[(self.0.total_in() - start) as usize..];
            // There is no input that deflate refuses, and there is always room.
            let _ = self.0.compress_vec(rest, &mut deflated, FlushCompress::Sync);
            let taken = (self.0.total_in() - start) as usize == block.len();
            if taken && deflated.len() < deflated.capacity() {
                break;
            }
        }
        out.extend_from_slice(&deflated);
    }
}

fn number(block: &mut Bytes) -> Result<usize, FrameError> {
    if block.remaining() < 4 {
        return Err(FrameError::HeaderBlock { reason: "it ends in the middle of a number" });
    }
    Ok(block.get_u32() as usize)
}

fn text(block: &mut Bytes) -> Result<String, FrameError> {
    let length = number(block)?;
    if block.remaining() < length {
        return Err(FrameError::HeaderBlock { reason: "it ends in the middle of a text" });
    }
    let bytes = block.split_to(length);
    String::from_utf8(bytes.into())
        .map_err(|_| FrameError::HeaderBlock { reason: "a text of it is not UTF-8" })
}
