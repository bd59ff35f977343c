//! Why the network did not do something, and how that reads to a caller of the runtime.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use mainstay_messages::codec::CodecError;
use mainstay_messages::{Error, SandboxId};
use thiserror::Error as ThisError;

use crate::spec::{PortMapping, Protocol};

/// Why something was not done.
#[derive(Debug, ThisError)]
pub enum NetworkError {
    /// A setting or a field of a request is not acceptable.
    #[error("{key}: {value} is not valid; expected {expected}")]
    Invalid {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// The machine has a route into the range.
    #[error(
        "{key}: {range} overlaps the host's route {route} by {link}; choose a range that nothing else uses"
    )]
    Overlap {
        /// The key of the range.
        key: &'static str,
        /// The range.
        range: IpNet,
        /// The route.
        route: IpNet,
        /// The link of the route.
        link: String,
    },
    /// Every address has a lease.
    #[error("{key}: all {count} addresses of {range} are leased; remove pods or set a larger range")]
    RangeFull {
        /// The key of the range.
        key: &'static str,
        /// The range.
        range: IpNet,
        /// How many addresses pods can have.
        count: u128,
    },
    /// The address that was asked for is another pod's.
    #[error("ips: {ip} is leased to pod {holder}; ask for another address or for none")]
    AddressTaken {
        /// The address.
        ip: IpAddr,
        /// Who has it.
        holder: SandboxId,
    },
    /// The port of the host is another pod's.
    #[error(
        "ports: host port {port}/{protocol} is mapped to pod {holder}; choose another port or another host address"
    )]
    PortTaken {
        /// The port.
        port: u16,
        /// Its protocol.
        protocol: Protocol,
        /// Who has it.
        holder: SandboxId,
    },
    /// The pod has a lease with other ports or addresses.
    #[error("pod {pod} is attached already, with other {what}; detach it first")]
    Differs {
        /// The pod.
        pod: SandboxId,
        /// What differs.
        what: &'static str,
    },
    /// Another call for the same pod has not ended.
    #[error("pod {pod} is being attached or detached by another call; ask again when that has ended")]
    Busy {
        /// The pod.
        pod: SandboxId,
    },
    /// Something with our name is not ours.
    #[error(
        "{key}: the {what} {name:?} exists and is not of this network ({found}); remove it or choose another name"
    )]
    Foreign {
        /// The setting that names it.
        key: &'static str,
        /// What it is.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is known of it.
        found: String,
    },
    /// Another process works with the same leases.
    #[error("network {}: another process has its leases open; stop that one first or choose another directory", .directory.display())]
    Locked {
        /// The directory.
        directory: PathBuf,
    },
    /// The namespace cannot be used.
    #[error("netns: {reason}")]
    Namespace {
        /// Why.
        reason: String,
        /// What the kernel said.
        #[source]
        source: Option<io::Error>,
    },
    /// Leases are left.
    #[error("the network has {count} leases, the first one of pod {first}; detach these pods first")]
    InUse {
        /// How many.
        count: usize,
        /// One of them.
        first: SandboxId,
    },
    /// A file cannot be read or written.
    #[error("{}: it cannot be {operation}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A file is not a lease.
    #[error("{}: it is not a lease; detach the pod of that name to remove it", .path.display())]
    NotALease {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: CodecError,
    },
    /// The kernel refused something.
    #[error("the kernel refused to {action}")]
    Kernel {
        /// What was tried.
        action: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl NetworkError {
    pub(crate) fn setting(key: impl Into<String>, value: impl Display, expected: impl Into<String>) -> Self {
        Self::Invalid { key: key.into(), value: value.to_string(), expected: expected.into() }
    }

    pub(crate) fn port_taken(mapping: &PortMapping, holder: &SandboxId) -> Self {
        Self::PortTaken { port: mapping.host_port, protocol: mapping.protocol, holder: holder.clone() }
    }

    /// The failure as the kernel's number, if it is one of the kernel.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// Adds what was tried to a failure of the kernel.
pub(crate) trait Trying<T> {
    fn trying(self, action: impl FnOnce() -> String) -> Result<T, NetworkError>;
}

impl<T> Trying<T> for io::Result<T> {
    fn trying(self, action: impl FnOnce() -> String) -> Result<T, NetworkError> {
        self.map_err(|source| NetworkError::Kernel { action: action(), source })
    }
}

impl From<NetworkError> for Error {
    fn from(error: NetworkError) -> Self {
        use std::error::Error as _;
        let text = match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        match error {
            NetworkError::Invalid { key, value, expected } => Self::invalid(key, value, expected),
            NetworkError::RangeFull { count, .. } => {
                Self::ResourceExhausted { what: text, limit: u64::try_from(count).unwrap_or(u64::MAX) }
            }
            NetworkError::AddressTaken { ip, holder } => {
                let expected = format!("an address that is not leased to pod {holder}, or none");
                Self::invalid("ips", ip.to_string(), expected)
            }
            NetworkError::PortTaken { port, protocol, holder } => {
                let expected =
                    format!("a port, or an address of the host, that does not lead to pod {holder} already");
                Self::invalid("ports", format!("{port}/{protocol}"), expected)
            }
            _ => Self::unavailable("the pod network", text),
        }
    }
}
