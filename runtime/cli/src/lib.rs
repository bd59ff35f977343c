//! The `mainstay` command: what is typed, what is shown, and the sessions in between. It is a client of the
//! admin RPC and of nothing else; where no daemon answers, `run` starts one inside itself and is a client of
//! that.
//!
//! | module | holds |
//! |---|---|
//! | [`arguments`] | what can be typed, and the specs that it makes |
//! | `commands` | one file for each group of commands |
//! | [`mod@bench`] | `mainstay bench`, which embeds the runtime |
//! | `connection`, `embedded` | where the daemon is; a daemon inside this command |
//! | `foreground`, `keyboard`, `signals`, `terminal` | a session: output, input, signals, raw mode |
//! | `progress` | a pull while it goes on |
//! | `systemd` | readiness and watchdog of the daemon |
//! | `output`, `table`, `tree`, `view`, `words` | what is shown, to people and to programs |
//! | `failure` | why a command failed, and its exit status |
//! | `naming` | made-up names |

pub mod arguments;
pub mod bench;
mod commands;
mod connection;
mod embedded;
mod failure;
mod foreground;
mod keyboard;
mod life;
mod naming;
mod output;
mod progress;
mod signals;
mod systemd;
mod table;
mod terminal;
mod tree;
mod view;
mod words;

use std::process::ExitCode;

use crate::arguments::{Arguments, Command, LOG_VARIABLE};
use crate::bench::Bench;
use crate::connection::Context;
use crate::failure::{Failure, Statuses};

/// What the daemon logs when [`LOG_VARIABLE`] does not say.
const DAEMON_LOG_DEFAULT: &str = "info";

/// The whole command. A program whose `main` is this, and nothing before it, is the `mainstay` command.
pub fn main() -> ExitCode {
    mainstay::init();
    let Arguments { global, command } = Arguments::read();
    output::speak(global.format());
    start_logging(&command);
    if let Command::Bench(Bench::Floor(options)) = &command {
        // It forks, so it must come before anything that might have threads.
        return bench::run_floor(options);
    }
    let statuses = match command {
        Command::Run(_) | Command::Create(_) | Command::Exec(_) => Statuses::OfProcess,
        _ => Statuses::Usual,
    };
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::machine("starting the event loop", e))
        .and_then(|tokio| {
            let outcome = tokio.block_on(commands::run(&Context::new(global), command));
            // Threads that wait for input or a terminal must not keep us from ending.
            tokio.shutdown_background();
            outcome
        });
    match outcome {
        Ok(code) => code,
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            output::die_of_broken_pipe()
        }
        Err(failure) => {
            if !matches!(failure, Failure::Partly) {
                output::tell_failure(&failure);
            }
            failure.exit_code(statuses)
        }
    }
}

/// The daemon says what it does; every other command only when asked, since its standard error belongs to
/// what it shows.
fn start_logging(command: &Command) {
    use tracing_subscriber::EnvFilter;
    let wanted = std::env::var(LOG_VARIABLE).ok();
    let filter = match (wanted.as_deref(), command) {
        (Some(wanted), _) => wanted,
        (None, Command::Daemon) => DAEMON_LOG_DEFAULT,
        (None, _) => return,
    };
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}
