//! A socket, and plugins that connect to it.

use std::path::PathBuf;
use std::time::Duration;

use mainstay_nri::link::{Accepted, Configuration, HandshakeError, Link, Listener, Updates};
use mainstay_nri_plugin::api::mux::Closed;
use mainstay_nri_plugin::api::{Container, PodSandbox};
use mainstay_nri_plugin::faults::{Faults, Obedient};
use mainstay_nri_plugin::{ConnectError, Door, Identity, Options, Plugin, Reconnect, run};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// Far more than anything takes on a machine that is shared.
pub const AMPLE: Duration = Duration::from_secs(60);
/// For what never comes.
pub const SHORT: Duration = Duration::from_millis(100);

pub struct World {
    pub listener: Listener,
    _dir: TempDir,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = Listener::bind(&dir.path().join("nri/nri.sock")).expect("a socket");
        Self { listener, _dir: dir }
    }

    pub fn socket(&self) -> PathBuf {
        self.listener.path().to_owned()
    }

    /// Starts a plugin that connects once.
    pub fn start<P: Plugin>(
        &self,
        identity: Identity,
        plugin: P,
        faults: Faults,
    ) -> JoinHandle<Result<Closed, ConnectError>> {
        let mut options = Options::new(identity, Door::Socket(self.socket()));
        (options.reconnect, options.faults) = (Reconnect::Never, faults);
        tokio::spawn(run(plugin, options))
    }

    pub async fn accept(&self) -> Accepted {
        within(self.listener.accept()).await.expect("a connection")
    }

    /// A plugin that agrees with everything but has these faults.
    pub async fn obedient(&self, faults: &Faults) -> (Link, Updates) {
        self.link(Obedient, faults).await.expect("a link")
    }

    pub async fn link<P: Plugin>(
        &self,
        plugin: P,
        faults: &Faults,
    ) -> Result<(Link, Updates), HandshakeError> {
        drop(self.start(Identity::new("10", "stub"), plugin, faults.clone()));
        let registered = self.accept().await.register(AMPLE).await?;
        registered.configure(configuration(""), AMPLE).await
    }
}

pub fn configuration(config: &str) -> Configuration {
    Configuration {
        config: config.to_owned(),
        runtime_name: "mainstay".to_owned(),
        runtime_version: "v0.0.0".to_owned(),
        registration_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(2),
    }
}

pub fn pod(id: &str) -> PodSandbox {
    PodSandbox { id: id.to_owned(), name: "web".to_owned(), ..Default::default() }
}

pub fn container(id: &str) -> Container {
    Container { id: id.to_owned(), pod_sandbox_id: "p1".to_owned(), ..Default::default() }
}

pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(AMPLE, future).await.expect("an end")
}
