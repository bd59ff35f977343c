//! Sessions: the streams of a running process, from the shim straight to whoever asked, and its exit at the end.
//!
//! No actor is on the way of the bytes. The stream socket is that of the shim; the exit is the one that the
//! process's container has published, so a session never knows of an end before the journal does.

use std::path::Path;
use std::sync::Arc;

use mainstay_messages::admin::{Attached, OnLag, OutputStream};
use mainstay_messages::error::Kind;
use mainstay_messages::error::chain;
use mainstay_messages::record::{ContainerSnapshot, ExecSnapshot};
use mainstay_messages::spec::WindowSize;
use mainstay_messages::{ContainerId, Error, ExecId, Exit, Result};
use mainstay_task_api::streams::{
    self, Frame, OpenRefusal, OpenRequest, StdinUse, StreamError, StreamReader, StreamWriter, Streams,
};
use tokio::sync::watch;

use crate::closing::{Closed, closed};
use crate::runtime::Runtime;

/// The most output of each stream that [`Runtime::exec_output`] keeps when not told otherwise, in bytes.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How to attach to a running container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Whether input is sent.
    pub stdin: Attached,
    /// What happens when the output is not read as fast as it comes.
    pub on_lag: OnLag,
}

impl Default for AttachOptions {
    /// Looks on: sends no input, and is cut off rather than hold up the container.
    fn default() -> Self {
        Self { stdin: Attached::No, on_lag: OnLag::Detach }
    }
}

/// The streams of a process. Dropping it detaches; the process goes on.
#[derive(Debug)]
pub struct Session {
    reader: SessionReader,
    writer: SessionWriter,
}

/// The output of a process, and its exit.
#[derive(Debug)]
pub struct SessionReader {
    process: Process,
    exit: ExitWatch,
    stream: Option<StreamReader>,
    ended: Option<Ended>,
    closed: Closed,
}

/// The input of a process.
#[derive(Debug)]
pub struct SessionWriter {
    runtime: Runtime,
    process: Process,
    stream: Option<StreamWriter>,
    /// Whether input is taken still: it was asked for, and has not been ended.
    takes_input: bool,
}

/// What a session yields. After [`SessionItem::CutOff`] and [`SessionItem::Exited`] there is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionItem {
    /// Output.
    Output {
        /// Which stream; a terminal has only the first.
        stream: OutputStream,
        /// What was written.
        bytes: Vec<u8>,
    },
    /// The reader was slower than its [`OnLag`] allows; so many bytes are missing.
    CutOff {
        /// Bytes that were waiting.
        bytes: u64,
    },
    /// All output was delivered, and the process has ended.
    Exited(Exit),
}

/// All that a process wrote, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its standard output, cut at the limit.
    pub stdout: Vec<u8>,
    /// Its standard error, cut at the limit.
    pub stderr: Vec<u8>,
    /// Bytes beyond the limit, which were read and thrown away.
    pub cut_bytes: u64,
    /// How it ended.
    pub exit: Exit,
}

#[derive(Clone, Debug)]
struct Process {
    container: ContainerId,
    exec: Option<ExecId>,
}

/// Where the exit of a process is published. Taken before its streams are opened: the container may forget an
/// exec that has ended, but the last snapshot stays with whoever watches.
#[derive(Clone, Debug)]
pub(crate) enum ExitWatch {
    /// PID 1.
    Init(watch::Receiver<Arc<ContainerSnapshot>>),
    /// An exec.
    Exec(watch::Receiver<Arc<ExecSnapshot>>),
}

impl ExitWatch {
    /// Whether the exit is there.
    fn is_settled(&self) -> bool {
        match self {
            Self::Init(container) => container.borrow().record.exit.is_some(),
            Self::Exec(exec) => exec.borrow().exit.is_some(),
        }
    }

    /// The exit, as soon as there is one; none when the process went away without.
    pub(crate) async fn exit(&mut self) -> Option<Exit> {
        match self {
            Self::Init(container) => {
                let _ = container.wait_for(|snapshot| snapshot.record.exit.is_some()).await;
                container.borrow().record.exit.clone()
            }
            Self::Exec(exec) => {
                let _ = exec.wait_for(|snapshot| snapshot.exit.is_some()).await;
                exec.borrow().exit.clone()
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    AwaitingExit,
    Over,
}

impl Session {
    pub(crate) async fn open(
        runtime: Runtime,
        socket: &Path,
        container: ContainerId,
        exec: Option<ExecId>,
        exit: ExitWatch,
        options: AttachOptions,
    ) -> Result<Self> {
        let request = OpenRequest {
            container: container.clone(),
            exec: exec.clone(),
            stdin: match options.stdin {
                Attached::Yes => StdinUse::Yes,
                Attached::No => StdinUse::No,
            },
            on_lag: match options.on_lag {
                OnLag::Block => streams::OnLag::Block,
                OnLag::Detach => streams::OnLag::Detach,
            },
        };
        let what = format!("the streams of container {container}");
        let (reader, writer) = match Streams::open(socket, &request).await {
            Ok(streams) => (Some(streams.reader), Some(streams.writer)),
            // An exec that ended with its container before anybody could read it: its exit is still told.
            Err(StreamError::Refused(OpenRefusal::Ended { .. })) if exec.is_some() => (None, None),
            Err(error) => return Err(Error::unavailable(what, chain(&error))),
        };
        let process = Process { container, exec };
        let ended = if reader.is_some() { None } else { Some(Ended::AwaitingExit) };
        let closed = runtime.closed();
        Ok(Self {
            reader: SessionReader { process: process.clone(), exit, stream: reader, ended, closed },
            writer: SessionWriter {
                runtime,
                process,
                stream: writer,
                takes_input: options.stdin == Attached::Yes,
            },
        })
    }

    /// The exec whose streams these are; none for PID 1.
    pub fn exec(&self) -> Option<&ExecId> {
        self.reader.process.exec.as_ref()
    }

    /// Output and input apart, so that each can wait without the other.
    pub fn split(self) -> (SessionReader, SessionWriter) {
        (self.reader, self.writer)
    }

    /// Reads until the process has ended, and keeps at most `limit` bytes of each stream.
    ///
    /// # Errors
    /// As [`SessionReader::next`].
    pub async fn collect(mut self, limit: usize) -> Result<ExecOutput> {
        let (mut stdout, mut stderr, mut cut_bytes) = (Vec::new(), Vec::new(), 0u64);
        loop {
            match self.reader.next().await? {
                Some(SessionItem::Output { stream, bytes }) => {
                    let kept = match stream {
                        OutputStream::Stdout => &mut stdout,
                        OutputStream::Stderr => &mut stderr,
                    };
                    let room = (limit - kept.len()).min(bytes.len());
                    kept.extend_from_slice(&bytes[..room]);
                    cut_bytes += (bytes.len() - room) as u64;
                }
                Some(SessionItem::CutOff { bytes }) => cut_bytes += bytes,
                Some(SessionItem::Exited(exit)) => return Ok(ExecOutput { stdout, stderr, cut_bytes, exit }),
                None => return Err(Error::internal("session", "it ended without an exit")),
            }
        }
    }
}

impl SessionReader {
    /// The next item, or none after the last one. May be cancelled without loss.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the process is forgotten and nobody learned how it ended; [`Error::Unavailable`] when the
    /// runtime was closed while it ran: whatever it still says, nobody will learn from this runtime how it ends.
    pub async fn next(&mut self) -> Result<Option<SessionItem>> {
        let stream = match (self.ended, &mut self.stream) {
            (Some(Ended::Over), _) => return Ok(None),
            (Some(Ended::AwaitingExit), _) | (None, None) => return self.exit().await.map(Some),
            (None, Some(stream)) => stream,
        };
        let running = !self.exit.is_settled();
        let frame = tokio::select! {
            biased;
            () = self.closed.heard(), if running => None,
            frame = stream.next() => Some(frame),
        };
        let Some(frame) = frame else {
            if self.exit.is_settled() {
                // It ended just before the runtime did, and is told to the end.
                return Box::pin(self.next()).await;
            }
            self.ended = Some(Ended::Over);
            return Err(closed());
        };
        let item = match frame {
            Ok(Frame::Stdout(bytes)) => SessionItem::Output { stream: OutputStream::Stdout, bytes },
            Ok(Frame::Stderr(bytes)) => SessionItem::Output { stream: OutputStream::Stderr, bytes },
            Ok(Frame::Lagged { dropped_bytes }) => {
                self.ended = Some(Ended::Over);
                SessionItem::CutOff { bytes: dropped_bytes }
            }
            // The shim is gone, or says that there is no more: either way an exit follows.
            Ok(Frame::End | Frame::Stdin(_) | Frame::StdinEof) => return self.await_exit().await,
            Err(error) => {
                tracing::debug!(container = %self.process.container, error = chain(&error), "stream broke");
                return self.await_exit().await;
            }
        };
        Ok(Some(item))
    }

    /// What the process writes from now on is thrown away where it comes up, and the next item is its exit. The input has to be
    /// dropped as well: as long as somebody may write, the streams are open.
    pub fn listen_no_more(&mut self) {
        self.stream = None;
        self.ended.get_or_insert(Ended::AwaitingExit);
    }

    async fn await_exit(&mut self) -> Result<Option<SessionItem>> {
        self.ended = Some(Ended::AwaitingExit);
        self.exit().await.map(Some)
    }

    async fn exit(&mut self) -> Result<SessionItem> {
        let exit = self.closed.or(self.exit.exit()).await;
        self.ended = Some(Ended::Over);
        let exit = exit?;
        let Process { container, exec } = &self.process;
        exit.map(SessionItem::Exited).ok_or_else(|| match exec {
            Some(exec) => Error::not_found(Kind::Exec, exec),
            None => Error::not_found(Kind::Container, container),
        })
    }
}

impl SessionWriter {
    /// Writes to standard input; waits while the process does not read. Input for a process that has ended, has closed its input or
    /// has none goes nowhere, as with a pipe whose reader is gone.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the runtime is closed while it waits.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.takes_input) else { return Ok(()) };
        if let Err(error) = self.runtime.closed().or(stream.write(bytes)).await? {
            tracing::debug!(container = %self.process.container, error = chain(&error), "input was not taken");
        }
        Ok(())
    }

    /// Ends standard input. Nothing happens where there is none, or none any more: the shim would take it for a client that does
    /// not know what it asked for, and send no more of the output.
    pub async fn close_stdin(&mut self) -> Result<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.takes_input) else { return Ok(()) };
        self.takes_input = false;
        if let Err(error) = stream.close_stdin().await {
            tracing::debug!(container = %self.process.container, error = chain(&error), "input was closed already");
        }
        Ok(())
    }

    /// Changes the size of the terminal.
    ///
    /// # Errors
    /// As [`Runtime::resize`].
    pub async fn resize(&mut self, size: WindowSize) -> Result<()> {
        self.runtime.resize(&self.process.container, self.process.exec.as_ref(), size).await
    }
}
