//! A place that whoever asked for a process has named for one of its streams: a FIFO, a pipe, a file.
//!
//! Owns: writing to it, and closing it when the last of the stream is there. Never: lets go of a byte because a reader is
//! slow: the process waits, as it would for the reader of a pipe. Only what is not taken [`SINK_CLOSE_MS`] after its end is
//! discarded, which is said with its size.
//!
//! ```text
//!  Open ──streams over──▶ Ending: the queue ──▶ Closed
//!    └──────────── the reader has left ──────────▲
//! ```

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Output, Stream};
use crate::logger;

/// How long the last bytes may take on their way to a reader after the process has ended, in milliseconds.
pub(crate) const SINK_CLOSE_MS: u64 = 10_000;

/// Where the bytes go.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// Somebody reads them at his own pace.
    Pipe(Rc<AsyncFd<OwnedFd>>),
    /// They stay.
    File(Rc<File>),
}

/// One place for one stream.
#[derive(Debug)]
pub(crate) struct Sink {
    stream: Stream,
    target: RefCell<Option<Target>>,
    queue: RefCell<Vec<u8>>,
    state: Cell<State>,
    /// When the time of the last bytes is up; none until the streams are over.
    deadline: Cell<Option<Instant>>,
    trouble: Cell<Trouble>,
    /// Told when there is something for the writer.
    work: Notify,
    /// Told when it is closed.
    closed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Ending,
    Closed,
}

/// Whether writing to a file fails; that is said once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    No,
    Yes,
}

impl Sink {
    pub(crate) fn new(stream: Stream, target: Target) -> Rc<Self> {
        Rc::new(Self {
            stream,
            target: RefCell::new(Some(target)),
            queue: RefCell::default(),
            state: Cell::new(State::Open),
            deadline: Cell::new(None),
            trouble: Cell::new(Trouble::No),
            work: Notify::new(),
            closed: Notify::new(),
        })
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    /// Whether somebody reads it at his own pace.
    pub(super) fn has_a_reader(&self) -> bool {
        matches!(&*self.target.borrow(), Some(Target::Pipe(_)))
    }

    /// Whether it has to catch up before more is read for it.
    pub(super) fn is_behind(&self) -> bool {
        self.state.get() == State::Open && !self.queue.borrow().is_empty()
    }

    /// Writes what there is room for, and keeps the rest.
    pub(super) fn offer(&self, bytes: &[u8]) {
        let target = self.target.borrow().clone();
        match target {
            Some(Target::File(file)) => self.append(&file, bytes),
            Some(Target::Pipe(fd)) => {
                let mut queue = self.queue.borrow_mut();
                let written = if queue.is_empty() { write_some(&fd, bytes) } else { Ok(0) };
                match written {
                    Ok(count) => queue.extend_from_slice(&bytes[count..]),
                    Err(error) => {
                        drop(queue);
                        self.give_up(error);
                    }
                }
                self.work.notify_one();
            }
            None => {}
        }
    }

    fn append(&self, mut file: &File, bytes: &[u8]) {
        let written = file.write_all(bytes);
        let trouble = if written.is_ok() { Trouble::No } else { Trouble::Yes };
        if let (Err(error), Trouble::No) = (written, self.trouble.replace(trouble)) {
            logger::warning!("{} cannot be written to its file, and is lost: {error}", self.stream.name());
        }
    }

    /// The streams are over.
    pub(super) fn end(&self) {
        if self.state.get() == State::Open {
            self.state.set(State::Ending);
            self.deadline.set(Some(Instant::now() + Duration::from_millis(SINK_CLOSE_MS)));
        }
        if self.queue.borrow().is_empty() {
            self.close();
        }
        self.work.notify_one();
    }

    /// Waits until all of it is where it belongs, or its time is up.
    pub(super) async fn closed(&self) {
        while self.state.get() != State::Closed {
            // There is one thread, so nothing happens between the look and the wait.
            self.closed.notified().await;
        }
    }

    fn give_up(&self, error: Errno) {
        logger::warning!(
            "nobody takes {} any more, it is discarded, with {} bytes that waited: {error}",
            self.stream.name(),
            self.queue.borrow().len()
        );
        self.close();
    }

    fn close(&self) {
        self.state.set(State::Closed);
        self.target.borrow_mut().take();
        *self.queue.borrow_mut() = Vec::new();
        self.closed.notify_waiters();
    }
}

/// Writes what was kept for a reader, until the sink is closed.
pub(super) async fn serve(sink: Rc<Sink>, output: Rc<Output>) {
    while sink.state.get() != State::Closed {
        let target = sink.target.borrow().clone();
        let Some(Target::Pipe(fd)) = target else { break };
        if sink.queue.borrow().is_empty() {
            sink.work.notified().await;
            continue;
        }
        tokio::select! {
            // The readiness is cleared before anything is written, so one that comes meanwhile is not lost.
            ready = fd.ready(Interest::WRITABLE) => match ready {
                Ok(mut guard) => guard.clear_ready(),
                Err(_) => break,
            },
            () = overdue(&sink) => {
                logger::warning!(
                    "the last {} bytes of {} are discarded: nobody has taken them for {SINK_CLOSE_MS} ms",
                    sink.queue.borrow().len(),
                    sink.stream.name()
                );
                break;
            }
        }
        let mut queue = sink.queue.take();
        match write_some(&fd, &queue) {
            Ok(count) => drop(queue.drain(..count)),
            Err(error) => {
                *sink.queue.borrow_mut() = queue;
                sink.give_up(error);
                break;
            }
        }
        let caught_up = queue.is_empty();
        *sink.queue.borrow_mut() = queue;
        if caught_up {
            output.client_caught_up();
            if sink.state.get() == State::Ending {
                break;
            }
        }
    }
    sink.close();
    output.client_caught_up();
}

/// Waits until a sink whose stream is over has used up its time.
async fn overdue(sink: &Sink) {
    loop {
        match sink.deadline.get() {
            Some(deadline) => return tokio::time::sleep_until(deadline).await,
            // There is one thread, so nothing happens between the look and the wait.
            None => sink.work.notified().await,
        }
    }
}

/// Writes until there is no more room.
fn write_some(fd: &AsyncFd<OwnedFd>, bytes: &[u8]) -> Result<usize, Errno> {
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::write(fd.as_fd(), &bytes[written..]) {
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}
