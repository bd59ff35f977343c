//! How names of hosts are looked up in the containers of a pod: their `/etc/resolv.conf` and `/etc/hosts`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The most name servers that resolvers take (MAXNS of the C libraries).
pub const DNS_SERVERS_MAX: usize = 3;
/// The most domains that are searched.
pub const DNS_SEARCHES_MAX: usize = 32;
/// The most options of a resolver.
pub const DNS_OPTIONS_MAX: usize = 32;
/// The most names that are given an address.
pub const HOST_ENTRIES_MAX: usize = 4_096;

/// How names are looked up. Where nothing is given, containers have the files of their root; those on the host's network
/// have the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameLookup {
    /// Name servers.
    #[serde(default)]
    pub servers: Vec<IpAddr>,
    /// Domains that are appended to short names.
    #[serde(default)]
    pub searches: Vec<String>,
    /// Options of the resolver, as in `ndots:2`.
    #[serde(default)]
    pub options: Vec<String>,
    /// Names with a fixed address.
    #[serde(default)]
    pub hosts: Vec<HostEntry>,
}

/// A name with a fixed address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// The name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
}

impl NameLookup {
    /// Whether it says anything about the resolver.
    pub fn has_resolver(&self) -> bool {
        !(self.servers.is_empty() && self.searches.is_empty() && self.options.is_empty())
    }
}
