//! What is behind a stream: a process, or the ports of a pod.
//!
//! Owns: what this crate asks of whoever embeds it. Never: knows what a container is.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

/// Why something behind a stream failed: one sentence, which the client is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// A stream that a process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a process yields. After everything but [`Item::Output`] there is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// It wrote.
    Output {
        /// Where.
        stream: OutputStream,
        /// What.
        bytes: Bytes,
    },
    /// It has ended, and all that it wrote was yielded.
    Exited(Exit),
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code; 128 and the number of the signal when one ended it.
    Code(u8),
    /// Nobody knows; why, in one sentence.
    Unknown(String),
}

/// Which streams a client was given a token for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Whether it sends input.
    pub stdin: bool,
    /// Whether it gets standard output.
    pub stdout: bool,
    /// Whether it gets standard error.
    pub stderr: bool,
    /// Whether the process has a terminal.
    pub terminal: bool,
}

/// Starts a process, or attaches to one, when its client is there.
#[async_trait]
pub trait OpenProcess: Send + Sync {
    /// Opens it. `size` is that of the client's terminal, where it has said it.
    async fn open(self: Box<Self>, size: Option<TerminalSize>) -> Result<Process, Failure>;
}

/// A process that a client talks to. Dropping it ends that, not the process.
pub struct Process {
    /// What it reads.
    pub stdin: Box<dyn ProcessStdin>,
    /// What it writes.
    pub output: Box<dyn ProcessOutput>,
    /// What else is done to it.
    pub control: Box<dyn ProcessControl>,
}

/// The standard input of a process.
#[async_trait]
pub trait ProcessStdin: Send {
    /// Writes; waits while the process does not read.
    async fn write(&mut self, bytes: &[u8]);
    /// The client sends no more.
    async fn close(&mut self);
}

/// The output of a process.
#[async_trait]
pub trait ProcessOutput: Send {
    /// The next item. May be cancelled without loss.
    async fn next(&mut self) -> Result<Item, Failure>;
}

/// What is done to a process beside its streams.
#[async_trait]
pub trait ProcessControl: Send + Sync {
    /// Changes the size of its terminal.
    async fn resize(&self, size: TerminalSize);
    /// Its client is gone before it ended. Its input is over.
    async fn abandoned(&self);
}

/// The ports of a pod.
#[async_trait]
pub trait OpenPort: Send + Sync {
    /// Connects to a port of the pod's loopback.
    async fn connect(&self, port: u16) -> Result<Box<dyn PortConnection>, Failure>;
}

/// A connection to a port of a pod.
pub trait PortConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PortConnection for T {}
