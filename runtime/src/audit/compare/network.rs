//! What the network of a pod accounts for, and what it counts on. Pure.

use mainstay_messages::SandboxId;
use mainstay_messages::audit::{Remedy, ThingKind};
use mainstay_messages::record::SandboxRecord;
use mainstay_messages::spec::Network;

/// Whether something of this kind goes when a pod's network is taken back.
pub(super) fn is_of_network(kind: ThingKind) -> bool {
    needs_attachment(kind) || kind == ThingKind::NetworkNamespace
}

/// Whether only a pod has something of this kind that was given a network, beside a namespace.
pub(super) fn needs_attachment(kind: ThingKind) -> bool {
    matches!(
        kind,
        ThingKind::FirewallRule
            | ThingKind::NetworkLink
            | ThingKind::BridgePort
            | ThingKind::AddressLease
            | ThingKind::CniRecord
            | ThingKind::CniCache
    )
}

/// Whether a pod asks for a network, and its record has none: it was rebuilt when the network could not be asked.
pub(super) fn is_not_known(record: &SandboxRecord) -> bool {
    record.spec.network.is_attached() && record.network.is_none()
}

/// What is done about what a ready pod has lost of its network: it is made anew, unless what says how it was is lost too.
pub(super) fn remedy(sandbox: &SandboxId, lost: &[(ThingKind, String)]) -> Remedy {
    let is_record = |kind| matches!(kind, ThingKind::AddressLease | ThingKind::CniRecord);
    match lost.iter().any(|(kind, _)| is_record(*kind)) {
        true => Remedy::ByHand { how: super::MAKE_ANEW.to_owned() },
        false => Remedy::RestoreNetwork { sandbox: sandbox.clone() },
    }
}

/// What a ready pod counts on, and how it would be called.
pub(super) fn counted_on(record: &SandboxRecord) -> Vec<(ThingKind, String)> {
    let Some(network) = &record.network else { return Vec::new() };
    let namespace = (ThingKind::NetworkNamespace, network.namespace.display().to_string());
    let kinds: &[ThingKind] = match record.spec.network {
        Network::Builtin => &[ThingKind::AddressLease, ThingKind::NetworkLink, ThingKind::BridgePort],
        Network::Cni => &[ThingKind::CniRecord],
        Network::Default | Network::None | Network::Host => &[],
    };
    let rules = matches!(record.spec.network, Network::Builtin) && !record.spec.ports.is_empty();
    let rules = rules.then_some(ThingKind::FirewallRule);
    let of_pod = kinds.iter().copied().chain(rules).map(|kind| (kind, record.id.to_string()));
    [namespace].into_iter().chain(of_pod).collect()
}
