//! The stream socket's protocol: types, frames, and the client's end.
//!
//! Owns: what is written on the socket, byte by byte as STREAMS.md has it. Never: knows where a stream's bytes
//! come from or go to.
//!
//! ```text
//! client                         shim
//!   | sealed OpenRequest  ------>  |
//!   | <------  sealed OpenAnswer   |   a refusal ends it here
//!   | 0 stdin, 3 stdin-eof ----->  |
//!   | <------  1 stdout, 2 stderr  |
//!   | <------  4 end, or 5 lagged  |   the shim closes
//! ```

mod client;
mod frame;

use mainstay_messages::codec::Format;
use mainstay_messages::{ContainerId, ExecId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::convert::ProcessKey;

pub use client::{OPEN_DEADLINE_MS, StreamError, StreamReader, StreamWriter, Streams};
pub use frame::{
    Decoder, FRAME_HEADER_LENGTH, FRAME_PAYLOAD_MAX_BYTES, Frame, FrameError, FrameKind, data_header,
    encode_end, encode_lagged,
};

/// The first frame in either direction.
pub const OPEN_FORMAT: Format = Format { magic: *b"MSTR", version: 1, body_length_max: 4_096 };

/// What a client asks for when it has connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRequest {
    /// The container.
    pub container: ContainerId,
    /// The exec; none for the container's PID 1.
    pub exec: Option<ExecId>,
    /// Whether this client writes the process's standard input.
    pub stdin: StdinUse,
    /// What happens when this client reads more slowly than the process writes.
    pub on_lag: OnLag,
}

/// Whether a client writes the process's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinUse {
    /// It does.
    Yes,
    /// It only reads.
    No,
}

/// What happens when a client reads more slowly than the process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLag {
    /// The shim stops reading the process's output: nothing is lost, the process waits.
    Block,
    /// The client is cut off: the process never waits for it.
    Detach,
}

/// The answer to [`OpenRequest`].
pub type OpenAnswer = Result<Opened, OpenRefusal>;

/// The stream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Whether the process has a terminal: then all its output comes as stdout.
    pub terminal: Terminal,
}

/// Whether a process has a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Terminal {
    /// It has one.
    Yes,
    /// It has pipes.
    No,
}

/// Why a stream was not opened.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum OpenRefusal {
    /// The shim has no such process.
    #[error("{process} is not known to this shim")]
    NotFound {
        /// What was asked for.
        process: String,
    },
    /// The process has ended and its output has been delivered or discarded.
    #[error("the streams of {process} have ended")]
    Ended {
        /// What was asked for.
        process: String,
    },
    /// It was created without an open standard input, or that was closed.
    #[error("the standard input of {process} is not open")]
    StdinClosed {
        /// What was asked for.
        process: String,
    },
    /// The limit of clients is reached.
    #[error("{process} has {limit} clients attached, which is the limit; detach one first")]
    TooManyClients {
        /// What was asked for.
        process: String,
        /// The limit.
        limit: u32,
    },
    /// The request could not be read.
    #[error("the request to open a stream is malformed: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
}

impl OpenRequest {
    /// The process that is asked for.
    pub fn process(&self) -> ProcessKey {
        ProcessKey { container: self.container.clone(), exec: self.exec.clone() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// STREAMS.md, byte by byte: a client of this version talks to a shim of last month.
    #[test]
    fn the_bytes_are_those_of_the_page() {
        let request = OpenRequest {
            container: "web".parse().expect("a good id"),
            exec: None,
            stdin: StdinUse::No,
            on_lag: OnLag::Detach,
        };
        let frame = OPEN_FORMAT.seal(&request).expect("small");
        assert_eq!(&frame[..12], b"MSTR\0\x01\0\0\0\0\0\x14");
        assert_eq!(&frame[16..], b"\x03\0\0\0\0\0\0\0web\0\x01\0\0\0\x01\0\0\0");
        let answer: OpenAnswer = Ok(Opened { terminal: Terminal::No });
        assert_eq!(&OPEN_FORMAT.seal(&answer).expect("small")[16..], b"\0\0\0\0\x01\0\0\0");
        let answer: OpenAnswer = Err(OpenRefusal::TooManyClients { process: "p".into(), limit: 16 });
        let bytes = b"\x01\0\0\0\x03\0\0\0\x01\0\0\0\0\0\0\0p\x10\0\0\0";
        assert_eq!(&OPEN_FORMAT.seal(&answer).expect("small")[16..], bytes);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_request_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = OPEN_FORMAT.open::<OpenRequest>(&bytes);
            let _ = OPEN_FORMAT.open::<OpenAnswer>(&bytes);
        }
    }
}
