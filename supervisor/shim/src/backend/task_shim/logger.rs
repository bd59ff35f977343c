//! The logger that another shim starts for the output of a container.
//!
//! containerd's shims give the output of a container to a program that its `stdout` names (`binary://`): the reading ends of both
//! pipes as descriptors 3 and 4, and as 5 a pipe that is closed when it is ready. Ours is this very program under the name
//! [`LOGGER_NAME`]: it hands the pipes to the pod's shim, and nobody copies: the container writes into pipes which that shim
//! reads.
//!
//! It stays until its shim ends it, doing nothing: that shim will send it SIGTERM by its number, which must not be somebody
//! else's by then. It also ends when the pod's shim closes their connection.
//!
//! Owns: both ends of the handing over. Never: reads the output itself.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::home::{Home, loggers};
use crate::failure::Failure;
use crate::logger as log;
use crate::sockets::accept;

/// What stands before the ticket in a logger's arguments.
pub(super) const TICKET: &str = "ticket";
/// The longest ticket, in bytes.
const TICKET_MAX_BYTES: usize = 64;
/// How long a logger may take to say what it brings, in milliseconds.
const HAND_OVER_MS: u64 = 5_000;
/// The descriptors that a logger is given: standard output, standard error, and the one that says when it is ready.
const GIVEN: [i32; 3] = [3, 4, 5];

/// The pipes of a container.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) logger: Logger,
}

/// A logger, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Logger {
    _connection: tokio::net::UnixStream,
}

/// The containers whose loggers are awaited, by ticket.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    tickets: HashMap<String, oneshot::Sender<Pipes>>,
    last: u64,
}

impl Awaited {
    /// A new ticket, and where its pipes will come.
    pub(super) fn issue(&mut self) -> (String, oneshot::Receiver<Pipes>) {
        self.tickets.retain(|_, waiting| !waiting.is_closed());
        self.last += 1;
        let ticket = self.last.to_string();
        let (sender, receiver) = oneshot::channel();
        self.tickets.insert(ticket.clone(), sender);
        (ticket, receiver)
    }

    fn take(&mut self, ticket: &str) -> Option<oneshot::Sender<Pipes>> {
        self.tickets.remove(ticket)
    }
}

/// Binds the socket for loggers.
pub(super) fn bind(home: &Home) -> Result<tokio::net::UnixListener, Failure> {
    let path = home.loggers();
    tokio::net::UnixListener::bind(&path).map_err(|source| Failure::File { path, doing: "bound", source })
}

/// Takes what loggers bring, for as long as the shim lives.
pub(super) async fn receive(socket: tokio::net::UnixListener, awaited: Rc<std::cell::RefCell<Awaited>>) {
    loop {
        let connection = accept(&socket).await;
        let awaited = awaited.clone();
        tokio::task::spawn_local(async move {
            match timeout(Duration::from_millis(HAND_OVER_MS), take_over(connection)).await {
                Ok(Ok((ticket, pipes))) => {
                    let waiting = awaited.borrow_mut().take(&ticket);
                    if waiting.is_none_or(|waiting| waiting.send(pipes).is_err()) {
                        log::warning!("a logger came with ticket {ticket:?}, for which nobody waits");
                    }
                }
                Ok(Err(error)) => log::warning!("a logger brought nothing of use: {error}"),
                Err(_) => log::warning!("a logger said nothing for {HAND_OVER_MS} ms"),
            }
        });
    }
}

async fn take_over(connection: tokio::net::UnixStream) -> std::io::Result<(String, Pipes)> {
    let bad = |what| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let mut text = [0; TICKET_MAX_BYTES];
    let (length, [stdout, stderr]) = loop {
        connection.readable().await?;
        match connection.try_io(Interest::READABLE, || receive_pipes(connection.as_fd(), &mut text)) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            other => break other?,
        }
    };
    let ticket = std::str::from_utf8(&text[..length]).map_err(|_| bad("its ticket is no text"))?;
    let ticket = ticket.to_owned();
    // It waits for this before it says that it is ready: so no container runs whose output would be lost.
    connection.writable().await?;
    connection.try_write(b"k")?;
    Ok((ticket, Pipes { stdout, stderr, logger: Logger { _connection: connection } }))
}

fn receive_pipes(socket: BorrowedFd<'_>, text: &mut [u8]) -> std::io::Result<(usize, [OwnedFd; 2])> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let fds = <[OwnedFd; 2]>::try_from(fds).map_err(|_| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, "it sent other than two descriptors")
    })?;
    Ok((received.bytes, fds))
}

/// Is a logger, if this process was started as one: hands over, and waits for its end. `program` is what it was started by.
pub(crate) fn be_logger(program: &Path, arguments: &[std::ffi::OsString]) -> Result<(), String> {
    let directory = program.parent().ok_or("it was started by a name without a directory")?;
    let ticket = arguments.iter().position(|word| word == TICKET).and_then(|place| arguments.get(place + 1));
    let ticket = ticket.and_then(|ticket| ticket.to_str()).ok_or("it was given no ticket")?;
    // SAFETY: a logger is given these three, and nothing in this process has opened or owns them.
    let [stdout, stderr, ready] = unsafe { GIVEN.map(|fd| OwnedFd::from_raw_fd(fd)) };
    let socket = loggers(directory);
    let mut connection = UnixStream::connect(&socket)
        .map_err(|error| format!("{socket:?} cannot be connected to: {error}"))?;
    hand_over(&connection, ticket, &stdout, &stderr).map_err(|error| format!("handing over: {error}"))?;
    drop((stdout, stderr));
    let mut answer = [0];
    let read = |connection: &mut UnixStream, answer: &mut [u8]| std::io::Read::read(connection, answer);
    if read(&mut connection, &mut answer).map_err(|error| format!("waiting for the shim: {error}"))? == 0 {
        return Err("the shim did not want what it brought".to_owned());
    }
    // Newer shims look for a byte, older ones for the end alone.
    let _ = rustix::io::write(&ready, b"k");
    drop(ready);
    // Nothing is ever sent: this ends with the connection.
    let _ = read(&mut connection, &mut answer);
    Ok(())
}

fn hand_over(socket: &UnixStream, ticket: &str, stdout: &OwnedFd, stderr: &OwnedFd) -> Result<(), Errno> {
    let fds = [stdout.as_fd(), stderr.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(ticket.as_bytes())], &mut control, SendFlags::empty()).map(drop)
}
