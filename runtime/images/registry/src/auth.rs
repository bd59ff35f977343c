//! Proving who we are to one host, for one repository.
//!
//! ```text
//!   [unknown] ── 401 with a challenge ──► [Basic]   user and password with every request
//!                                   └───► [Bearer]  a token with every request; a new one when it is about to expire,
//!                                                   or when the host refuses it
//! ```
//!
//! One request at a time fetches a token, and the others that need it wait for it. A token is for one repository, one
//! host and one pull: nobody uses another one's.
//!
//! **Whom credentials are shown to.** The host itself, and the realm that it names: over HTTPS, with its certificate
//! verified, any (the protocol lets a registry name another host, as Docker's does); over plain HTTP only one with the
//! name of the host, and only if the host itself is spoken to over plain HTTP. Never the target of a redirect.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mainstay_oci_image::{Event, Part, Step};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use crate::answer;
use crate::challenge::Challenge;
use crate::credentials::{Credentials, Keychain};
use crate::error::{Problem, RegistryError, Request};
use crate::transport::{Peer, Transport, innermost};
use crate::{Reporter, body};

/// How long a token is good that does not say it, in seconds, as the protocol has it.
const TOKEN_LIFE_DEFAULT_S: u64 = 60;
/// A token is taken for expired so long before it is, in seconds: a request takes its time.
const TOKEN_MARGIN_S: u64 = 10;
/// The longest answer of a realm that is read, in bytes.
const TOKEN_ANSWER_MAX: usize = 256 << 10;
/// Who we say we are when we refresh a token.
const CLIENT_ID: &str = "mainstay";

/// What is known of how one host wants to be asked.
pub(crate) struct Auth {
    /// Host and port, as credentials are kept by.
    host: String,
    path: String,
    given: Option<Credentials>,
    keychain: Keychain,
    found: OnceCell<Option<Credentials>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    challenge: Option<Challenge>,
    header: Option<HeaderValue>,
    /// None is never.
    expires: Option<Instant>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    expires_in: Option<u64>,
}

/// Where tokens are asked for, and for what.
pub(crate) struct Asking<'a> {
    pub transport: &'a Transport,
    /// The host's own address, which says what realms are trusted.
    pub base: &'a Url,
    pub report: &'a Reporter,
    pub part: &'a Part,
    pub timeout: Duration,
}

impl Auth {
    pub fn new(host: String, path: String, given: Option<Credentials>, keychain: Keychain) -> Self {
        Self { host, path, given, keychain, found: OnceCell::new(), state: Mutex::default() }
    }

    /// The header to send, if one is known to be wanted. Fetches a new token in place of one that expires.
    pub async fn header(&self, asking: &Asking<'_>) -> Result<Option<HeaderValue>, RegistryError> {
        let mut state = self.state.lock().await;
        if state.expires.is_some_and(|expires| expires <= Instant::now()) {
            self.renew(&mut state, asking).await?;
        }
        Ok(state.header.clone())
    }

    /// The header to send after a 401; none when there is nothing better than what was sent.
    pub async fn refused(
        &self,
        sent: Option<&HeaderValue>,
        challenges: Vec<Challenge>,
        asking: &Asking<'_>,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let mut state = self.state.lock().await;
        if state.header.is_some() && state.header.as_ref() != sent {
            // Another request has got a new one meanwhile.
            return Ok(state.header.clone());
        }
        let bearer = challenges.iter().find(|challenge| matches!(challenge, Challenge::Bearer { .. }));
        let Some(challenge) = bearer.or(challenges.first()).cloned() else { return Ok(None) };
        let again = state.header.is_some() && state.challenge.as_ref() == Some(&challenge);
        if again && challenge == Challenge::Basic {
            return Ok(None);
        }
        state.challenge = Some(challenge);
        self.renew(&mut state, asking).await?;
        Ok(state.header.clone().filter(|header| Some(header) != sent))
    }

    /// Whether there are credentials for this host.
    pub fn has_credentials(&self) -> bool {
        self.given.is_some() || self.found.get().is_some_and(Option::is_some)
    }

    async fn renew(&self, state: &mut State, asking: &Asking<'_>) -> Result<(), RegistryError> {
        state.header = None;
        state.expires = None;
        let credentials = self.credentials(asking).await?;
        match (&state.challenge, credentials) {
            (None, _) | (Some(Challenge::Basic), None | Some(Credentials::IdentityToken(_))) => {}
            (Some(_), Some(Credentials::RegistryToken(token))) => {
                state.header = secret(format!("Bearer {}", token.reveal()));
            }
            (Some(Challenge::Basic), Some(Credentials::Basic { user, password })) => {
                state.header = basic(user, password.reveal());
            }
            (Some(Challenge::Bearer { realm, service, scope }), credentials) => {
                let scope = self.scope(scope.as_deref());
                let (token, life) =
                    self.fetch(asking, realm, service.as_deref(), &scope, credentials).await?;
                state.header = secret(format!("Bearer {token}"));
                let margin = Duration::from_secs(TOKEN_MARGIN_S).min(life / 2);
                state.expires = Instant::now().checked_add(life - margin);
            }
        }
        Ok(())
    }

    async fn credentials(&self, asking: &Asking<'_>) -> Result<Option<&Credentials>, RegistryError> {
        if self.given.is_some() {
            return Ok(self.given.as_ref());
        }
        let found = self.found.get_or_try_init(|| self.keychain.find(&self.host, &self.path)).await;
        found.map(Option::as_ref).map_err(|error| {
            let request =
                Request { method: "GET", host: self.host.clone(), path: asking.base.path().to_owned() };
            RegistryError::new(request, Problem::Credentials(error))
        })
    }

    /// What a token has to allow: what the host asks for, else to pull from this repository. A mirror may know the
    /// repository by another name.
    fn scope(&self, asked: Option<&str>) -> Vec<String> {
        match asked {
            Some(asked) => asked.split_whitespace().map(str::to_owned).collect(),
            None => vec![format!("repository:{}:pull", self.path)],
        }
    }

    async fn fetch(
        &self,
        asking: &Asking<'_>,
        realm: &str,
        service: Option<&str>,
        scopes: &[String],
        credentials: Option<&Credentials>,
    ) -> Result<(String, Duration), RegistryError> {
        let refresh = matches!(credentials, Some(Credentials::IdentityToken(_)));
        let method = if refresh { Method::POST } else { Method::GET };
        let mut request = Request {
            method: if refresh { "POST" } else { "GET" },
            host: self.host.clone(),
            path: asking.base.path().to_owned(),
        };
        let mut url =
            realm_url(realm, asking.base).map_err(|problem| RegistryError::new(request.clone(), problem))?;
        request.host = authority(&url);
        request.path = url.path().to_owned();
        let failed = |problem| RegistryError::new(request.clone(), problem);
        let mut headers = HeaderMap::new();
        let mut body = None;
        match credentials {
            Some(Credentials::IdentityToken(token)) => {
                let scope = scopes.join(" ");
                let mut fields = vec![("grant_type", "refresh_token"), ("refresh_token", token.reveal())];
                fields.extend([("client_id", CLIENT_ID), ("scope", &scope)]);
                fields.extend(service.map(|service| ("service", service)));
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
                body = Some(form(&fields));
            }
            other => {
                let mut query = url.query_pairs_mut();
                query.extend_pairs(service.map(|service| ("service", service)));
                query.extend_pairs(scopes.iter().map(|scope| ("scope", scope)));
                if let Some(Credentials::Basic { user, password }) = other {
                    query.append_pair("account", user);
                    headers
                        .extend(basic(user, password.reveal()).map(|v| (reqwest::header::AUTHORIZATION, v)));
                }
            }
        }
        let host = request.host.clone();
        let report = |step| (asking.report)(Event::new(asking.part.clone(), step));
        report(Step::Connecting { host: host.clone() });
        let exchange = asking.transport.exchange(Peer::Realm, method, url, headers, body);
        let response = exchange.await.map_err(failed)?;
        report(Step::Responded { host: host.clone(), status: response.status().as_u16() });
        if !response.status().is_success() {
            return Err(failed(answer::problem(response, credentials.is_some(), asking.timeout).await));
        }
        let text = body::read(response, TOKEN_ANSWER_MAX, asking.timeout).await.map_err(failed)?;
        let wrong = |reason: &str| {
            failed(Problem::Protocol { what: "the answer with the token", reason: reason.to_owned() })
        };
        let answer: TokenAnswer = serde_json::from_slice(&text).map_err(|_| wrong("it is not JSON"))?;
        let token =
            answer.token.filter(|token| !token.is_empty()).or(answer.access_token).unwrap_or_default();
        if token.is_empty() || secret(token.clone()).is_none() {
            return Err(wrong("there is no token in it that a header can carry"));
        }
        report(Step::TokenFetched { host });
        Ok((token, Duration::from_secs(answer.expires_in.unwrap_or(TOKEN_LIFE_DEFAULT_S).max(1))))
    }
}

/// The address of a realm that credentials may be shown to.
fn realm_url(realm: &str, base: &Url) -> Result<Url, Problem> {
    let url = base.join(realm).map_err(|error| Problem::Protocol {
        what: "the realm of the challenge",
        reason: innermost(&error),
    })?;
    let refused = |reason| {
        let realm = format!("{}://{}{}", url.scheme(), authority(&url), url.path());
        Err(Problem::Realm { realm, reason })
    };
    match (base.scheme(), url.scheme()) {
        (_, "https") => {}
        ("http", "http") if url.host_str() == base.host_str() => {}
        ("http", "http") => return refused("it is another host, and would be spoken to over plain HTTP"),
        ("https", "http") => {
            return refused("the registry is spoken to over HTTPS, and the realm over plain HTTP");
        }
        _ => return refused("it is neither http nor https"),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refused("it has a user or a password in it");
    }
    Ok(url)
}

/// Host and port of a URL, the port left out where it is the usual one.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    secret(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

/// A header that no log shows; none for what a header cannot carry.
fn secret(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Fields as a form has them.
fn form(fields: &[(&str, &str)]) -> String {
    // A URL knows how to write them; nothing else of it is used.
    let mut url = Url::parse("http://form.invalid/").expect("a constant");
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("https://r.example/v2/", "https://auth.example/token", true)]
    #[case("https://r.example/v2/", "/token", true)]
    #[case("https://r.example/v2/", "http://r.example/token", false)]
    #[case("http://r.example/v2/", "http://r.example:5001/token", true)]
    #[case("http://r.example/v2/", "https://auth.example/token", true)]
    #[case("http://127.0.0.1:5000/v2/", "http://127.0.0.2:5000/token", false)]
    #[case("https://r.example/v2/", "ftp://r.example/token", false)]
    #[case("https://r.example/v2/", "https://user:hunter2@r.example/token", false)]
    #[case("https://r.example/v2/", "https://", false)]
    fn a_realm_is_trusted_or_not(#[case] base: &str, #[case] realm: &str, #[case] trusted: bool) {
        let base = Url::parse(base).expect("a URL");
        let url = realm_url(realm, &base);
        assert_eq!(url.is_ok(), trusted, "{url:?}");
        if let Err(problem) = url {
            assert!(!problem.to_string().contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn secrets_are_not_in_debug_output() {
        let header = basic("user", "hunter2").expect("a header");
        assert_eq!(format!("{header:?}"), "Sensitive");
        assert_eq!(form(&[("a", "b c&d"), ("e", "")]), "a=b+c%26d&e=");
    }
}
