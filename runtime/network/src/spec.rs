//! What a pod asks of the network, and what it gets.
//!
//! Owns: the rules of a request that need no look at other pods. Never: IO.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::error::NetworkError;

/// Ports that one pod may map at most.
pub const PORTS_MAX: usize = 1_024;
/// The name of a pod's link inside of the pod.
pub const POD_LINK: &str = "eth0";

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
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
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// A port of the host that leads into a pod. It is reached from outside and from the host itself, there also as
/// 127.0.0.1; not as `[::1]`, which the kernel never routes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortMapping {
    /// The protocol.
    pub protocol: Protocol,
    /// The address of the host; none for all, of both families that the pod has.
    pub host_ip: Option<IpAddr>,
    /// The port of the host.
    pub host_port: u16,
    /// The port of the pod.
    pub pod_port: u16,
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
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

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

impl Mac {
    /// The address of whoever has this IP address. One that is reused comes with the same Ethernet address, so that no
    /// neighbour's memory is ever wrong.
    pub(crate) fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                Self([0x0a, 0x58, a, b, c, d])
            }
            IpAddr::V6(ip) => {
                let [.., a, b, c, d] = ip.octets();
                Self([0x0a, 0x59, a, b, c, d])
            }
        }
    }
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachSpec {
    /// Ports of the host that lead to it.
    pub ports: Vec<PortMapping>,
    /// Its Ethernet address; one is made from its IP address otherwise.
    pub mac: Option<Mac>,
    /// Addresses that it wants, one of a family at most; the others are chosen.
    pub ips: Vec<IpAddr>,
}

impl AttachSpec {
    /// Whether the request can be granted, as far as it alone says.
    pub(crate) fn check(&self, ranges: &[IpNet]) -> Result<(), NetworkError> {
        if self.ports.len() > PORTS_MAX {
            let expected = format!("at most {PORTS_MAX}");
            return Err(NetworkError::setting("ports", format!("{} mappings", self.ports.len()), expected));
        }
        for (index, mapping) in self.ports.iter().enumerate() {
            let field = format!("ports[{index}]");
            if mapping.host_port == 0 || mapping.pod_port == 0 {
                let value = format!("{}:{}", mapping.host_port, mapping.pod_port);
                return Err(NetworkError::setting(field, value, "ports from 1 to 65535"));
            }
            if self.ports[..index].iter().any(|earlier| earlier.collides(mapping)) {
                let value = format!("host port {}/{}", mapping.host_port, mapping.protocol);
                return Err(NetworkError::setting(field, value, "each host port once"));
            }
            if let Some(ip) = mapping.host_ip
                && (!ranges.iter().any(|range| range.addr().is_ipv4() == ip.is_ipv4())
                    || ip.is_unspecified()
                    || ip == IpAddr::V6(std::net::Ipv6Addr::LOCALHOST))
            {
                let expected = "an address of the host in a family that pods have, or none for all of them";
                return Err(NetworkError::setting(format!("{field}.host_ip"), ip, expected));
            }
        }
        if let Some(mac) = self.mac
            && (mac.0[0] & 1 == 1 || mac.0 == [0; 6])
        {
            return Err(NetworkError::setting("mac", mac, "the address of one station: the first byte even"));
        }
        for (index, ip) in self.ips.iter().enumerate() {
            if self.ips[..index].iter().any(|earlier| earlier.is_ipv4() == ip.is_ipv4()) {
                return Err(NetworkError::setting("ips", ip, "one address of a family at most"));
            }
        }
        Ok(())
    }
}

/// One address of a pod, with its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// The address and the length of its range.
    pub ip: IpNet,
    /// The gateway, which is the bridge.
    pub gateway: IpAddr,
}

/// What a pod got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The name of the link in the pod.
    pub link: &'static str,
    /// The name of the other end on the host.
    pub host_link: String,
    /// Its addresses, IPv4 first.
    pub ips: Vec<PodAddress>,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// Name servers, as set for the network.
    pub dns: Vec<IpAddr>,
}
