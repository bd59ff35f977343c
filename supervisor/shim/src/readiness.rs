//! Descriptors that the runtime watches.
//!
//! Owns: registering one. Never: reads or writes.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_setfl};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Makes a descriptor non-blocking and has the runtime watch it. Of a pipe that is our end alone: the process's end
/// is another open file, and blocks as a pipe does.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    fcntl_setfl(&fd, OFlags::NONBLOCK)?;
    // SAFETY: the descriptor is owned, so it stays open, and the same, for as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest)? })
}
