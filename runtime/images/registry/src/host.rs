//! One host in one pull: requests with what it wants to see, redirects, problems with names.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_oci_image::{Event, Part, Step};
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use reqwest::{Method, Response, StatusCode, Url};

use crate::auth::{Asking, Auth, authority};
use crate::error::{Problem, RegistryError, Request};
use crate::hosts::{Endpoint, Scheme};
use crate::settings::REDIRECTS_MAX;
use crate::transport::{Peer, Transport, innermost, speaks_no_tls};
use crate::{Reporter, answer, challenge};

/// Tokens that are fetched for one request: one because there was none, one because the host asked for more, and one
/// in place of one that expired meanwhile.
const AUTHORIZATIONS_MAX: usize = 3;
/// The most challenges of one answer that are looked at.
const CHALLENGES_MAX: usize = 8;

pub(crate) struct Host {
    pub endpoint: Endpoint,
    transport: Transport,
    auth: Auth,
    headers: HeaderMap,
    report: Reporter,
    timeout: Duration,
    /// Whether TLS was tried on a host that may do without, and is not spoken there.
    plain: AtomicBool,
    /// Whether it answers a range as the specification has it.
    ranges: AtomicBool,
}

/// What to ask a host for.
#[derive(Clone)]
pub(crate) struct Ask<'a> {
    pub method: Method,
    /// After the prefix.
    pub path: String,
    pub headers: &'a HeaderMap,
    pub part: &'a Part,
}

/// An answer, and who gave it.
pub(crate) struct Answer {
    pub response: Response,
    pub request: Request,
}

impl Host {
    pub fn new(
        endpoint: Endpoint,
        transport: Transport,
        auth: Auth,
        report: Reporter,
        timeout: Duration,
    ) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in &endpoint.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.append(name, value);
            }
        }
        Self {
            endpoint,
            transport,
            auth,
            headers,
            report,
            timeout,
            plain: AtomicBool::new(false),
            ranges: AtomicBool::new(true),
        }
    }

    pub fn answers_ranges(&self) -> bool {
        self.ranges.load(Ordering::Relaxed)
    }

    pub fn ask_no_ranges(&self) {
        self.ranges.store(false, Ordering::Relaxed);
    }

    /// A request as errors show it.
    pub fn request(&self, ask: &Ask<'_>) -> Request {
        let method = if ask.method == Method::HEAD { "HEAD" } else { "GET" };
        let path = format!("{}/{}", self.endpoint.prefix, ask.path);
        Request { method, host: self.endpoint.authority.clone(), path }
    }

    /// Asks, proves who we are where that is wanted, follows redirects. Everything that is no success is an error.
    pub async fn ask(&self, ask: &Ask<'_>) -> Result<Answer, RegistryError> {
        let request = self.request(ask);
        let failed = |problem| RegistryError::new(request.clone(), problem);
        let mut url = self.url(&ask.path).map_err(failed)?;
        let mut authorization = self.auth.header(&self.asking(&url, ask.part)).await?;
        for _ in 0..=AUTHORIZATIONS_MAX {
            let answer = self.follow(ask, &mut url, authorization.clone()).await?;
            let status = answer.response.status();
            if status.is_success() {
                return Ok(answer);
            }
            let own = answer.request.host == request.host;
            if status == StatusCode::UNAUTHORIZED && own {
                let challenges = challenges(&answer.response);
                let next = self
                    .auth
                    .refused(authorization.as_ref(), challenges, &self.asking(&url, ask.part))
                    .await?;
                if next.is_some() {
                    authorization = next;
                    continue;
                }
            }
            let with_credentials = own && self.auth.has_credentials();
            let problem = answer::problem(answer.response, with_credentials, self.timeout).await;
            return Err(RegistryError::new(answer.request, problem));
        }
        let said = crate::error::Said::new("", "it refuses the tokens that it asked for");
        Err(failed(Problem::Unauthorized { with_credentials: self.auth.has_credentials(), said }))
    }

    /// Asks an address that a stranger named: without anything that is ours.
    pub async fn ask_stranger(&self, mut url: Url, ask: &Ask<'_>) -> Result<Answer, RegistryError> {
        let answer = self.follow_from(ask, &mut url, None, Peer::Redirected).await?;
        if answer.response.status().is_success() {
            return Ok(answer);
        }
        let problem = answer::problem(answer.response, false, self.timeout).await;
        Err(RegistryError::new(answer.request, problem))
    }

    /// One request and its redirects. Where TLS turns out not to be spoken, and need not be, it is sent again without.
    async fn follow(
        &self,
        ask: &Ask<'_>,
        url: &mut Url,
        authorization: Option<HeaderValue>,
    ) -> Result<Answer, RegistryError> {
        let answer = self.follow_from(ask, url, authorization, Peer::Host).await;
        // Whether another request has found it out in the meantime does not matter: this one was sent with TLS.
        let may_be_plain = self.endpoint.scheme == Scheme::HttpsOrHttp && url.scheme() == "https";
        match answer {
            Err(error) if may_be_plain && speaks_no_tls(&error.problem) => {
                self.plain.store(true, Ordering::Relaxed);
                *url =
                    self.url(&ask.path).map_err(|problem| RegistryError::new(self.request(ask), problem))?;
                self.follow_from(ask, url, None, Peer::Host).await
            }
            other => other,
        }
    }

    async fn follow_from(
        &self,
        ask: &Ask<'_>,
        start: &mut Url,
        authorization: Option<HeaderValue>,
        peer: Peer,
    ) -> Result<Answer, RegistryError> {
        let mut url = start.clone();
        for _ in 0..=REDIRECTS_MAX {
            let own = peer == Peer::Host && url.origin() == start.origin();
            let mut headers = ask.headers.clone();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if own {
                headers.extend(self.headers.clone());
                headers.extend(authorization.clone().map(|value| (AUTHORIZATION, value)));
            }
            let request = Request {
                method: if ask.method == Method::HEAD { "HEAD" } else { "GET" },
                host: if own { self.endpoint.authority.clone() } else { authority(&url) },
                path: url.path().to_owned(),
            };
            let failed = |problem| RegistryError::new(request.clone(), problem);
            self.say(ask.part, Step::Connecting { host: request.host.clone() });
            let peer = if own { Peer::Host } else { Peer::Redirected };
            let exchange = self.transport.exchange(peer, ask.method.clone(), url.clone(), headers, None);
            let response = exchange.await.map_err(failed)?;
            let status = response.status();
            self.say(ask.part, Step::Responded { host: request.host.clone(), status: status.as_u16() });
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(Answer { response, request });
            }
            url = redirect(&url, &response).map_err(failed)?;
        }
        let reason = format!("there are more than {REDIRECTS_MAX} in a row");
        Err(RegistryError::new(self.request(ask), Problem::Redirect { reason }))
    }

    fn asking<'a>(&'a self, base: &'a Url, part: &'a Part) -> Asking<'a> {
        Asking { transport: &self.transport, base, report: &self.report, part, timeout: self.timeout }
    }

    fn url(&self, path: &str) -> Result<Url, Problem> {
        let plain = match self.endpoint.scheme {
            Scheme::Http => true,
            Scheme::Https => false,
            Scheme::HttpsOrHttp => self.plain.load(Ordering::Relaxed),
        };
        let scheme = if plain { "http" } else { "https" };
        let Endpoint { authority, prefix, namespace, .. } = &self.endpoint;
        let text = format!("{scheme}://{authority}{prefix}/{path}");
        let mut url = Url::parse(&text).map_err(|error| Problem::Connect { reason: error.to_string() })?;
        if let Some(namespace) = namespace {
            url.query_pairs_mut().append_pair("ns", namespace);
        }
        Ok(url)
    }

    fn say(&self, part: &Part, step: Step) {
        (self.report)(Event::new(part.clone(), step));
    }
}

/// Where an answer redirects to.
fn redirect(from: &Url, response: &Response) -> Result<Url, Problem> {
    let refused = |reason: &str| Problem::Redirect { reason: reason.to_owned() };
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| refused("it names no location"))?;
    let to = from.join(location).map_err(|error| Problem::Redirect { reason: innermost(&error) })?;
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => {}
        ("https", "http") => return Err(refused("it leads from HTTPS to plain HTTP")),
        _ => return Err(refused("it leads to neither http nor https")),
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err(refused("it has a user or a password in it"));
    }
    Ok(to)
}

fn challenges(response: &Response) -> Vec<challenge::Challenge> {
    let values = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(challenge::parse).take(CHALLENGES_MAX).collect()
}
