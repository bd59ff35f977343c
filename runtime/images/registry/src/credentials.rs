//! Credentials: what they are, and where they come from.
//!
//! A caller may bring its own; else Docker's `config.json` is asked, each time anew, so that a login counts at once.
//! Credentials are for one host. No error, log line or debug output shows them.

pub(crate) mod docker_config;
mod helper;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::settings::Settings;

pub use docker_config::CONFIG_LENGTH_MAX;
pub use helper::HELPER_OUTPUT_MAX;

/// What proves who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// User and password.
    Basic {
        /// The user.
        user: String,
        /// The password, or what stands in its place.
        password: Secret,
    },
    /// A refresh token, to be exchanged for tokens.
    IdentityToken(Secret),
    /// A token that is sent as it is.
    RegistryToken(Secret),
}

/// A text that is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one who sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why credentials cannot be found out.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is longer than is read.
    #[error("{} has more than {CONFIG_LENGTH_MAX} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file is no Docker configuration. What is wrong is told by place alone: the text next to it is a secret.
    #[error("{} is not a Docker configuration: line {line}, column {column}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// An entry that is no `USER:PASSWORD` in base64.
    #[error("{}: auths.{key:?}.auth should be USER:PASSWORD in base64", path.display())]
    Auth {
        /// The file.
        path: PathBuf,
        /// The entry.
        key: String,
    },
    /// A helper whose name is none.
    #[error("credential helper {name:?} should be letters, digits, '_', '.' or '-'")]
    HelperName {
        /// The name.
        name: String,
    },
    /// A helper that cannot be run.
    #[error("{program} cannot be run")]
    HelperRun {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A helper that did not answer in time.
    #[error("{program} did not answer within {} ms", .timeout.as_millis())]
    HelperTimeout {
        /// The program.
        program: String,
        /// The time-out.
        timeout: Duration,
    },
    /// A helper that failed, and did not say that it has no such credentials. Its words are not repeated: some
    /// helpers print secrets.
    #[error("{program} failed ({status})")]
    HelperFailed {
        /// The program.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// A helper that answered something else than credentials.
    #[error(
        "{program} did not answer with a JSON object of Username and Secret in at most {HELPER_OUTPUT_MAX} bytes"
    )]
    HelperAnswer {
        /// The program.
        program: String,
    },
}

/// Where credentials come from.
#[derive(Clone, Debug)]
pub(crate) struct Keychain {
    config: Option<PathBuf>,
    helper_dirs: Vec<PathBuf>,
    helper_timeout: Duration,
}

impl Keychain {
    pub fn new(settings: &Settings) -> Self {
        Self {
            config: settings.docker_config.clone(),
            helper_dirs: settings.helper_dirs.clone(),
            helper_timeout: settings.helper_timeout,
        }
    }

    /// The credentials for a repository on a host, by configuration.
    pub async fn find(&self, host: &str, path: &str) -> Result<Option<Credentials>, CredentialsError> {
        let Some(file) = &self.config else { return Ok(None) };
        let config = docker_config::read(file.clone()).await?;
        if let Some((name, key)) = config.helper(host) {
            let found = helper::get(&name, &key, &self.helper_dirs, self.helper_timeout).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        config.auth(host, path).map_err(|key| CredentialsError::Auth { path: file.clone(), key })
    }
}
