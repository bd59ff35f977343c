//! One netlink socket, and questions to the kernel that end.
//!
//! Owns: sequence numbers, deadlines, dumps that another's change interrupted. Never: knows what a message means.
//!
//! A socket stays in the network namespace in which it was opened, whoever uses it.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size_force, set_socket_timeout};

/// How often a dump is begun anew because something changed meanwhile.
const DUMP_RETRIES_MAX: usize = 32;
/// The send buffer, in bytes: one transaction that replaces all the ports of a pod takes 1 MiB.
const SEND_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// A socket of one netlink protocol.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    timeout: Duration,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// Several sockets of one kind, for callers at the same time: the removal of a link keeps one busy for tens of milliseconds, most of
/// which the kernel spends waiting with no lock held.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Mutex<Netlink>>,
    next: AtomicUsize,
}

impl Lanes {
    pub(crate) fn new(sockets: Vec<Netlink>) -> Self {
        assert!(!sockets.is_empty(), "somebody waits for a lane");
        Self { lanes: sockets.into_iter().map(Mutex::new).collect(), next: AtomicUsize::new(0) }
    }

    /// A socket that nobody uses; when all are in use, one of them in turn.
    pub(crate) fn lane(&self) -> MutexGuard<'_, Netlink> {
        let free = self.lanes.iter().find_map(|lane| lane.try_lock().ok());
        free.unwrap_or_else(|| {
            let next = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
            // A socket skips answers that are not its own, so one that a panic left is good.
            self.lanes[next].lock().unwrap_or_else(PoisonError::into_inner)
        })
    }
}

/// Whether an answer was whole.
enum Heard<M> {
    All(Vec<M>),
    Interrupted,
}

impl Netlink {
    /// A socket in the namespace of this thread.
    pub(crate) fn open(protocol: i32, timeout: Duration) -> io::Result<Self> {
        // netlink-sys knows protocols as isize; they are small numbers.
        let mut socket = Socket::new(protocol as isize)?;
        socket.bind_auto()?;
        // Takes no memory until something is sent. The limit for everyone is lower, and root may pass it.
        set_socket_send_buffer_size_force(&socket, SEND_BUFFER_BYTES)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(timeout))?;
        Ok(Self { socket, sequence: 0, timeout })
    }

    /// The bytes of one message, with a sequence number of its own.
    pub(crate) fn frame<M: NetlinkSerializable>(&mut self, flags: u16, message: M) -> (u32, Vec<u8>) {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len().next_multiple_of(4)];
        message.serialize(&mut bytes);
        (self.sequence, bytes)
    }

    /// One request; the objects of its answer, which end with the kernel's consent.
    pub(crate) fn ask<M>(&mut self, flags: u16, message: M) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        let (sequence, bytes) = self.frame(flags | NLM_F_ACK, message);
        self.send(&bytes)?;
        match self.hear(sequence)? {
            Heard::All(messages) => Ok(messages),
            Heard::Interrupted => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    /// All objects of a kind.
    pub(crate) fn dump<M>(&mut self, message: M) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Clone,
    {
        for _ in 0..DUMP_RETRIES_MAX {
            let (sequence, bytes) = self.frame(NLM_F_DUMP, message.clone());
            self.send(&bytes)?;
            match self.hear(sequence) {
                Ok(Heard::All(messages)) => return Ok(messages),
                Ok(Heard::Interrupted) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("the list changed {DUMP_RETRIES_MAX} times while it was read")))
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.socket.send_to(bytes, &SocketAddr::new(0, 0), 0)?;
        if sent != bytes.len() {
            return Err(io::Error::other(format!("the kernel took {sent} of {} bytes", bytes.len())));
        }
        Ok(())
    }

    fn hear<M: NetlinkDeserializable>(&mut self, sequence: u32) -> io::Result<Heard<M>> {
        let deadline = Instant::now() + self.timeout;
        let mut messages = Vec::new();
        let mut interrupted = false;
        loop {
            let datagram = self.receive(deadline)?;
            let mut rest = datagram.as_slice();
            while let Some((header, one)) = first_message(&mut rest) {
                // An answer to a request that was given up.
                if header.0 != sequence {
                    continue;
                }
                interrupted |= header.1 & NLM_F_DUMP_INTR != 0;
                match NetlinkMessage::<M>::deserialize(one).map(|message| message.payload) {
                    Ok(NetlinkPayload::InnerMessage(message)) => messages.push(message),
                    Ok(NetlinkPayload::Error(error)) if error.code.is_some() => {
                        return Err(io::Error::from_raw_os_error(-error.raw_code()));
                    }
                    Ok(NetlinkPayload::Error(_) | NetlinkPayload::Done(_)) => {
                        return Ok(if interrupted { Heard::Interrupted } else { Heard::All(messages) });
                    }
                    Ok(_) => {}
                    // What is not ours may have attributes that this program does not know.
                    Err(error) => tracing::debug!(%error, "an object that cannot be read is passed over"),
                }
            }
        }
    }

    /// The answers to several requests that were sent as one: none, or the first error.
    pub(crate) fn hear_batch<M: NetlinkDeserializable>(&mut self, first: u32, last: u32) -> io::Result<()> {
        let deadline = Instant::now() + self.timeout;
        let mut failure = None;
        loop {
            let datagram = self.receive(deadline)?;
            let mut rest = datagram.as_slice();
            while let Some(((sequence, _), one)) = first_message(&mut rest) {
                if !(first..=last).contains(&sequence) {
                    continue;
                }
                let message = NetlinkMessage::<M>::deserialize(one).map_err(io::Error::other)?;
                if let NetlinkPayload::Error(error) = message.payload {
                    if error.code.is_some() {
                        failure.get_or_insert(io::Error::from_raw_os_error(-error.raw_code()));
                    }
                    // The batch as a whole was refused, or its last request is answered.
                    if sequence == last || (sequence == first && failure.is_some()) {
                        return failure.map_or(Ok(()), Err);
                    }
                }
            }
        }
    }

    fn receive(&self, deadline: Instant) -> io::Result<Vec<u8>> {
        loop {
            let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {:?}", self.timeout));
            match self.socket.recv_from_full() {
                // Only the kernel, port 0, is listened to.
                Ok((bytes, from)) if from.port_number() == 0 => return Ok(bytes),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                return Err(late());
            }
        }
    }
}

/// Splits the first message off: its sequence number and flags, and all its bytes.
fn first_message<'a>(rest: &mut &'a [u8]) -> Option<((u32, u16), &'a [u8])> {
    let buffer = NetlinkBuffer::new_checked(*rest).ok()?;
    let length = buffer.length() as usize;
    let header = (buffer.sequence_number(), buffer.flags());
    let one = rest.get(..length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((header, one))
}
