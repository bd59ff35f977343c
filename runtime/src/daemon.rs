//! The daemon: a runtime with the admin RPC, and what else is to be served, in front of it.

use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use mainstay_admin::Server;
use mainstay_messages::error::chain;
use mainstay_messages::{Error, Result};
use mainstay_supervisor::open_files;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::backend::AdminBackend;
use crate::config::{AuditSettings, Config, ImageSettings, ShimLifetime};
use crate::metrics;
use crate::runtime::{Runtime, Shutdown};

/// Something else that a daemon serves in front of its runtime, as the Container Runtime Interface.
pub trait Endpoint: Send {
    /// What errors and logs call it.
    fn name(&self) -> &'static str;

    /// Serves from when the runtime is ready until `shutdown` is, and then ends soon. When it fails before, or panics, the daemon ends with that
    /// error, so that it is started again: one that is ready and does not serve this would stay so, unseen. Its containers run on. One that
    /// ends well before has no more to serve, and the daemon goes on.
    fn serve(
        self: Box<Self>,
        runtime: Runtime,
        shutdown: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, Result<()>>;
}

/// Serves until `shutdown` is ready, then leaves the containers running (or, with
/// [`ShimLifetime::WithRuntime`], stops them). The process is taken for the daemon's own: its limit of open files is raised.
///
/// # Errors
/// What is in the way of the admin socket, of the runtime or of an endpoint.
pub async fn run(
    config: Config,
    endpoints: Vec<Box<dyn Endpoint>>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    match open_files::raise() {
        Ok(limit) => tracing::debug!(limit, "open files"),
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays as it is; each pod takes some of them")
        }
    }
    let server = bind(&config)?;
    let fate = match config.shims {
        ShimLifetime::Outlive => Shutdown::LeaveRunning,
        ShimLifetime::WithRuntime => Shutdown::StopContainers,
    };
    let socket = config.admin_socket.clone();
    let runtime = Runtime::start(config).await?;
    let (pods, containers) = (runtime.sandboxes().len(), runtime.containers().len());
    let endpoint = metrics::serve(runtime.config(), &runtime.system().metrics).await;
    let (end, ending) = watch::channel(());
    let mut others = serve_others(endpoints, &runtime, &ending);
    tracing::info!(socket = %socket.display(), pods, containers, "ready");
    let mut failure = None;
    let ended = async {
        failure = tokio::select! {
            () = shutdown => None,
            error = first_failure(&mut others) => Some(error),
        };
        drop(end);
    };
    let outcome = server.serve(Arc::new(AdminBackend::new(runtime.clone())), ended).await;
    drop(endpoint);
    while others.join_next().await.is_some() {}
    tracing::info!(containers = ?fate, "ending");
    runtime.close(fate).await?;
    match failure {
        Some(error) => Err(error),
        None => outcome.map_err(|e| Error::unavailable("admin socket", chain(&e))),
    }
}

/// Each endpoint in a task of its own, until the sender of `ending` is gone.
fn serve_others(
    endpoints: Vec<Box<dyn Endpoint>>,
    runtime: &Runtime,
    ending: &watch::Receiver<()>,
) -> JoinSet<Result<()>> {
    let mut others = JoinSet::new();
    for endpoint in endpoints {
        let name = endpoint.name();
        let mut ending = ending.clone();
        // The sender never sends.
        let shutdown = async move { while ending.changed().await.is_ok() {} }.boxed();
        let runtime = runtime.clone();
        others.spawn(served(name, async move { endpoint.serve(runtime, shutdown).await }));
    }
    others
}

/// How an endpoint ends. A panic is an error of its own.
async fn served(name: &'static str, serving: impl Future<Output = Result<()>>) -> Result<()> {
    let panicked = |_| Err(Error::internal(format!("serving {name}"), "it panicked"));
    let outcome = AssertUnwindSafe(serving).catch_unwind().await.unwrap_or_else(panicked);
    match &outcome {
        Ok(()) => tracing::info!(name, "no longer served"),
        Err(error) => tracing::error!(name, error = %chain(error), "cannot be served"),
    }
    outcome
}

/// The error of the first endpoint that fails. Waits for ever when none does.
async fn first_failure(others: &mut JoinSet<Result<()>>) -> Error {
    while let Some(ended) = others.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(error) => return Error::internal("serving an endpoint", error),
        }
    }
    pending().await
}

fn bind(config: &Config) -> Result<Server> {
    let bound =
        Server::bind(&config.admin_socket).map_err(|e| Error::unavailable("admin socket", chain(&e)))?;
    Ok(bound.with_limits(config.admin))
}

/// A daemon inside this process that keeps nothing: for a command that runs one container.
#[derive(Debug)]
pub struct PrivateDaemon {
    runtime: Runtime,
    socket: PathBuf,
    directory: PathBuf,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

/// Starts a daemon in this process below `directory`, which is made, and removed when it is closed. Its shims end
/// with this process, however that ends, and then the directory is removed too, as long as one of what it has started is
/// left to do so. What a process has left that was killed with all of them, [`clear_private`] removes.
///
/// Images outlive it: they are in the directory that `images` names, which it shares with other private daemons, and opens
/// only while it is at work on them.
pub async fn private(directory: &Path, cgroup_parent: &str, images: ImageSettings) -> Result<PrivateDaemon> {
    // It is over before a leak could grow old.
    let audit = AuditSettings { interval_ms: 0 };
    let config = Config {
        shims: ShimLifetime::WithRuntime,
        images,
        audit,
        ..Config::beside(directory, cgroup_parent)
    };
    let socket = config.admin_socket.clone();
    let runtime = Runtime::start_private(config, directory.to_path_buf()).await?;
    let server = match bind(runtime.config()) {
        Ok(server) => server,
        Err(error) => {
            runtime.close(Shutdown::StopContainers).await?;
            return Err(error);
        }
    };
    let (stop, stopped) = oneshot::channel();
    let backend = Arc::new(AdminBackend::new(runtime.clone()));
    let server = tokio::spawn(async move {
        let shutdown = async {
            let _ = stopped.await;
        };
        if let Err(error) = server.serve(backend, shutdown).await {
            tracing::error!(%error, "the private admin server ended");
        }
    });
    Ok(PrivateDaemon { runtime, socket, directory: directory.to_path_buf(), stop, server })
}

/// Kills and removes what a private daemon has left in its cgroup, and its directory. Nothing of that may run any more: the
/// caller holds a lock of the directory, as the daemon's process did. Blocks.
///
/// # Errors
/// What cannot be killed or removed; the directory stays then.
pub fn clear_private(directory: &Path, cgroup_parent: &str) -> Result<()> {
    mainstay_supervisor::claim::clear_cgroup(cgroup_parent)?;
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::unavailable(format!("directory {}", directory.display()), error))
        }
        _ => Ok(()),
    }
}

impl PrivateDaemon {
    /// The socket of its admin RPC.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Stops and removes everything, and then its directories.
    pub async fn close(self) -> Result<()> {
        let _ = self.stop.send(());
        if let Err(error) = self.server.await {
            tracing::error!(%error, "the private admin server panicked");
        }
        let sandboxes = self.runtime.sandboxes();
        let removals = sandboxes.iter().map(|sandbox| self.runtime.remove_sandbox(&sandbox.record.id));
        let outcomes = futures::future::join_all(removals).await;
        self.runtime.close(Shutdown::StopContainers).await?;
        outcomes.into_iter().collect::<Result<Vec<()>>>()?;
        std::fs::remove_dir_all(&self.directory)
            .map_err(|e| Error::unavailable(format!("directory {}", self.directory.display()), e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CRI ended, with an error or a panic, and the daemon stayed ready without it: nothing started it again.
    #[tokio::test]
    async fn an_endpoint_that_fails_is_heard_and_one_that_is_done_is_not() {
        let mut others = JoinSet::new();
        others.spawn(served("done", async { Ok(()) }));
        assert!(first_failure(&mut others).now_or_never().is_none());
        tokio::task::yield_now().await;
        assert!(first_failure(&mut others).now_or_never().is_none());
        others.spawn(served("CRI", async { Err(Error::unavailable("CRI", "no socket")) }));
        assert!(first_failure(&mut others).await.to_string().contains("no socket"));
        others.spawn(served("CRI", async { panic!("a panic of the test's own") }));
        let error = first_failure(&mut others).await.to_string();
        assert!(error.contains("CRI") && error.contains("panicked"), "{error}");
    }
}
