//! What one pod has in the kernel: a link, addresses, routes, rules.
//!
//! Owns: making it and taking it back, each step repeatable. Never: leases, nor another pod's things.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ipnet::IpNet;
use mainstay_messages::SandboxId;
use netlink_packet_route::link::InfoKind;

use crate::error::{NetworkError, Trying};
use crate::faults;
use crate::ledger::Lease;
use crate::link::{self, Link};
use crate::namespace::within;
use crate::netlink::{Lanes, Netlink};
use crate::nft::{Change, Table};
use crate::removal;
use crate::rules;
use crate::settings::Settings;
use crate::spec::{POD_LINK, PodAddress};

const NETLINK_ROUTE: i32 = libc::NETLINK_ROUTE;

/// Opens a socket for links, addresses and routes of this thread's namespace.
pub(crate) fn route_socket(settings: &Settings) -> io::Result<Netlink> {
    Netlink::open(NETLINK_ROUTE, settings.request_timeout)
}

/// Whether a link of the host is this pod's. A link that lost its alias, or never got it, is known by its bridge.
pub(crate) fn is_of_pod(link: &Link, pod: &SandboxId, bridge: Option<u32>) -> bool {
    link.is(&InfoKind::Veth)
        && match &link.alias {
            Some(alias) => alias == pod.as_str(),
            None => bridge.is_some() && link.bridge == bridge,
        }
}

/// Makes the link and sets up its end in the pod.
pub(crate) fn connect(
    host: &Lanes,
    settings: &Settings,
    bridge: &Link,
    netns: BorrowedFd<'_>,
    lease: &Lease,
    addresses: &[PodAddress],
) -> Result<(), NetworkError> {
    let mut inside = within(netns, || route_socket(settings).trying(|| "open a socket in the pod".into()))?;
    pair(&mut host.lane(), &mut inside, settings, bridge, netns, lease)?;
    faults::reach("port-set");
    configure(&mut inside, addresses)?;
    faults::reach("pod-configured");
    Ok(())
}

fn pair(
    host: &mut Netlink,
    inside: &mut Netlink,
    settings: &Settings,
    bridge: &Link,
    netns: BorrowedFd<'_>,
    lease: &Lease,
) -> Result<(), NetworkError> {
    let doing = || format!("make the link {} of pod {}", lease.link, lease.pod);
    let mut ours = link::find(host, &lease.link).trying(doing)?;
    let mut theirs = link::find(inside, POD_LINK).trying(doing)?;
    if let Some(found) = &ours {
        if !is_of_pod(found, &lease.pod, Some(bridge.index)) {
            return Err(NetworkError::Foreign {
                key: "network.bridge",
                what: "link",
                name: lease.link.clone(),
                found: format!("its alias is {:?}", found.alias.as_deref().unwrap_or_default()),
            });
        }
        // An earlier attempt may have been for a namespace that is gone, or may have lost its bridge.
        let whole = theirs.as_ref().is_some_and(|theirs| is_one_pair(found, theirs, lease));
        if !whole || found.bridge != Some(bridge.index) {
            link::remove(host, found.index).trying(doing)?;
            ours = None;
            // With one end went the other, which may have been this one.
            theirs = link::find(inside, POD_LINK).trying(doing)?;
        }
    }
    if ours.is_none() {
        if let Some(stranger) = theirs {
            let kind = stranger.kind.unwrap_or_default();
            let reason = format!("the namespace has a link {POD_LINK} ({kind}) that is not of this network");
            return Err(NetworkError::Namespace { reason, source: None });
        }
        link::make_pair(host, &lease.link, bridge.index, netns, lease.mac, settings.mtu).trying(doing)?;
        faults::reach("pair-made");
    }
    // By its name: each request waits for all others that change a network of this machine, so one that asks is one too many.
    link::set_port(host, &lease.link, lease.pod.as_str())
        .trying(|| format!("set up the port {} of the bridge {}", lease.link, bridge.name))
}

fn is_one_pair(ours: &Link, theirs: &Link, lease: &Lease) -> bool {
    ours.peer == Some(theirs.index) && theirs.peer == Some(ours.index) && theirs.mac == Some(lease.mac)
}

fn configure(inside: &mut Netlink, addresses: &[PodAddress]) -> Result<(), NetworkError> {
    link::set_up_named(inside, "lo").trying(|| "switch on the loopback of the pod".into())?;
    let found = link::find(inside, POD_LINK).and_then(|link| link.ok_or(io::ErrorKind::NotFound.into()));
    let eth0 = found.trying(|| format!("find the link {POD_LINK} in the pod"))?;
    link::set_up(inside, eth0.index).trying(|| format!("switch on {POD_LINK} in the pod"))?;
    for PodAddress { ip, gateway } in addresses {
        let ip: IpNet = *ip;
        link::add_address(inside, eth0.index, ip).trying(|| format!("give the pod the address {ip}"))?;
        link::set_default_route(inside, eth0.index, *gateway)
            .trying(|| format!("give the pod the default route by {gateway}"))?;
    }
    Ok(())
}

/// Brings the rules of a pod's ports to what its lease says, in one transaction.
pub(crate) fn open_ports(table: &mut Table, settings: &Settings, lease: &Lease) -> Result<(), NetworkError> {
    if lease.ports.is_empty() {
        return Ok(());
    }
    let doing = || format!("map the ports of pod {} in the table {}", lease.pod, settings.table);
    let pod = lease.pod.as_str();
    let found = table.rules(rules::PORTS).trying(doing)?;
    let wanted = rules::ports(lease);
    let mut changes: Vec<_> = rules::of_pod(&found, pod)
        .map(|rule| Change::NoRule { chain: rules::PORTS, handle: rule.handle })
        .collect();
    changes.extend(wanted.iter().map(|expressions| Change::Rule {
        chain: rules::PORTS,
        expressions,
        comment: Some(pod),
    }));
    table.change(&changes).trying(doing)
}

/// Removes the rules of a pod's ports.
pub(crate) fn close_ports(
    table: &mut Table,
    settings: &Settings,
    pod: &SandboxId,
) -> Result<(), NetworkError> {
    let doing = || format!("remove the ports of pod {pod} from the table {}", settings.table);
    let found = table.rules(rules::PORTS).trying(doing)?;
    let changes: Vec<_> = rules::of_pod(&found, pod.as_str())
        .map(|rule| Change::NoRule { chain: rules::PORTS, handle: rule.handle })
        .collect();
    if changes.is_empty() { Ok(()) } else { table.change(&changes).trying(doing) }
}

/// Removes the links of these names that are the pod's.
pub(crate) fn disconnect(
    host: &Arc<Lanes>,
    settings: &Settings,
    bridge: Option<u32>,
    pod: &SandboxId,
    names: impl Iterator<Item = String>,
) -> Result<(), NetworkError> {
    for name in names {
        let doing = || format!("remove the link {name} of pod {pod}");
        let found = link::find(&mut host.lane(), &name).trying(doing)?;
        if let Some(link) = found.filter(|link| is_of_pod(link, pod, bridge)) {
            removal::remove(host, &link, settings.request_timeout).trying(doing)?;
        }
    }
    Ok(())
}
