//! What goes over the socket: the two kinds of frames, their limits, and how they are sealed.
//!
//! It adds to [`mainstay_messages::admin`] what a connection needs and nobody else: answers in parts, and
//! credit for streams. It never reads or writes a socket. `PROTOCOL.md` says the same in bytes.

use mainstay_messages::Error;
use mainstay_messages::admin::{ClientFrame, OUTPUT_CHUNK_MAX, ServerFrame};
use mainstay_messages::codec::{CodecError, Format};
use mainstay_messages::error::chain;
use serde::{Deserialize, Serialize};

/// The version of the protocol: that of every frame header.
pub const PROTOCOL_VERSION: u16 = 5;
/// The largest body of a frame, in bytes.
pub const FRAME_BODY_MAX: usize = 4 * 1024 * 1024;
/// The largest body of a frame to the daemon, in bytes. It leaves room for what a snapshot adds to the
/// spec that was sent, so that whatever came in over this protocol can be listed over it.
pub const REQUEST_BODY_MAX: usize = FRAME_BODY_MAX - 64 * 1024;
/// The largest body of a frame that carries input of a stream, in bytes: a chunk and the words around it.
pub const INPUT_BODY_MAX: usize = OUTPUT_CHUNK_MAX + 64;
/// What the receiver of a stream, items or input, is ready to hold, in bytes of frame bodies. The last frame may go beyond.
pub const STREAM_WINDOW: usize = 256 * 1024;

/// Frames from client to daemon.
pub const TO_DAEMON: Format =
    Format { magic: *b"MSAD", version: PROTOCOL_VERSION, body_length_max: REQUEST_BODY_MAX };
/// Frames from daemon to client.
pub const TO_CLIENT: Format =
    Format { magic: *b"MSAD", version: PROTOCOL_VERSION, body_length_max: FRAME_BODY_MAX };

/// The body of a frame from client to daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientMessage {
    /// A request, or something for one.
    Frame(ClientFrame),
    /// Items were taken: the daemon may send so much more.
    Credit(Credit),
}

/// The body of a frame from daemon to client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerMessage {
    /// An answer or its last part, an item, or an end.
    Frame(ServerFrame),
    /// A part of an answer of which more follows.
    Part(ServerFrame),
    /// Input was taken: the client may send so much more.
    Credit(Credit),
}

/// Permission to send more on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// The stream's request.
    pub request: u64,
    /// Bytes of frame bodies.
    pub bytes: u32,
}

impl ClientMessage {
    /// The sealed frame. A request that does not fit is the caller's mistake.
    pub fn seal(&self) -> Result<Vec<u8>, Error> {
        TO_DAEMON.seal(self).map_err(|error| match error {
            CodecError::TooLarge { length, limit } => {
                Error::invalid("request", format!("{length} bytes"), format!("at most {limit} bytes"))
            }
            other => Error::invalid("request", chain(&other), "values that can be sent, paths in UTF-8"),
        })
    }
}

impl ServerMessage {
    /// The sealed frame. `what` names the content for the error when it does not fit.
    pub fn seal(&self, what: &str) -> Result<Vec<u8>, Error> {
        TO_CLIENT.seal(self).map_err(|error| match error {
            CodecError::TooLarge { length, limit } => Error::ResourceExhausted {
                what: format!("{what} takes {length} bytes, more than a frame of the admin protocol holds"),
                limit: limit as u64,
            },
            other => Error::internal(what, chain(&other)),
        })
    }
}

impl Credit {
    /// The frame that gives it to the daemon.
    pub(crate) fn to_daemon(self) -> Vec<u8> {
        // Sixteen bytes of plain numbers: they always fit and always encode.
        TO_DAEMON.seal(&ClientMessage::Credit(self)).expect("a credit always encodes")
    }

    /// The frame that gives it to the client.
    pub(crate) fn to_client(self) -> Vec<u8> {
        // As above.
        TO_CLIENT.seal(&ServerMessage::Credit(self)).expect("a credit always encodes")
    }
}

/// The request that a body is about, also when the rest of it cannot be read: all messages begin with a
/// kind of four bytes and a request of eight. 0 when it is not there.
pub(crate) fn request_of(body: &[u8]) -> u64 {
    match body.get(4..12).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => u64::from_le_bytes(bytes),
        None => 0,
    }
}

#[cfg(test)]
mod tests;
