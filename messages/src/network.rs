//! What a pod has of a network: the part of its record that readers see.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::Mac;

/// What a pod got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodNetwork {
    /// The network: `builtin`, or the name of the CNI network.
    pub name: String,
    /// The path by which the pod's network namespace is found.
    pub namespace: PathBuf,
    /// The name of its link in the pod.
    pub link: String,
    /// Its addresses; the first one is its main one.
    pub ips: Vec<PodAddress>,
    /// Its Ethernet address, where the network says so.
    pub mac: Option<Mac>,
    /// The largest packet, in bytes, where the network says so.
    pub mtu: Option<u32>,
    /// How the network has names looked up.
    pub dns: NetworkDns,
}

/// One address of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodAddress {
    /// The address.
    pub ip: IpAddr,
    /// The length of its range's prefix.
    pub prefix: u8,
    /// The way out, where there is one.
    pub gateway: Option<IpAddr>,
}

/// How a network has names looked up. What a pod's spec says counts before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkDns {
    /// Name servers.
    pub servers: Vec<IpAddr>,
    /// Domains that are appended to short names.
    pub searches: Vec<String>,
    /// Options of the resolver.
    pub options: Vec<String>,
}
