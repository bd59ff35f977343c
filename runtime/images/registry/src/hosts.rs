//! Which hosts serve the images of a registry, in which order, and how they are spoken to.
//!
//! The format and its rules are containerd's, so that a `certs.d` that exists works as it is: in each directory of
//! [`Settings::hosts_dirs`], `HOST_PORT_`, `HOST:PORT` or `_default`, the first that is there; in it `hosts.toml`, or
//! Docker's `*.crt`, `*.cert` and `*.key`. Without any, the registry itself is asked: over HTTPS, or, on this machine
//! and on another port than 443, over HTTP where it does not speak TLS.

mod docker_certs;
pub(crate) mod file;

use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::settings::Settings;

/// Docker's registry, by the name that images have.
const HUB: &str = "docker.io";
/// And by the name that is connected to.
const HUB_SERVER: &str = "registry-1.docker.io";
/// The directory for hosts that have none of their own.
const DEFAULT_DIR: &str = "_default";

/// A host that serves images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub scheme: Scheme,
    /// Host and port.
    pub authority: String,
    /// What comes before `/REPOSITORY/…`, usually `/v2`.
    pub prefix: String,
    pub capabilities: Capabilities,
    pub tls: Tls,
    /// Sent with every request to this host, and to no other.
    pub headers: Vec<(String, String)>,
    pub dial_timeout: Option<Duration>,
    /// The registry that this host stands for, where it is another one.
    pub namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
    /// HTTPS, and HTTP where the other side does not speak TLS. Only for this machine itself.
    HttpsOrHttp,
}

/// What a host may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// What a tag leads to.
    pub resolve: bool,
    /// Manifests and blobs by digest.
    pub pull: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Trusted beside the system's.
    pub ca: Vec<PathBuf>,
    pub client: Option<ClientCertificate>,
    pub verify: Verify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub certificate: PathBuf,
    /// None when it is in the same file.
    pub key: Option<PathBuf>,
}

/// Whether the certificate of the other side is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verify {
    #[default]
    Yes,
    Skip,
}

/// Why the configuration of hosts cannot be used.
#[derive(Debug, Error)]
pub enum HostsError {
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
    #[error("{} has more than {max} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit.
        max: u64,
    },
    /// The file is not TOML, or has a field of another kind.
    #[error("{} cannot be understood: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// A value that is none of the possible ones.
    #[error("{}: {field} is {value:?}; it should be {expected}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The proxies of the environment cannot be used.
    #[error("the proxies that the environment names cannot be used: {reason}")]
    Proxies {
        /// Why.
        reason: String,
    },
    /// A certificate or key that cannot be used.
    #[error("{}: {reason}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The hosts to ask for images of this one, in order.
pub(crate) async fn find(settings: &Settings, host: &str) -> Result<Vec<Endpoint>, HostsError> {
    let (dirs, name) = (settings.hosts_dirs.clone(), host.to_owned());
    // The files may lie on a file system that takes its time.
    let task = tokio::task::spawn_blocking(move || read(&dirs, &name));
    // The task is not cancelled, and does not panic.
    let found = task.await.expect("reading files does not panic")?;
    Ok(found.unwrap_or_else(|| vec![direct(host, &settings.plain_http)]))
}

/// A file that is no longer than `max` bytes.
pub(crate) fn read_file(path: &Path, max: u64) -> Result<Vec<u8>, HostsError> {
    let failed = |source| HostsError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > max {
        return Err(HostsError::TooLong { path: path.to_owned(), max });
    }
    Ok(bytes)
}

fn read(dirs: &[PathBuf], host: &str) -> Result<Option<Vec<Endpoint>>, HostsError> {
    let underscored = host.rsplit_once(':').map(|(name, port)| format!("{name}_{port}_"));
    let names: Vec<_> = underscored.as_deref().into_iter().chain([host, DEFAULT_DIR]).collect();
    let candidates = dirs.iter().flat_map(|dir| names.iter().map(move |name| dir.join(name)));
    let Some(dir) = candidates.into_iter().find(|dir| dir.is_dir()) else { return Ok(None) };
    match file::read(&dir.join("hosts.toml"))? {
        Some(text) => file::parse(&text, &dir, host).map(Some),
        None => Ok(docker_certs::read(&dir)?.map(|tls| {
            let plain = direct(host, &[]);
            vec![Endpoint { scheme: Scheme::Https, tls, ..plain }]
        })),
    }
}

/// The registry itself, where nothing is configured.
fn direct(host: &str, plain_http: &[String]) -> Endpoint {
    let authority = if host == HUB { HUB_SERVER } else { host };
    let here = is_this_machine(host);
    let scheme = match () {
        () if plain_http.iter().any(|plain| plain == host) => Scheme::Http,
        () if here && !matches!(port(host), None | Some("443")) => Scheme::HttpsOrHttp,
        () => Scheme::Https,
    };
    let verify = if here { Verify::Skip } else { Verify::Yes };
    Endpoint {
        scheme,
        authority: authority.to_owned(),
        prefix: "/v2".to_owned(),
        capabilities: Capabilities { resolve: true, pull: true },
        tls: Tls { verify, ..Tls::default() },
        headers: Vec::new(),
        dial_timeout: None,
        namespace: None,
    }
}

/// Whether a host is this machine, as containerd decides it: by name or by a loopback address.
pub(crate) fn is_this_machine(authority: &str) -> bool {
    let name = authority.strip_suffix(port(authority).unwrap_or_default()).unwrap_or(authority);
    let name = name.strip_suffix(':').unwrap_or(name);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn port(authority: &str) -> Option<&str> {
    let (_, port) = authority.rsplit_once(':')?;
    port.bytes().all(|b| b.is_ascii_digit()).then_some(port).filter(|_| !authority.ends_with(']'))
}

#[cfg(test)]
mod tests;
