//! A session in the foreground: output of a process to ours, our input and signals to it, until it has ended.
//!
//! ```text
//!   stream ──► waiting piece ──► Pump (thread) ──► stdout, stderr
//!   stdin (thread) ──► Keyboard (task) ──► stream
//!   signals ──► meaning ──► calls beside the stream
//! ```
//!
//! Nothing here waits for anything else: a reader of our output that stalls does not keep a signal from
//! arriving, and a process that does not read its input does not keep its output from being read. It never
//! makes or removes a container.

use std::io;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use mainstay_admin::{Client, StreamHandle};
use mainstay_messages::admin::{Attached, End, Item, Reference, Request};
use mainstay_messages::{Error, ExecId, Exit, Signal};
use tokio::sync::oneshot;

use crate::failure::{Failure, Result};
use crate::keyboard::{Keyboard, KeyboardEnd};
use crate::output::{Piece, Pump, tell, tell_failure};
use crate::signals::{Before, INT, Meaning, Ownership, Seat, Signals, meaning};
use crate::terminal::{self, DetachKeys, RawMode};

/// Ends a process whose output nobody reads, as a pipe would.
const PIPE: Signal = Signal(13);

/// What a session is to do.
#[derive(Debug)]
pub struct Plan {
    /// The container.
    pub container: Reference,
    /// Whose process it is.
    pub ownership: Ownership,
    /// Whether our input is sent.
    pub input: Attached,
    /// Whether the process has a terminal.
    pub screen: Screen,
    /// Whether it can be left by keys.
    pub keys: DetachKeys,
    /// Whether the container is still to be started.
    pub start: Start,
}

/// Whether a process has a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// It does: ours becomes raw while input is sent.
    Terminal,
    /// It does not.
    None,
}

/// Whether a container is started once its streams are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is.
    Now,
    /// It runs already.
    Not,
}

/// How a session ended.
#[derive(Debug)]
pub enum Ending {
    /// The process ended.
    Exited(Exit),
    /// The process could not be started.
    NotStarted(Error),
    /// We were too slow, and were cut off; so many bytes are missing.
    CutOff(u64),
    /// It was left by keys; the process goes on.
    Detached,
    /// It was left by a signal; the process goes on.
    Left(Signal),
    /// Our output cannot be written; what was ours was ended.
    Unwritable(io::Error),
}

/// The answer to a call that was made beside the stream.
enum Answer {
    Started(Result<(), Error>),
    Signalled(Result<(), Error>),
}

struct Session<'a> {
    client: &'a Client,
    plan: Plan,
    exec: Option<ExecId>,
    /// Signals for an exec whose id is not known yet.
    early: Vec<Signal>,
    calls: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// Why our output cannot be written, once it cannot.
    unwritable: Option<io::Error>,
}

/// Runs a session until it has ended. The terminal is as it was when this returns.
pub async fn run(client: &Client, stream: StreamHandle, signals: &mut Signals, plan: Plan) -> Result<Ending> {
    let input = plan.input;
    let raw = match (plan.screen, input) {
        (Screen::Terminal, Attached::Yes) => {
            RawMode::enter().map_err(|e| Failure::machine("making the terminal raw", e))?
        }
        _ => None,
    };
    let keys = if raw.is_some() { plan.keys } else { DetachKeys::Ignored };
    let keyboard = match input {
        Attached::Yes => Some(
            Keyboard::start(stream.input_sender(), keys)
                .map_err(|e| Failure::machine("reading standard input", e))?,
        ),
        Attached::No => None,
    };
    let pump = Pump::start().map_err(|e| Failure::machine("writing standard output", e))?;
    let mut session = Session {
        client,
        plan,
        exec: None,
        early: Vec::new(),
        calls: FuturesUnordered::new(),
        unwritable: None,
    };
    let ending = session.copy(stream, signals, keyboard, pump).await;
    drop(raw);
    ending
}

impl Session<'_> {
    /// Copies until the session has ended.
    async fn copy(
        &mut self,
        mut stream: StreamHandle,
        signals: &mut Signals,
        mut keyboard: Option<Keyboard>,
        pump: Pump,
    ) -> Result<Ending> {
        let Pump { pieces, mut finished } = pump;
        let mut waiting: Option<Piece> = None;
        let ending = loop {
            tokio::select! {
                item = stream.next(), if waiting.is_none() => match item {
                    Some(item) => waiting = self.take(item),
                    None => break ended(stream.end().await)?,
                },
                room = pieces.reserve(), if waiting.is_some() => {
                    // Without room the thread has ended, and says below why.
                    if let (Ok(room), Some(piece)) = (room, waiting.take()) {
                        room.send(piece);
                    }
                }
                outcome = &mut finished, if self.unwritable.is_none() => {
                    if let Some(ending) = self.output_failed(outcome) {
                        break ending;
                    }
                }
                signal = signals.next() => {
                    if let Some(ending) = self.signalled(signal, signals) {
                        break ending;
                    }
                }
                end = ended_keyboard(&mut keyboard) => {
                    keyboard = None;
                    if end == KeyboardEnd::Detach {
                        break Ending::Detached;
                    }
                }
                Some(answer) = self.calls.next() => {
                    if let Some(ending) = answered(answer) {
                        break ending;
                    }
                }
            }
        };
        if self.unwritable.is_none() {
            drop(pieces);
            self.drain(&mut finished, signals).await;
        }
        Ok(match self.unwritable.take() {
            Some(error) => Ending::Unwritable(error),
            None => ending,
        })
    }

    /// Waits until all that the process wrote is written here, or somebody does not want to wait for that.
    async fn drain(&mut self, finished: &mut oneshot::Receiver<io::Result<()>>, signals: &mut Signals) {
        loop {
            tokio::select! {
                outcome = &mut *finished => {
                    self.unwritable = outcome.unwrap_or(Ok(())).err();
                    return;
                }
                signal = signals.next() => {
                    if matches!(signal, INT | Signal::TERM) {
                        return;
                    }
                }
            }
        }
    }

    /// Takes an item of the stream: output that is to be written, or news.
    fn take(&mut self, item: Item) -> Option<Piece> {
        match item {
            Item::Output { stream, bytes } => self.unwritable.is_none().then_some((stream, bytes)),
            Item::ExecStarted { exec } => {
                self.exec = Some(exec);
                for signal in std::mem::take(&mut self.early) {
                    self.pass(signal);
                }
                // Our terminal may have changed since its size was put into the spec.
                self.resize();
                None
            }
            Item::Opened => {
                self.opened();
                None
            }
            Item::Log(_) | Item::Event(_) | Item::Lagged { .. } | Item::Pull(_) => None,
        }
    }

    /// All output from now on reaches us: a container that is started now loses none.
    fn opened(&mut self) {
        match self.plan.start {
            Start::Now => {
                let request = Request::StartContainer { container: self.plan.container.clone() };
                self.call(request, Answer::Started);
            }
            // Whoever was attached before may have had a terminal of another size.
            Start::Not => self.resize(),
        }
    }

    fn output_failed(
        &mut self,
        outcome: Result<io::Result<()>, oneshot::error::RecvError>,
    ) -> Option<Ending> {
        let error = match outcome {
            Ok(Err(error)) => error,
            // The thread ends before us only when writing failed or it panicked.
            Ok(Ok(())) | Err(_) => io::Error::other("the thread that writes it has ended"),
        };
        match self.plan.ownership {
            Ownership::Run => {
                self.kill();
                self.unwritable = Some(error);
                None
            }
            Ownership::Exec => {
                self.pass(PIPE);
                self.unwritable = Some(error);
                None
            }
            Ownership::Attached => Some(Ending::Unwritable(error)),
        }
    }

    fn signalled(&mut self, signal: Signal, signals: &mut Signals) -> Option<Ending> {
        let seat = if terminal::on_terminal() { Seat::Terminal } else { Seat::Elsewhere };
        match meaning(signal, self.plan.ownership, signals.before(), seat) {
            Meaning::Stop(signal) => {
                if signals.note_end(signal) == Before::Calm && signal == INT && seat == Seat::Terminal {
                    tell("asked the container to stop; another Ctrl-C kills it");
                }
                let container = self.plan.container.clone();
                let stop = Request::StopContainer { container, signal: Some(signal), grace_ms: None };
                self.call(stop, Answer::Signalled);
            }
            Meaning::Kill => {
                signals.note_end(signal);
                self.kill();
            }
            Meaning::Pass(signal) => self.pass(signal),
            Meaning::Leave(signal) => return Some(Ending::Left(signal)),
            Meaning::Resize => self.resize(),
            Meaning::Nothing => {}
        }
        None
    }

    fn kill(&mut self) {
        let container = self.plan.container.clone();
        let kill = Request::StopContainer { container, signal: Some(Signal::KILL), grace_ms: Some(0) };
        self.call(kill, Answer::Signalled);
    }

    fn pass(&mut self, signal: Signal) {
        let container = self.plan.container.clone();
        match (self.plan.ownership, &self.exec) {
            (Ownership::Exec, None) => self.early.push(signal),
            (Ownership::Exec, Some(exec)) => {
                let request = Request::KillExec { container, exec: exec.clone(), signal };
                self.call(request, Answer::Signalled);
            }
            (Ownership::Run | Ownership::Attached, _) => {
                self.call(Request::KillContainer { container, signal }, Answer::Signalled);
            }
        }
    }

    fn resize(&mut self) {
        let not_yet = self.plan.ownership == Ownership::Exec && self.exec.is_none();
        if self.plan.screen == Screen::None || not_yet {
            return;
        }
        if let Some(size) = terminal::window() {
            let container = self.plan.container.clone();
            self.call(Request::Resize { container, exec: self.exec.clone(), size }, Answer::Signalled);
        }
    }

    fn call(&mut self, request: Request, answer: fn(Result<(), Error>) -> Answer) {
        let client = self.client.clone();
        self.calls.push(async move { answer(client.call(request).await.map(|_| ())) }.boxed());
    }
}

/// Waits for the keyboard; for ever when there is none.
async fn ended_keyboard(keyboard: &mut Option<Keyboard>) -> KeyboardEnd {
    match keyboard {
        Some(keyboard) => keyboard.ended().await,
        None => std::future::pending().await,
    }
}

fn ended(end: Result<End, Error>) -> Result<Ending> {
    match end {
        Ok(End::Exited(exit)) => Ok(Ending::Exited(exit)),
        Ok(End::CutOff { bytes }) => Ok(Ending::CutOff(bytes)),
        Ok(End::Done | End::Images(_)) => {
            Err(Error::internal("session", "it ended without the exit of its process").into())
        }
        Err(error @ Error::StartFailed { .. }) => Ok(Ending::NotStarted(error)),
        Err(error) => Err(error.into()),
    }
}

fn answered(answer: Answer) -> Option<Ending> {
    match answer {
        Answer::Started(Err(error)) => Some(Ending::NotStarted(error)),
        Answer::Started(Ok(())) | Answer::Signalled(Ok(())) => None,
        // The process ended before the signal came.
        Answer::Signalled(Err(
            Error::NotFound { .. } | Error::WrongPhase { .. } | Error::Terminating { .. },
        )) => None,
        Answer::Signalled(Err(error)) => {
            tell_failure(&error);
            None
        }
    }
}
