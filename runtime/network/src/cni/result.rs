//! What plugins gave a pod.
//!
//! Owns: reading the last result of a list. Never: writes one.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::error::CniError;
use crate::spec::{Mac, POD_LINK};

/// An address of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniAddress {
    /// The address and the length of its prefix.
    pub ip: IpNet,
    /// The gateway, if one was named.
    pub gateway: Option<IpAddr>,
}

/// What plugins gave a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniResult {
    /// The name of the network.
    pub network: String,
    /// The pod's addresses, in the order of the plugins: the first one is the pod's main one.
    pub ips: Vec<CniAddress>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Domains to search.
    pub searches: Vec<String>,
    /// Options of the resolver.
    pub options: Vec<String>,
    /// The Ethernet address of the pod's link, where a plugin says so.
    pub mac: Option<Mac>,
}

impl CniResult {
    pub(super) fn read(network: &str, text: &str) -> Result<Self, CniError> {
        let wrong = |reason: String| CniError::Result { network: network.into(), reason };
        let value: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let address = |ip: Value| {
            let text = ip["address"].as_str().unwrap_or_default();
            let parsed =
                text.parse().map_err(|_| wrong(format!("ips: {text:?} is no address with a prefix")))?;
            let gateway = ip["gateway"].as_str().and_then(|gateway| gateway.parse().ok());
            Ok(CniAddress { ip: parsed, gateway })
        };
        let dns = &value["dns"];
        let text = |value: Value| value.as_str().map(str::to_owned);
        Ok(Self {
            network: network.into(),
            ips: list(&value["ips"]).into_iter().map(address).collect::<Result<_, _>>()?,
            dns: list(&dns["nameservers"]).into_iter().filter_map(|ip| ip.as_str()?.parse().ok()).collect(),
            searches: list(&dns["search"]).into_iter().filter_map(text).collect(),
            options: list(&dns["options"]).into_iter().filter_map(text).collect(),
            mac: list(&value["interfaces"]).iter().filter(|link| is_of_pod(link)).find_map(mac),
        })
    }
}

fn is_of_pod(link: &Value) -> bool {
    link["name"] == POD_LINK && link["sandbox"].as_str().is_some_and(|sandbox| !sandbox.is_empty())
}

fn mac(link: &Value) -> Option<Mac> {
    link["mac"].as_str()?.parse().ok()
}
