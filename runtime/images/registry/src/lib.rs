//! The client of image registries: OCI distribution 1.1 and Docker schema 2 over HTTP.
//!
//! It finds out which hosts serve an image (containerd's `hosts.toml`), proves who we are (Docker's `config.json` and
//! helpers), fetches manifests and blobs, goes on where a transfer broke off, tries again, turns to the next mirror, and
//! verifies what came. It knows nothing of stores, snapshots or actors: bytes go into a [`Sink`], and everything that
//! happens is reported as an [`Event`], from which the caller judges whether a pull lives.
//!
//! ```text
//!   Registry ── open(reference, credentials, report) ──► Repository ── resolve, manifest, image, blob
//!                                                            │ rounds: which host next
//!                                                            ▼
//!                                     Host (auth, redirects) ──► Transport (TLS, proxies, time-outs)
//! ```
//!
//! A [`Repository`] is one pull: its tokens and connections are its own and end with it. A call that is dropped closes
//! its connection at once.
//!
//! | module | owns |
//! |---|---|
//! | [`settings`] | every time-out, limit and place |
//! | [`liveness`] | when a transfer has stalled |
//! | [`retry`], `rounds` | how long to wait, whom to ask next |
//! | [`credentials`] | who we are, by configuration |
//! | `hosts` | who serves an image |
//! | [`challenge`], `auth` | what a registry asks for, tokens |
//! | `host`, `transport`, `tls`, `answer`, `body` | requests, from redirects down to certificates |
//! | `repository`, `blob` | manifests; transfers |

mod answer;
mod auth;
mod blob;
mod body;
pub mod challenge;
pub mod credentials;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod hosts;
pub mod liveness;
mod repository;
pub mod retry;
mod rounds;
pub mod settings;
mod tls;
mod transport;

use std::sync::Arc;

use mainstay_oci_image::{Event, Reference};
use rustls::RootCertStore;
use tokio::sync::{OnceCell, Semaphore};

pub use crate::blob::Sink;
pub use crate::credentials::{Credentials, Secret};
pub use crate::error::{Problem, RegistryError};
pub use crate::hosts::HostsError;
pub use crate::repository::{Fetched, INDEX_DEPTH_MAX, Image, Repository};
pub use crate::settings::Settings;

use crate::auth::Auth;
use crate::credentials::Keychain;
use crate::error::Request;
use crate::host::Host;
use crate::hosts::Endpoint;
use crate::transport::Transport;

/// Takes the events of a pull. It is called on the task that works, so it must not block.
pub type Reporter = Arc<dyn Fn(Event) + Send + Sync>;

/// The client. A clone is the same client.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub settings: Settings,
    /// Certificates that are trusted everywhere; read when the first pull needs them.
    roots: OnceCell<Arc<RootCertStore>>,
    /// Room for downloads, over all pulls.
    pub slots: Semaphore,
}

impl Registry {
    /// A client with these settings.
    pub fn new(settings: Settings) -> Self {
        let slots = Semaphore::new(settings.downloads_max.clamp(1, Semaphore::MAX_PERMITS));
        Self { shared: Arc::new(Shared { settings, roots: OnceCell::new(), slots }) }
    }

    /// Starts a pull: reads who serves the image, and connects to nobody yet.
    ///
    /// `credentials` are for the registry that the reference names, and are shown to no mirror; without them, and for
    /// mirrors, Docker's configuration is asked once somebody asks who we are.
    pub async fn open(
        &self,
        reference: &Reference,
        credentials: Option<Credentials>,
        report: Reporter,
    ) -> Result<Repository, RegistryError> {
        let settings = &self.shared.settings;
        let failed = |error| {
            let path = format!("/v2/{}", reference.path());
            let request = Request { method: "GET", host: reference.host().to_owned(), path };
            RegistryError::new(request, Problem::Hosts(error))
        };
        let endpoints = hosts::find(settings, reference.host()).await.map_err(failed)?;
        let roots = self.shared.roots.get_or_try_init(|| self.read_roots()).await.map_err(failed)?;
        let host = |endpoint: Endpoint| {
            let given = credentials.clone().filter(|_| endpoint.namespace.is_none());
            let keychain = Keychain::new(settings);
            let auth = Auth::new(endpoint.authority.clone(), reference.path().to_owned(), given, keychain);
            let transport = Transport::new(endpoint.clone(), Arc::clone(roots), settings);
            Host::new(endpoint, transport, auth, Arc::clone(&report), settings.response_timeout)
        };
        let hosts = endpoints.into_iter().map(host).collect();
        Ok(Repository::new(Arc::clone(&self.shared), reference.clone(), hosts, report))
    }

    async fn read_roots(&self) -> Result<Arc<RootCertStore>, HostsError> {
        let files = self.shared.settings.ca_files.clone();
        let task = tokio::task::spawn_blocking(move || tls::system_roots(&files));
        // The task is not cancelled, and does not panic.
        task.await.expect("reading certificates does not panic").map(Arc::new)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registry")
    }
}
