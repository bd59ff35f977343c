//! Flows that the kernel remembers.
//!
//! Owns: making it forget those to UDP ports that change hands. Never: touches a flow to another port.
//!
//! The rules decide for the first packet of a flow, and the kernel remembers that for the others. UDP has no end: a client that
//! goes on sending keeps its flow alive, and would be led to a pod that is gone, or past one that has just come, for ever.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use crate::netfilter::attribute::{Attributes, read_attributes};
use crate::netfilter::{FAMILY_ANY, Message, NETLINK_NETFILTER};
use crate::netlink::Netlink;
use crate::spec::{PortMapping, Protocol};

const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;
const ORIGINAL: u16 = 1;
const ZONE: u16 = 18;

/// A connection for the namespace of this thread.
pub(crate) fn connect(timeout: Duration) -> io::Result<Netlink> {
    Netlink::open(NETLINK_NETFILTER, timeout)
}

/// Forgets the flows to the UDP ports among these.
pub(crate) fn forget(netlink: &mut Netlink, ports: &[PortMapping]) -> io::Result<()> {
    if !ports.iter().any(|mapping| mapping.protocol == Protocol::Udp) {
        return Ok(());
    }
    for flow in netlink.dump(Message::new(GET, FAMILY_ANY, Attributes::default()))? {
        let part = |wanted| read_attributes(&flow.attributes).find(|(kind, _)| *kind == wanted);
        let Some((_, original)) = part(ORIGINAL) else { continue };
        if !read_target(original).is_some_and(|target| ports.iter().any(|mapping| target.is_of(mapping))) {
            continue;
        }
        let mut tuple = Attributes::default().bytes(ORIGINAL | Attributes::NESTED, original);
        if let Some((_, zone)) = part(ZONE) {
            tuple = tuple.bytes(ZONE, zone);
        }
        match netlink.ask(0, Message::new(DELETE, flow.family, tuple)) {
            // It has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// Where a flow's first packet was sent.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    protocol: u8,
    ip: IpAddr,
    port: u16,
}

impl Target {
    fn is_of(&self, mapping: &PortMapping) -> bool {
        mapping.protocol == Protocol::Udp
            && self.protocol == mapping.protocol.number()
            && self.port == mapping.host_port
            && mapping.host_ip.is_none_or(|ip| ip == self.ip)
    }
}

fn read_target(tuple: &[u8]) -> Option<Target> {
    let (mut ip, mut protocol, mut port) = (None, None, None);
    for (kind, value) in read_attributes(tuple) {
        for (inner, value) in read_attributes(value) {
            match (kind, inner) {
                (1, 2) => ip = <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
                (1, 4) => ip = <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
                (2, 1) => protocol = value.first().copied(),
                (2, 3) => port = value.try_into().ok().map(u16::from_be_bytes),
                _ => {}
            }
        }
    }
    Some(Target { protocol: protocol?, ip: ip?, port: port? })
}
