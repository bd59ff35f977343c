//! CNI networks: requests, answers and holdings in the words of the runtime.

use std::path::{Path, PathBuf};

use mainstay_messages::audit::{Thing, ThingKind};
use mainstay_messages::network::{NetworkDns, PodAddress, PodNetwork};
use mainstay_messages::spec::{POD_LINK, SandboxSpec};
use mainstay_messages::{Result, SandboxId};
use mainstay_network::cni::{Cni, CniRequest, CniResult};
use mainstay_supervisor::PodToAttach;
use mainstay_supervisor::netns::NamespaceNames;
use serde_json::{Map, Value, json};

use super::{changed_at, thing};

/// Labels of a pod of Kubernetes, and the arguments by which plugins know them. Who it is is known better where its spec says
/// so.
const KUBERNETES: [(&str, &str); 3] = [
    ("io.kubernetes.pod.namespace", "K8S_POD_NAMESPACE"),
    ("io.kubernetes.pod.name", "K8S_POD_NAME"),
    ("io.kubernetes.pod.uid", "K8S_POD_UID"),
];
/// Annotations that limit a pod's traffic, in bits a second, and what the bandwidth capability calls them.
const BANDWIDTH: [(&str, &str); 2] =
    [("kubernetes.io/ingress-bandwidth", "ingress"), ("kubernetes.io/egress-bandwidth", "egress")];
/// The burst of a limited pod, in bits: as much as the plugin takes, as others have it.
const BURST_BITS: u64 = 0x7fff_ffff;

/// Has the plugins give a pod what it asks for.
pub(super) fn attach(cni: &Cni, pod: &PodToAttach<'_>) -> Result<PodNetwork> {
    let result = cni.attach(pod.sandbox, pod.name, &request(pod.sandbox, pod.spec))?;
    Ok(shown(result, pod.name.to_owned()))
}

/// Has the plugins take back what they gave, and removes what other programs were told of it, also where the record of that is
/// lost.
pub(super) fn remove_leak(
    cni: &Cni,
    sandbox: &SandboxId,
    namespace: Option<&Path>,
    names: &NamespaceNames,
) -> Result<()> {
    cni.detach(sandbox, namespace)?;
    Ok(cni.forget(sandbox, &names.path(sandbox))?)
}

/// What plugins are asked for.
fn request(sandbox: &SandboxId, spec: &SandboxSpec) -> CniRequest {
    let known = KUBERNETES.iter().filter_map(|(label, argument)| {
        let said = match (&spec.identity, *argument) {
            (Some(identity), "K8S_POD_NAMESPACE") => Some(&identity.namespace),
            (Some(identity), "K8S_POD_NAME") => Some(&identity.name),
            (Some(identity), "K8S_POD_UID") => Some(&identity.uid),
            (Some(_), _) | (None, _) => spec.labels.get(*label),
        };
        let value = said.filter(|value| !value.is_empty() && !value.contains([';', '=']))?;
        Some(((*argument).to_owned(), value.clone()))
    });
    let mut args: Vec<_> = known.collect();
    if !args.is_empty() {
        args.push(("K8S_POD_INFRA_CONTAINER_ID".to_owned(), sandbox.to_string()));
    }
    // Plugins that do not know one of them would refuse it.
    args.insert(0, ("IgnoreUnknown".to_owned(), "1".to_owned()));
    CniRequest { ports: spec.ports.clone(), capabilities: capabilities(spec), args }
}

fn capabilities(spec: &SandboxSpec) -> Map<String, Value> {
    let mut capabilities = Map::new();
    if !spec.ips.is_empty() {
        capabilities.insert("ips".to_owned(), json!(spec.ips));
    }
    if let Some(mac) = spec.mac {
        capabilities.insert("mac".to_owned(), json!(mac));
    }
    let names = &spec.names;
    if names.has_resolver() {
        let dns = json!({ "servers": names.servers, "searches": names.searches, "options": names.options });
        capabilities.insert("dns".to_owned(), dns);
    }
    let mut bandwidth = Map::new();
    for (annotation, direction) in BANDWIDTH {
        if let Some(rate) = spec.annotations.get(annotation).and_then(|text| bits(text)) {
            bandwidth.insert(format!("{direction}Rate"), json!(rate));
            bandwidth.insert(format!("{direction}Burst"), json!(BURST_BITS));
        }
    }
    if !bandwidth.is_empty() {
        capabilities.insert("bandwidth".to_owned(), bandwidth.into());
    }
    capabilities
}

/// A rate as Kubernetes writes quantities: a whole number, or one with k, M, G or Ki, Mi, Gi behind it.
fn bits(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor: u64 = match &text[digits..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(factor).filter(|rate| *rate > 0)
}

/// What a pod has, as its record says it.
pub(super) fn shown(result: CniResult, namespace: PathBuf) -> PodNetwork {
    let address = |given: &mainstay_network::cni::CniAddress| PodAddress {
        ip: given.ip.addr(),
        prefix: given.ip.prefix_len(),
        gateway: given.gateway,
    };
    PodNetwork {
        ips: result.ips.iter().map(address).collect(),
        name: result.network,
        namespace,
        link: POD_LINK.to_owned(),
        mac: result.mac,
        mtu: None,
        dns: NetworkDns { servers: result.dns, searches: result.searches, options: result.options },
    }
}

/// What there is of it here. What plugins have made is theirs to know.
pub(super) fn things(
    cni: &Cni,
    file_of: impl Fn(&SandboxId) -> String,
    names: &NamespaceNames,
    things: &mut Vec<Thing>,
) -> Result<()> {
    let records = cni.list();
    for record in &records {
        things.push(thing(ThingKind::CniRecord, file_of(&record.pod), Some(&record.pod), Some(record.since)));
    }
    for pod in cni.damaged() {
        let place = file_of(&pod);
        let since = changed_at(Path::new(&place));
        things.push(thing(ThingKind::CniRecord, place, Some(&pod), since));
    }
    for cached in cni.cached()? {
        // Others use the same directory: ours are those for a namespace with a name of ours.
        let file = Path::new(&cached.netns).file_name().and_then(|name| name.to_str());
        let pod = file.and_then(|file| names.pod_of(file)).filter(|pod| pod.as_str() == cached.pod);
        if let Some(pod) = pod {
            let place = cached.path.display().to_string();
            things.push(thing(ThingKind::CniCache, place, Some(&pod), changed_at(&cached.path)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_asks_plugins_for_what_its_spec_says() {
        let mut spec = SandboxSpec::new("web".parse().expect("a name"));
        assert_eq!(request(&"a".parse().expect("an id"), &spec).capabilities, Map::new());
        spec.mac = Some("02:00:00:00:00:01".parse().expect("good"));
        spec.ips = vec!["10.0.0.9".parse().expect("good")];
        spec.names.servers = vec!["10.0.0.1".parse().expect("good")];
        spec.annotations.insert("kubernetes.io/egress-bandwidth".into(), "10M".into());
        spec.annotations.insert("kubernetes.io/ingress-bandwidth".into(), "a lot".into());
        spec.labels.insert("io.kubernetes.pod.name".into(), "web".into());
        let asked = request(&"a".parse().expect("an id"), &spec);
        let expected = json!({
            "mac": "02:00:00:00:00:01",
            "ips": ["10.0.0.9"],
            "dns": { "servers": ["10.0.0.1"], "searches": [], "options": [] },
            "bandwidth": { "egressRate": 10_000_000, "egressBurst": BURST_BITS },
        });
        assert_eq!(Value::Object(asked.capabilities), expected);
        let args: Vec<_> = asked.args.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(args, ["IgnoreUnknown=1", "K8S_POD_NAME=web", "K8S_POD_INFRA_CONTAINER_ID=a"]);
    }
}
