//! Where metrics are served: a section of the configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::http::{CONNECTION_TIMEOUT_MS, CONNECTIONS_MAX};

/// The name of the socket, in the directory of the admin socket, when nothing else is set.
pub const SOCKET_FILE: &str = "metrics.sock";

/// Where metrics are served, and to how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSettings {
    /// The unix socket; [`SOCKET_FILE`] beside the admin socket when not given, none when empty.
    pub socket: Option<PathBuf>,
    /// A loopback address; none when not given. Nobody is asked there who they are.
    pub listen: Option<SocketAddr>,
    /// Scrapers that are served at the same time, on each of both: [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Time for a scraper to ask and to read the answer, in milliseconds: [`CONNECTION_TIMEOUT_MS`].
    pub connection_timeout_ms: u64,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self {
            socket: None,
            listen: None,
            connections_max: CONNECTIONS_MAX,
            connection_timeout_ms: CONNECTION_TIMEOUT_MS,
        }
    }
}

impl MetricsSettings {
    /// The socket, for a daemon with this admin socket.
    pub fn socket_beside(&self, admin_socket: &Path) -> Option<PathBuf> {
        match &self.socket {
            None => Some(admin_socket.with_file_name(SOCKET_FILE)),
            Some(path) if path.as_os_str().is_empty() => None,
            Some(path) => Some(path.clone()),
        }
    }

    /// What cannot be right: the key, its value, and what would be.
    pub fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        let socket = self.socket.as_ref().filter(|path| !path.as_os_str().is_empty() && !path.is_absolute());
        if let Some(path) = socket {
            return Some(("socket", path.display().to_string(), "an absolute path, or \"\" for none"));
        }
        let listen = self.listen.filter(|address| !address.ip().is_loopback());
        listen.map(|address| {
            let expected = "a loopback address: nobody is asked there who they are, so that others need a proxy that does";
            ("listen", address.to_string(), expected)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_beside_the_admin_socket_unless_it_is_elsewhere_or_nowhere() {
        let admin = Path::new("/run/mainstay/admin.sock");
        let of = |socket: Option<&str>| {
            let settings = MetricsSettings { socket: socket.map(Into::into), ..Default::default() };
            (settings.socket_beside(admin), settings.fault().map(|(key, ..)| key))
        };
        assert_eq!(of(None), (Some("/run/mainstay/metrics.sock".into()), None));
        assert_eq!(of(Some("")), (None, None));
        assert_eq!(of(Some("/x/y")), (Some("/x/y".into()), None));
        assert_eq!(of(Some("y")).1, Some("socket"));
    }

    #[test]
    fn the_world_is_not_listened_to() {
        let of = |listen: &str| {
            let listen = Some(listen.parse().expect("an address"));
            MetricsSettings { listen, ..Default::default() }.fault().map(|(key, ..)| key)
        };
        assert_eq!(of("127.0.0.1:9479"), None);
        assert_eq!(of("[::1]:9479"), None);
        assert_eq!(of("0.0.0.0:9479"), Some("listen"));
        assert_eq!(of("10.1.2.3:9479"), Some("listen"));
    }
}
