//! What there is of the network, for audits: in the leases and in the kernel, side by side.
//!
//! Owns: finding it and telling whose it is. Never: changes anything.

use std::fmt;

use mainstay_messages::SandboxId;
use netlink_packet_route::link::InfoKind;

use crate::error::{NetworkError, Trying};
use crate::ledger::{Lease, UnreadableLease};
use crate::link::{self, Link};
use crate::name;
use crate::netlink::Netlink;
use crate::nft::{FoundRule, Table};
use crate::pod;
use crate::rules;

/// A link that is a pod's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLink {
    /// Its name on the host.
    pub name: String,
    /// The pod; none for one that nothing tells of.
    pub pod: Option<SandboxId>,
    /// Whether it hangs on the bridge.
    pub is_port: bool,
}

/// A rule that is a pod's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRule {
    /// Its handle in the chain `ports`.
    pub handle: u64,
    /// The pod; none for one without the id of a pod in its comment.
    pub pod: Option<SandboxId>,
}

/// Everything that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The leases.
    pub leases: Vec<Lease>,
    /// Files among them that are none.
    pub unreadable: Vec<UnreadableLease>,
    /// Links of pods.
    pub links: Vec<PodLink>,
    /// Rules of pods.
    pub rules: Vec<PodRule>,
    /// Ports of the bridge that are not of this network. They are left alone.
    pub strangers: Vec<String>,
}

impl Holdings {
    /// Links without a lease.
    pub fn leaked_links(&self) -> impl Iterator<Item = &PodLink> {
        self.links.iter().filter(|link| !self.has_lease(link.pod.as_ref()))
    }

    /// Rules without a lease.
    pub fn leaked_rules(&self) -> impl Iterator<Item = &PodRule> {
        self.rules.iter().filter(|rule| !self.has_lease(rule.pod.as_ref()))
    }

    /// Whether a link or a rule is this pod's, or a lease.
    pub fn has_of(&self, pod: &SandboxId) -> bool {
        let owners = self.links.iter().map(|link| &link.pod).chain(self.rules.iter().map(|rule| &rule.pod));
        owners.flatten().any(|owner| owner == pod) || self.has_lease(Some(pod))
    }

    fn has_lease(&self, pod: Option<&SandboxId>) -> bool {
        pod.is_some_and(|pod| self.leases.iter().any(|lease| lease.pod == *pod))
    }
}

/// Something of a pod that is not as its lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has no lease.
    NoLease,
    /// The bridge is gone.
    NoBridge,
    /// Its link is gone.
    NoLink {
        /// The name of the link.
        name: String,
    },
    /// Its link is not on the bridge.
    NotAPort {
        /// The name of the link.
        name: String,
    },
    /// It has more or fewer rules than its ports need.
    Rules {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLease => f.write_str("the pod has no lease"),
            Self::NoBridge => f.write_str("the bridge is gone"),
            Self::NoLink { name } => write!(f, "the link {name} is gone"),
            Self::NotAPort { name } => write!(f, "the link {name} is not on the bridge"),
            Self::Rules { found, expected } => {
                write!(f, "the pod's ports have {found} rules instead of {expected}")
            }
        }
    }
}

/// The links of the host that are on the bridge or called like a pod's.
pub(crate) fn links(netlink: &mut Netlink, bridge: Option<&Link>) -> Result<Vec<FoundLink>, NetworkError> {
    let all = link::all(netlink).trying(|| "list the links".into())?;
    let index = bridge.map(|bridge| bridge.index);
    let found = all.into_iter().filter_map(|link| {
        let is_port = index.is_some() && link.bridge == index;
        let is_ours = link.is(&InfoKind::Veth) && name::is_pod_link(&link.name);
        (is_port || is_ours).then_some(FoundLink { link, is_port, is_ours })
    });
    Ok(found.collect())
}

/// A link, and what is known of it without the leases.
pub(crate) struct FoundLink {
    link: Link,
    is_port: bool,
    is_ours: bool,
}

/// The rules of pods.
pub(crate) fn rules(table: &mut Table) -> Result<Vec<FoundRule>, NetworkError> {
    table.rules(rules::PORTS).trying(|| "list the rules of the pods' ports".into())
}

/// Puts the kernel's view and the leases side by side.
pub(crate) fn assemble(
    leases: Vec<Lease>,
    unreadable: Vec<UnreadableLease>,
    links: Vec<FoundLink>,
    rules: Vec<FoundRule>,
) -> Holdings {
    let mut holdings = Holdings { leases, unreadable, ..Holdings::default() };
    for FoundLink { link, is_port, is_ours } in links {
        let by_lease = holdings.leases.iter().find(|lease| lease.link == link.name).map(|lease| &lease.pod);
        let by_alias = || link.alias.as_deref().and_then(|alias| alias.parse().ok());
        let pod = by_lease.cloned().or_else(by_alias);
        // Off the bridge, a name alone does not make a link ours: another network's links have the same kind of name.
        match is_ours && (is_port || by_lease.is_some()) {
            true => holdings.links.push(PodLink { name: link.name, pod, is_port }),
            false if is_port => holdings.strangers.push(link.name),
            false => {}
        }
    }
    let pod_rule = |rule: FoundRule| {
        let pod = rule.comment.and_then(|comment| comment.parse().ok());
        PodRule { handle: rule.handle, pod }
    };
    holdings.rules = rules.into_iter().map(pod_rule).collect();
    holdings
}

/// What of one pod is not as its lease says.
pub(crate) fn faults(
    netlink: &mut Netlink,
    bridge: Option<&Link>,
    lease: &Lease,
    found: &[FoundRule],
) -> Result<Vec<Fault>, NetworkError> {
    let mut faults = Vec::new();
    let index = bridge.map(|bridge| bridge.index);
    if bridge.is_none() {
        faults.push(Fault::NoBridge);
    }
    let link = link::find(netlink, &lease.link).trying(|| format!("look for {}", lease.link))?;
    match link.filter(|link| pod::is_of_pod(link, &lease.pod, index)) {
        None => faults.push(Fault::NoLink { name: lease.link.clone() }),
        Some(link) if link.bridge.is_none() || link.bridge != index => {
            faults.push(Fault::NotAPort { name: lease.link.clone() });
        }
        Some(_) => {}
    }
    let (there, expected) = (rules::of_pod(found, lease.pod.as_str()).count(), rules::ports(lease).len());
    if there != expected {
        faults.push(Fault::Rules { found: there, expected });
    }
    Ok(faults)
}
