//! What can be typed: commands, flags and their help. It reads no file and asks no daemon.
//!
//! Flags that `docker` or `podman` have too mean the same here and have the same short form.

pub mod container;
pub mod image;
pub mod parse;
pub mod spec;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use mainstay_messages::admin::Reference;
use mainstay_messages::event::Seq;
use mainstay_messages::{Name, Signal};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::failure::Told;
use crate::output;

use self::container::{CreateArguments, ExecArguments, RunArguments, SandboxArguments};
use self::image::{ImageCommand, Images, ListImagesArguments, PullArguments};

/// The socket of the daemon when no flag names one.
pub const SOCKET_VARIABLE: &str = "MAINSTAY_SOCKET";
/// The configuration file when no flag names one.
pub const CONFIG_VARIABLE: &str = "MAINSTAY_CONFIG";
/// What is logged to standard error, as a filter of the `tracing` kind.
pub const LOG_VARIABLE: &str = "MAINSTAY_LOG";

/// Runs containers: each one an actor that owns its state, under a supervised shim.
///
/// `mainstay run` works with no daemon at all; the other commands are clients of `mainstay daemon`.
/// Objects are named by id, by the unique beginning of one, or by name (POD, CONTAINER, POD/CONTAINER).
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, propagate_version = false, max_term_width = 110)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    /// What applies to every command.
    #[command(flatten)]
    pub global: GlobalArguments,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// What applies to every command.
#[derive(Debug, Args)]
pub struct GlobalArguments {
    /// The daemon's socket; that of the configuration when not given
    #[arg(long, global = true, env = SOCKET_VARIABLE, value_name = "PATH", help_heading = "Global options")]
    pub socket: Option<PathBuf>,
    /// The configuration file; /etc/mainstay/config.toml, if it is there, when not given
    #[arg(long, global = true, env = CONFIG_VARIABLE, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
    /// Print JSON: one document, or one a line for what goes on. On standard error too: {"error": {"kind", "message", "details"}}
    /// for what failed, {"note": …} for the rest
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command in a new container
    #[command(after_help = container::RUN_AFTER_HELP)]
    Run(RunArguments),
    /// Make a container and start it later, with `start`
    Create(CreateArguments),
    /// Start containers that were made with `create`
    Start(Containers),
    /// Ask containers to end, and kill those that do not within the grace time
    Stop(StopArguments),
    /// Send a signal to containers
    Kill(KillArguments),
    /// Freeze all processes of running containers
    Pause(Containers),
    /// Let paused containers go on
    #[command(visible_alias = "unpause")]
    Resume(Containers),
    /// Change limits of running containers; `unlimited` lifts one
    Update(UpdateArguments),
    /// Remove containers and pods
    Rm(RemoveArguments),
    /// Run another command in a running container
    #[command(after_help = container::EXEC_AFTER_HELP)]
    Exec(ExecArguments),
    /// Connect to input and output of a running container; Ctrl-P Ctrl-Q leaves it again
    Attach(AttachArguments),
    /// Wait until containers have ended, and print their exit codes
    Wait(Containers),
    /// List containers: those that run, or all
    Ps(ListContainersArguments),
    /// List pods
    Pods(ListPodsArguments),
    /// Run, stop and remove pods
    #[command(subcommand)]
    Pod(PodCommand),
    /// Show all that is known of pods, containers and execs
    Inspect(Objects),
    /// Bring images here from their registries
    Pull(PullArguments),
    /// List images
    Images(ListImagesArguments),
    /// Remove names of images, and the images that have no other
    Rmi(Images),
    /// Import, export, inspect, verify images, and give back their room
    #[command(subcommand)]
    Image(ImageCommand),
    /// Print what a container has written
    Logs(LogsArguments),
    /// Show what running containers use
    Stats(StatsArguments),
    /// Print the journal: all that happened, numbered
    Events(EventsArguments),
    /// Print the life of one pod or container, as it happened
    Explain(ExplainArguments),
    /// Compare what this machine has with what the daemon believes: leaks and ghosts by name; exit status 1 if any
    Audit(AuditArguments),
    /// Print what the daemon counts, as it serves it to Prometheus
    Metrics(MetricsArguments),
    /// List the shims that run, and what stands behind them
    Shims,
    /// List, inspect and restart plugins
    #[command(subcommand)]
    Nri(NriCommand),
    /// Serve the admin socket until told to stop
    Daemon,
    /// Print or check a configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completion script of a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Measure this runtime on this machine, beside what the kernel itself takes
    #[command(subcommand)]
    Bench(Bench),
    /// Print the versions of this command and of the daemon
    Version,
}

/// Containers by name.
#[derive(Debug, Args)]
pub struct Containers {
    /// The containers
    #[arg(required = true, value_name = "CONTAINER", value_parser = reference)]
    pub containers: Vec<Reference>,
}

/// Any objects by name.
#[derive(Debug, Args)]
pub struct Objects {
    /// Pods, containers or execs
    #[arg(required = true, value_name = "ID", value_parser = reference)]
    pub objects: Vec<Reference>,
}

/// Of `stop`.
#[derive(Debug, Args)]
pub struct StopArguments {
    /// Time until SIGKILL; the container's own when not given
    #[arg(short = 't', long = "timeout", visible_alias = "time", value_name = "SECONDS", value_parser = parse::duration)]
    pub grace: Option<Duration>,
    /// The signal that asks; the container's own when not given
    #[arg(short, long)]
    pub signal: Option<Signal>,
    /// Whom to stop.
    #[command(flatten)]
    pub containers: Containers,
}

/// Of `kill`.
#[derive(Debug, Args)]
pub struct KillArguments {
    /// The signal
    #[arg(short, long, default_value = "KILL")]
    pub signal: Signal,
    /// Whom to signal.
    #[command(flatten)]
    pub containers: Containers,
}

/// Of `update`.
#[derive(Debug, Args)]
pub struct UpdateArguments {
    /// The limits that change.
    #[command(flatten)]
    pub resources: container::ResourceArguments,
    /// Whose limits.
    #[command(flatten)]
    pub containers: Containers,
}

/// Of `rm`.
#[derive(Debug, Args)]
pub struct RemoveArguments {
    /// Also what runs: it is killed first
    #[arg(short, long)]
    pub force: bool,
    /// What to remove
    #[arg(required = true, value_name = "ID", value_parser = reference)]
    pub objects: Vec<Reference>,
}

/// Of `attach`.
#[derive(Debug, Args)]
pub struct AttachArguments {
    /// Send no input
    #[arg(long)]
    pub no_stdin: bool,
    /// The container
    #[arg(value_parser = reference)]
    pub container: Reference,
}

/// Of `ps`.
#[derive(Debug, Args)]
pub struct ListContainersArguments {
    /// Also those that do not run
    #[arg(short, long)]
    pub all: bool,
    /// Only the ids, whole
    #[arg(short, long)]
    pub quiet: bool,
    /// Also what each has on the disk beside what it is made of, which counts its files
    #[arg(short, long)]
    pub size: bool,
}

/// Of `pods`.
#[derive(Debug, Args)]
pub struct ListPodsArguments {
    /// Only the ids, whole
    #[arg(short, long)]
    pub quiet: bool,
}

/// A command on pods.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one, made once, and clap needs it unboxed")]
pub enum PodCommand {
    /// Run a pod that containers can be put into
    Run(PodRunArguments),
    /// Stop all containers of pods, then the pods
    Stop(PodStopArguments),
    /// Remove pods with their containers
    Rm(PodRemoveArguments),
    /// Change limits of pods while their containers run
    Update(PodUpdateArguments),
}

/// Of `pod run`.
#[derive(Debug, Args)]
pub struct PodRunArguments {
    /// Its name; a made-up one when not given
    pub name: Option<Name>,
    /// Its shape.
    #[command(flatten)]
    pub sandbox: SandboxArguments,
    /// Limits of all its containers together.
    #[command(flatten)]
    pub resources: container::ResourceArguments,
    /// A label
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    pub labels: Vec<(String, String)>,
}

/// Of `pod stop`.
#[derive(Debug, Args)]
pub struct PodStopArguments {
    /// Time until SIGKILL; each container's own when not given
    #[arg(short = 't', long = "timeout", visible_alias = "time", value_name = "SECONDS", value_parser = parse::duration)]
    pub grace: Option<Duration>,
    /// The pods
    #[arg(required = true, value_name = "POD", value_parser = reference)]
    pub pods: Vec<Reference>,
}

/// Of `pod rm`.
#[derive(Debug, Args)]
pub struct PodRemoveArguments {
    /// Also those with containers that run: they are stopped first
    #[arg(short, long)]
    pub force: bool,
    /// The pods
    #[arg(required = true, value_name = "POD", value_parser = reference)]
    pub pods: Vec<Reference>,
}

/// Of `pod update`.
#[derive(Debug, Args)]
pub struct PodUpdateArguments {
    /// The limits of all its containers together that change.
    #[command(flatten)]
    pub resources: container::ResourceArguments,
    /// The pods
    #[arg(required = true, value_name = "POD", value_parser = reference)]
    pub pods: Vec<Reference>,
}

/// Of `logs`.
#[derive(Debug, Args)]
pub struct LogsArguments {
    /// Go on until the container has ended
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last N lines
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::number)]
    pub tail: Option<u64>,
    /// Only from then on: 10m (ago), 2026-11-29T16:00:00Z, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = parse::since)]
    pub since: Option<parse::Since>,
    /// Begin each line with its time
    #[arg(short, long)]
    pub timestamps: bool,
    /// The container
    #[arg(value_parser = reference)]
    pub container: Reference,
}

/// Of `stats`.
#[derive(Debug, Args)]
pub struct StatsArguments {
    /// Measure again every second
    #[arg(short, long)]
    pub follow: bool,
    /// The containers; all that run when not given
    #[arg(value_name = "CONTAINER", value_parser = reference)]
    pub containers: Vec<Reference>,
}

/// Of `events`.
#[derive(Debug, Args)]
pub struct EventsArguments {
    /// Only entries with a higher number: that of the last one seen
    #[arg(long, value_name = "N", default_value = "0", value_parser = seq, hide_default_value = true)]
    pub since: Seq,
    /// Go on with what happens from now on
    #[arg(short, long)]
    pub follow: bool,
    /// Only those of this pod or container
    #[arg(value_name = "ID", value_parser = reference)]
    pub object: Option<Reference>,
}

/// Of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Draw it into this file instead, as a timeline in SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// The pod or container; one that is gone by its whole id, or by its name: then the newest that had it
    #[arg(value_name = "ID", value_parser = reference)]
    pub object: Reference,
}

/// Of `audit`.
#[derive(Debug, Args)]
pub struct AuditArguments {
    /// Clean up what is found; exit status 0 when all of it could be
    #[arg(long)]
    pub repair: bool,
}

/// Of `metrics`.
#[derive(Debug, Args)]
pub struct MetricsArguments {
    /// In the format of OpenMetrics
    #[arg(long)]
    pub openmetrics: bool,
}

/// A command on plugins.
#[derive(Debug, Subcommand)]
pub enum NriCommand {
    /// List plugins in the order in which they are called
    Plugins,
    /// Show all that is known of plugins
    Inspect(Plugins),
    /// End the connection of plugins: those that the daemon has started are started again, others may come again
    Restart(Plugins),
}

/// Plugins by name.
#[derive(Debug, Args)]
pub struct Plugins {
    /// The plugins, with their index, as in 10-logger
    #[arg(value_name = "PLUGIN", required = true)]
    pub plugins: Vec<String>,
}

/// A command on the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the default configuration, with a comment on every key
    Default,
    /// Check a configuration file
    Check {
        /// The file; the one that the daemon would read when not given
        file: Option<PathBuf>,
    },
}

/// How results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and sentences for people.
    Text,
    /// For programs.
    Json,
}

impl Arguments {
    /// Reads the command line of this process; a wrong one ends it with a word about what would be right.
    pub fn read() -> Self {
        let line: Vec<_> = std::env::args_os().collect();
        let mut arguments = Self::try_parse_from(&line).unwrap_or_else(|error| refuse(&line, &error));
        match &mut arguments.command {
            Command::Run(run) => run.what.look_before_words(&line),
            Command::Create(create) => create.look_before_words(&line),
            _ => {}
        }
        arguments
    }
}

/// Says what is wrong with the command line, or shows the help that was asked for, and ends.
fn refuse(line: &[OsString], error: &clap::Error) -> ! {
    let mut options = line.iter().take_while(|word| *word != "--");
    if error.use_stderr() && options.any(|word| word == "--json") {
        output::speak(Format::Json);
        output::tell_failure(&WrongLine(error.to_string()));
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// A command line that is wrong, as clap says it.
struct WrongLine(String);

impl Told for WrongLine {
    fn kind(&self) -> String {
        "usage".to_owned()
    }

    fn sentence(&self) -> String {
        self.0.trim_start_matches("error: ").trim_end().to_owned()
    }

    fn details(&self) -> Value {
        json!({})
    }
}

impl GlobalArguments {
    /// How results are shown.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

/// An object as a person names it. Whether there is one is for the daemon to say.
pub fn reference(text: &str) -> Result<Reference, String> {
    if text.is_empty() {
        return Err("expected an id, the beginning of one, or a name".to_owned());
    }
    Ok(Reference(text.to_owned()))
}

fn seq(text: &str) -> Result<Seq, String> {
    text.parse()
        .map(Seq)
        .map_err(|_| "expected the number of a journal entry; 0 is before the first".to_owned())
}

#[cfg(test)]
mod tests;
