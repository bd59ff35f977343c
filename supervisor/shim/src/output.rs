//! The output of one process: from its pipes or its terminal to the log and to whoever is attached.
//!
//! Owns: when output is read, what becomes of it, and that the last of it is delivered when the process has ended.
//! [`pump`] reads, [`log`] writes CRI log files, [`attach`] serves clients, [`sink`] writes to FIFOs and files.
//!
//! Never: waits for the end of a pipe (a grandchild may hold it for ever), holds the container for a slow reader
//! that did not ask for it, or drops a byte without counting it.
//!
//! ```text
//!  Held ──a client opens, or its time is up──▶ Flowing ──process ended: what is in the pipe now──▶ Over
//! ```

pub(crate) mod attach;
pub(crate) mod log;
pub(crate) mod pump;
pub(crate) mod sink;
mod source;
mod splitter;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mainstay_messages::Timestamp;
use mainstay_task_api::streams::FrameKind;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::attach::{Client, OfferRoom};
use self::log::CriLog;
use self::sink::Sink;
use self::source::{Source, Turn};

/// How long the output of an exec waits for a client that has not opened it yet, in milliseconds, where the request does not
/// say it.
pub(crate) const EXEC_OUTPUT_HOLD_DEFAULT_MS: u64 = 10_000;
/// The most clients of one process.
pub(crate) const ATTACH_CLIENTS_MAX: usize = 16;
/// The buffer for reading, in bytes; all processes of a shim share it.
const READ_BUFFER_BYTES: usize = 16 * 1024;
/// The most bytes read from one source before others get their turn.
const PUMP_TURN_BYTES: usize = 4 * READ_BUFFER_BYTES;

/// Which of a process's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What becomes of output for which there is no client yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutClient {
    /// It goes to the log, or is discarded.
    Flow,
    /// It is left in the pipe, where it holds the process back when that is full, for at most so long after the start.
    Hold { limit: Duration },
}

/// Buffers that all processes of a shim share: whoever uses them does so without waiting.
#[derive(Debug)]
pub(crate) struct Scratch {
    read: Box<[u8]>,
    write: Vec<u8>,
}

/// The output of one process.
#[derive(Debug)]
pub(crate) struct Output {
    scratch: Rc<RefCell<Scratch>>,
    log: RefCell<Option<CriLog>>,
    clients: RefCell<Vec<Rc<Client>>>,
    sinks: RefCell<Vec<Rc<Sink>>>,
    sources: RefCell<Vec<Rc<Source>>>,
    phase: Cell<Phase>,
    /// See [`WithoutClient::Hold`].
    hold: Duration,
    /// Told when a client has come, gone or caught up, and when the process has ended.
    changed: Notify,
    /// Told when the streams are over.
    over: Notify,
    /// Told when all sources have been read to their ends.
    read: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held {
        until: Option<Instant>,
    },
    Flowing,
    /// The process has ended, the last of its output is being delivered; held as before for a client to come.
    Ending {
        held_until: Option<Instant>,
    },
    Over,
}

impl Stream {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    fn frame_kind(self) -> FrameKind {
        match self {
            Self::Stdout => FrameKind::Stdout,
            Self::Stderr => FrameKind::Stderr,
        }
    }
}

impl Scratch {
    /// The buffers of a shim.
    pub(crate) fn shared() -> Rc<RefCell<Self>> {
        let read = vec![0; READ_BUFFER_BYTES].into_boxed_slice();
        Rc::new(RefCell::new(Self { read, write: Vec::new() }))
    }
}

impl Output {
    /// Output of a process that does not exist yet.
    pub(crate) fn new(scratch: Rc<RefCell<Scratch>>, without_client: WithoutClient) -> Rc<Self> {
        let (phase, hold) = match without_client {
            WithoutClient::Flow => (Phase::Flowing, Duration::ZERO),
            WithoutClient::Hold { limit } => (Phase::Held { until: None }, limit),
        };
        Rc::new(Self {
            scratch,
            log: RefCell::default(),
            clients: RefCell::default(),
            sinks: RefCell::default(),
            sources: RefCell::default(),
            phase: Cell::new(phase),
            hold,
            changed: Notify::new(),
            over: Notify::new(),
            read: Notify::new(),
        })
    }

    /// Waits until the last of the output is delivered, or its time for a client to come is up.
    pub(crate) async fn over(&self) {
        while self.phase.get() != Phase::Over {
            // There is one thread, so nothing happens between the look and the wait.
            self.over.notified().await;
        }
    }

    /// Gives it a log file.
    pub(crate) fn set_log(&self, log: CriLog) {
        *self.log.borrow_mut() = Some(log);
    }

    /// Gives it the places that were named for it.
    pub(crate) fn set_sinks(self: &Rc<Self>, sinks: Vec<Rc<Sink>>) {
        for sink in sinks.iter().filter(|sink| sink.has_a_reader()) {
            tokio::task::spawn_local(sink::serve(sink.clone(), self.clone()));
        }
        *self.sinks.borrow_mut() = sinks;
    }

    /// Waits until the last of the output is in the places that were named for it, or their time is up.
    pub(crate) async fn delivered(&self) {
        let sinks = self.sinks.borrow().clone();
        for sink in sinks {
            sink.closed().await;
        }
    }

    /// Adds a client. The output flows from now on.
    pub(crate) fn attach(&self, client: Rc<Client>) -> Result<(), AttachRefusal> {
        if self.phase.get() == Phase::Over {
            return Err(AttachRefusal::Over);
        }
        if self.clients.borrow().len() >= ATTACH_CLIENTS_MAX {
            return Err(AttachRefusal::TooMany);
        }
        self.clients.borrow_mut().push(client);
        self.phase.set(match self.phase.get() {
            Phase::Held { .. } => Phase::Flowing,
            Phase::Ending { .. } => Phase::Ending { held_until: None },
            other => other,
        });
        self.changed.notify_one();
        Ok(())
    }

    /// Removes a client that has left.
    pub(crate) fn detach(&self, client: &Rc<Client>) {
        self.clients.borrow_mut().retain(|other| !Rc::ptr_eq(other, client));
        self.changed.notify_one();
    }

    /// Tells the pump that a client has caught up.
    pub(crate) fn client_caught_up(&self) {
        self.changed.notify_one();
    }

    /// Closes the log file and opens it by its name again. `None`: there is no log.
    pub(crate) fn reopen_log(&self) -> Option<Result<(), log::LogError>> {
        self.log.borrow_mut().as_mut().map(CriLog::reopen)
    }

    /// Removes the log file if it is new and empty: its container came to nothing.
    pub(crate) fn discard_unused_log(&self) {
        if let Some(log) = self.log.borrow_mut().take() {
            log.discard_if_unused();
        }
    }

    /// Bytes of output that could not be written to the log.
    pub(crate) fn log_bytes_lost(&self) -> u64 {
        self.log.borrow().as_ref().map_or(0, CriLog::bytes_lost)
    }

    /// PID 1 has ended: delivers what is in its pipes now, without waiting for anything. What has not been read by
    /// a client yet is left in its queue, which holds one pipe's worth of bytes more for it.
    pub(crate) fn finish_now(&self) {
        for source in self.sources.borrow_mut().drain(..) {
            source.bound_now();
            while self.read_some(&source, READ_BUFFER_BYTES) == Turn::More {}
        }
        if let Some(log) = self.log.borrow_mut().as_mut() {
            log.finish(crate::logger::now(), &mut self.scratch.borrow_mut().write);
        }
        self.end();
    }

    /// An exec has ended: lets the pump deliver what is in its pipes now, at the pace of its clients.
    pub(crate) fn finish_in_turn(&self) {
        for source in self.sources.borrow().iter() {
            source.bound();
        }
        self.phase.set(match self.phase.get() {
            Phase::Held { until } => {
                Phase::Ending { held_until: Some(until.unwrap_or_else(|| self.hold_deadline())) }
            }
            Phase::Flowing => Phase::Ending { held_until: None },
            other => other,
        });
        if self.sources.borrow().is_empty() {
            self.end();
        }
        self.changed.notify_one();
    }

    fn hold_deadline(&self) -> Instant {
        Instant::now() + self.hold
    }

    /// The streams are over: the clients are told.
    fn end(&self) {
        self.sources.borrow_mut().clear();
        self.phase.set(Phase::Over);
        for client in self.clients.borrow_mut().drain(..) {
            client.end();
        }
        for sink in self.sinks.borrow().iter() {
            sink.end();
        }
        self.changed.notify_one();
        self.over.notify_waiters();
    }

    /// Reads up to `limit` bytes from a source and delivers them.
    fn read_some(&self, source: &Source, limit: usize) -> Turn {
        let Scratch { read, write } = &mut *self.scratch.borrow_mut();
        let mut left = limit;
        loop {
            let room = left.min(read.len());
            let count = match source.read(&mut read[..room]) {
                Ok(count) => count,
                Err(turn) => return turn,
            };
            self.deliver(source.stream, &read[..count], write);
            left -= count;
            if left == 0 || self.blocked() {
                return Turn::More;
            }
        }
    }

    fn deliver(&self, stream: Stream, bytes: &[u8], write: &mut Vec<u8>) {
        if let Some(log) = self.log.borrow_mut().as_mut() {
            log.write(stream, bytes, crate::logger::now(), write);
        }
        for client in self.clients.borrow().iter() {
            client.offer(stream.frame_kind(), bytes);
        }
        for sink in self.sinks.borrow().iter().filter(|sink| sink.stream() == stream) {
            sink.offer(bytes);
        }
    }

    /// Whether a client or a place that must not lose anything has not caught up.
    fn blocked(&self) -> bool {
        self.clients.borrow().iter().any(|client| client.room() == OfferRoom::Wait)
            || self.sinks.borrow().iter().any(|sink| sink.is_behind())
    }
}

/// Why a client cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachRefusal {
    /// The streams have ended.
    Over,
    /// The limit is reached.
    TooMany,
}

/// The time of the records that are written now.
pub(crate) type ReadAt = Timestamp;
