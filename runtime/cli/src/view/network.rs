//! What a pod has of a network, as `--json` prints it.

use mainstay_messages::network::{PodAddress, PodNetwork};
use mainstay_messages::record::SandboxRecord;
use serde::Serialize;

/// The network of a pod.
#[derive(Debug, Serialize)]
pub struct NetworkView<'a> {
    name: &'a str,
    namespace: String,
    link: &'a str,
    /// With the lengths of their prefixes; the first one is the main one.
    addresses: Vec<String>,
    gateways: Vec<String>,
    mac: Option<String>,
    mtu: Option<u32>,
    /// Ports of the host that lead to it.
    ports: Vec<String>,
    name_servers: Vec<String>,
}

impl<'a> NetworkView<'a> {
    /// That of a pod; none for one with the host's, or with a loopback alone.
    pub fn of(record: &'a SandboxRecord) -> Option<Self> {
        let network = record.network.as_ref()?;
        Some(Self {
            name: &network.name,
            namespace: network.namespace.display().to_string(),
            link: &network.link,
            addresses: network
                .ips
                .iter()
                .map(|address| format!("{}/{}", address.ip, address.prefix))
                .collect(),
            gateways: network.ips.iter().filter_map(|a| a.gateway).map(|ip| ip.to_string()).collect(),
            mac: network.mac.map(|mac| mac.to_string()),
            mtu: network.mtu,
            ports: record.spec.ports.iter().map(ToString::to_string).collect(),
            name_servers: network.dns.servers.iter().map(ToString::to_string).collect(),
        })
    }
}

/// The addresses of a pod.
pub fn addresses(network: Option<&PodNetwork>) -> Vec<String> {
    let address = |address: &PodAddress| address.ip.to_string();
    network.iter().flat_map(|network| &network.ips).map(address).collect()
}
