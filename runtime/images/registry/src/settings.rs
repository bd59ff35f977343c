//! How the client behaves: every time-out, limit and place, named.

use std::path::PathBuf;
use std::time::Duration;

use crate::liveness::Pace;
use crate::retry::RetryPolicy;

/// The longest time for a connection, TLS included, in seconds; `dial_timeout` of `hosts.toml` goes before it.
pub const CONNECT_TIMEOUT_S: u64 = 30;
/// The longest time for the head of an answer, in seconds.
pub const RESPONSE_TIMEOUT_S: u64 = 60;
/// The longest time without a byte in the middle of a transfer, in seconds.
pub const STALL_TIMEOUT_S: u64 = 60;
/// The longest time for a credential helper, in seconds. Some ask a cloud's service.
pub const HELPER_TIMEOUT_S: u64 = 30;
/// Blobs that are fetched at the same time, over all pulls of one client.
pub const DOWNLOADS_MAX: usize = 8;
/// Redirects that are followed for one request.
pub const REDIRECTS_MAX: usize = 5;
/// Where containerd's `hosts.toml` directories lie.
pub const HOSTS_DIR: &str = "/etc/containerd/certs.d";

/// How the client behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directories of hosts, as containerd has them; the first that knows a host decides.
    pub hosts_dirs: Vec<PathBuf>,
    /// Docker's `config.json`; a file that is not there is none.
    pub docker_config: Option<PathBuf>,
    /// Where credential helpers are looked for; empty is `PATH`.
    pub helper_dirs: Vec<PathBuf>,
    /// Further files of certificates that are trusted everywhere, beside those of the system.
    pub ca_files: Vec<PathBuf>,
    /// Hosts (with port where the name has one) that are asked over plain HTTP though no `hosts.toml` says so.
    pub plain_http: Vec<String>,
    /// Whether proxies of the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`) are used. Never for
    /// this machine itself.
    pub proxies: Proxies,
    /// See [`CONNECT_TIMEOUT_S`].
    pub connect_timeout: Duration,
    /// See [`RESPONSE_TIMEOUT_S`].
    pub response_timeout: Duration,
    /// What a transfer has to bring.
    pub pace: Pace,
    /// See [`HELPER_TIMEOUT_S`].
    pub helper_timeout: Duration,
    /// How often to try.
    pub retry: RetryPolicy,
    /// See [`DOWNLOADS_MAX`]; at least 1.
    pub downloads_max: usize,
    /// What the client calls itself.
    pub user_agent: String,
}

/// Whether proxies of the environment are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxies {
    /// As the environment says.
    FromEnvironment,
    /// Never.
    None,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts_dirs: vec![PathBuf::from(HOSTS_DIR)],
            docker_config: default_docker_config(),
            helper_dirs: Vec::new(),
            ca_files: Vec::new(),
            plain_http: Vec::new(),
            proxies: Proxies::FromEnvironment,
            connect_timeout: Duration::from_secs(CONNECT_TIMEOUT_S),
            response_timeout: Duration::from_secs(RESPONSE_TIMEOUT_S),
            pace: Pace { stall_timeout: Duration::from_secs(STALL_TIMEOUT_S), floor_bytes_per_s: 0 },
            helper_timeout: Duration::from_secs(HELPER_TIMEOUT_S),
            retry: RetryPolicy::default(),
            downloads_max: DOWNLOADS_MAX,
            user_agent: concat!("mainstay/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl Settings {
    /// Shortens the time-outs of single requests to half of a pull's `progress_timeout`, so that a request that
    /// hangs is tried again before the pull is taken for dead. Zero, which is off, shortens nothing.
    pub fn within(mut self, progress_timeout: Duration) -> Self {
        if !progress_timeout.is_zero() {
            let half = progress_timeout / 2;
            let timeouts = [
                &mut self.connect_timeout,
                &mut self.response_timeout,
                &mut self.pace.stall_timeout,
                &mut self.helper_timeout,
            ];
            timeouts.into_iter().for_each(|timeout| *timeout = half.min(*timeout));
        }
        self
    }
}

/// `$DOCKER_CONFIG/config.json`, else `~/.docker/config.json`.
fn default_docker_config() -> Option<PathBuf> {
    let dir = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    Some(dir.or_else(home)?.join("config.json"))
}
