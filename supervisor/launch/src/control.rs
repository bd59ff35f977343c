//! The socket between the launcher's caller and the child that is becoming a container process.
//!
//! ```text
//!   parent                         child
//!     │ ── 'g' (go: cgroups done) ──▶ │ sets itself up
//!     │ ◀──────── Environment ─────── │      (where the caller has something to do on the host then)
//!     │ ── 'p' (proceed) ───────────▶ │
//!     │ ◀── Ready{warnings} + pty ─── │      (or Failed{error}, exit 1)
//!     │ ── 'r' (release, init only) ▶ │
//!     │ ◀────────── EOF ───────────── │ exec: the socket is CLOEXEC   (or Failed{error}, exit 1)
//! ```
//!
//! One SOCK_SEQPACKET datagram is one message, at most [`FRAME_MAX_BYTES`] long: a tag byte, then the fields; a string is a
//! `u32` length in native order and its bytes. Both ends are the same program at the same moment, so there is no version.
//! It never waits in the parent: the parent's end is non-blocking. When the parent's end closes, the child exits.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
};
use rustix::process::Pid;

use crate::error::{LaunchError, Result};
use crate::syscall;

mod wire;

/// The longest message; longer texts are cut.
pub const FRAME_MAX_BYTES: usize = 16 * 1024;

const GO: u8 = b'g';
const RELEASE: u8 = b'r';
const PROCEED: u8 = b'p';

/// What the child has reported.
#[derive(Debug)]
pub enum Reply {
    /// Everything is mounted, and the root is not entered yet: the hooks `prestart` and `createRuntime` are due, and network
    /// devices to be moved. The process waits for [`Launching::proceed`]. Only where [`crate::needs_environment`] says so.
    Environment,
    /// The process is set up. That of a new container now waits for [`Launching::release`]; an exec goes on by itself.
    Ready {
        /// The master of the process's terminal, where it has one.
        terminal: Option<OwnedFd>,
        /// What was done differently from the spec, in sentences.
        warnings: Vec<String>,
    },
    /// The program has been executed (or the process was killed while that happened: its exit status tells).
    Running,
    /// It could not be started; the child has ended and waits to be reaped.
    Failed(LaunchError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Preparing,
    Ready,
    Over,
}

/// A process that is being started. Dropping it before [`Reply::Running`] ends the process.
#[derive(Debug)]
pub struct Launching {
    /// The process id, in the caller's process id name space.
    pub pid: Pid,
    /// A descriptor of the process.
    pub pidfd: OwnedFd,
    control: OwnedFd,
    phase: Phase,
}

impl Launching {
    pub(crate) fn new(pid: Pid, pidfd: OwnedFd, control: OwnedFd) -> Launching {
        Launching { pid, pidfd, control, phase: Phase::Preparing }
    }

    /// The socket to wait on: when it is readable, call [`Launching::try_reply`].
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The next report, or `None` when there is none yet. After `Running` or `Failed` there is never another.
    ///
    /// # Errors
    /// Only when the socket itself fails, or carries nonsense.
    pub fn try_reply(&mut self) -> Result<Option<Reply>> {
        if self.phase == Phase::Over {
            return Ok(None);
        }
        let mut frame = vec![0; FRAME_MAX_BYTES];
        let (length, terminal) = match receive(self.control.as_fd(), &mut frame) {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => {
                return Err(LaunchError::Internal { detail: format!("the control socket: {error}") });
            }
        };
        let reply = if length == 0 {
            if self.phase == Phase::Ready { Reply::Running } else { Reply::Failed(LaunchError::ChildGone) }
        } else {
            wire::decode(&frame[..length], terminal)?
        };
        self.phase = match reply {
            Reply::Environment => Phase::Preparing,
            Reply::Ready { .. } => Phase::Ready,
            Reply::Running | Reply::Failed(_) => Phase::Over,
        };
        Ok(Some(reply))
    }

    /// Lets a container's first process, which has reported `Ready`, execute its program.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn release(&self) -> io::Result<()> {
        tell(self.control.as_fd(), RELEASE)
    }

    /// Lets a process go on that has reported `Environment`.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn proceed(&self) -> io::Result<()> {
        tell(self.control.as_fd(), PROCEED)
    }

    pub(crate) fn go(&self) -> io::Result<()> {
        tell(self.control.as_fd(), GO)
    }
}

/// The child's end.
pub(crate) struct ControlEnd {
    socket: OwnedFd,
}

impl AsFd for ControlEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl ControlEnd {
    /// Waits until the parent has put this process where it belongs. Exits when the parent is gone.
    pub(crate) fn wait_for_go(&self) {
        self.wait_for(GO);
    }

    /// Waits until the program may be executed. Exits when the parent is gone.
    pub(crate) fn wait_for_release(&self) {
        self.wait_for(RELEASE);
    }

    /// Reports that it is the caller's turn, and waits until that is over, which takes the place of
    /// [`ControlEnd::wait_for_go`]. Exits when the parent is gone.
    pub(crate) fn environment(&self) {
        if send(&self.socket, &wire::ENVIRONMENT_FRAME, SendFlags::NOSIGNAL).is_err() {
            syscall::exit_now(1);
        }
        self.wait_for(GO);
        self.wait_for(PROCEED);
    }

    fn wait_for(&self, expected: u8) {
        let mut byte = [0_u8; 1];
        loop {
            match recv(&self.socket, &mut byte, RecvFlags::empty()) {
                Ok((1, _)) if byte[0] == expected => return,
                Err(Errno::INTR) => {}
                // The end of the parent is the end of this process: nobody would ever wait for it.
                _ => syscall::exit_now(1),
            }
        }
    }

    /// Reports that all is prepared, and hands over the terminal's master. Exits when the parent is gone.
    pub(crate) fn ready(&self, terminal: Option<&OwnedFd>, warnings: &[String]) {
        let frame = wire::ready(warnings);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = terminal.map(AsFd::as_fd);
        if fds.is_some() {
            // The buffer is exactly one descriptor large, so the push succeeds.
            let pushed = ancillary.push(SendAncillaryMessage::ScmRights(fds.as_slice()));
            debug_assert!(pushed);
        }
        if sendmsg(&self.socket, &[IoSlice::new(&frame)], &mut ancillary, SendFlags::NOSIGNAL).is_err() {
            syscall::exit_now(1);
        }
    }

    /// Reports the failure that ends this process.
    pub(crate) fn failed(&self, error: &LaunchError) {
        // Nobody is left to be told when this fails, and the process ends anyway.
        let _ = send(&self.socket, &wire::failed(error), SendFlags::NOSIGNAL);
    }
}

/// Makes the two ends: the parent's, non-blocking, and the child's.
pub(crate) fn pair() -> io::Result<(OwnedFd, ControlEnd)> {
    let (parent, child) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fcntl_setfl(&parent, rustix::fs::OFlags::NONBLOCK)?;
    Ok((parent, ControlEnd { socket: child }))
}

fn tell(socket: BorrowedFd<'_>, byte: u8) -> io::Result<()> {
    send(socket, &[byte], SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: BorrowedFd<'_>, frame: &mut [u8]) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match recvmsg(socket, &mut [IoSliceMut::new(frame)], &mut ancillary, flags) {
            // A child that ended with a message of ours unread is told of once, before its own last message.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            result => break result?,
        }
    };
    let mut terminal = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            terminal = fds.into_iter().next();
        }
    }
    Ok((received.bytes, terminal))
}

#[cfg(test)]
mod tests;
