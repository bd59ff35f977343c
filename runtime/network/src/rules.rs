//! Which rules the firewall has for the pods.
//!
//! Owns: the picture below, from settings and leases. Never: talks to the kernel.
//!
//! ```text
//!  guard        filter prerouting -300   from the bridge to 127.0.0.0/8: drop
//!  prerouting   nat prerouting    -100   to an address of this machine: jump ports
//!  output       nat output        -100   to an address of this machine: jump ports
//!  ports        (jumped to)              one rule per port and family, its comment the pod's id: new destination
//!  postrouting  nat postrouting    100   from a range, not to the bridge: masquerade          (where it is on)
//!                                        from a range, to the bridge, by a port: masquerade   (a pod calls a port)
//!                                        from 127.0.0.0/8, to the bridge: masquerade          (the host calls a port)
//! ```
//!
//! The guard is there because the host reaches a port as 127.0.0.1 only when the kernel routes such addresses by the bridge;
//! without it a pod could reach what listens on the host's own loopback.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::expression::{
    Expression, Family, Meta, Register, Side, address_in, destination_is_local, destination_was_changed,
    link_is, link_is_not, octets,
};
use crate::ledger::Lease;
use crate::nft::{Change, FoundRule, Hook};
use crate::settings::{Masquerade, Settings};
use crate::spec::PortMapping;

/// The chain of the pods' ports.
pub(crate) const PORTS: &str = "ports";

const GUARD: &str = "guard";
const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";
const POSTROUTING: &str = "postrouting";

const CHAINS: [(&str, Option<Hook>); 5] = [
    (PORTS, None),
    (GUARD, Some(Hook { kind: "filter", number: 0, priority: -300 })),
    (PREROUTING, Some(Hook { kind: "nat", number: 0, priority: -100 })),
    (OUTPUT, Some(Hook { kind: "nat", number: 3, priority: -100 })),
    (POSTROUTING, Some(Hook { kind: "nat", number: 4, priority: 100 })),
];

fn loopback() -> IpNet {
    Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8).into()
}

/// The rules that do not depend on pods, with their chains.
pub(crate) fn standing(settings: &Settings) -> Vec<(&'static str, Vec<Expression>)> {
    let to_ports = || [destination_is_local().to_vec(), vec![Expression::Jump(PORTS)]].concat();
    let to_bridge = || link_is(Meta::OutputLink, &settings.bridge).to_vec();
    let masquerade = || vec![Expression::Masquerade];
    let mut rules = vec![(PREROUTING, to_ports()), (OUTPUT, to_ports())];
    if settings.ipv4.is_some() {
        let from_bridge = link_is(Meta::InputLink, &settings.bridge).to_vec();
        let to_loopback = address_in(Side::Destination, loopback());
        rules.push((GUARD, [from_bridge, to_loopback, vec![Expression::Drop]].concat()));
        let from_loopback = address_in(Side::Source, loopback());
        rules.push((POSTROUTING, [to_bridge(), from_loopback, masquerade()].concat()));
    }
    for (_, range) in settings.ranges() {
        let from_range = address_in(Side::Source, range);
        let by_port = destination_was_changed().to_vec();
        rules.push((POSTROUTING, [to_bridge(), from_range.clone(), by_port, masquerade()].concat()));
        if settings.masquerade == Masquerade::On {
            let elsewhere = link_is_not(Meta::OutputLink, &settings.bridge).to_vec();
            rules.push((POSTROUTING, [elsewhere, from_range, masquerade()].concat()));
        }
    }
    rules
}

/// What brings the table to its standing rules, whatever it had. The pods' ports are left alone.
pub(crate) fn restore<'a>(
    standing: &'a [(&'static str, Vec<Expression>)],
    comment: &'a str,
) -> Vec<Change<'a>> {
    let mut changes = vec![Change::Table { comment }];
    changes.extend(CHAINS.map(|(name, hook)| Change::Chain { name, hook }));
    let own = CHAINS.into_iter().filter(|(name, _)| *name != PORTS);
    changes.extend(own.map(|(chain, _)| Change::Flush { chain }));
    changes.extend(standing.iter().map(|(chain, expressions)| Change::Rule {
        chain,
        expressions,
        comment: None,
    }));
    changes
}

/// The rules of a pod's ports.
pub(crate) fn ports(lease: &Lease) -> Vec<Vec<Expression>> {
    let of_mapping = |mapping: &PortMapping| {
        let same_family = |ip: &&IpAddr| mapping.host_ip.is_none_or(|host| host.is_ipv4() == ip.is_ipv4());
        lease.ips.iter().filter(same_family).map(|ip| port(mapping, *ip)).collect::<Vec<_>>()
    };
    lease.ports.iter().flat_map(of_mapping).collect()
}

fn port(mapping: &PortMapping, pod: IpAddr) -> Vec<Expression> {
    let mut rule = match mapping.host_ip {
        Some(host) => address_in(Side::Destination, host.into()),
        None => {
            vec![Expression::LoadMeta(Meta::Family), Expression::IsEqual(vec![Family::of(pod) as u8])]
        }
    };
    rule.extend([
        Expression::LoadMeta(Meta::Protocol),
        Expression::IsEqual(vec![mapping.protocol.number()]),
        Expression::LoadDestinationPort,
        Expression::IsEqual(mapping.host_port.to_be_bytes().to_vec()),
        Expression::LoadValue(Register::First, octets(pod)),
        Expression::LoadValue(Register::Second, mapping.pod_port.to_be_bytes().to_vec()),
        Expression::ChangeDestination(Family::of(pod)),
    ]);
    rule
}

/// The found rules that are a pod's.
pub(crate) fn of_pod<'a>(found: &'a [FoundRule], pod: &'a str) -> impl Iterator<Item = &'a FoundRule> {
    found.iter().filter(move |rule| rule.comment.as_deref() == Some(pod))
}
