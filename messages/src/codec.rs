//! The one place that knows bincode: a body with a limit, and the sealed frame of files and sockets.
//!
//! A sealed frame, all numbers big endian:
//!
//! ```text
//! offset  size  field
//!      0     4  magic, chosen by the format
//!      4     2  version of the format
//!      6     2  reserved, 0
//!      8     4  length of the body in bytes
//!     12     4  CRC-32 (IEEE) of the body
//!     16     n  body: bincode 2, numbers little endian and of fixed width
//! ```
//!
//! bincode is unmaintained (RUSTSEC-2025-0141). It is kept because its format is fixed and small, it is only
//! ever given bounded input, and all use of it goes through this file.

use bincode::config::{Configuration, Fixint, LittleEndian, standard};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error as ThisError;

/// Bytes of a frame before its body.
pub const HEADER_LENGTH: usize = 16;
/// The largest body that any format of Mainstay may have, in bytes. Formats set lower limits.
pub const BODY_LENGTH_MAX: usize = 16 * 1024 * 1024;

/// A format: what its frames begin with, and how large they may be.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The first four bytes.
    pub magic: [u8; 4],
    /// The version that is written, and the only one that is read.
    pub version: u16,
    /// The largest body, in bytes, at most [`BODY_LENGTH_MAX`].
    pub body_length_max: usize,
}

/// Why bytes are not a frame, or a value cannot be one.
#[derive(Debug, ThisError)]
pub enum CodecError {
    /// The first bytes are those of something else.
    #[error("magic {found:02x?} instead of {expected:02x?}")]
    Magic {
        /// What was there.
        found: [u8; 4],
        /// What should be.
        expected: [u8; 4],
    },
    /// Another version.
    #[error("format version {found}, this program reads {expected}")]
    Version {
        /// What was there.
        found: u16,
        /// What should be.
        expected: u16,
    },
    /// Too large, or too small to be whole.
    #[error("body of {length} bytes, the limit is {limit}")]
    TooLarge {
        /// The length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// Cut short.
    #[error("cut short: {found} bytes of {expected}")]
    Truncated {
        /// What was there.
        found: usize,
        /// What should be.
        expected: usize,
    },
    /// The checksum does not fit the body.
    #[error("checksum {found:08x} instead of {expected:08x}")]
    Checksum {
        /// That of the body.
        found: u32,
        /// That in the header.
        expected: u32,
    },
    /// Bytes after the end of the value.
    #[error("{count} bytes after the end of the value")]
    Trailing {
        /// How many.
        count: usize,
    },
    /// The body is not what its type says.
    #[error("malformed body")]
    Decode(#[source] Box<bincode::error::DecodeError>),
    /// The value cannot be written.
    #[error("value cannot be encoded")]
    Encode(#[source] Box<bincode::error::EncodeError>),
}

/// What a header says of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its length in bytes; checked against the format's limit.
    pub length: usize,
    /// Its CRC-32.
    pub checksum: u32,
}

/// Fixed-width numbers: a body's size is known from its type, and no length prefix is ambiguous.
type Bincode<const LIMIT: usize> = Configuration<LittleEndian, Fixint, bincode::config::Limit<LIMIT>>;

fn configuration() -> Bincode<BODY_LENGTH_MAX> {
    standard().with_fixed_int_encoding().with_limit::<BODY_LENGTH_MAX>()
}

/// Writes a value without a frame.
pub fn encode_body<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    bincode::serde::encode_to_vec(value, configuration()).map_err(|e| CodecError::Encode(Box::new(e)))
}

/// Reads a value that takes all of `body`. Never allocates more than [`BODY_LENGTH_MAX`].
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, CodecError> {
    if body.len() > BODY_LENGTH_MAX {
        return Err(CodecError::TooLarge { length: body.len(), limit: BODY_LENGTH_MAX });
    }
    let (value, used) = bincode::serde::decode_from_slice(body, configuration())
        .map_err(|e| CodecError::Decode(Box::new(e)))?;
    match body.len() - used {
        0 => Ok(value),
        count => Err(CodecError::Trailing { count }),
    }
}

impl Format {
    /// Writes a value as a sealed frame.
    pub fn seal<T: Serialize>(&self, value: &T) -> Result<Vec<u8>, CodecError> {
        let body = encode_body(value)?;
        if body.len() > self.body_length_max {
            return Err(CodecError::TooLarge { length: body.len(), limit: self.body_length_max });
        }
        let mut frame = Vec::with_capacity(HEADER_LENGTH + body.len());
        frame.extend_from_slice(&self.magic);
        frame.extend_from_slice(&self.version.to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        // The limit is far below u32::MAX.
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
        frame.extend_from_slice(&body);
        Ok(frame)
    }

    /// Reads a header, before its body is there.
    pub fn header(&self, bytes: &[u8; HEADER_LENGTH]) -> Result<Header, CodecError> {
        let [m0, m1, m2, m3, v0, v1, _, _, l0, l1, l2, l3, c0, c1, c2, c3] = *bytes;
        let magic = [m0, m1, m2, m3];
        if magic != self.magic {
            return Err(CodecError::Magic { found: magic, expected: self.magic });
        }
        let version = u16::from_be_bytes([v0, v1]);
        if version != self.version {
            return Err(CodecError::Version { found: version, expected: self.version });
        }
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length > self.body_length_max {
            return Err(CodecError::TooLarge { length, limit: self.body_length_max });
        }
        Ok(Header { length, checksum: u32::from_be_bytes([c0, c1, c2, c3]) })
    }

    /// Reads the body that belongs to a header.
    pub fn open_body<T: DeserializeOwned>(&self, header: Header, body: &[u8]) -> Result<T, CodecError> {
        if body.len() != header.length {
            return Err(CodecError::Truncated { found: body.len(), expected: header.length });
        }
        let found = crc32fast::hash(body);
        if found != header.checksum {
            return Err(CodecError::Checksum { found, expected: header.checksum });
        }
        decode_body(body)
    }

    /// Reads a whole sealed frame.
    pub fn open<T: DeserializeOwned>(&self, frame: &[u8]) -> Result<T, CodecError> {
        let Some((header, body)) = frame.split_first_chunk::<HEADER_LENGTH>() else {
            return Err(CodecError::Truncated { found: frame.len(), expected: HEADER_LENGTH });
        };
        self.open_body(self.header(header)?, body)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::process::{Exit, ExitStatus, OomVerdict};
    use crate::time::Timestamp;

    const FORMAT: Format = Format { magic: *b"TEST", version: 7, body_length_max: 4_096 };

    fn exit() -> Exit {
        Exit { status: ExitStatus::Exited { code: 42 }, at: Timestamp(7), oom: OomVerdict::NotKilled }
    }

    #[test]
    fn reads_what_it_wrote() {
        let frame = FORMAT.seal(&exit()).expect("small");
        assert_eq!(FORMAT.open::<Exit>(&frame).expect("whole"), exit());
    }

    #[test]
    fn refuses_a_body_over_the_limit_on_both_sides() {
        assert!(matches!(FORMAT.seal(&vec![0u8; 5_000]), Err(CodecError::TooLarge { .. })));
        let mut frame = FORMAT.seal(&exit()).expect("small");
        frame[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(FORMAT.open::<Exit>(&frame), Err(CodecError::TooLarge { .. })));
    }

    /// A length inside a body is an attacker's number too: it must never become an allocation.
    #[test]
    fn a_length_inside_the_body_allocates_nothing() {
        let body = u64::MAX.to_le_bytes();
        assert!(decode_body::<Vec<u8>>(&body).is_err());
        assert!(decode_body::<String>(&body).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = FORMAT.open::<Exit>(&bytes);
            let _ = decode_body::<Exit>(&bytes);
        }

        #[test]
        fn a_flipped_bit_is_seen(index in 0usize..1_000, bit in 0u8..8) {
            let mut frame = FORMAT.seal(&exit()).expect("small");
            let index = index % frame.len();
            // The reserved bytes mean nothing yet.
            prop_assume!(!(6..8).contains(&index));
            frame[index] ^= 1 << bit;
            prop_assert!(FORMAT.open::<Exit>(&frame).is_err());
        }

        #[test]
        fn a_cut_frame_is_seen(cut in 0usize..1_000) {
            let frame = FORMAT.seal(&exit()).expect("small");
            prop_assert!(FORMAT.open::<Exit>(&frame[..cut % frame.len()]).is_err());
        }
    }
}
