//! What a pod asks of the network, and what it gets.
//!
//! Owns: the rules of a request that need no look at other pods. Never: IO.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::error::NetworkError;

pub use mainstay_messages::spec::{Mac, POD_LINK, PORTS_MAX, PortMapping, Protocol};

/// The Ethernet address of whoever has this IP address. One that is reused comes with the same Ethernet address, so that no
/// neighbour's memory is ever wrong.
pub(crate) fn mac_of(ip: IpAddr) -> Mac {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            Mac([0x0a, 0x58, a, b, c, d])
        }
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            Mac([0x0a, 0x59, a, b, c, d])
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
            && !mac.is_of_one_station()
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
