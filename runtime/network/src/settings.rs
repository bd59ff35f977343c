//! What an operator sets for the network, and whether it can work.
//!
//! Owns: the settings, their defaults and the rules that need no look at the machine. Never: IO.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::error::NetworkError;

/// The bridge that pods hang on unless a setting says otherwise.
pub const BRIDGE_DEFAULT: &str = "mainstay0";
/// The nftables table (family inet) unless a setting says otherwise.
pub const TABLE_DEFAULT: &str = "mainstay";
/// The largest packet of a pod unless a setting says otherwise, in bytes.
pub const MTU_DEFAULT: u32 = 1_500;
/// The smallest packet size that may be set, in bytes: IPv6 needs it.
pub const MTU_MIN: u32 = 1_280;
/// The largest packet size that may be set, in bytes: what veth takes.
pub const MTU_MAX: u32 = 65_535;
/// How long the kernel may take for one request, in milliseconds. They take microseconds; a machine that makes hundreds
/// of links at once takes longer, because all of them wait for one lock.
pub const REQUEST_TIMEOUT_DEFAULT_MS: u64 = 10_000;
/// The longest name of a link, in bytes.
pub const LINK_NAME_LENGTH_MAX: usize = 15;
/// The longest name of the table, in bytes.
pub const TABLE_NAME_LENGTH_MAX: usize = 64;
/// The longest path of the directory, in bytes: it stands in the alias of the bridge, as the mark of its owner.
pub const DIRECTORY_LENGTH_MAX: usize = 200;
/// Name servers at most, as resolv.conf(5) reads them.
pub const DNS_SERVERS_MAX: usize = 3;

/// Whether packets of pods leave the machine with the machine's own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masquerade {
    /// They do: the world outside need not know the pods' ranges.
    On,
    /// They keep the pod's address; someone else routes the range to this machine.
    Off,
}

/// The settings of one network. Another network on the same machine needs another directory, bridge, table and ranges.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the leases lie. Made with mode 0700 when it is missing.
    pub directory: PathBuf,
    /// The name of the bridge.
    pub bridge: String,
    /// The name of the nftables table.
    pub table: String,
    /// The range of IPv4 addresses; none for a network without IPv4. The first address is the gateway's.
    pub ipv4: Option<Ipv4Net>,
    /// The range of IPv6 addresses; none for a network without IPv6. The first address is the gateway's.
    pub ipv6: Option<Ipv6Net>,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// Whether packets to the outside get the machine's address.
    pub masquerade: Masquerade,
    /// Name servers that pods are told of.
    pub dns: Vec<IpAddr>,
    /// How long one request to the kernel may take.
    pub request_timeout: Duration,
}

impl Settings {
    /// The defaults, with leases in `directory`: 10.89.0.0/16, no IPv6, masquerade on.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            bridge: BRIDGE_DEFAULT.into(),
            table: TABLE_DEFAULT.into(),
            ipv4: Some(Ipv4Net::new_assert(Ipv4Addr::new(10, 89, 0, 0), 16)),
            ipv6: None,
            mtu: MTU_DEFAULT,
            masquerade: Masquerade::On,
            dns: Vec::new(),
            request_timeout: Duration::from_millis(REQUEST_TIMEOUT_DEFAULT_MS),
        }
    }

    /// The ranges that are set, with their keys.
    pub fn ranges(&self) -> impl Iterator<Item = (&'static str, IpNet)> {
        let ipv4 = self.ipv4.map(|range| ("network.ipv4", IpNet::V4(range)));
        ipv4.into_iter().chain(self.ipv6.map(|range| ("network.ipv6", IpNet::V6(range))))
    }

    /// Whether the settings can work, as far as they alone say.
    pub fn check(&self) -> Result<(), NetworkError> {
        let directory = self.directory.to_string_lossy();
        if !self.directory.is_absolute() || directory.len() > DIRECTORY_LENGTH_MAX {
            let expected = format!("an absolute path of at most {DIRECTORY_LENGTH_MAX} bytes");
            return Err(NetworkError::setting("network.directory", directory, expected));
        }
        let name_is_good = |name: &str, limit: usize| {
            name.len() <= limit
                && name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        };
        for (key, name, limit) in [
            ("network.bridge", &self.bridge, LINK_NAME_LENGTH_MAX),
            ("network.table", &self.table, TABLE_NAME_LENGTH_MAX),
        ] {
            if !name_is_good(name, limit) {
                let expected =
                    format!("1 to {limit} letters, digits, '_', '.' or '-', the first one a letter");
                return Err(NetworkError::setting(key, name, expected));
            }
        }
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            let expected = format!("{MTU_MIN} to {MTU_MAX} bytes");
            return Err(NetworkError::setting("network.mtu", self.mtu, expected));
        }
        if self.dns.len() > DNS_SERVERS_MAX {
            let expected = format!("at most {DNS_SERVERS_MAX}");
            return Err(NetworkError::setting(
                "network.dns",
                format!("{} servers", self.dns.len()),
                expected,
            ));
        }
        if self.request_timeout.is_zero() {
            return Err(NetworkError::setting("network.request_timeout", "0", "more than no time"));
        }
        if self.ranges().next().is_none() {
            return Err(NetworkError::setting("network.ipv4", "none", "a range here or as network.ipv6"));
        }
        self.ranges().try_for_each(|(key, range)| check_range(key, range))
    }
}

fn check_range(key: &'static str, range: IpNet) -> Result<(), NetworkError> {
    let wrong = |expected: String| Err(NetworkError::setting(key, range, expected));
    if range.addr() != range.network() {
        return wrong(format!("the first address of the range: {}", range.trunc()));
    }
    // A gateway and one pod beside the first and the last address.
    let (widest, narrowest) = match range {
        IpNet::V4(_) => (8, 30),
        IpNet::V6(_) => (48, 126),
    };
    if range.prefix_len() > narrowest {
        return wrong(format!("a range for a gateway and at least one pod: /{narrowest} or larger"));
    }
    if range.prefix_len() < widest {
        return wrong(format!("a range no larger than /{widest}"));
    }
    let reserved: &[IpNet] = match range {
        IpNet::V4(_) => &[
            IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 8)),
            IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
            IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
            IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 3)),
        ],
        IpNet::V6(_) => &[
            IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 8)),
            IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)),
            IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8)),
        ],
    };
    match reserved.iter().find(|reserved| overlap(reserved, &range)) {
        Some(reserved) => wrong(format!("a range of unicast addresses, outside of {reserved}")),
        None => Ok(()),
    }
}

/// Whether two ranges share an address.
pub(crate) fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn settings() -> Settings {
        Settings { ipv6: Some("fd00:89::/64".parse().expect("a range")), ..Settings::new("/var/lib/net") }
    }

    #[test]
    fn the_defaults_are_good() {
        settings().check().expect("good");
    }

    #[rstest]
    #[case("10.0.0.0/31", "/30 or larger")]
    #[case("10.0.0.0/32", "/30 or larger")]
    #[case("10.0.0.1/24", "10.0.0.0/24")]
    #[case("10.0.0.0/7", "/8")]
    #[case("127.0.0.0/16", "127.0.0.0/8")]
    #[case("224.0.0.0/24", "224.0.0.0/3")]
    #[case("169.254.3.0/24", "169.254.0.0/16")]
    fn a_range_that_cannot_work_is_refused_by_its_key(#[case] range: &str, #[case] says: &str) {
        let mut settings = settings();
        settings.ipv4 = Some(range.parse::<Ipv4Net>().expect("a range"));
        let text = settings.check().expect_err("refused").to_string();
        assert!(text.starts_with("network.ipv4: ") && text.contains(says), "{text}");
    }

    #[rstest]
    #[case("fd00::/127")]
    #[case("fe80::/64")]
    #[case("ff02::/64")]
    #[case("fd00::/32")]
    #[case("::/64")]
    fn the_same_for_ipv6(#[case] range: &str) {
        let mut settings = settings();
        settings.ipv6 = Some(range.parse::<Ipv6Net>().expect("a range"));
        let text = settings.check().expect_err("refused").to_string();
        assert!(text.starts_with("network.ipv6: "), "{text}");
    }

    #[rstest]
    #[case("a-name-of-16-char")]
    #[case("")]
    #[case("a/b")]
    #[case("0x")]
    fn a_bad_name_of_the_bridge_is_refused(#[case] name: &str) {
        let settings = Settings { bridge: name.into(), ..settings() };
        let text = settings.check().expect_err("refused").to_string();
        assert!(text.starts_with("network.bridge: "), "{text}");
    }
}
