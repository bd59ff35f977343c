//! What is sent.
//!
//! Owns: writing frames whole, and the queue of those that the socket does not take at once. Never: waits in a write.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::closed::{Closed, Closing};
use super::frame::{FRAME_MAX_BYTES, HEADER_BYTES, Header};

/// How much may wait to be sent, in bytes: some of the longest messages, or some hundred usual ones. A peer for which more waits does not read.
pub const UNSENT_MAX_BYTES: usize = 16 << 20;

/// The side of the socket that is written to.
#[derive(Debug)]
pub(super) struct Outgoing {
    socket: Arc<UnixStream>,
    unsent: Mutex<Unsent>,
    queued: Notify,
    pub closing: Closing,
}

/// Frames, the first of which may be sent in part. `bytes` is what is left of all.
#[derive(Debug, Default)]
struct Unsent {
    frames: VecDeque<Vec<u8>>,
    sent_of_first: usize,
    bytes: usize,
}

impl Outgoing {
    pub fn new(socket: Arc<UnixStream>, closing: Closing) -> Arc<Self> {
        Arc::new(Self { socket, unsent: Mutex::default(), queued: Notify::new(), closing })
    }

    /// Sends one frame, or queues what the socket does not take of it. Returns how much of `payload` is in it, which
    /// is all of it unless that is longer than a frame may be.
    pub fn send(&self, connection: u32, payload: &[u8]) -> Result<usize, Closed> {
        if let Some(reason) = self.closing.reason() {
            return Err(reason);
        }
        let payload = &payload[..payload.len().min(FRAME_MAX_BYTES)];
        if payload.is_empty() {
            return Ok(0);
        }
        // It fits: the limit of a frame is far below that of the type.
        let header = Header { connection, length: payload.len() as u32 }.to_bytes();
        let mut unsent = self.unsent();
        let sent = if unsent.frames.is_empty() { self.try_send(&[&header, payload])? } else { 0 };
        let length = HEADER_BYTES + payload.len();
        if sent < length {
            self.queue(&mut unsent, &header, payload, sent)?;
        }
        Ok(payload.len())
    }

    fn queue(&self, unsent: &mut Unsent, header: &[u8], payload: &[u8], sent: usize) -> Result<(), Closed> {
        let total = unsent.bytes + header.len() + payload.len() - sent;
        if total > UNSENT_MAX_BYTES {
            return Err(self.fail(Closed::NotRead { unsent: total, limit: UNSENT_MAX_BYTES }));
        }
        if unsent.frames.is_empty() {
            unsent.sent_of_first = sent;
        }
        unsent.frames.push_back([header, payload].concat());
        unsent.bytes = total;
        self.queued.notify_one();
        Ok(())
    }

    /// What the socket takes now, which may be nothing.
    fn try_send(&self, parts: &[&[u8]]) -> Result<usize, Closed> {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        match self.socket.try_write_vectored(&slices) {
            Ok(sent) => Ok(sent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(self.fail(failed(&error))),
        }
    }

    /// Sends of the queue what the socket takes. Whether something is left.
    fn drain(&self) -> Result<bool, Closed> {
        let mut unsent = self.unsent();
        while let Some(first) = unsent.frames.front() {
            let sent = self.try_send(&[&first[unsent.sent_of_first..]])?;
            if sent == 0 {
                return Ok(true);
            }
            unsent.sent_of_first += sent;
            unsent.bytes -= sent;
            if unsent.sent_of_first == unsent.frames.front().map_or(0, Vec::len) {
                unsent.frames.pop_front();
                unsent.sent_of_first = 0;
            }
        }
        Ok(false)
    }

    fn fail(&self, reason: Closed) -> Closed {
        self.closing.close(reason.clone());
        reason
    }

    /// The lock is held for single steps that do not panic half-way.
    fn unsent(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends what is queued, until the socket is closed.
pub(super) async fn write(outgoing: Arc<Outgoing>) {
    let work = async {
        loop {
            outgoing.queued.notified().await;
            loop {
                match outgoing.drain() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(_) => return,
                }
                if let Err(error) = outgoing.socket.writable().await {
                    outgoing.closing.close(failed(&error));
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = outgoing.closing.closed() => {}
    }
}

fn failed(error: &io::Error) -> Closed {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Closed::There,
        _ => Closed::Failed { operation: "writing to", reason: error.to_string() },
    }
}
