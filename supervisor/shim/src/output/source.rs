//! One end from which a process's output is read: a pipe, or the master of a terminal.
//!
//! Owns: the descriptor, and how much is still to be read after the process has ended. Never: waits.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::Stream;

/// How long after the end of a process the end of a FIFO is waited for, in milliseconds: whoever copies lets go when all has been
/// copied, unless a grandchild holds the other side.
pub(super) const FIFO_DRAIN_MS: u64 = 2_000;
/// The most that the kernel keeps for a terminal, in bytes (drivers/tty/tty_buffer.c), rounded up.
const TERMINAL_BUFFER_MAX_BYTES: usize = 1024 * 1024;
/// The most that is read of a FIFO after the end of its process, in bytes: twice the longest pipe that anybody may make
/// (`pipe-max-size`), for what is in the process's own pipe and in the FIFO, and what is being copied.
const COPIED_MAX_BYTES: usize = 2 * 1024 * 1024;

/// What kind of descriptor it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    /// A pipe's reading end.
    Pipe,
    /// A terminal's master.
    Terminal,
    /// A FIFO that somebody else copies into: what the process wrote may still be on its way when it has ended.
    Fifo,
}

/// One end from which output is read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) stream: Stream,
    kind: SourceKind,
    fd: Rc<AsyncFd<OwnedFd>>,
    /// How many bytes are still to be read; none while the process lives.
    left: Cell<Option<usize>>,
    /// Until when more may come of a FIFO whose process has ended.
    until: Cell<Option<Instant>>,
    state: Cell<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    AtEnd,
}

/// How a turn of reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There may be more to read.
    More,
    /// There is nothing to read now.
    Empty,
    /// There will never be anything to read.
    AtEnd,
}

impl Source {
    /// Takes a descriptor, and makes it non-blocking.
    pub(crate) fn new(stream: Stream, kind: SourceKind, fd: Rc<AsyncFd<OwnedFd>>) -> Rc<Self> {
        Rc::new(Self {
            stream,
            kind,
            fd,
            left: Cell::new(None),
            until: Cell::new(None),
            state: Cell::new(State::Open),
        })
    }

    /// Reads into `buffer`, which is not empty. Errors are the ways in which a turn ends.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Turn> {
        if self.state.get() == State::AtEnd {
            return Err(Turn::AtEnd);
        }
        let room = buffer.len().min(self.left.get().unwrap_or(usize::MAX));
        if room == 0 {
            return Err(self.at_end());
        }
        match read(self.fd.as_fd(), &mut buffer[..room]) {
            Ok(0) => Err(self.at_end()),
            Ok(count) => {
                self.left.set(self.left.get().map(|left| left - count));
                Ok(count)
            }
            Err(Errno::AGAIN) if self.until.get().is_some_and(|until| Instant::now() < until) => {
                Err(Turn::Empty)
            }
            // What was promised to be there is read by nobody else, so after the end of the process this is the end.
            Err(Errno::AGAIN) if self.left.get().is_some() => Err(self.at_end()),
            Err(Errno::AGAIN) => Err(Turn::Empty),
            // A terminal says EIO when its other end is closed.
            Err(_) => Err(self.at_end()),
        }
    }

    /// The process has ended: only as much more is read as there is at this moment, which is all that it wrote
    /// itself. A grandchild that holds the other end, and may write for ever, does not prolong it.
    /// What is copied may come a while later.
    pub(crate) fn bound(&self) {
        if self.kind != SourceKind::Fifo {
            return self.bound_now();
        }
        self.until.set(Some(Instant::now() + Duration::from_millis(FIFO_DRAIN_MS)));
        self.left.set(Some(COPIED_MAX_BYTES));
    }

    /// The same, and nothing is waited for.
    pub(crate) fn bound_now(&self) {
        let left = match self.kind {
            // The count fits: a pipe holds at most 1 GiB.
            SourceKind::Pipe | SourceKind::Fifo => {
                rustix::io::ioctl_fionread(self.fd.as_fd()).unwrap_or(0) as usize
            }
            SourceKind::Terminal => TERMINAL_BUFFER_MAX_BYTES,
        };
        self.until.set(None);
        self.left.set(Some(left));
    }

    /// Whether somebody else copies into it.
    pub(super) fn is_copied(&self) -> bool {
        self.kind == SourceKind::Fifo
    }

    /// When it is looked at again although nothing has come.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.get().filter(|_| !self.is_at_end())
    }

    /// Whether there will never be anything more to read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.state.get() == State::AtEnd || self.left.get() == Some(0)
    }

    /// Waits until there is something to read; to be called only after a turn that was [`Turn::Empty`]. The
    /// readiness is cleared before anything is read, so one that comes during the reading is not lost.
    pub(crate) async fn readable(&self) {
        match self.fd.ready(Interest::READABLE).await {
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => self.state.set(State::AtEnd),
        }
    }

    fn at_end(&self) -> Turn {
        self.state.set(State::AtEnd);
        Turn::AtEnd
    }
}

fn read(fd: std::os::fd::BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut *buffer))
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    const CHUNK_BYTES: usize = 4096;

    fn fifo() -> (Rc<Source>, OwnedFd) {
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
        let reads = Rc::new(crate::readiness::watch(reads, Interest::READABLE).expect("watched"));
        (Source::new(Stream::Stdout, SourceKind::Fifo, reads), writes)
    }

    fn write(writes: &OwnedFd) {
        assert_eq!(rustix::io::write(writes, &[b'x'; CHUNK_BYTES]), Ok(CHUNK_BYTES));
    }

    /// The one thread of the shim read a FIFO that somebody wrote into for as long as they did.
    #[tokio::test]
    async fn whoever_goes_on_to_write_does_not_prolong_the_end() {
        let mut buffer = [0; CHUNK_BYTES];
        let (source, writes) = fifo();
        write(&writes);
        source.bound_now();
        write(&writes);
        assert_eq!(source.read(&mut buffer), Ok(CHUNK_BYTES));
        assert_eq!(source.read(&mut buffer), Err(Turn::AtEnd), "what came later is not waited for");

        let (source, writes) = fifo();
        source.bound();
        assert_eq!(source.read(&mut buffer), Err(Turn::Empty), "it may be on its way");
        let mut read = 0;
        let turn = loop {
            write(&writes);
            match source.read(&mut buffer) {
                Ok(count) => read += count,
                Err(turn) => break turn,
            }
        };
        assert_eq!((turn, read), (Turn::AtEnd, COPIED_MAX_BYTES));
    }
}
