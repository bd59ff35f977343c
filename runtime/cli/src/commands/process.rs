//! `exec` and `attach`, and what they share with `run`: the environment of a process, and what its end means
//! for us.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use mainstay_messages::admin::{Attached, Object, OnLag, StreamRequest};
use mainstay_messages::error::Kind;
use mainstay_messages::process::{EXIT_CODE_SIGNAL_BASE, EXIT_CODE_START_ERROR, ExitStatus, OomVerdict};
use mainstay_messages::spec::{Stdin, Terminal};
use mainstay_messages::{Error, Exit};

use crate::arguments::AttachArguments;
use crate::arguments::container::{ExecArguments, ProcessArguments};
use crate::arguments::parse;
use crate::arguments::spec::Surroundings;
use crate::connection::{Context, absolute};
use crate::failure::{Failure, Result, exit_code};
use crate::foreground::{self, Ending, Plan, Screen, Start};
use crate::output::{tell, tell_failure};
use crate::signals::{Ownership, Signals};
use crate::terminal::{self, DetachKeys, WINDOW_DEFAULT};

/// The largest file of variables that is read, in bytes.
const ENV_FILE_LENGTH_MAX: u64 = 4 * 1024 * 1024;

/// `mainstay exec`
pub(super) async fn exec(context: &Context, arguments: &ExecArguments) -> Result<ExitCode> {
    let spec = arguments.exec_spec(Surroundings {
        environment: environment(&arguments.process)?,
        window: terminal::window().unwrap_or(WINDOW_DEFAULT),
        absolute: &absolute,
        seccomp_profile: None,
    });
    spec.check()?;
    terminal_for(&arguments.process)?;
    let client = context.daemon().await?;
    let mut signals = Signals::listen()?;
    let plan = Plan {
        container: arguments.container.clone(),
        ownership: Ownership::Exec,
        input: if spec.stdin == Stdin::Null { Attached::No } else { Attached::Yes },
        screen: if spec.process.terminal == Terminal::None { Screen::None } else { Screen::Terminal },
        keys: DetachKeys::Ignored,
        start: Start::Not,
    };
    let request = StreamRequest::Exec { container: arguments.container.clone(), spec: Box::new(spec) };
    let stream = client.open(request).await?;
    conclude(foreground::run(&client, stream, &mut signals, plan).await?)
}

/// `mainstay attach`
pub(super) async fn attach(context: &Context, arguments: AttachArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let Object::Container { container, .. } = client.inspect(arguments.container.clone()).await? else {
        return Err(Error::not_found(Kind::Container, &arguments.container.0).into());
    };
    let spec = &container.record.spec;
    let input = if arguments.no_stdin || spec.stdin == Stdin::Null { Attached::No } else { Attached::Yes };
    let mut signals = Signals::listen()?;
    // Whoever looks on must not hold up the container.
    let request =
        StreamRequest::Attach { container: arguments.container.clone(), stdin: input, on_lag: OnLag::Detach };
    let stream = client.open(request).await?;
    let plan = Plan {
        container: arguments.container,
        ownership: Ownership::Attached,
        input,
        screen: if spec.process.terminal == Terminal::None { Screen::None } else { Screen::Terminal },
        keys: DetachKeys::Watched,
        start: Start::Not,
    };
    conclude(foreground::run(&client, stream, &mut signals, plan).await?)
}

/// Refuses input for a terminal that does not come from one: the end of a pipe or file is nothing that a terminal
/// can pass on, so a shell on it would wait for ever.
pub(super) fn terminal_for(arguments: &ProcessArguments) -> Result<()> {
    match arguments.interactive && arguments.tty && !terminal::on_terminal() {
        true => Err(Failure::NeedsTerminal),
        false => Ok(()),
    }
}

/// The environment of a process: its files in order, then its flags.
pub(super) fn environment(arguments: &ProcessArguments) -> Result<BTreeMap<String, String>> {
    let mut variables = Vec::new();
    for path in &arguments.env_files {
        let text = read_text(path, "a file of variables", ENV_FILE_LENGTH_MAX)?;
        let wrong = |(line, reason)| Failure::File { path: path.clone(), line: Some(line), reason };
        variables.extend(parse::env_file(&text).map_err(wrong)?);
    }
    variables.extend(arguments.env.iter().cloned());
    Ok(parse::environment(variables, |key| std::env::var(key).ok()))
}

/// Reads a text file that somebody named. What has no end, as /dev/zero, is refused like what is too long.
pub(super) fn read_text(path: &Path, what: &str, length_max: u64) -> Result<String> {
    let failure = |reason| Failure::File { path: path.to_owned(), line: None, reason };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(length_max + 1).read_to_string(&mut text));
    match read {
        Ok(length) if length as u64 > length_max => {
            Err(failure(format!("too long: {what} has at most {length_max} bytes")))
        }
        Ok(_) => Ok(text),
        // The limit may have cut a character in two.
        Err(error) => Err(failure(error.to_string())),
    }
}

/// What the end of a session means for us: its exit status, and a word where that alone would not say it.
pub(super) fn conclude(ending: Ending) -> Result<ExitCode> {
    match ending {
        Ending::Exited(exit) => {
            if let Some(word) = word_about(&exit) {
                tell(word);
            }
            Ok(exit_code(exit.code()))
        }
        Ending::NotStarted(error @ Error::StartFailed { .. }) => {
            tell_failure(&error);
            Ok(exit_code(EXIT_CODE_START_ERROR))
        }
        Ending::NotStarted(error) => Err(error.into()),
        Ending::CutOff(bytes) => Err(Failure::CutOff { bytes }),
        Ending::Detached => Ok(ExitCode::SUCCESS),
        Ending::Left(signal) => Ok(exit_code(EXIT_CODE_SIGNAL_BASE + u32::from(signal.0))),
        Ending::Unwritable(error) => Err(Failure::Output(error)),
    }
}

/// What an exit code alone does not say.
fn word_about(exit: &Exit) -> Option<String> {
    match (&exit.status, exit.oom) {
        (ExitStatus::StartError { reason }, _) => Some(reason.clone()),
        (ExitStatus::Unknown { .. }, _) => Some(format!("the process {exit}")),
        (_, OomVerdict::Killed) => Some(format!("the process was {exit}")),
        (ExitStatus::Exited { .. } | ExitStatus::Signaled { .. }, OomVerdict::NotKilled) => None,
    }
}
