//! Why a command failed, and the exit status that says so.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use mainstay::ConfigError;
use mainstay_messages::error::chain;
use mainstay_messages::process::EXIT_CODE_SIGNAL_BASE;
use mainstay_messages::{Error, Signal};
use serde_json::{Value, json};
use thiserror::Error as ThisError;

/// The exit status when a command failed.
const EXIT_FAILED: u8 = 1;
/// The exit status when `run`, `create` or `exec` failed, other than by their process: no process of a user
/// ends so by chance, and `docker` uses it too.
const EXIT_FAILED_TO_RUN: u8 = 125;

/// The result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command failed. The text is one sentence, printed after `mainstay: `.
#[derive(Debug, ThisError)]
pub enum Failure {
    /// The daemon refused, or cannot be reached.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// We are not root.
    #[error("mainstay {command} needs root: {purpose}; run it as root")]
    NeedsRoot {
        /// What was to be done.
        command: &'static str,
        /// What it needs root for.
        purpose: &'static str,
    },
    /// What was asked for works only in a daemon, and none answers.
    #[error("{what} needs a daemon, and none answers on {}: start one with `mainstay daemon`", socket.display())]
    NeedsDaemon {
        /// What was to be done.
        what: &'static str,
        /// Where a daemon would answer.
        socket: PathBuf,
    },
    /// Input is to come from a terminal, and there is none.
    #[error("--interactive with --tty needs a terminal, and standard input is none; leave out --tty")]
    NeedsTerminal,
    /// A file on the command line is wrong.
    #[error("{}{}: {reason}", path.display(), line.map(|n| format!(", line {n}")).unwrap_or_default())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1, if one is to blame.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
    /// An update without a limit.
    #[error("no limit to change was given; name one, as in --memory 64m (see mainstay update --help)")]
    NothingToChange,
    /// Something on this machine does not work.
    #[error("{what}")]
    Machine {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A benchmark could not be run to its end.
    #[error("the benchmark failed")]
    Bench(#[source] Box<dyn std::error::Error>),
    /// Results could not be written.
    #[error("standard output")]
    Output(#[source] io::Error),
    /// We read the output of a container more slowly than it may be held up.
    #[error(
        "cut off: {bytes} bytes of output came faster than they were read here; `mainstay logs` has them"
    )]
    CutOff {
        /// Bytes that were waiting.
        bytes: u64,
    },
    /// A signal came before there was a process to pass it on to.
    #[error("interrupted by {0}")]
    Interrupted(Signal),
    /// Some of the objects on the command line failed; each was said already.
    #[error("not all of it was done")]
    Partly,
}

/// A failure as programs are told of it.
pub trait Told {
    /// What kind it is, in snake_case: the same words for the same thing, whatever the sentence says.
    fn kind(&self) -> String;
    /// The sentence, with its causes.
    fn sentence(&self) -> String;
    /// What else is known of it, by name; an empty object when that is nothing.
    fn details(&self) -> Value;
}

/// Which exit status a failure has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statuses {
    /// 1.
    Usual,
    /// 125, as the exit status is otherwise that of the process.
    OfProcess,
}

impl Failure {
    /// Refuses what only root can do, before anything is started.
    pub fn unless_root(command: &'static str, purpose: &'static str) -> Result<()> {
        if rustix::process::geteuid().is_root() { Ok(()) } else { Err(Self::NeedsRoot { command, purpose }) }
    }

    /// Something on this machine does not work.
    pub fn machine(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Machine { what: what.into(), source: source.into() }
    }

    /// The exit status.
    pub fn exit_code(&self, statuses: Statuses) -> ExitCode {
        match (self, statuses) {
            (Self::Interrupted(signal), _) => exit_code(EXIT_CODE_SIGNAL_BASE + u32::from(signal.0)),
            (_, Statuses::Usual) => EXIT_FAILED.into(),
            (_, Statuses::OfProcess) => EXIT_FAILED_TO_RUN.into(),
        }
    }
}

impl Told for Failure {
    fn kind(&self) -> String {
        let kind = match self {
            Self::Refused(error) => return error.kind(),
            Self::Config(_) => "configuration",
            Self::NeedsRoot { .. } => "needs_root",
            Self::NeedsDaemon { .. } => "needs_daemon",
            Self::NeedsTerminal => "needs_terminal",
            Self::File { .. } => "file",
            Self::NothingToChange => "nothing_to_change",
            Self::Machine { .. } => "machine",
            Self::Bench(_) => "bench",
            Self::Output(_) => "output",
            Self::CutOff { .. } => "cut_off",
            Self::Interrupted(_) => "interrupted",
            Self::Partly => "partly",
        };
        kind.to_owned()
    }

    fn sentence(&self) -> String {
        chain(self)
    }

    fn details(&self) -> Value {
        match self {
            Self::Refused(error) => error.details(),
            _ => json!({}),
        }
    }
}

impl Told for Error {
    fn kind(&self) -> String {
        tagged(self).0
    }

    fn sentence(&self) -> String {
        chain(self)
    }

    fn details(&self) -> Value {
        tagged(self).1
    }
}

/// The name and the fields of an error. Its form is an object with the one for the other.
fn tagged(error: &Error) -> (String, Value) {
    match serde_json::to_value(error) {
        Ok(Value::Object(object)) => object.into_iter().next().unwrap_or_default(),
        // An error is made of texts and numbers, which always have a form.
        _ => (String::new(), json!({})),
    }
}

/// The exit status that shows the code of a process; all that it can hold is a byte.
pub fn exit_code(code: u32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_its_causes_once() {
        let failure = Failure::machine("random bytes", io::Error::other("none left"));
        assert_eq!(failure.sentence(), "random bytes: none left");
        let refused = Failure::from(Error::unavailable("the daemon", "it is gone"));
        assert_eq!(refused.sentence(), "the daemon is not available: it is gone");
        let file = Failure::File { path: "vars".into(), line: Some(3), reason: "no key".into() };
        assert_eq!(file.sentence(), "vars, line 3: no key");
    }

    #[test]
    fn statuses() {
        let failure = Failure::Partly;
        assert_eq!(failure.exit_code(Statuses::Usual), ExitCode::from(1));
        assert_eq!(failure.exit_code(Statuses::OfProcess), ExitCode::from(125));
        assert_eq!(Failure::Interrupted(Signal::TERM).exit_code(Statuses::OfProcess), ExitCode::from(143));
        assert_eq!(exit_code(1_000), ExitCode::from(255));
    }
}
