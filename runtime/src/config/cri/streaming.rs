//! The section `[cri.streaming]`: where kubelet finds the streams of exec, attach and port-forward.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How long a token is good when nothing else is set, in milliseconds.
const TOKEN_LIFETIME_MS: u64 = 60_000;
/// How long nothing may move on a stream when nothing else is set, in milliseconds: four hours, as with kubelet.
const IDLE_TIMEOUT_MS: u64 = 4 * 60 * 60 * 1_000;

/// Where streams are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamingSettings {
    /// The address; a port of the kernel's choice when its port is 0. Another than a loopback address needs [`Self::tls`].
    pub address: SocketAddr,
    /// TLS; none for plain HTTP.
    pub tls: Option<StreamTls>,
    /// How long a URL is good, in milliseconds.
    pub token_lifetime_ms: u64,
    /// How long nothing may move on a stream, in milliseconds.
    pub idle_timeout_ms: u64,
}

/// Files for TLS, in PEM. They are read again when they have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamTls {
    /// The certificate, with those that lead to its root.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Certificates of those who may sign clients'; without it, a URL is all that a client needs.
    #[serde(default)]
    pub client_authorities: Option<PathBuf>,
}

impl Default for StreamingSettings {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            token_lifetime_ms: TOKEN_LIFETIME_MS,
            idle_timeout_ms: IDLE_TIMEOUT_MS,
        }
    }
}

impl StreamingSettings {
    /// What cannot be right: the key, its value, and what would be.
    pub(super) fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        if self.tls.is_none() && !self.address.ip().is_loopback() {
            let expected = "a loopback address, such as 127.0.0.1:0, or one with cri.streaming.tls";
            return Some(("streaming.address", self.address.to_string(), expected));
        }
        let numbers = [
            ("streaming.token_lifetime_ms", self.token_lifetime_ms),
            ("streaming.idle_timeout_ms", self.idle_timeout_ms),
        ];
        let zero = numbers.into_iter().find(|(_, value)| *value == 0);
        zero.map(|(key, value)| (key, value.to_string(), "at least 1"))
    }

    /// The section as a commented text.
    pub(super) fn text(&self) -> String {
        let Self { address, token_lifetime_ms, idle_timeout_ms, .. } = self;
        format!(
            "# Streams of exec, attach and port-forward, which kubelet comes for with a URL that is good once.\n\
             [cri.streaming]\n\
             # A port of the kernel's choice when it is 0. Another address than of this machine alone needs TLS.\n\
             address = \"{address}\"\n\
             # How long a URL is good, and how long nothing may move on a stream.\n\
             token_lifetime_ms = {token_lifetime_ms}\n\
             idle_timeout_ms = {idle_timeout_ms}\n\
             # PEM files, read again when they have changed. With client_authorities, clients need a certificate as well.\n\
             # [cri.streaming.tls]\n\
             # certificate = \"/etc/mainstay/streams.pem\"\n\
             # key = \"/etc/mainstay/streams.key\"\n\
             # client_authorities = \"/etc/mainstay/clients.pem\"\n"
        )
    }
}
