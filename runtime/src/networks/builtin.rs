//! The built-in network: requests, answers and holdings in the words of the runtime.

use std::os::fd::AsFd;
use std::path::PathBuf;

use mainstay_messages::audit::{Thing, ThingKind};
use mainstay_messages::network::{NetworkDns, PodAddress, PodNetwork};
use mainstay_messages::{Result, SandboxId};
use mainstay_network::{AttachSpec, Attachment, Holdings, Network, Settings};
use mainstay_supervisor::PodToAttach;

use super::{changed_at, thing};

/// What a pod's record calls this network.
const NAME: &str = "builtin";

/// Gives a pod its place.
pub(super) fn attach(network: &Network, pod: &PodToAttach<'_>) -> Result<PodNetwork> {
    let spec = pod.spec;
    let asked = AttachSpec { ports: spec.ports.clone(), mac: spec.mac, ips: spec.ips.clone() };
    let attachment = network.attach(pod.sandbox, pod.namespace.as_fd(), &asked)?;
    Ok(shown(attachment, pod.name.to_owned()))
}

/// What a pod has, as its record says it.
pub(super) fn shown(attachment: Attachment, namespace: PathBuf) -> PodNetwork {
    let address = |given: &mainstay_network::PodAddress| PodAddress {
        ip: given.ip.addr(),
        prefix: given.ip.prefix_len(),
        gateway: Some(given.gateway),
    };
    PodNetwork {
        name: NAME.to_owned(),
        namespace,
        link: attachment.link.to_owned(),
        ips: attachment.ips.iter().map(address).collect(),
        mac: Some(attachment.mac),
        mtu: Some(attachment.mtu),
        dns: NetworkDns { servers: attachment.dns, ..NetworkDns::default() },
    }
}

/// What the machine has of it.
pub(super) fn things(
    holdings: &Holdings,
    settings: &Settings,
    file_of: impl Fn(&SandboxId) -> String,
    things: &mut Vec<Thing>,
) {
    let leases = holdings.leases.iter().map(|lease| {
        thing(ThingKind::AddressLease, file_of(&lease.pod), Some(&lease.pod), Some(lease.since))
    });
    things.extend(leases);
    things.extend(holdings.unreadable.iter().map(|file| {
        let place = file.path.display().to_string();
        thing(ThingKind::AddressLease, place, file.pod.as_ref(), changed_at(&file.path))
    }));
    let since = |pod: Option<&SandboxId>| {
        let lease = holdings.leases.iter().find(|lease| Some(&lease.pod) == pod);
        lease.map(|lease| lease.since)
    };
    for link in &holdings.links {
        let (pod, place) = (link.pod.as_ref(), link.name.clone());
        things.push(thing(ThingKind::NetworkLink, place.clone(), pod, since(pod)));
        if link.is_port {
            things.push(thing(ThingKind::BridgePort, place, pod, since(pod)));
        }
    }
    let table = &settings.table;
    things.extend(holdings.rules.iter().map(|rule| {
        let place = format!("table inet {table}, rule {}", rule.handle);
        thing(ThingKind::FirewallRule, place, rule.pod.as_ref(), since(rule.pod.as_ref()))
    }));
}
