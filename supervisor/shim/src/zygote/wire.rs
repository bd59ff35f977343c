//! The datagrams between a supervisor and its zygote, and the supervisor's side of them.
//!
//! | datagram | bytes | descriptors |
//! |---|---|---|
//! | ready | `mainstay zygote 1` | |
//! | request | the words of the shim's command line, each with a NUL after it | log, requests socket, streams socket, and the lifeline if there is one |
//! | forked | `f`, then the process id as `u32` in native order | pidfd of the shim |
//! | refused | `r`, then the reason | |
//!
//! Both ends are the same program, as a rule: a supervisor that is set to start another one learns from the first datagram
//! that it speaks the same. One request is answered before the next is sent.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use rustix::process::Pid;
use thiserror::Error;

/// The longest request, in bytes. Paths of sockets are short, so command lines are.
pub const REQUEST_MAX_BYTES: usize = 2 * 1024;
/// How long a zygote may take to answer, in milliseconds. It takes less than one.
pub const FORK_ANSWER_MS: u32 = 2_000;

const READY: &[u8] = b"mainstay zygote 1";
const FORKED: u8 = b'f';
const REFUSED: u8 = b'r';
const FILES_MAX: usize = 4;

/// The descriptors that a shim is born with.
#[derive(Clone, Copy, Debug)]
pub struct ShimFiles<'a> {
    /// Its standard output and error.
    pub log: BorrowedFd<'a>,
    /// The listening socket for ttrpc.
    pub requests: BorrowedFd<'a>,
    /// The listening socket for streams.
    pub streams: BorrowedFd<'a>,
    /// The pipe whose end is the shim's end.
    pub lifeline: Option<BorrowedFd<'a>>,
}

/// A shim that was forked just now; a child of the caller's.
#[derive(Debug)]
pub struct Forked {
    /// Its process id.
    pub pid: Pid,
    /// A descriptor of it.
    pub pidfd: OwnedFd,
}

/// Why there is no shim, or none that is known.
#[derive(Debug, Error)]
pub enum ForkError {
    /// The zygote said no, and lives.
    #[error("the zygote refuses: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// The zygote is gone, and has not heard of it.
    #[error("the zygote cannot be asked")]
    Gone(#[source] io::Error),
    /// The zygote was asked and has not answered: there may be a shim.
    #[error("the zygote does not answer")]
    Silent(#[source] io::Error),
}

/// What a zygote is asked.
pub(super) struct Request {
    pub(super) words: Vec<Vec<u8>>,
    pub(super) log: OwnedFd,
    pub(super) requests: OwnedFd,
    pub(super) streams: OwnedFd,
    pub(super) lifeline: Option<OwnedFd>,
}

/// An argument that a zygote has to be started with, as the last one: the room for the command lines of its shims.
pub fn padding() -> String {
    " ".repeat(REQUEST_MAX_BYTES)
}

/// Waits until a zygote that was started just now can be asked.
///
/// # Errors
/// When the program is none, ends, or takes too long.
pub fn await_ready(zygote: BorrowedFd<'_>) -> io::Result<()> {
    match answer(zygote)? {
        (text, None) if text == READY => Ok(()),
        (text, _) => Err(io::Error::other(format!("it says {:?}", String::from_utf8_lossy(&text)))),
    }
}

/// Has a zygote fork a shim with this command line, the program's name first.
///
/// # Errors
/// See [`ForkError`].
pub fn fork_shim(
    zygote: BorrowedFd<'_>,
    words: &[String],
    files: &ShimFiles<'_>,
) -> Result<Forked, ForkError> {
    let request: Vec<u8> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
    if request.len() > REQUEST_MAX_BYTES {
        let reason = format!("the command line has {} bytes, at most {REQUEST_MAX_BYTES} fit", request.len());
        return Err(ForkError::Refused { reason });
    }
    let fds: Vec<_> = [files.log, files.requests, files.streams].into_iter().chain(files.lifeline).collect();
    send_with(zygote, &request, &fds).map_err(ForkError::Gone)?;
    match answer(zygote).map_err(unanswered)? {
        (text, Some(pidfd)) => {
            let pid =
                text.strip_prefix(&[FORKED]).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
            let pid = pid.and_then(Pid::from_raw);
            let unclear = || ForkError::Silent(io::Error::other("its answer names no process"));
            Ok(Forked { pid: pid.ok_or_else(unclear)?, pidfd })
        }
        (text, None) => {
            let reason = text.strip_prefix(&[REFUSED]).unwrap_or(&text);
            Err(ForkError::Refused { reason: String::from_utf8_lossy(reason).into_owned() })
        }
    }
}

/// A socket is reset when its other end is closed with something in it that nobody has read (unix(7)): here that is the
/// request, so a zygote that died so has not heard of it.
fn unanswered(error: io::Error) -> ForkError {
    match error.kind() {
        io::ErrorKind::ConnectionReset => ForkError::Gone(error),
        _ => ForkError::Silent(error),
    }
}

/// The next datagram of a zygote, which must come soon.
fn answer(zygote: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let limit = Timespec { tv_sec: i64::from(FORK_ANSWER_MS / 1000), tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(zygote, PollFlags::IN)];
    if retry_on_intr(|| poll(&mut fds, Some(&limit)))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (text, fds) = receive_with(zygote)?;
    if text.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((text, fds.into_iter().next()))
}

pub(super) fn ready(supervisor: &OwnedFd) -> io::Result<()> {
    send_with(supervisor.as_fd(), READY, &[])
}

pub(super) fn forked(supervisor: &OwnedFd, pid: Pid, pidfd: &OwnedFd) -> io::Result<()> {
    let text = [&[FORKED], &pid.as_raw_pid().to_ne_bytes()[..]].concat();
    send_with(supervisor.as_fd(), &text, &[pidfd.as_fd()])
}

pub(super) fn refuse(supervisor: &OwnedFd, reason: &str) -> io::Result<()> {
    send_with(supervisor.as_fd(), &[&[REFUSED], reason.as_bytes()].concat(), &[])
}

/// The next request, or what is wrong with it; nothing when the supervisor is gone.
pub(super) fn receive(supervisor: &OwnedFd) -> io::Result<Option<Result<Request, &'static str>>> {
    let (text, fds) = match receive_with(supervisor.as_fd()) {
        Err(error) if error.raw_os_error() == Some(Errno::CONNRESET.raw_os_error()) => return Ok(None),
        received => received?,
    };
    Ok(if text.is_empty() { None } else { Some(request(&text, fds)) })
}

fn request(text: &[u8], fds: Vec<OwnedFd>) -> Result<Request, &'static str> {
    let Some(text) = text.strip_suffix(&[0]) else { return Err("the command line is cut") };
    let words = text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let mut fds = fds.into_iter();
    let (Some(log), Some(requests), Some(streams)) = (fds.next(), fds.next(), fds.next()) else {
        return Err("descriptors are missing");
    };
    Ok(Request { words, log, requests, streams, lifeline: fds.next() })
}

fn send_with(socket: BorrowedFd<'_>, text: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if fds.is_empty() {
        retry_on_intr(|| send(socket, text, flags))?;
        return Ok(());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(text)], &mut ancillary, flags))?;
    Ok(())
}

fn receive_with(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; REQUEST_MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let received = retry_on_intr(|| recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    text.truncate(received.bytes);
    Ok((text, fds))
}
