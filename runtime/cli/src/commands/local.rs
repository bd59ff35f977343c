//! Commands that need no daemon, or are it: `daemon`, `bench`, `config`, `completion`,
//! `version`.

use std::process::ExitCode;

use clap::CommandFactory;
use mainstay::Config;
use mainstay::config::CONFIG_PATH_DEFAULT;
use mainstay::daemon::Endpoint;
use mainstay_messages::Error;
use mainstay_messages::error::chain;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::{Arguments, ConfigCommand};
use crate::bench::{self, Bench};
use crate::connection::Context;
use crate::failure::{Failure, Result, Told};
use crate::output;
use crate::systemd::Supervised;
use crate::view::VersionView;

/// `mainstay daemon`: serves until INT or TERM.
pub(super) async fn daemon(context: &Context) -> Result<ExitCode> {
    let config = context.config()?;
    Failure::unless_root("daemon", "its shims make namespaces, mounts and cgroups")?;
    let listen = |kind| signal(kind).map_err(|e| Failure::machine("taking signals", e));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let shutdown = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let endpoints = endpoints(&config)?;
    mainstay::daemon::run(config, endpoints, shutdown).await?;
    Ok(ExitCode::SUCCESS)
}

/// What the daemon serves beside the admin RPC. Sockets are there before the runtime is: clients wait rather than fail.
fn endpoints(config: &Config) -> Result<Vec<Box<dyn Endpoint>>> {
    let mut endpoints: Vec<Box<dyn Endpoint>> = vec![Box::new(Supervised)];
    if let Some(socket) = config.cri.socket_beside(&config.admin_socket) {
        let bound = mainstay_cri::Server::bind(&socket);
        endpoints.push(Box::new(bound.map_err(|error| Error::unavailable("CRI socket", chain(&error)))?));
    }
    Ok(endpoints)
}

/// `mainstay bench`
pub(super) async fn bench(context: &Context, command: &Bench) -> Result<ExitCode> {
    match command {
        Bench::Lifecycle(options) => {
            Failure::unless_root("bench lifecycle", "it makes pods and containers")?;
            bench::run_lifecycle(options, context.format()).await.map_err(Failure::Bench)?;
            Ok(ExitCode::SUCCESS)
        }
        Bench::Restart(options) => {
            Failure::unless_root("bench restart", "it makes pods and containers")?;
            bench::run_restart(options, context.format()).await.map_err(Failure::Bench)?;
            Ok(ExitCode::SUCCESS)
        }
        Bench::Churn(options) => {
            Failure::unless_root("bench churn", "it makes pods and containers")?;
            bench::run_churn(options, context.format()).await.map_err(Failure::Bench)?;
            Ok(ExitCode::SUCCESS)
        }
        Bench::Pull(options) => {
            Failure::unless_root("bench pull", "it gives the files of layers their owners")?;
            bench::run_pull(options, context.format()).await.map_err(Failure::Bench)?;
            Ok(ExitCode::SUCCESS)
        }
        Bench::Registry(options) => Ok(bench::run_registry(options)),
        Bench::Floor(options) => Ok(bench::run_floor(options)),
    }
}

/// `mainstay config`
pub(super) fn config(context: &Context, command: ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Default => output::print(&Config::default_text()).map_err(Failure::Output)?,
        ConfigCommand::Check { file } => {
            let said = match file.or_else(|| context.config_path()) {
                Some(path) => {
                    Config::load(&path)?;
                    format!("{}: good\n", path.display())
                }
                None => format!("{CONFIG_PATH_DEFAULT} is not there: the defaults apply\n"),
            };
            output::print(&said).map_err(Failure::Output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `mainstay completion`
pub(super) fn completion(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "mainstay", &mut script);
    let stdout = mainstay_messages::admin::OutputStream::Stdout;
    output::write_all(stdout, &script).map_err(Failure::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// `mainstay version`: ours is printed whatever is wrong with the daemon.
pub(super) async fn version(context: &Context) -> Result<ExitCode> {
    let own = env!("CARGO_PKG_VERSION");
    let daemon = async {
        match context.daemon_if_any().await? {
            Some(client) => Ok::<_, Failure>(Some(client.version().await?)),
            None => Ok(None),
        }
    };
    let (daemon, error) = match daemon.await {
        Ok(daemon) => (daemon, None),
        Err(failure) => (None, Some(failure.sentence())),
    };
    let text = || match (&daemon, &error) {
        (Some(daemon), _) => format!(
            "mainstay {own}\ndaemon   {} (protocol {}), pid {}, since {}\n",
            daemon.version, daemon.protocol, daemon.pid, daemon.started_at
        ),
        (None, Some(error)) => format!("mainstay {own}\ndaemon   {error}\n"),
        (None, None) => format!("mainstay {own}\ndaemon   none answers\n"),
    };
    super::print(context.format(), text, &VersionView::new(own, daemon.as_ref(), error.as_deref()))
}
