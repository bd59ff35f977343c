//! Whether a client is still there.
//!
//! Owns: seeing that a client has left while nothing is read from it, telling that to whoever serves it, and the time since
//! anything moved. Never: reads or writes.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The other end of a connection, beside the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer(Option<Arc<AsyncFd<OwnedFd>>>);

/// Hears that a client is gone, also when it was said before.
#[derive(Clone, Debug)]
pub(crate) struct Gone(watch::Receiver<bool>);

/// Says that a client is gone when it is dropped, panics included.
#[derive(Clone, Debug)]
pub(crate) struct GoneGuard(Option<Arc<watch::Sender<bool>>>);

/// When anything moved last on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Activity {
    start: Instant,
    last_ms: Arc<AtomicU64>,
    limit: Duration,
}

impl Peer {
    /// The other end of `stream`.
    pub(crate) fn of(stream: &TcpStream) -> io::Result<Self> {
        let fd = stream.as_fd().try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` is open for as long as it lives, and nobody takes it out of there.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self(Some(Arc::new(fd))))
    }

    /// Waits until it has closed its side. What it sent before may still be unread.
    pub(crate) async fn left(&self) {
        let Some(fd) = &self.0 else { return pending().await };
        loop {
            match fd.ready(Interest::READABLE).await {
                Ok(ready) if ready.ready().is_read_closed() => return,
                // More has come; a close is told apart.
                Ok(mut ready) => ready.clear_ready_matching(Ready::READABLE),
                Err(_) => return,
            }
        }
    }
}

impl Gone {
    /// Waits until the client is gone.
    pub(crate) async fn heard(&mut self) {
        // It fails when the other end is gone, and the connection with it.
        let _ = self.0.wait_for(|gone| *gone).await;
    }
}

impl GoneGuard {
    pub(crate) fn new() -> (Self, Gone) {
        let (sender, receiver) = watch::channel(false);
        (Self(Some(Arc::new(sender))), Gone(receiver))
    }

    /// Says nothing: another one will.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for GoneGuard {
    fn drop(&mut self) {
        if let Some(sender) = &self.0 {
            sender.send_replace(true);
        }
    }
}

impl Activity {
    /// Something has just happened; a connection on which nothing does for `limit` is idle.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { start: Instant::now(), last_ms: Arc::default(), limit }
    }

    pub(crate) fn happened(&self) {
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// The time until it is idle, if nothing happens.
    pub(crate) fn left(&self) -> Duration {
        let quiet = self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed));
        // Never zero, so that who waits for it does not spin.
        self.limit.saturating_sub(Duration::from_millis(quiet)).max(Duration::from_millis(1))
    }

    pub(crate) fn is_idle(&self) -> bool {
        let quiet = self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed));
        Duration::from_millis(quiet) >= self.limit
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}
