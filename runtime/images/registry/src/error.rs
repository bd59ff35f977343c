//! What can go wrong between us and a registry.
//!
//! A text names the host, the path and the status, and the registry's own code and message, shortened and with control
//! characters escaped. It never has a query, user information, a token or a password in it: those of a signed URL are
//! secrets as well.

use std::fmt;
use std::time::Duration;

use mainstay_oci_image::{Digest, DigestError, DocumentError, NoPlatform};
use thiserror::Error;

use crate::credentials::CredentialsError;
use crate::hosts::HostsError;
use crate::liveness::Stall;

/// The most characters of a registry's own message that an error repeats.
pub const MESSAGE_LENGTH_MAX: usize = 300;

/// A request, or everything that was tried in its place, failed.
#[derive(Debug)]
pub struct RegistryError {
    /// What was asked, of whom.
    pub request: Request,
    /// What went wrong.
    pub problem: Box<Problem>,
    /// What went wrong at other hosts before.
    pub earlier: Vec<Earlier>,
}

/// A request as an error shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `HEAD` or `POST`.
    pub method: &'static str,
    /// Host and port.
    pub host: String,
    /// The path, without a query.
    pub path: String,
}

/// A failure at another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Host and port.
    pub host: String,
    /// What went wrong there.
    pub problem: String,
}

/// What a registry said of its own failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Its code, as `MANIFEST_UNKNOWN`; empty where it gave none.
    pub code: String,
    /// Its message; empty where it gave none.
    pub message: String,
}

/// What went wrong.
#[derive(Debug, Error)]
pub enum Problem {
    /// 401: it does not know who asks, or does not take the credentials.
    #[error("401, {}{said}", if *.with_credentials { "the credentials were not taken" } else { "credentials are needed" })]
    Unauthorized {
        /// Whether there were credentials.
        with_credentials: bool,
        /// The registry's words.
        said: Said,
    },
    /// 403: whoever asks may not.
    #[error("403, not allowed{said}")]
    Forbidden {
        /// The registry's words.
        said: Said,
    },
    /// 404: there is no such thing here.
    #[error("404, not found{said}")]
    NotFound {
        /// The registry's words.
        said: Said,
    },
    /// 429: too many requests.
    #[error("429, too many requests{}{said}", asked_text(.retry_after))]
    TooManyRequests {
        /// How long it asks to wait.
        retry_after: Option<Duration>,
        /// The registry's words.
        said: Said,
    },
    /// Any other status that is no success.
    #[error("{status}{}{said}", asked_text(.retry_after))]
    Status {
        /// The status.
        status: u16,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
        /// The registry's words.
        said: Said,
    },
    /// No connection.
    #[error("no connection: {reason}")]
    Connect {
        /// Why, as the system says it.
        reason: String,
    },
    /// There is no host of this name.
    #[error("the host is not known: {reason}")]
    UnknownHost {
        /// Why, as the system says it.
        reason: String,
    },
    /// The two sides do not agree on TLS: a certificate that is not trusted, a version, a name.
    #[error("no secure connection: {reason}")]
    Tls {
        /// Why.
        reason: String,
    },
    /// No connection, or no answer, in time.
    #[error("no {what} within {} ms", .timeout.as_millis())]
    TimedOut {
        /// What did not come.
        what: &'static str,
        /// The time-out.
        timeout: Duration,
    },
    /// The connection ended in the middle.
    #[error("the connection ended after {got} bytes{}: {reason}", of_text(.expected))]
    Interrupted {
        /// Bytes that there are.
        got: u64,
        /// Bytes that there should be.
        expected: Option<u64>,
        /// Why, as the system says it.
        reason: String,
    },
    /// A transfer brought nothing, or too little.
    #[error("the transfer stalled at {got} bytes of {expected}: {}", stall_text(.stall))]
    Stalled {
        /// Bytes that there are.
        got: u64,
        /// Bytes that there should be.
        expected: u64,
        /// How.
        stall: Stall,
    },
    /// The bytes are not those that were asked for.
    #[error("the bytes that came have the digest {got}; it should be {expected}")]
    WrongDigest {
        /// What was asked for.
        expected: Digest,
        /// What came.
        got: Digest,
    },
    /// There are more or fewer bytes than there should be.
    #[error("{got} bytes were offered; there should be {expected}")]
    WrongSize {
        /// What the descriptor says.
        expected: u64,
        /// What the registry says or sent; it may be more.
        got: u64,
    },
    /// A document longer than is read.
    #[error("the answer is longer than {max} bytes")]
    TooLong {
        /// The limit.
        max: usize,
    },
    /// A redirect that is not followed.
    #[error("a redirect is not followed: {reason}")]
    Redirect {
        /// Why.
        reason: String,
    },
    /// The registry names a place to get tokens from that gets no credentials of ours.
    #[error("credentials are not sent to the realm {realm}: {reason}")]
    Realm {
        /// The realm, without a query.
        realm: String,
        /// Why not.
        reason: &'static str,
    },
    /// It asks for credentials in a way that is not known, or answers what cannot be understood.
    #[error("{what} is not as the protocol has it: {reason}")]
    Protocol {
        /// Which part of the answer.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A header with a digest that is none.
    #[error("the header Docker-Content-Digest is not a digest")]
    DigestHeader(#[source] DigestError),
    /// The manifest or index cannot be used.
    #[error("the manifest cannot be used")]
    Document(#[source] DocumentError),
    /// Indexes that lead to indexes.
    #[error("indexes lead to indexes more than {max} deep")]
    IndexDepth {
        /// The limit.
        max: usize,
    },
    /// There is no image for this platform.
    #[error("the image is not for this platform")]
    Platform(#[source] Box<NoPlatform>),
    /// No configured host may be asked for this.
    #[error("no host is configured with the capability {capability:?} for it")]
    NoHost {
        /// `resolve` for tags, `pull` for everything else.
        capability: &'static str,
    },
    /// The configuration of hosts cannot be used.
    #[error("the configuration of the registry cannot be used")]
    Hosts(#[source] HostsError),
    /// The credentials cannot be found out.
    #[error("the credentials cannot be found out")]
    Credentials(#[source] CredentialsError),
    /// Whoever takes the bytes failed.
    #[error("the bytes cannot be kept")]
    Sink(#[source] std::io::Error),
}

/// What to do about a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// The same host may serve it after a pause.
    Again,
    /// This host will not serve it, another one may.
    Elsewhere,
    /// Nobody will.
    None,
}

impl RegistryError {
    pub(crate) fn new(request: Request, problem: Problem) -> Self {
        Self { request, problem: Box::new(problem), earlier: Vec::new() }
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{}", self.request, self.problem, earlier_text(&self.earlier))
    }
}

impl std::error::Error for RegistryError {
    // The problem itself is part of the text.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.problem.source()
    }
}

impl Problem {
    pub(crate) fn remedy(&self) -> Remedy {
        match self {
            Self::TooManyRequests { .. }
            | Self::Connect { .. }
            | Self::TimedOut { .. }
            | Self::Interrupted { .. }
            | Self::Stalled { .. }
            | Self::WrongSize { .. } => Remedy::Again,
            Self::Status { status, .. } if *status == 408 || *status >= 500 && *status != 501 => {
                Remedy::Again
            }
            Self::Sink(_)
            | Self::IndexDepth { .. }
            | Self::Platform(_)
            | Self::Hosts(_)
            | Self::NoHost { .. } => Remedy::None,
            _ => Remedy::Elsewhere,
        }
    }

    /// How long the registry asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { retry_after, .. } | Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl Said {
    /// Words of a stranger: shortened, without control characters.
    pub(crate) fn new(code: &str, message: &str) -> Self {
        Self { code: tame(code), message: tame(message) }
    }
}

/// Makes a stranger's text fit for a log line.
pub(crate) fn tame(text: &str) -> String {
    let shown = text.trim().chars().take(MESSAGE_LENGTH_MAX).flat_map(|c| {
        let hidden = c.is_control()
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c);
        if hidden { c.escape_default().collect::<Vec<_>>() } else { vec![c] }
    });
    shown.collect()
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code.is_empty(), self.message.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => write!(f, ": {}", self.message),
            (false, true) => write!(f, ": {}", self.code),
            (false, false) => write!(f, ": {}: {}", self.code, self.message),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.method, self.path, self.host)
    }
}

fn earlier_text(earlier: &[Earlier]) -> String {
    match earlier {
        [] => String::new(),
        some => {
            let some: Vec<_> = some.iter().map(|e| format!("{}: {}", e.host, e.problem)).collect();
            format!(" (before that, {})", some.join("; "))
        }
    }
}

fn asked_text(retry_after: &Option<Duration>) -> String {
    retry_after.map(|asked| format!(", to be tried again in {} s", asked.as_secs())).unwrap_or_default()
}

fn of_text(expected: &Option<u64>) -> String {
    expected.map(|bytes| format!(" of {bytes}")).unwrap_or_default()
}

fn stall_text(stall: &Stall) -> String {
    match stall {
        Stall::Silent { for_ } => format!("nothing came for {} ms", for_.as_millis()),
        Stall::Slow { bytes, within } => format!("{bytes} bytes in {} ms are too few", within.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_words_are_shortened_and_escaped() {
        let said = Said::new("DENIED", &format!("\u{1b}[31mred\n{}", "x".repeat(10_000)));
        let text = Problem::Forbidden { said }.to_string();
        assert!(text.starts_with("403, not allowed: DENIED: \\u{1b}[31mred\\n"), "{text}");
        assert!(text.len() < 2 * MESSAGE_LENGTH_MAX && !text.contains('\u{1b}'));
    }
}
