//! How names of hosts are looked up in the containers of a pod: their `/etc/resolv.conf` and `/etc/hosts`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The most name servers that resolvers take (MAXNS of the C libraries).
pub const DNS_SERVERS_MAX: usize = 3;
/// The most domains that are searched.
pub const DNS_SEARCHES_MAX: usize = 32;
/// The most options of a resolver.
pub const DNS_OPTIONS_MAX: usize = 32;
/// The most names that are given an address.
pub const HOST_ENTRIES_MAX: usize = 4_096;
/// The longest zone of a name server, in bytes: that of a link's name.
pub const DNS_ZONE_LENGTH_MAX: usize = 15;

/// How names are looked up. Where nothing is given, containers have the files of their root; those on the host's network
/// have the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameLookup {
    /// Name servers.
    #[serde(default)]
    pub servers: Vec<NameServer>,
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

/// A name server: an address, and for one of IPv6 the zone that it is in, if any, as in `fe80::1%eth0` (RFC 4007). Kept as it was given.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NameServer(Box<str>);

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

impl NameServer {
    /// What [`FromStr`] takes, for sentences.
    pub const EXPECTED: &'static str =
        "the address of a name server, as in 10.0.0.1, fd00::1 or fe80::1%eth0";

    /// The text, as it stands in resolv.conf.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NameServer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+".contains(&byte);
        let is_good = match text.split_once('%') {
            None => text.parse::<IpAddr>().is_ok(),
            Some((address, zone)) => {
                address.parse::<Ipv6Addr>().is_ok()
                    && (1..=DNS_ZONE_LENGTH_MAX).contains(&zone.len())
                    && zone.bytes().all(plain)
            }
        };
        if is_good {
            Ok(Self(text.into()))
        } else {
            Err(Error::invalid("names.servers", format!("{text:?}"), Self::EXPECTED))
        }
    }
}

impl TryFrom<String> for NameServer {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<NameServer> for String {
    fn from(server: NameServer) -> Self {
        server.0.into()
    }
}

impl fmt::Display for NameServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NameServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameServer({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host whose resolv.conf has a name server of its link, as routers announce it, could run no pod of Kubernetes.
    #[test]
    fn a_name_server_may_be_in_a_zone() {
        for good in ["10.0.0.1", "fd00::1", "FE80::1", "fe80::1%eth0", "fe80::1%2", "fe80::1%br-x.7"] {
            let server: NameServer = good.parse().expect("good");
            let json = serde_json::to_string(&server).expect("written");
            assert_eq!(json, format!("{good:?}"));
            assert_eq!(serde_json::from_str::<NameServer>(&json).expect("read"), server);
        }
        for bad in [
            "",
            "dns",
            "10.0.0.1%eth0",
            "fe80::1%",
            "fe80::1%a b",
            "fe80::1%a\n",
            "fe80::1%a%b",
            "%eth0",
            "fe80::1%0123456789abcdef",
            "fe80::1 ",
            "10.0.0.1\nsearch x",
        ] {
            let refused = bad.parse::<NameServer>().expect_err(bad).to_string();
            assert!(refused.contains(&format!("{bad:?} is not valid; expected")), "{refused}");
        }
    }
}
