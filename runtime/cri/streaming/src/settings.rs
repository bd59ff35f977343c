//! The settings of the server, and its limits.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where it listens when nothing else is set: this machine alone, and a port that the kernel gives.
pub const ADDRESS_DEFAULT: &str = "127.0.0.1:0";
/// How long a token is good when nothing else is set, in milliseconds.
pub const TOKEN_LIFETIME_MS: u64 = 60_000;
/// The most tokens that wait for their clients when nothing else is set.
pub const TOKENS_MAX: usize = 1_000;
/// The most connections at the same time when nothing else is set.
pub const CONNECTIONS_MAX: usize = 1_000;
/// How long nothing may move on a connection when nothing else is set, in milliseconds: four hours, as with kubelet.
pub const IDLE_TIMEOUT_MS: u64 = 4 * 60 * 60 * 1_000;
/// How long a client may take to open the streams that it was given a token for, in milliseconds.
pub const STREAM_CREATION_MS: u64 = 30_000;

/// The settings of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamingSettings {
    /// Where it listens. Another than a loopback address needs [`Self::tls`].
    pub address: SocketAddr,
    /// TLS; none for plain HTTP.
    pub tls: Option<TlsSettings>,
    /// How long a token is good, in milliseconds.
    pub token_lifetime_ms: u64,
    /// The most tokens that wait for their clients.
    pub tokens_max: usize,
    /// The most connections at the same time.
    pub connections_max: usize,
    /// How long nothing may move on a connection, in milliseconds.
    pub idle_timeout_ms: u64,
}

/// Files for TLS, in PEM. They are read again when they have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// The certificate, with those that lead to its root.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Certificates of those who may sign clients'; without it, a token is all that a client needs.
    #[serde(default)]
    pub client_authorities: Option<PathBuf>,
}

/// Settings that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Everybody could listen in.
    #[error(
        "address {address} is reachable from elsewhere, and there is no TLS; take a loopback address such as {ADDRESS_DEFAULT}, or set tls.certificate and tls.key"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
    /// Nothing could ever be done.
    #[error("{field} is 0; it must be at least 1")]
    Zero {
        /// The field.
        field: &'static str,
    },
}

impl Default for StreamingSettings {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            token_lifetime_ms: TOKEN_LIFETIME_MS,
            tokens_max: TOKENS_MAX,
            connections_max: CONNECTIONS_MAX,
            idle_timeout_ms: IDLE_TIMEOUT_MS,
        }
    }
}

impl StreamingSettings {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.tls.is_none() && !self.address.ip().is_loopback() {
            return Err(SettingsError::Exposed { address: self.address });
        }
        let numbers = [
            ("token_lifetime_ms", self.token_lifetime_ms),
            ("tokens_max", self.tokens_max as u64),
            ("connections_max", self.connections_max as u64),
            ("idle_timeout_ms", self.idle_timeout_ms),
        ];
        match numbers.into_iter().find(|(_, value)| *value == 0) {
            Some((field, _)) => Err(SettingsError::Zero { field }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_let_in_with_tls_alone() {
        let mut settings = StreamingSettings::default();
        assert_eq!(settings.address, ADDRESS_DEFAULT.parse().expect("an address"));
        assert_eq!(settings.check(), Ok(()));
        settings.address = SocketAddr::from(([0, 0, 0, 0], 10_010));
        assert_eq!(settings.check(), Err(SettingsError::Exposed { address: settings.address }));
        let tls = TlsSettings { certificate: "c".into(), key: "k".into(), client_authorities: None };
        settings.tls = Some(tls);
        assert_eq!(settings.check(), Ok(()));
        settings.tokens_max = 0;
        assert_eq!(settings.check(), Err(SettingsError::Zero { field: "tokens_max" }));
    }
}
