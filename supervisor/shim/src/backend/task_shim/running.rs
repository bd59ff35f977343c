//! A program of another shim while it runs, and what it said.
//!
//! Owns: reading its output up to a limit, and that it is killed with its group when nobody waits for it any more. Never: waits
//! for the end of a pipe, which what it leaves behind may hold for ever.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::answer::ANSWER_MAX_BYTES;
use crate::readiness;
use crate::task::Ending;

/// How much of what a program says is kept for a sentence, in bytes.
const REASON_MAX_BYTES: usize = 1_024;

/// How much is read at a time, in bytes.
const READ_BYTES: usize = 4_096;

/// What a program said.
pub(super) struct Finished {
    pub(super) how: Ending,
    pub(super) stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// A program that has not ended. It is killed with its group when nobody waits for it any more; the reaper reaps it.
pub(super) struct Running {
    pid: Option<Pid>,
    stdout: Collected,
    stderr: Collected,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            // It is our child and not reaped, so the number is its own.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Running {
    /// Takes charge of a child that was made just now, and of the reading ends of its output.
    pub(super) fn new(pid: Pid, stdout: OwnedFd, stderr: OwnedFd) -> std::io::Result<Self> {
        Ok(Self {
            pid: Some(pid),
            stdout: Collected::new(stdout, ANSWER_MAX_BYTES + 1)?,
            stderr: Collected::new(stderr, REASON_MAX_BYTES)?,
        })
    }

    /// Waits for its end. What it left behind may hold its pipes for ever, so what counts is what is in them then.
    pub(super) async fn end(&mut self, mut ended: oneshot::Receiver<Ending>) -> Finished {
        let how = loop {
            tokio::select! {
                // The sender is in the shim's own table, until the end.
                how = &mut ended => break how.unwrap_or(Ending::NeverBegan),
                () = self.stdout.more() => {}
                () = self.stderr.more() => {}
            }
        };
        self.pid = None;
        self.stdout.take_rest();
        self.stderr.take_rest();
        let [stdout, stderr] = [&mut self.stdout, &mut self.stderr].map(|it| std::mem::take(&mut it.bytes));
        Finished { how, stdout, stderr }
    }
}

/// What comes out of a pipe, up to a limit; the rest is dropped.
struct Collected {
    pipe: AsyncFd<OwnedFd>,
    bytes: Vec<u8>,
    limit: usize,
    state: PipeState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PipeState {
    Open,
    AtEnd,
}

impl Collected {
    fn new(pipe: OwnedFd, limit: usize) -> std::io::Result<Self> {
        let pipe = readiness::watch(pipe, Interest::READABLE)?;
        Ok(Self { pipe, bytes: Vec::new(), limit, state: PipeState::Open })
    }

    async fn more(&mut self) {
        if self.state == PipeState::AtEnd {
            return std::future::pending().await;
        }
        let pipe = self.pipe.get_ref().as_fd();
        let mut buffer = [0; READ_BYTES];
        let read = match self.pipe.readable().await {
            Ok(mut guard) => match rustix::io::read(pipe, &mut buffer) {
                Err(Errno::AGAIN) => return guard.clear_ready(),
                other => other,
            },
            Err(_) => Ok(0),
        };
        self.took(read, &buffer);
        // A program that never stops must not keep the thread.
        tokio::task::yield_now().await;
    }

    /// Takes what is in the pipe, as far as it is kept: who writes on without an end does not keep anybody here.
    fn take_rest(&mut self) {
        let mut buffer = [0; READ_BYTES];
        while self.state == PipeState::Open && self.bytes.len() < self.limit {
            match rustix::io::read(self.pipe.as_fd(), &mut buffer) {
                Err(Errno::AGAIN) => return,
                read => self.took(read, &buffer),
            }
        }
    }

    fn took(&mut self, read: rustix::io::Result<usize>, buffer: &[u8]) {
        match read {
            Err(Errno::INTR) => {}
            Ok(0) | Err(_) => self.state = PipeState::AtEnd,
            Ok(count) => {
                let room = self.limit.saturating_sub(self.bytes.len()).min(count);
                self.bytes.extend_from_slice(&buffer[..room]);
            }
        }
    }
}

impl Finished {
    /// Whether a program that failed missed what newer ones are told on standard input.
    pub(super) fn speaks_of_bootstrap(&self) -> bool {
        self.said().to_ascii_lowercase().contains("bootstrap")
    }

    /// What it said, in one line.
    pub(super) fn said(&self) -> String {
        let bytes = if self.stderr.trim_ascii().is_empty() { &self.stdout } else { &self.stderr };
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(REASON_MAX_BYTES)]);
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() { "it said nothing".to_owned() } else { line }
    }
}
