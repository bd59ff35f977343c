//! The streams of a process that another shim makes.
//!
//! Owns: which way they go, and connecting them once the process has been made. Never: reads or writes.
//!
//! | | standard output and error | standard input |
//! |---|---|---|
//! | neither terminal nor input, `output = "logger"` | pipes, brought by a logger | none |
//! | else | FIFOs, into which the shim copies | a FIFO |

use mainstay_task_api::streams::Terminal;
use tokio::io::Interest;
use tokio::sync::oneshot;

use super::fifo::{Fifos, OwnEnds};
use super::logger::{Logger, Pipes, TICKET};
use super::{Output, TaskShim};
use crate::child_io::ShimEnds;
use crate::create::connect;
use crate::failure::Failure;
use crate::output::pump::{self, Ends};
use crate::process::Process;
use crate::readiness::watch;
use crate::stdin::StdinMode;

/// The streams of a process, as a request names them.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) stdin: String,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Streams that nobody has connected yet.
pub(super) enum Streams {
    Logger(oneshot::Receiver<Pipes>),
    Fifos(Fifos, Box<OwnEnds>),
}

/// What is held until the other shim has let go of the process.
#[derive(Debug)]
pub(super) enum Connected {
    Nothing,
    Logger { _logger: Logger },
    Fifos { _fifos: Fifos },
}

impl TaskShim {
    /// The streams of a process that is about to be made.
    pub(super) fn streams(&self, process: &Process) -> Result<(Names, Streams), Failure> {
        let plain = process.terminal == Terminal::No && process.stdin.mode() == StdinMode::Null;
        if plain && self.settings.output == Output::Logger {
            let (ticket, pipes) = self.awaited.borrow_mut().issue();
            let uri = format!("binary://{}?{TICKET}={ticket}", self.home.logger().display());
            let names = Names { stdout: uri.clone(), stderr: uri, ..Default::default() };
            return Ok((names, Streams::Logger(pipes)));
        }
        let directory = self.home.fifos(self.next_number());
        let (fifos, ends) = Fifos::make(directory, process).map_err(Failure::system("making FIFOs"))?;
        let text = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
        let names = Names {
            stdin: fifos.stdin.as_ref().map(text).unwrap_or_default(),
            stdout: text(&fifos.stdout),
            stderr: fifos.stderr.as_ref().map(text).unwrap_or_default(),
        };
        Ok((names, Streams::Fifos(fifos, Box::new(ends))))
    }
}

impl Streams {
    /// Connects them to a process, if that was made; the other shim has its ends by then.
    pub(super) fn connect(self, process: &Process, made: Made) -> Result<Connected, Failure> {
        match self {
            Self::Fifos(fifos, ends) => {
                let OwnEnds { stdin, output, held } = *ends;
                drop(held);
                if made == Made::Yes {
                    connect(process, ShimEnds::Pipes { stdin, output });
                }
                Ok(Connected::Fifos { _fifos: fifos })
            }
            Self::Logger(_) if made == Made::No => Ok(Connected::Nothing),
            Self::Logger(mut pipes) => {
                let Ok(Pipes { stdout, stderr, logger }) = pipes.try_recv() else {
                    return Err(Failure::Invalid {
                        field: "output",
                        value: "logger".to_owned(),
                        expected: "\"fifo\", since this shim starts no loggers",
                    });
                };
                let watched = |fd| watch(fd, Interest::READABLE).map_err(Failure::system("watching a pipe"));
                pump::start(
                    &process.output,
                    Ends::Pipes { stdout: watched(stdout)?, stderr: watched(stderr)? },
                );
                Ok(Connected::Logger { _logger: logger })
            }
        }
    }
}

/// Whether a process was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Yes,
    No,
}

impl<T, E> From<&Result<T, E>> for Made {
    fn from(outcome: &Result<T, E>) -> Self {
        if outcome.is_ok() { Self::Yes } else { Self::No }
    }
}
