//! The standard input of one process.
//!
//! Owns: the writing end, and when it is closed. Never: buffers. What a client sends is read from its socket when the
//! process has taken what came before: the pipe (64 KiB) and the socket are the buffer, and the client is held back.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// What a process reads, as requests of the Task API name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StdinMode {
    /// `""`: `/dev/null`.
    Null,
    /// `stream://`: a pipe that stays open however many clients come and go.
    Open,
    /// `stream://once`: a pipe that is closed when the first client that writes to it says so, or leaves.
    Once,
}

/// The standard input of one process.
#[derive(Debug)]
pub(crate) struct Stdin {
    mode: StdinMode,
    fd: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    state: Cell<State>,
    /// A writing end of the FIFO that it is fed from, where it is: its end is not read before this is let go.
    hold: RefCell<Option<OwnedFd>>,
    /// Told when it is closed or given its end, for writers that wait.
    changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The process does not exist yet.
    Unborn,
    Open,
    Closed,
}

impl StdinMode {
    /// Reads the field of a request.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::Null),
            "stream://" => Some(Self::Open),
            "stream://once" => Some(Self::Once),
            _ => None,
        }
    }
}

impl Stdin {
    /// The input of a process that does not exist yet.
    pub(crate) fn new(mode: StdinMode) -> Rc<Self> {
        let state = if mode == StdinMode::Null { State::Closed } else { State::Unborn };
        Rc::new(Self {
            mode,
            fd: RefCell::default(),
            state: Cell::new(state),
            hold: RefCell::default(),
            changed: Notify::new(),
        })
    }

    /// What kind it is.
    pub(crate) fn mode(&self) -> StdinMode {
        self.mode
    }

    /// Gives it its writing end.
    pub(crate) fn connect(&self, fd: Rc<AsyncFd<OwnedFd>>) {
        if self.state.get() == State::Unborn {
            *self.fd.borrow_mut() = Some(fd);
            self.state.set(State::Open);
            self.changed.notify_waiters();
        }
    }

    /// Whether anything can be written.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.get() == State::Closed
    }

    /// Closes it: the process reads its end.
    pub(crate) fn close(&self) {
        self.state.set(State::Closed);
        self.fd.borrow_mut().take();
        self.hold.borrow_mut().take();
        self.changed.notify_waiters();
    }

    /// Keeps the FIFO that it is fed from open when its writers come and go.
    pub(crate) fn hold_open(&self, writing_end: OwnedFd) {
        *self.hold.borrow_mut() = Some(writing_end);
    }

    /// Nobody will write any more: what was written before is still read.
    pub(crate) fn no_more(&self) {
        if self.hold.borrow_mut().take().is_none() {
            self.close();
        }
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) {
        loop {
            // Before the state is looked at, so that no change is missed.
            let changed = self.changed.notified();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// A client that wrote has left, or has said that it writes no more.
    pub(crate) fn client_done(&self) {
        if self.mode == StdinMode::Once {
            self.close();
        }
    }

    /// Writes all bytes, at the pace at which the process reads. What cannot be written because the input was closed
    /// is dropped, as a pipe would.
    pub(crate) async fn write(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // Before the state is looked at, so that no change is missed.
            let changed = self.changed.notified();
            let fd = match self.state.get() {
                State::Closed => return,
                State::Unborn => {
                    changed.await;
                    continue;
                }
                State::Open => self.fd.borrow().clone(),
            };
            let Some(fd) = fd else { return };
            match rustix::io::write(fd.as_fd(), bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => tokio::select! {
                    ready = fd.ready(Interest::WRITABLE) => match ready {
                        Ok(mut guard) => guard.clear_ready(),
                        Err(_) => return,
                    },
                    () = changed => {}
                },
                // The process has closed its end.
                Err(_) => return,
            }
        }
    }
}
