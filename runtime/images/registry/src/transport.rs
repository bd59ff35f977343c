//! One HTTP exchange: connections, proxies, time-outs, and what an error of the stack means.
//!
//! reqwest was chosen over hyper alone because proxies of the environment, CONNECT and pools are done in it, and over
//! `oci-client` because that has neither mirrors nor events and does not verify what it resumes. HTTP/1.1 only: a
//! transfer that stalls then has a connection of its own, and dropping it closes that connection at once.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, Url};
use rustls::RootCertStore;
use tokio::sync::OnceCell;

use crate::error::{Problem, tame};
use crate::hosts::{Endpoint, HostsError, Tls, Verify, is_this_machine};
use crate::settings::{Proxies, Settings};
use crate::tls;

/// Whom a request goes to, which decides what is shown and trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The host itself: with the client certificate.
    Host,
    /// Where it redirects to: without the client certificate.
    Redirected,
    /// Where it says tokens are: as a redirect, and verified in any case, since credentials go there.
    Realm,
}

/// The connections to one host and to where it points.
pub(crate) struct Transport {
    endpoint: Endpoint,
    system: Arc<RootCertStore>,
    proxies: Proxies,
    user_agent: String,
    connect_timeout: Duration,
    response_timeout: Duration,
    clients: [OnceCell<Client>; 3],
}

impl Transport {
    pub fn new(endpoint: Endpoint, system: Arc<RootCertStore>, settings: &Settings) -> Self {
        Self {
            connect_timeout: endpoint.dial_timeout.unwrap_or(settings.connect_timeout),
            endpoint,
            system,
            proxies: settings.proxies,
            user_agent: settings.user_agent.clone(),
            response_timeout: settings.response_timeout,
            clients: Default::default(),
        }
    }

    /// Sends a request and waits for the head of the answer. Redirects are answers.
    pub async fn exchange(
        &self,
        peer: Peer,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Option<String>,
    ) -> Result<Response, Problem> {
        let mut request =
            self.client(peer).await.map_err(Problem::Hosts)?.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        let timeout = self.connect_timeout.saturating_add(self.response_timeout);
        match tokio::time::timeout(timeout, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.explain(&error)),
            Err(_) => Err(Problem::TimedOut { what: "answer", timeout }),
        }
    }

    /// The connections to a peer. Certificates are read when the first request needs them.
    async fn client(&self, peer: Peer) -> Result<&Client, HostsError> {
        self.clients[peer as usize].get_or_try_init(|| self.connect(peer)).await
    }

    async fn connect(&self, peer: Peer) -> Result<Client, HostsError> {
        let own = self.endpoint.tls.clone();
        let shown = match peer {
            Peer::Host => own,
            Peer::Redirected => Tls { client: None, ..own },
            Peer::Realm => Tls { client: None, verify: Verify::Yes, ..own },
        };
        let system = Arc::clone(&self.system);
        // The files may lie on a file system that takes its time.
        let task = tokio::task::spawn_blocking(move || tls::client_config(&system, &shown));
        // The task is not cancelled, and does not panic.
        let config = task.await.expect("reading certificates does not panic")?;
        let mut builder = Client::builder()
            .tls_backend_preconfigured(config)
            .http1_only()
            .redirect(Policy::none())
            .referer(false)
            .connect_timeout(self.connect_timeout)
            .user_agent(&self.user_agent);
        if self.proxies == Proxies::None || is_this_machine(&self.endpoint.authority) {
            builder = builder.no_proxy();
        }
        builder.build().map_err(|error| HostsError::Proxies { reason: innermost(&error) })
    }

    fn explain(&self, error: &reqwest::Error) -> Problem {
        let reason = innermost(error);
        match () {
            () if find_tls(error).is_some() => Problem::Tls { reason },
            () if error.is_timeout() => {
                Problem::TimedOut { what: "connection", timeout: self.connect_timeout }
            }
            // The resolver's own words are all there is to tell a name that does not exist from a resolver that does
            // not answer.
            () if error.is_dns() && !reason.contains("emporary") => Problem::UnknownHost { reason },
            () if error.is_connect() => Problem::Connect { reason },
            () => Problem::Interrupted { got: 0, expected: None, reason },
        }
    }
}

/// Whether the other side does not speak TLS at all, or ended the talk before a word.
pub(crate) fn speaks_no_tls(problem: &Problem) -> bool {
    match problem {
        Problem::Tls { reason } => {
            reason.contains("corrupt message") || reason.contains("InvalidContentType")
        }
        Problem::Connect { reason } => reason.contains("handshake eof") || reason.contains("reset by peer"),
        _ => false,
    }
}

/// The last cause of an error: the text that the system or the TLS library gave. The texts before it may have a URL
/// with its query in them.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    // At the end of a chain stands the system, TLS or HTTP; only an error that is all of the chain has a URL in it.
    match last.downcast_ref::<reqwest::Error>() {
        Some(_) => "the request failed".to_owned(),
        None => tame(&last.to_string()),
    }
}

/// The error of TLS in a chain; it hides in errors of the system, several deep, which do not name it as their source.
fn find_tls(error: &reqwest::Error) -> Option<&rustls::Error> {
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        let hidden = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match hidden {
            Some(hidden) => Some(hidden),
            None => error.source(),
        };
    }
    None
}
