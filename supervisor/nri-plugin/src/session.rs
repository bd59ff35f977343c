//! One connection to a runtime.
//!
//! Owns: serving the plugin on it, registering, and asking the runtime for updates. Never: connects again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mainstay_nri_api::mux::{Channels, Closed, Closing, Mux};
use mainstay_nri_api::ttrpc::asynchronous::Client;
use mainstay_nri_api::ttrpc::asynchronous::transport::Socket;
use mainstay_nri_api::ttrpc::{self, context};
use mainstay_nri_api::{
    ContainerEviction, ContainerUpdate, NRI_VERSION, RegisterPluginRequest, RuntimeClient,
    UpdateContainersRequest, create_plugin, serve,
};
use tokio::net::UnixStream;

use crate::options::Identity;
use crate::plugin::Plugin;
use crate::service::Service;

/// How long the runtime may take to register a plugin, in milliseconds.
pub const REGISTRATION_TIMEOUT_MS: u64 = 5_000;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The runtime cannot be reached.
    #[error("the runtime cannot be reached")]
    Io(#[from] io::Error),
    /// It does not want this plugin.
    #[error("the runtime does not register the plugin: {0}")]
    Refused(String),
    /// It ended the connection.
    #[error("the connection ended before the plugin was registered: {0}")]
    Closed(Closed),
    /// It did not answer in time.
    #[error("the runtime did not register the plugin within {REGISTRATION_TIMEOUT_MS} ms")]
    Late,
}

/// Why the runtime did not do what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// It said no.
    #[error("the runtime refused: {0}")]
    Refused(String),
    /// The connection has ended, or fails.
    #[error("the runtime cannot be asked: {0}")]
    Gone(String),
    /// It did not answer in time. It may still do it.
    #[error("the runtime did not answer in time")]
    Late,
}

/// One connection to a runtime. Dropped, it ends.
pub struct Session {
    runtime: Runtime,
    closing: Closing,
    _mux: Mux,
    #[cfg(feature = "faults")]
    faults: crate::faults::Faults,
}

/// To ask the runtime for something, at any time while it is connected.
#[derive(Clone)]
pub struct Runtime(RuntimeClient);

impl Session {
    /// Serves `plugin` on a connection and registers it. The runtime configures it right after.
    pub async fn open<P: Plugin>(
        plugin: Arc<P>,
        identity: &Identity,
        socket: UnixStream,
        #[cfg(feature = "faults")] faults: crate::faults::Faults,
    ) -> Result<Self, ConnectError> {
        #[cfg(feature = "faults")]
        faults.holds(&socket)?;
        let (mux, Channels { plugin: channel, runtime }) = Mux::new(socket);
        let closing = mux.closing();
        let runtime = Runtime(RuntimeClient::new(Client::new(Socket::new(runtime))));
        #[cfg(feature = "faults")]
        faults.reaches(&runtime, &closing);
        let service = Service::new(
            Arc::clone(&plugin),
            #[cfg(feature = "faults")]
            faults.clone(),
        );
        let services = create_plugin(Arc::new(service));
        serve(services, channel, closing.clone()).await?;
        let session = Self {
            runtime,
            closing,
            _mux: mux,
            #[cfg(feature = "faults")]
            faults,
        };
        session.register(identity).await?;
        plugin.connected(session.runtime.clone()).await;
        Ok(session)
    }

    /// To ask the runtime for something.
    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Waits for its end.
    pub async fn closed(&self) -> Closed {
        self.closing.closed().await
    }

    async fn register(&self, identity: &Identity) -> Result<(), ConnectError> {
        let request = RegisterPluginRequest {
            plugin_name: identity.name.clone(),
            plugin_idx: identity.index.clone(),
            nri_version: NRI_VERSION.to_owned(),
            ..Default::default()
        };
        let limit = Duration::from_millis(REGISTRATION_TIMEOUT_MS);
        let registered = self.runtime.0.register_plugin(context::with_duration(limit), &request);
        match tokio::time::timeout(limit, registered).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(ttrpc::Error::RpcStatus(status))) => Err(ConnectError::Refused(status.message)),
            Ok(Err(error)) => Err(ConnectError::Closed(self.ended(&error))),
            Err(_) => Err(ConnectError::Late),
        }
    }

    fn ended(&self, error: &ttrpc::Error) -> Closed {
        self.closing
            .reason()
            .unwrap_or_else(|| Closed::Failed { operation: "speaking on", reason: error.to_string() })
    }
}

#[cfg(feature = "faults")]
impl Drop for Session {
    fn drop(&mut self) {
        self.faults.lets_go();
    }
}

impl Runtime {
    /// Asks for updates and evictions by itself. Gives back those updates that could not be done.
    pub async fn update_containers(
        &self,
        update: Vec<ContainerUpdate>,
        evict: Vec<ContainerEviction>,
        limit: Duration,
    ) -> Result<Vec<ContainerUpdate>, RuntimeError> {
        let request = UpdateContainersRequest { update, evict, ..Default::default() };
        let answer = self.0.update_containers(context::with_duration(limit), &request);
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(answer)) => Ok(answer.failed),
            Ok(Err(ttrpc::Error::RpcStatus(status))) => Err(RuntimeError::Refused(status.message)),
            Ok(Err(error)) => Err(RuntimeError::Gone(error.to_string())),
            Err(_) => Err(RuntimeError::Late),
        }
    }
}
