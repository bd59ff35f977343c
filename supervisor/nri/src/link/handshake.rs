//! From a connection to a link.
//!
//! Owns: waiting for a plugin's name, and asking for its events. Never: decides whether a plugin of this name is welcome: its
//! caller does, between the two.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use mainstay_nri_api::mux::{Channels, Closed, Closing, Mux};
use mainstay_nri_api::ttrpc::asynchronous::Client;
use mainstay_nri_api::ttrpc::asynchronous::transport::Socket;
use mainstay_nri_api::{
    ConfigureRequest, EventMask, NRI_VERSION, PluginClient, UnknownEvents, create_runtime, serve,
};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::answer::{CallError, call};
use super::requests::{Registration, RuntimeServer, Updates};
use super::{Inner, Link, Unknown, millis};
use crate::name::PluginName;

/// How long a plugin that has connected may take to register, in milliseconds, if nothing else is set.
pub const REGISTRATION_TIMEOUT_MS: u64 = 5_000;
/// How long a plugin whose registration was refused has to read why, in milliseconds, before it is cut off.
const REFUSAL_SHOWS_MS: u64 = 500;

/// The process at the other end of a connection, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number, unless it is in a pid namespace that is not seen from here.
    pub pid: Option<i32>,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Why a connection did not become a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// It did not register in time.
    #[error("the plugin did not register within {after_ms} ms")]
    NotRegistered {
        /// The deadline.
        after_ms: u64,
    },
    /// It registered under a name that cannot be.
    #[error("the plugin registered with a wrong name: {reason}")]
    WrongName {
        /// What would be right.
        reason: String,
    },
    /// The connection ended.
    #[error("the connection ended before the plugin had registered: {0}")]
    Closed(Closed),
    /// It did not take its configuration.
    #[error(transparent)]
    Configure(CallError),
    /// It asked for events that nobody knows.
    #[error(transparent)]
    Events(UnknownEvents),
}

/// What a plugin is told when it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// What is set for it, in a form of its own.
    pub config: String,
    /// The name of this runtime.
    pub runtime_name: String,
    /// The version of this runtime.
    pub runtime_version: String,
    /// How long plugins may take to register.
    pub registration_timeout: Duration,
    /// How long plugins may take to answer.
    pub request_timeout: Duration,
}

/// A connection whose plugin has not said its name yet.
pub struct Accepted {
    parts: Parts,
    registration: oneshot::Receiver<Registration>,
}

/// A connection whose plugin is known by name, and waits for its configuration.
pub struct Registered {
    parts: Parts,
    name: PluginName,
    nri_version: Option<String>,
}

struct Parts {
    peer: Peer,
    client: PluginClient,
    closing: Closing,
    runtime: Arc<RuntimeServer>,
    mux: Mux,
    /// Of the handshakes that may be under way at once.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Accepted {
    /// Serves a connection. One that is made for a pre-installed plugin brings its name, whatever the plugin says.
    pub(crate) async fn new(
        socket: UnixStream,
        peer: Peer,
        name: Option<PluginName>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Self, HandshakeError> {
        let (mux, Channels { plugin, runtime: channel }) = Mux::new(socket);
        let closing = mux.closing();
        let (server, registration) = RuntimeServer::new(name, closing.clone());
        let server = Arc::new(server);
        let runtime = Arc::clone(&server);
        serve(create_runtime(server), channel, closing.clone()).await.map_err(|error| {
            let reason = error.to_string();
            HandshakeError::Closed(Closed::Failed { operation: "serving", reason })
        })?;
        let client = PluginClient::new(Client::new(Socket::new(plugin)));
        let parts = Parts { peer, client, closing, runtime, mux, _permit: permit };
        Ok(Self { parts, registration })
    }

    /// The process at the other end.
    pub fn peer(&self) -> Peer {
        self.parts.peer
    }

    /// Waits for the plugin to say its name.
    pub async fn register(self, limit: Duration) -> Result<Registered, HandshakeError> {
        let Self { parts, mut registration } = self;
        let registered = async {
            match (&mut registration).await {
                Ok(registered) => registered,
                // The server keeps the other end until it has sent something.
                Err(_) => pending().await,
            }
        };
        let registered = tokio::select! {
            biased;
            registered = registered => registered,
            reason = parts.closing.closed() => return Err(HandshakeError::Closed(reason)),
            () = tokio::time::sleep(limit) => {
                return Err(HandshakeError::NotRegistered { after_ms: millis(limit) });
            }
        };
        match registered {
            Registration { name: Ok(name), nri_version } => Ok(Registered { parts, name, nri_version }),
            Registration { name: Err(reason), .. } => {
                // The answer with the reason is on its way.
                let shown = Duration::from_millis(REFUSAL_SHOWS_MS);
                let _ = tokio::time::timeout(shown, parts.closing.closed()).await;
                Err(HandshakeError::WrongName { reason })
            }
        }
    }
}

impl Registered {
    /// Its name.
    pub fn name(&self) -> &PluginName {
        &self.name
    }

    /// The version of NRI that it speaks, where it says so.
    pub fn nri_version(&self) -> Option<&str> {
        self.nri_version.as_deref()
    }

    /// The process at the other end.
    pub fn peer(&self) -> Peer {
        self.parts.peer
    }

    /// Tells the plugin its configuration, and hears which events it wants.
    pub async fn configure(
        self,
        configuration: Configuration,
        limit: Duration,
    ) -> Result<(Link, Updates), HandshakeError> {
        let Self { parts: Parts { peer, client, closing, runtime, mux, _permit }, name, nri_version } = self;
        // It may ask for something as soon as it has answered, which is before the answer is seen here.
        let updates = runtime.serve_updates();
        let request = &ConfigureRequest {
            config: configuration.config,
            runtime_name: configuration.runtime_name,
            runtime_version: configuration.runtime_version,
            registration_timeout: wire_millis(configuration.registration_timeout),
            request_timeout: wire_millis(configuration.request_timeout),
            nri_version: NRI_VERSION.to_owned(),
            ..Default::default()
        };
        let rpc = |client: PluginClient, context| async move { client.configure(context, request).await };
        let answer = call(&client, &closing, "Configure", limit, request, rpc).await;
        let events = EventMask::from_wire(answer.map_err(HandshakeError::Configure)?.events)
            .map_err(HandshakeError::Events)?;
        let unknown = Unknown::default();
        let inner = Inner { name, peer, nri_version, events, client, closing, unknown, _mux: mux };
        Ok((Link(Arc::new(inner)), updates))
    }
}

fn wire_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
