//! The frames of SPDY/3.1, as bytes.
//!
//! ```text
//!   control  1│version:15 │ type:16 │ flags:8 │ length:24 │ body
//!   data     0│stream:31            │ flags:8 │ length:24 │ bytes
//! ```
//!
//! Owns: what is a frame, and what is none. Never: does IO, or knows which streams there are. A frame of data may have 16 MiB; it is
//! given on in pieces as they come, so that no frame is ever kept. A control frame is kept until it is complete, and has a limit.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::headers::{BlockReader, BlockWriter, Headers};

/// The version of the protocol that frames carry.
const VERSION: u16 = 3;
/// The longest body of a control frame, in bytes.
pub const CONTROL_FRAME_BYTES_MAX: usize = 16 * 1024;
/// The longest piece of data that is given on at once, or sent in one frame, in bytes.
pub const DATA_PIECE_BYTES_MAX: usize = 32 * 1024;
/// Bytes before the body of each frame.
const HEAD_BYTES: usize = 8;
const FLAG_FIN: u8 = 1;
const FLAG_UNIDIRECTIONAL: u8 = 2;

/// The number of a stream. Those that clients open are odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Whether a frame is the last one of its direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fin {
    /// There is no more.
    Yes,
    /// More may come.
    No,
}

/// Why a stream is reset (section 2.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetCode(pub u32);

impl ResetCode {
    /// The stream broke a rule.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// There is no such stream.
    pub const INVALID_STREAM: Self = Self(2);
    /// Nothing was done for it.
    pub const REFUSED_STREAM: Self = Self(3);
    /// It is not wanted any more.
    pub const CANCEL: Self = Self(5);
    /// What it led to is broken.
    pub const INTERNAL_ERROR: Self = Self(6);
    /// It held up the others.
    pub const FLOW_CONTROL_ERROR: Self = Self(7);
}

/// A frame, or a piece of one with data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A stream is opened.
    SynStream {
        /// Its number.
        stream: StreamId,
        /// Whether its opener sends nothing on it.
        fin: Fin,
        /// Whether the other side may send nothing on it.
        unidirectional: bool,
        /// What it is for.
        headers: Headers,
    },
    /// A stream is accepted.
    SynReply {
        /// Its number.
        stream: StreamId,
        /// Whether nothing is sent on it.
        fin: Fin,
        /// Answers.
        headers: Headers,
    },
    /// A stream ends at once, both ways.
    Reset {
        /// Its number.
        stream: StreamId,
        /// Why.
        code: ResetCode,
    },
    /// Settings, in pairs of identifier and value.
    Settings(Vec<(u32, u32)>),
    /// To be sent back by whoever did not send it first.
    Ping(u32),
    /// No more streams are taken.
    GoAway {
        /// The last one that was.
        last: StreamId,
        /// Zero when all is well.
        status: u32,
    },
    /// More headers of a stream.
    Headers {
        /// Its number.
        stream: StreamId,
        /// Whether they are the last of it.
        fin: Fin,
        /// The fields.
        headers: Headers,
    },
    /// The other side may send more.
    WindowUpdate {
        /// On which stream.
        stream: StreamId,
        /// So many bytes.
        delta: u32,
    },
    /// Bytes of a stream.
    Data {
        /// Its number.
        stream: StreamId,
        /// Whether they are the last ones.
        fin: Fin,
        /// The bytes.
        bytes: Bytes,
    },
}

/// Bytes that are no frame. None of these can be gone on after.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another protocol.
    #[error("a frame is of SPDY version {version}; version {VERSION} is spoken here")]
    Version {
        /// What it says.
        version: u16,
    },
    /// A control frame beyond its limit.
    #[error("a control frame has {length} bytes; the limit is {CONTROL_FRAME_BYTES_MAX}")]
    TooLong {
        /// What it says.
        length: usize,
    },
    /// A body of another length than its type has.
    #[error("a control frame of type {kind} has {length} bytes, which that type cannot have")]
    Length {
        /// The type.
        kind: u16,
        /// What it says.
        length: usize,
    },
    /// A stream with the number 0.
    #[error("a frame is for stream 0, which there never is")]
    StreamZero,
    /// Headers that cannot be inflated.
    #[error("a header block cannot be inflated")]
    Inflate,
    /// Headers that are no headers.
    #[error("a header block is wrong: {reason}")]
    HeaderBlock {
        /// In which way.
        reason: &'static str,
    },
    /// Too many of them.
    #[error("a header block has {count} fields; the limit is {limit}", limit = super::headers::HEADER_FIELDS_MAX)]
    HeaderFields {
        /// What it says.
        count: usize,
    },
    /// A name that is none.
    #[error("a header field is called {name:?}; names are in lower case, and not empty")]
    HeaderName {
        /// The name.
        name: String,
    },
    /// The same name again.
    #[error("a header block has {name:?} twice")]
    HeaderTwice {
        /// The name.
        name: String,
    },
}

/// Reads the frames of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    blocks: BlockReader,
    /// What is still to come of a frame with data.
    data: Option<DataRest>,
}

/// Writes the frames of one direction of a connection.
#[derive(Debug)]
pub struct Encoder {
    blocks: BlockWriter,
}

#[derive(Clone, Copy, Debug)]
struct DataRest {
    stream: StreamId,
    fin: Fin,
    left: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { blocks: BlockReader::new(), data: None }
    }
}

impl Decoder {
    /// Takes the next frame, or piece of data, from the front of `input`; none when more bytes are needed for it. Control frames that
    /// nobody knows are skipped, as the specification asks.
    ///
    /// # Errors
    /// The bytes are no frame. The connection is to be closed.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        loop {
            if let Some(rest) = self.data {
                return Ok(self.piece(rest, input));
            }
            if input.len() < HEAD_BYTES {
                return Ok(None);
            }
            let first = u32::from_be_bytes([input[0], input[1], input[2], input[3]]);
            let flags = input[4];
            let length = u32::from_be_bytes([0, input[5], input[6], input[7]]) as usize;
            if first >> 31 == 0 {
                let stream = known(first)?;
                input.advance(HEAD_BYTES);
                self.data = Some(DataRest { stream, fin: fin(flags), left: length });
                continue;
            }
            let (version, kind) = ((first >> 16) as u16 & 0x7fff, first as u16);
            if version != VERSION {
                return Err(FrameError::Version { version });
            }
            if length > CONTROL_FRAME_BYTES_MAX {
                return Err(FrameError::TooLong { length });
            }
            if input.len() < HEAD_BYTES + length {
                return Ok(None);
            }
            input.advance(HEAD_BYTES);
            let body = input.split_to(length).freeze();
            if let Some(frame) = self.control(kind, flags, body)? {
                return Ok(Some(frame));
            }
        }
    }

    fn piece(&mut self, rest: DataRest, input: &mut BytesMut) -> Option<Frame> {
        let count = rest.left.min(input.len()).min(DATA_PIECE_BYTES_MAX);
        if count == 0 && rest.left > 0 {
            return None;
        }
        // Copied, so that a few bytes do not hold the whole buffer that they came in.
        let bytes = Bytes::copy_from_slice(&input[..count]);
        input.advance(count);
        let left = rest.left - count;
        self.data = (left > 0).then_some(DataRest { left, ..rest });
        let fin = if left == 0 { rest.fin } else { Fin::No };
        Some(Frame::Data { stream: rest.stream, fin, bytes })
    }

    fn control(&mut self, kind: u16, flags: u8, mut body: Bytes) -> Result<Option<Frame>, FrameError> {
        let length = body.len();
        let exactly = |wanted: usize| {
            if length == wanted { Ok(()) } else { Err(FrameError::Length { kind, length }) }
        };
        let at_least = |wanted: usize| {
            if length >= wanted { Ok(()) } else { Err(FrameError::Length { kind, length }) }
        };
        let frame = match kind {
            1 => {
                at_least(10)?;
                let stream = known(body.get_u32())?;
                // The stream that it belongs to, its priority and a slot for credentials: of no use here.
                body.advance(6);
                let headers = self.blocks.read(&body)?;
                let unidirectional = flags & FLAG_UNIDIRECTIONAL != 0;
                Frame::SynStream { stream, fin: fin(flags), unidirectional, headers }
            }
            2 => {
                at_least(4)?;
                let stream = known(body.get_u32())?;
                Frame::SynReply { stream, fin: fin(flags), headers: self.blocks.read(&body)? }
            }
            3 => {
                exactly(8)?;
                Frame::Reset { stream: known(body.get_u32())?, code: ResetCode(body.get_u32()) }
            }
            4 => {
                at_least(4)?;
                let count = body.get_u32() as usize;
                if count.checked_mul(8) != Some(body.len()) {
                    return Err(FrameError::Length { kind, length });
                }
                Frame::Settings((0..count).map(|_| (body.get_u32() & 0x00ff_ffff, body.get_u32())).collect())
            }
            6 => {
                exactly(4)?;
                Frame::Ping(body.get_u32())
            }
            7 => {
                exactly(8)?;
                Frame::GoAway { last: StreamId(body.get_u32() & 0x7fff_ffff), status: body.get_u32() }
            }
            8 => {
                at_least(4)?;
                let stream = known(body.get_u32())?;
                Frame::Headers { stream, fin: fin(flags), headers: self.blocks.read(&body)? }
            }
            9 => {
                exactly(8)?;
                let stream = StreamId(body.get_u32() & 0x7fff_ffff);
                Frame::WindowUpdate { stream, delta: body.get_u32() & 0x7fff_ffff }
            }
            _ => return Ok(None),
        };
        Ok(Some(frame))
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self { blocks: BlockWriter::new() }
    }
}

impl Encoder {
    /// Appends a frame. One with data has at most 16 MiB, which is the most that its length can say.
    pub fn write(&mut self, frame: &Frame, out: &mut BytesMut) {
        match frame {
            Frame::SynStream { stream, fin, unidirectional, headers } => {
                let unidirectional = if *unidirectional { FLAG_UNIDIRECTIONAL } else { 0 };
                self.control(1, fin_flag(*fin) | unidirectional, out, |blocks, out| {
                    out.put_u32(stream.0);
                    out.put_bytes(0, 6);
                    blocks.write(headers, out);
                });
            }
            Frame::SynReply { stream, fin, headers } => {
                self.control(2, fin_flag(*fin), out, |blocks, out| {
                    out.put_u32(stream.0);
                    blocks.write(headers, out);
                })
            }
            Frame::Reset { stream, code } => self.control(3, 0, out, |_, out| {
                out.put_u32(stream.0);
                out.put_u32(code.0);
            }),
            Frame::Settings(pairs) => self.control(4, 0, out, |_, out| {
                out.put_u32(pairs.len() as u32);
                for (id, value) in pairs {
                    out.put_u32(*id & 0x00ff_ffff);
                    out.put_u32(*value);
                }
            }),
            Frame::Ping(id) => self.control(6, 0, out, |_, out| out.put_u32(*id)),
            Frame::GoAway { last, status } => self.control(7, 0, out, |_, out| {
                out.put_u32(last.0);
                out.put_u32(*status);
            }),
            Frame::Headers { stream, fin, headers } => self.control(8, fin_flag(*fin), out, |blocks, out| {
                out.put_u32(stream.0);
                blocks.write(headers, out);
            }),
            Frame::WindowUpdate { stream, delta } => self.control(9, 0, out, |_, out| {
                out.put_u32(stream.0);
                out.put_u32(*delta);
            }),
            Frame::Data { stream, fin, bytes } => {
                debug_assert!(bytes.len() < 1 << 24, "no frame is that long");
                out.put_u32(stream.0);
                out.put_u32((u32::from(fin_flag(*fin)) << 24) | bytes.len() as u32);
                out.extend_from_slice(bytes);
            }
        }
    }

    fn control(
        &mut self,
        kind: u16,
        flags: u8,
        out: &mut BytesMut,
        body: impl FnOnce(&mut BlockWriter, &mut BytesMut),
    ) {
        out.put_u32(0x8000_0000 | (u32::from(VERSION) << 16) | u32::from(kind));
        let at = out.len();
        out.put_u32(0);
        body(&mut self.blocks, out);
        let length = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&((u32::from(flags) << 24) | length).to_be_bytes());
    }
}

fn known(number: u32) -> Result<StreamId, FrameError> {
    match number & 0x7fff_ffff {
        0 => Err(FrameError::StreamZero),
        id => Ok(StreamId(id)),
    }
}

fn fin(flags: u8) -> Fin {
    if flags & FLAG_FIN == 0 { Fin::No } else { Fin::Yes }
}

fn fin_flag(fin: Fin) -> u8 {
    match fin {
        Fin::Yes => FLAG_FIN,
        Fin::No => 0,
    }
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
