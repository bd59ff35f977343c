//! The network of a pod: which kind, and what it asks of it.
//!
//! Owns: the words, and the rules that need no look at the machine or at other pods. Which addresses there are, and whether
//! a port is free, is for the network to say.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::SandboxSpec;
use crate::error::{Error, Result};

/// Ports that one pod may map at most.
pub const PORTS_MAX: usize = 1_024;
/// The name of a pod's link inside of the pod.
pub const POD_LINK: &str = "eth0";

/// The network of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// As the configuration of the runtime says. Records have what that was.
    #[default]
    Default,
    /// A network namespace of its own, with a loopback interface alone. Records of version 1 call it so too.
    #[serde(alias = "private")]
    None,
    /// The runtime's own network: a bridge, addresses, a way out, ports of the host.
    Builtin,
    /// The network that CNI plugins make, as the operator has configured them.
    Cni,
    /// The host's.
    Host,
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port of the host that leads into a pod. It is reached from outside and from the host itself, there also as
/// 127.0.0.1; not as `[::1]`, which the kernel never routes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortMapping {
    /// The protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// The address of the host; none for all, of both families that the pod has.
    #[serde(default)]
    pub host_ip: Option<IpAddr>,
    /// The port of the host.
    pub host_port: u16,
    /// The port of the pod.
    pub pod_port: u16,
}

/// An Ethernet address. Written as in `02:00:00:00:00:01`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Network {
    /// Whether the pod has a network namespace of its own.
    pub fn is_private(self) -> bool {
        self != Self::Host
    }

    /// Whether somebody gives the pod a link and addresses.
    pub fn is_attached(self) -> bool {
        matches!(self, Self::Builtin | Self::Cni)
    }

    /// The kind as one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::None => "none",
            Self::Builtin => "builtin",
            Self::Cni => "cni",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Protocol {
    /// Its number in an IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = [Self::Tcp, Self::Udp, Self::Sctp].into_iter().find(|known| known.word() == text);
        known.ok_or_else(|| Error::invalid("protocol", format!("{text:?}"), "tcp, udp or sctp"))
    }
}

impl PortMapping {
    /// Whether a packet could be meant by both.
    pub fn collides(&self, other: &Self) -> bool {
        let same_address = match (self.host_ip, other.host_ip) {
            (Some(one), Some(two)) => one == two,
            _ => true,
        };
        self.protocol == other.protocol && self.host_port == other.host_port && same_address
    }

    /// Whether its host's address is one that packets for the pod can come to.
    fn host_ip_is_good(&self) -> bool {
        self.host_ip.is_none_or(|ip| {
            !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::V6(Ipv6Addr::LOCALHOST)
        })
    }
}

impl fmt::Display for PortMapping {
    /// As in `127.0.0.1:8080:80/tcp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_ip {
            Some(IpAddr::V6(ip)) => write!(f, "[{ip}]:")?,
            Some(ip) => write!(f, "{ip}:")?,
            None => {}
        }
        write!(f, "{}:{}/{}", self.host_port, self.pod_port, self.protocol)
    }
}

impl Mac {
    /// Whether it can be one station's: neither all zeroes nor a group's.
    pub fn is_of_one_station(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mac({self})")
    }
}

impl FromStr for Mac {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            Error::invalid("mac", format!("{text:?}"), "six bytes in hexadecimal, as in 02:00:00:00:00:01")
        };
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(refused)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| refused())?;
        }
        if parts.next().is_some() { Err(refused()) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for Mac {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl SandboxSpec {
    /// Checks what the pod asks of its network.
    pub(super) fn check_network(&self) -> Result<()> {
        check_ports(&self.ports)?;
        for (index, ip) in self.ips.iter().enumerate() {
            let field = || format!("ips[{index}]");
            if self.ips[..index].iter().any(|earlier| earlier.is_ipv4() == ip.is_ipv4()) {
                return Err(Error::invalid(field(), ip.to_string(), "one address of a family at most"));
            }
            if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
                return Err(Error::invalid(field(), ip.to_string(), "an address that a pod can have"));
            }
        }
        if let Some(mac) = self.mac.filter(|mac| !mac.is_of_one_station()) {
            let expected = "the address of one station: the first byte even, and not all zeroes";
            return Err(Error::invalid("mac", mac.to_string(), expected));
        }
        self.check_network_kind()
    }

    /// What only a network with a link can give must not be asked of another one.
    fn check_network_kind(&self) -> Result<()> {
        let asked = [
            ("ports", self.ports.first().map(ToString::to_string)),
            ("ips", self.ips.first().map(ToString::to_string)),
            ("mac", self.mac.map(|mac| mac.to_string())),
        ];
        let Some((field, value)) = asked.into_iter().find_map(|(field, value)| Some((field, value?))) else {
            return Ok(());
        };
        match self.network {
            Network::Default | Network::Builtin | Network::Cni => Ok(()),
            Network::Host => {
                let expected = "nothing, on the host's network: its ports and addresses are the host's";
                Err(Error::invalid(field, value, expected))
            }
            Network::None => {
                Err(Error::invalid(field, value, "nothing, without a network; or network builtin or cni"))
            }
        }
    }
}

fn check_ports(ports: &[PortMapping]) -> Result<()> {
    if ports.len() > PORTS_MAX {
        let expected = format!("at most {PORTS_MAX}");
        return Err(Error::invalid("ports", format!("{} mappings", ports.len()), expected));
    }
    for (index, mapping) in ports.iter().enumerate() {
        let field = format!("ports[{index}]");
        if mapping.host_port == 0 || mapping.pod_port == 0 {
            return Err(Error::invalid(field, mapping.to_string(), "ports from 1 to 65535"));
        }
        if !mapping.host_ip_is_good() {
            let expected =
                "an address of the host, or none for all of them; not [::1], which the kernel never routes";
            return Err(Error::invalid(format!("{field}.host_ip"), mapping.to_string(), expected));
        }
        if ports[..index].iter().any(|earlier| earlier.collides(mapping)) {
            return Err(Error::invalid(field, mapping.to_string(), "each port of the host once"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(change: impl FnOnce(&mut SandboxSpec)) -> SandboxSpec {
        let mut spec = SandboxSpec::new("web".parse().expect("a name"));
        change(&mut spec);
        spec
    }

    fn port(host_port: u16, pod_port: u16) -> PortMapping {
        PortMapping { protocol: Protocol::Tcp, host_ip: None, host_port, pod_port }
    }

    fn refused(change: impl FnOnce(&mut SandboxSpec)) -> String {
        spec(change).check().expect_err("refused").to_string()
    }

    #[test]
    fn a_refusal_names_its_field() {
        let cases = [
            (refused(|spec| spec.ports = vec![port(0, 80)]), "ports[0]"),
            (refused(|spec| spec.ports = vec![port(80, 80), port(80, 81)]), "ports[1]"),
            (
                refused(|spec| {
                    let host_ip = Some("::1".parse().expect("an address"));
                    spec.ports = vec![PortMapping { host_ip, ..port(80, 80) }];
                }),
                "ports[0].host_ip",
            ),
            (
                refused(|spec| {
                    spec.ips = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().expect("good")).into()
                }),
                "ips[1]",
            ),
            (refused(|spec| spec.ips = vec!["127.0.0.1".parse().expect("good")]), "ips[0]"),
            (refused(|spec| spec.mac = Some(Mac([1, 0, 0, 0, 0, 1]))), "mac"),
            (
                refused(|spec| {
                    spec.network = Network::Host;
                    spec.ports = vec![port(80, 80)];
                }),
                "ports",
            ),
            (
                refused(|spec| {
                    spec.network = Network::None;
                    spec.mac = Some(Mac([2, 0, 0, 0, 0, 1]));
                }),
                "mac",
            ),
        ];
        for (text, field) in cases {
            assert!(text.starts_with(&format!("{field}: ")), "{field}: {text}");
        }
    }

    #[test]
    fn one_port_may_lead_on_from_two_addresses_and_protocols() {
        let at = |ip: &str| Some(ip.parse().expect("an address"));
        let good = spec(|spec| {
            spec.network = Network::Builtin;
            spec.ports = vec![
                PortMapping { host_ip: at("192.0.2.1"), ..port(80, 8080) },
                PortMapping { host_ip: at("192.0.2.2"), ..port(80, 8080) },
                PortMapping { protocol: Protocol::Udp, ..port(80, 8080) },
            ];
        });
        assert_eq!(good.check(), Ok(()));
    }

    #[test]
    fn an_ethernet_address_is_read_as_it_is_written() {
        let mac: Mac = "02:00:0a:ff:00:01".parse().expect("good");
        assert_eq!(mac.to_string(), "02:00:0a:ff:00:01");
        let json = serde_json::to_string(&mac).expect("written");
        assert_eq!(serde_json::from_str::<Mac>(&json).expect("read"), mac);
        for bad in ["", "02:00:0a:ff:00", "02:00:0a:ff:00:01:02", "2:0:a:f:0:1", "02-00-0a-ff-00-01"] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}
