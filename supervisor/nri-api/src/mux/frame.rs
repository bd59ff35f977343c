//! The header of a frame.
//!
//! Owns: its eight bytes, and the length that is taken. Never: reads or writes.

/// Bytes before the payload: the connection and the length, each a number of 32 bits, the most significant byte first.
pub const HEADER_BYTES: usize = 8;
/// The longest payload, in bytes: a message of ttrpc with its header. Peers never write a longer one.
pub const FRAME_MAX_BYTES: usize = (4 << 20) + 10;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The connection that the payload belongs to.
    pub connection: u32,
    /// The length of the payload, in bytes.
    pub length: u32,
}

impl Header {
    /// As it is sent.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.connection.to_be_bytes());
        bytes[4..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// As it was received.
    pub fn from_bytes(bytes: [u8; HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { connection: u32::from_be_bytes([a, b, c, d]), length: u32::from_be_bytes([e, f, g, h]) }
    }
}
