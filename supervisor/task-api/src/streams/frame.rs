//! Data frames: five bytes of header, then the payload.
//!
//! Owns: encoding and decoding without any IO. Never: holds more than one frame beyond what it was given.

use thiserror::Error;

/// Bytes before a frame's payload: the kind, then the length, big endian.
pub const FRAME_HEADER_LENGTH: usize = 5;
/// The largest payload of a frame, in bytes.
pub const FRAME_PAYLOAD_MAX_BYTES: usize = 32 * 1024;
/// Bytes in the payload of a `lagged` frame.
const LAGGED_LENGTH: usize = 8;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Bytes for the process.
    Stdin = 0,
    /// Bytes that the process wrote to its standard output or its terminal.
    Stdout = 1,
    /// Bytes that the process wrote to its standard error.
    Stderr = 2,
    /// No more standard input will come.
    StdinEof = 3,
    /// All output has been sent.
    End = 4,
    /// The client was too slow and is cut off.
    Lagged = 5,
}

/// A frame as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Bytes for the process.
    Stdin(Vec<u8>),
    /// Bytes of its standard output or terminal.
    Stdout(Vec<u8>),
    /// Bytes of its standard error.
    Stderr(Vec<u8>),
    /// No more standard input will come.
    StdinEof,
    /// All output has been sent.
    End,
    /// The client was too slow and is cut off.
    Lagged {
        /// Bytes of output that it did not get.
        dropped_bytes: u64,
    },
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// An unknown kind.
    #[error("frame kind {kind} is not known; expected 0 to 5")]
    Kind {
        /// What was there.
        kind: u8,
    },
    /// A payload over the limit, or of the wrong size for its kind.
    #[error("frame of kind {kind} has {length} bytes; expected {expected}")]
    Length {
        /// The frame's kind.
        kind: u8,
        /// What was there.
        length: u32,
        /// What would be right.
        expected: &'static str,
    },
}

/// Cuts a stream of bytes into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that have been taken.
    taken: usize,
}

/// The header of a frame that carries data. `length` is at most [`FRAME_PAYLOAD_MAX_BYTES`].
pub fn data_header(kind: FrameKind, length: usize) -> [u8; FRAME_HEADER_LENGTH] {
    debug_assert!(length <= FRAME_PAYLOAD_MAX_BYTES);
    let [a, b, c, d] = (length as u32).to_be_bytes();
    [kind as u8, a, b, c, d]
}

/// The frame that says that all output has been sent.
pub fn encode_end() -> [u8; FRAME_HEADER_LENGTH] {
    data_header(FrameKind::End, 0)
}

/// The frame that says that the client is cut off.
pub fn encode_lagged(dropped_bytes: u64) -> [u8; FRAME_HEADER_LENGTH + LAGGED_LENGTH] {
    let mut frame = [0; FRAME_HEADER_LENGTH + LAGGED_LENGTH];
    let (header, payload) = frame.split_at_mut(FRAME_HEADER_LENGTH);
    header.copy_from_slice(&data_header(FrameKind::Lagged, LAGGED_LENGTH));
    payload.copy_from_slice(&dropped_bytes.to_be_bytes());
    frame
}

impl FrameKind {
    fn from_wire(kind: u8) -> Option<Self> {
        [Self::Stdin, Self::Stdout, Self::Stderr, Self::StdinEof, Self::End, Self::Lagged]
            .into_iter()
            .find(|known| *known as u8 == kind)
    }
}

impl Decoder {
    /// Takes bytes from the peer.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame. After an error the stream cannot be read on.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.taken..];
        let Some(([kind, a, b, c, d], rest)) = rest.split_first_chunk::<FRAME_HEADER_LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([*a, *b, *c, *d]);
        let known = FrameKind::from_wire(*kind).ok_or(FrameError::Kind { kind: *kind })?;
        check_length(known, length)?;
        let Some(payload) = rest.get(..length as usize) else {
            return Ok(None);
        };
        let frame = match known {
            FrameKind::Stdin => Frame::Stdin(payload.to_vec()),
            FrameKind::Stdout => Frame::Stdout(payload.to_vec()),
            FrameKind::Stderr => Frame::Stderr(payload.to_vec()),
            FrameKind::StdinEof => Frame::StdinEof,
            FrameKind::End => Frame::End,
            FrameKind::Lagged => {
                let dropped_bytes = payload.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                Frame::Lagged { dropped_bytes }
            }
        };
        self.taken += FRAME_HEADER_LENGTH + payload.len();
        if self.taken == self.buffer.len() {
            // Nothing is kept between bursts: a shim may have many idle clients.
            *self = Self::default();
        }
        Ok(Some(frame))
    }
}

fn check_length(kind: FrameKind, length: u32) -> Result<(), FrameError> {
    let (good, expected) = match kind {
        FrameKind::Stdin | FrameKind::Stdout | FrameKind::Stderr => {
            (length as usize <= FRAME_PAYLOAD_MAX_BYTES, "at most 32768")
        }
        FrameKind::StdinEof | FrameKind::End => (length == 0, "0"),
        FrameKind::Lagged => (length as usize == LAGGED_LENGTH, "8"),
    };
    if good { Ok(()) } else { Err(FrameError::Length { kind: kind as u8, length, expected }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(frame: &Frame) -> Vec<u8> {
        let data = |kind, bytes: &[u8]| [&data_header(kind, bytes.len())[..], bytes].concat();
        match frame {
            Frame::Stdin(bytes) => data(FrameKind::Stdin, bytes),
            Frame::Stdout(bytes) => data(FrameKind::Stdout, bytes),
            Frame::Stderr(bytes) => data(FrameKind::Stderr, bytes),
            Frame::StdinEof => data(FrameKind::StdinEof, b""),
            Frame::End => encode_end().to_vec(),
            Frame::Lagged { dropped_bytes } => encode_lagged(*dropped_bytes).to_vec(),
        }
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
        prop_oneof![
            bytes().prop_map(Frame::Stdin),
            bytes().prop_map(Frame::Stdout),
            bytes().prop_map(Frame::Stderr),
            Just(Frame::StdinEof),
            Just(Frame::End),
            any::<u64>().prop_map(|dropped_bytes| Frame::Lagged { dropped_bytes }),
        ]
    }

    proptest! {
        #[test]
        fn frames_come_back_however_they_are_cut(
            frames in proptest::collection::vec(frame(), 0..20),
            cut in 1usize..50,
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(encode).collect();
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for chunk in bytes.chunks(cut) {
                decoder.push(chunk);
                while let Some(frame) = decoder.next_frame().expect("good frames") {
                    found.push(frame);
                }
            }
            prop_assert_eq!(found, frames);
        }

        #[test]
        fn any_bytes_give_frames_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    /// A length is an attacker's number: it must be refused before anybody waits for that many bytes.
    #[test]
    fn a_length_over_the_limit_is_refused_at_once() {
        let mut decoder = Decoder::default();
        decoder.push(&[1, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(decoder.next_frame(), Err(FrameError::Length { .. })));
        let mut decoder = Decoder::default();
        decoder.push(&[4, 0, 0, 0, 1, 9]);
        assert!(matches!(decoder.next_frame(), Err(FrameError::Length { .. })));
    }
}
