//! The commands: each asks the daemon and shows the answer. Sessions, tables and shapes of JSON are
//! elsewhere.

mod archive;
mod audit;
mod image;
mod journal;
mod lifecycle;
mod list;
mod local;
mod logs;
mod metrics;
mod nri;
mod pod;
mod process;
mod run;
mod shims;
mod show;
mod stats;

use std::process::ExitCode;

use serde::Serialize;

use crate::arguments::{Command, Format};
use crate::connection::Context;
use crate::failure::{Failure, Result};
use crate::{output, view};

/// Runs a command; the result is the exit status.
pub async fn run(context: &Context, command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => run::run(context, &arguments).await,
        Command::Create(arguments) => run::create(context, &arguments).await,
        Command::Start(arguments) => lifecycle::start(context, arguments).await,
        Command::Stop(arguments) => lifecycle::stop(context, arguments).await,
        Command::Kill(arguments) => lifecycle::kill(context, arguments).await,
        Command::Pause(arguments) => lifecycle::pause(context, arguments).await,
        Command::Resume(arguments) => lifecycle::resume(context, arguments).await,
        Command::Update(arguments) => lifecycle::update(context, arguments).await,
        Command::Rm(arguments) => lifecycle::remove(context, arguments).await,
        Command::Wait(arguments) => lifecycle::wait(context, arguments).await,
        Command::Exec(arguments) => process::exec(context, &arguments).await,
        Command::Attach(arguments) => process::attach(context, arguments).await,
        Command::Ps(arguments) => list::containers(context, &arguments).await,
        Command::Pods(arguments) => list::pods(context, &arguments).await,
        Command::Pod(command) => pod::run(context, command).await,
        Command::Inspect(arguments) => show::inspect(context, arguments).await,
        Command::Pull(arguments) => image::pull(context, arguments).await,
        Command::Images(arguments) => image::list(context, &arguments).await,
        Command::Rmi(arguments) => image::remove(context, arguments).await,
        Command::Image(command) => image::run(context, command).await,
        Command::Logs(arguments) => logs::logs(context, arguments).await,
        Command::Stats(arguments) => stats::stats(context, arguments).await,
        Command::Events(arguments) => journal::events(context, arguments).await,
        Command::Explain(arguments) => journal::explain(context, arguments).await,
        Command::Audit(arguments) => audit::audit(context, &arguments).await,
        Command::Metrics(arguments) => metrics::metrics(context, &arguments).await,
        Command::Nri(command) => nri::run(context, command).await,
        Command::Shims => shims::shims(context).await,
        Command::Daemon => local::daemon(context).await,
        Command::Bench(command) => local::bench(context, &command).await,
        Command::Config(command) => local::config(context, command),
        Command::Completion { shell } => local::completion(shell),
        Command::Version => local::version(context).await,
    }
}

/// Prints a result: for people as it says itself, for programs as one JSON document.
fn print(format: Format, text: impl FnOnce() -> String, json: &impl Serialize) -> Result<ExitCode> {
    let shown = match format {
        Format::Text => text(),
        Format::Json => view::document(json),
    };
    output::print(&shown).map_err(Failure::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// Now, by the clock of this machine, which is the daemon's too.
fn now() -> mainstay_messages::Timestamp {
    mainstay_messages::Timestamp::from_system(std::time::SystemTime::now())
}
