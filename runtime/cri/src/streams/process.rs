//! A process behind a stream: a command of the client's own, or PID 1 of a container.
//!
//! Owns: what becomes of a process whose client leaves: its input ends, and a terminal of its own hangs up, as when a line drops; a
//! process without a terminal goes on, and so does PID 1. Never: keeps output. A command waits while its client does not read;
//! PID 1 waits for nobody, and the client that is too slow for it is cut off.

use async_trait::async_trait;
use bytes::Bytes;
use mainstay::{
    AttachOptions, Attached, ContainerId, Error, ExecId, ExecSpec, Exit, ExitStatus, OnLag, Runtime, Session,
    SessionItem, SessionReader, SessionWriter, Signal, Stdin, Terminal, WindowSize,
};
use mainstay_cri_streaming::backend::{
    Exit as StreamExit, Failure, Item, OpenProcess, OutputStream, Process, ProcessControl, ProcessOutput,
    ProcessStdin, Streams, TerminalSize,
};
use mainstay_messages::error::chain;

/// What a process is told when the line of its terminal drops.
const HANG_UP: Signal = Signal(1);
/// The terminal of a client that has not said how large its own is.
const SIZE_UNSAID: WindowSize = WindowSize { rows: 24, columns: 80 };

/// A command that is run when its client is there.
pub(super) struct Command {
    pub(super) runtime: Runtime,
    pub(super) container: ContainerId,
    pub(super) command: Vec<String>,
    pub(super) wanted: Streams,
}

/// PID 1 of a container, which is attached to when its client is there.
pub(super) struct Attachment {
    pub(super) runtime: Runtime,
    pub(super) container: ContainerId,
    pub(super) wanted: Streams,
}

struct Input(SessionWriter);

struct Output(SessionReader);

struct Control {
    runtime: Runtime,
    container: ContainerId,
    /// The command; none for PID 1.
    exec: Option<ExecId>,
    wanted: Streams,
}

#[async_trait]
impl OpenProcess for Command {
    async fn open(self: Box<Self>, size: Option<TerminalSize>) -> Result<Process, Failure> {
        let Self { runtime, container, command, wanted } = *self;
        let mut spec = ExecSpec::new(command);
        spec.stdin = if wanted.stdin { Stdin::Once } else { Stdin::Null };
        if wanted.terminal {
            spec.process.terminal = Terminal::Tty(size.map_or(SIZE_UNSAID, window));
        }
        let session = runtime.exec(&container, spec).await.map_err(|error| sentence(&error))?;
        Ok(process(runtime, container, wanted, session))
    }
}

#[async_trait]
impl OpenProcess for Attachment {
    async fn open(self: Box<Self>, size: Option<TerminalSize>) -> Result<Process, Failure> {
        let Self { runtime, container, wanted } = *self;
        let has_input = runtime.container(&container).map(|found| found.record.spec.stdin != Stdin::Null);
        // As with every other runtime, what is sent to a container without input goes nowhere.
        let takes_input = wanted.stdin && has_input.map_err(|error| sentence(&error))?;
        let stdin = if takes_input { Attached::Yes } else { Attached::No };
        let options = AttachOptions { stdin, on_lag: OnLag::Detach };
        let session = runtime.attach(&container, options).await.map_err(|error| sentence(&error))?;
        let process = process(runtime, container, wanted, session);
        if let Some(size) = size {
            process.control.resize(size).await;
        }
        Ok(process)
    }
}

fn process(runtime: Runtime, container: ContainerId, wanted: Streams, session: Session) -> Process {
    let exec = session.exec().cloned();
    let (reader, writer) = session.split();
    Process {
        stdin: Box::new(Input(writer)),
        output: Box::new(Output(reader)),
        control: Box::new(Control { runtime, container, exec, wanted }),
    }
}

#[async_trait]
impl ProcessStdin for Input {
    async fn write(&mut self, bytes: &[u8]) {
        // It fails when the runtime ends, which the output tells.
        let _ = self.0.write(bytes).await;
    }

    async fn close(&mut self) {
        let _ = self.0.close_stdin().await;
    }
}

#[async_trait]
impl ProcessOutput for Output {
    async fn next(&mut self) -> Result<Item, Failure> {
        match self.0.next().await {
            Ok(Some(SessionItem::Output { stream, bytes })) => {
                let stream = match stream {
                    mainstay::OutputStream::Stdout => OutputStream::Stdout,
                    mainstay::OutputStream::Stderr => OutputStream::Stderr,
                };
                Ok(Item::Output { stream, bytes: Bytes::from(bytes) })
            }
            Ok(Some(SessionItem::CutOff { bytes })) => Err(Failure(format!(
                "this client reads too slowly: it was cut off with {bytes} bytes waiting for it, and the container goes on"
            ))),
            Ok(Some(SessionItem::Exited(exit))) => Ok(Item::Exited(ended(&exit))),
            Ok(None) => Err(Failure("the process is gone, and nobody learned how it ended".into())),
            Err(error) => Err(sentence(&error)),
        }
    }
}

#[async_trait]
impl ProcessControl for Control {
    async fn resize(&self, size: TerminalSize) {
        let resized = self.runtime.resize(&self.container, self.exec.as_ref(), window(size)).await;
        if let Err(error) = resized {
            tracing::debug!(container = %self.container, %error, "a terminal was not resized");
        }
    }

    async fn abandoned(&self) {
        let Some(exec) = self.exec.as_ref().filter(|_| self.wanted.terminal) else { return };
        if let Err(error) = self.runtime.kill_exec(&self.container, exec, HANG_UP).await {
            tracing::debug!(container = %self.container, %exec, %error, "a terminal did not hang up");
        }
    }
}

fn window(size: TerminalSize) -> WindowSize {
    WindowSize { rows: size.rows, columns: size.columns }
}

fn ended(exit: &Exit) -> StreamExit {
    match &exit.status {
        ExitStatus::Exited { .. } | ExitStatus::Signaled { .. } => {
            StreamExit::Code(u8::try_from(exit.code()).unwrap_or(u8::MAX))
        }
        ExitStatus::StartError { .. } | ExitStatus::Unknown { .. } => {
            StreamExit::Unknown(format!("the process {exit}"))
        }
    }
}

fn sentence(error: &Error) -> Failure {
    Failure(chain(error))
}
