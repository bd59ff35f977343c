//! Why a multiplexed socket ended.
//!
//! Owns: the reason, the first of which stays, and waiting for it. Never: touches the socket.

use std::io;

use tokio::sync::watch;

/// Why a multiplexed socket ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// This side closed it.
    #[error("this side closed the connection: {reason}")]
    Here {
        /// In words, for people.
        reason: String,
    },
    /// The other side closed it, or ended.
    #[error("the other side closed the connection")]
    There,
    /// The other side closed it in the middle of a frame.
    #[error("the connection ended after {got} of the {of} bytes of a frame")]
    CutOff {
        /// Bytes that came, header included.
        got: usize,
        /// Bytes that the frame has.
        of: usize,
    },
    /// The other side announced a frame that is too long, or does not speak in frames at all.
    #[error("a frame of {length} bytes for connection {connection} was announced; at most {limit} are taken")]
    TooLong {
        /// The connection that it was for.
        connection: u32,
        /// What was announced.
        length: u32,
        /// What is taken.
        limit: usize,
    },
    /// Nobody here took what came on a connection.
    #[error("{frames} frames of connection {connection} were not taken within {waited_ms} ms")]
    Overflow {
        /// The connection.
        connection: u32,
        /// How many wait.
        frames: usize,
        /// How long they were waited for.
        waited_ms: u64,
    },
    /// The other side does not read.
    #[error("the other side does not read: {unsent} bytes wait to be sent, and at most {limit} may")]
    NotRead {
        /// Bytes that wait.
        unsent: usize,
        /// Bytes that may.
        limit: usize,
    },
    /// The socket failed.
    #[error("{operation} the connection failed: {reason}")]
    Failed {
        /// "reading from" or "writing to".
        operation: &'static str,
        /// What the system said.
        reason: String,
    },
}

/// Closes a multiplexed socket, and tells when and why it was closed.
#[derive(Clone, Debug)]
pub struct Closing(watch::Sender<Option<Closed>>);

impl Closed {
    /// This side closed it, for this reason.
    pub fn here(reason: impl Into<String>) -> Self {
        Self::Here { reason: reason.into() }
    }
}

impl Closing {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Closes; the first reason stays.
    pub fn close(&self, reason: Closed) {
        self.0.send_if_modified(|closed| {
            let first = closed.is_none();
            closed.get_or_insert(reason);
            first
        });
    }

    /// Why it is closed, if it is.
    pub fn reason(&self) -> Option<Closed> {
        self.0.borrow().clone()
    }

    /// Waits for its end.
    pub async fn closed(&self) -> Closed {
        let mut closed = self.0.subscribe();
        match closed.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(Some(reason)) => reason,
            // The sender is in `self`, and what was waited for is there.
            Ok(None) | Err(_) => Closed::here("it is gone"),
        }
    }
}

impl From<Closed> for io::Error {
    fn from(closed: Closed) -> Self {
        let kind = match &closed {
            Closed::Here { .. } => io::ErrorKind::NotConnected,
            Closed::There => io::ErrorKind::BrokenPipe,
            Closed::CutOff { .. } => io::ErrorKind::UnexpectedEof,
            Closed::TooLong { .. } => io::ErrorKind::InvalidData,
            Closed::Overflow { .. } | Closed::NotRead { .. } => io::ErrorKind::TimedOut,
            Closed::Failed { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, closed)
    }
}
