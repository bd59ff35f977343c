//! The section `[network]` of the configuration.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use mainstay_messages::spec::Network;
use mainstay_network::cni::CniSettings;
use mainstay_network::{
    BRIDGE_DEFAULT, MTU_DEFAULT, Masquerade, REQUEST_TIMEOUT_DEFAULT_MS, Settings, TABLE_DEFAULT,
};
use mainstay_supervisor::netns::NETNS_DIRECTORY_DEFAULT;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How long one CNI plugin may run when nothing else is set, in milliseconds.
pub const CNI_PLUGIN_TIMEOUT_DEFAULT_MS: u64 = 30_000;
/// The directory of the leases of the built-in network in the root directory: rules of the firewall, which a lease alone tells
/// of, outlive a state directory that is wiped.
const LEASES_DIRECTORY: &str = "network";
/// The directory of the records of CNI networks in the root directory: plugins keep what they have given over a reboot.
const CNI_DIRECTORY: &str = "cni";
/// Which part of the time for a network is not the plugins': one in so many.
const CNI_REST: u64 = 10;
/// The directory of the names of network namespaces in the state directory of a runtime beside others.
const NETNS_BESIDE: &str = "netns";
/// The word for a range that there is none of.
const NO_RANGE: &str = "none";

/// Which networks pods can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSettings {
    /// The network of pods that do not say which.
    pub default: Network,
    /// Where the network namespaces of pods have their names.
    pub netns_dir: PathBuf,
    /// The bridge of the built-in network.
    pub bridge: String,
    /// The nftables table of the built-in network.
    pub table: String,
    /// The IPv4 addresses of the built-in network; the first one is the gateway's.
    #[serde(with = "range")]
    pub ipv4: Option<Ipv4Net>,
    /// The IPv6 addresses of the built-in network; the first one is the gateway's.
    #[serde(with = "range")]
    pub ipv6: Option<Ipv6Net>,
    /// The largest packet of the built-in network, in bytes.
    pub mtu: u32,
    /// Whether packets from the built-in network to the outside get the machine's address.
    pub masquerade: Masquerading,
    /// Name servers that pods of the built-in network are told of; those that the host asks when there are none.
    pub dns: Vec<IpAddr>,
    /// How long the kernel may take for one request, in milliseconds: [`REQUEST_TIMEOUT_DEFAULT_MS`].
    pub request_timeout_ms: u64,
    /// Where the configuration of CNI networks is; the first list by the names of the files counts.
    pub cni_conf_dir: PathBuf,
    /// Where CNI plugins are; the first directory that has one counts.
    pub cni_plugin_dirs: Vec<PathBuf>,
    /// Where other programs look for what CNI plugins gave pods.
    pub cni_cache_dir: PathBuf,
    /// How long one CNI plugin may run, in milliseconds: [`CNI_PLUGIN_TIMEOUT_DEFAULT_MS`].
    pub cni_plugin_timeout_ms: u64,
}

/// Whether packets of pods leave the machine with the machine's own address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Masquerading {
    /// They do.
    #[default]
    On,
    /// They keep the pod's; someone else routes the range to this machine.
    Off,
}

impl Default for NetworkSettings {
    /// Those of a daemon: pods have the built-in network.
    fn default() -> Self {
        let Settings { ipv4, ipv6, .. } = Settings::new("/");
        Self {
            default: Network::Builtin,
            netns_dir: NETNS_DIRECTORY_DEFAULT.into(),
            bridge: BRIDGE_DEFAULT.into(),
            table: TABLE_DEFAULT.into(),
            ipv4,
            ipv6,
            mtu: MTU_DEFAULT,
            masquerade: Masquerading::On,
            dns: Vec::new(),
            request_timeout_ms: REQUEST_TIMEOUT_DEFAULT_MS,
            cni_conf_dir: "/etc/cni/net.d".into(),
            cni_plugin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            cni_cache_dir: "/var/lib/cni".into(),
            cni_plugin_timeout_ms: CNI_PLUGIN_TIMEOUT_DEFAULT_MS,
        }
    }
}

impl NetworkSettings {
    /// Those of a runtime beside others: its pods have a loopback alone unless they ask for more, because a bridge and its
    /// ranges are one runtime's.
    pub(super) fn beside(state_dir: &Path) -> Self {
        Self { default: Network::None, netns_dir: state_dir.join(NETNS_BESIDE), ..Self::default() }
    }

    /// Paths, with their keys.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let plugin_dirs = self.cni_plugin_dirs.iter().map(|path| ("network.cni_plugin_dirs", path));
        let others = [
            ("network.netns_dir", &self.netns_dir),
            ("network.cni_conf_dir", &self.cni_conf_dir),
            ("network.cni_cache_dir", &self.cni_cache_dir),
        ];
        others.into_iter().chain(plugin_dirs)
    }

    /// What cannot work: a key, its value, and what would be right.
    pub(super) fn fault(&self) -> Option<(String, String, String)> {
        if self.default == Network::Default {
            let expected = "builtin, cni, none or host".to_owned();
            return Some(("network.default".to_owned(), self.default.to_string(), expected));
        }
        match self.builtin(Path::new("/var/lib/mainstay")).check() {
            Err(mainstay_network::NetworkError::Invalid { key, value, expected }) => {
                Some((key, value, expected))
            }
            // There are no others.
            Err(_) | Ok(()) => None,
        }
    }

    /// What the built-in network is set up by.
    pub(crate) fn builtin(&self, root_dir: &Path) -> Settings {
        Settings {
            directory: root_dir.join(LEASES_DIRECTORY),
            bridge: self.bridge.clone(),
            table: self.table.clone(),
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            mtu: self.mtu,
            masquerade: match self.masquerade {
                Masquerading::On => Masquerade::On,
                Masquerading::Off => Masquerade::Off,
            },
            dns: self.dns.clone(),
            request_timeout: Duration::from_millis(self.request_timeout_ms),
        }
    }

    /// What CNI networks are set up by, when a network has so long to take a pod or to let it go.
    pub(crate) fn cni(&self, root_dir: &Path, network_ms: u64) -> CniSettings {
        CniSettings {
            conf_dir: self.cni_conf_dir.clone(),
            plugin_dirs: self.cni_plugin_dirs.clone(),
            directory: root_dir.join(CNI_DIRECTORY),
            cache_dir: self.cni_cache_dir.clone(),
            timeout: Duration::from_millis(self.cni_plugin_timeout_ms),
            // The rest is for the records, and for the end of a plugin that was killed.
            chain_timeout: Duration::from_millis(network_ms - network_ms / CNI_REST),
        }
    }

    /// The section as a commented text.
    pub(super) fn text(&self) -> String {
        format!(
            "# The networks of pods.\n\
             [network]\n\
             # First: what pods get that do not say (\"builtin\", \"cni\", \"none\": a loopback alone, or \"host\"), and where\n\
             # tools such as `ip netns` find their namespaces. Then the built-in network, which is made with its first\n\
             # pod: the bridge, the nftables table, the addresses (\"none\" for a family that pods do not have; the first\n\
             # one is the gateway's), the largest packet, whether packets to the outside get the machine's address\n\
             # (\"on\", \"off\"), name servers (those that the host asks when there are none), and how long the kernel may\n\
             # take for one request. Then CNI networks: where their lists are (the first by name counts, and is read for\n\
             # each pod anew), where plugins are, where results are kept for other programs, and how long a plugin may run\n\
             # (all of a list together: nine tenths of timeouts.network_ms).\n\
             {}",
            super::section(self)
        )
    }
}

/// A range that there may be none of, as text.
mod range {
    use super::*;

    pub(super) fn serialize<R: Display, S: Serializer>(range: &Option<R>, to: S) -> Result<S::Ok, S::Error> {
        match range {
            Some(range) => to.collect_str(range),
            None => to.serialize_str(NO_RANGE),
        }
    }

    pub(super) fn deserialize<'de, R: FromStr, D: Deserializer<'de>>(from: D) -> Result<Option<R>, D::Error> {
        let text = String::deserialize(from)?;
        if text == NO_RANGE {
            return Ok(None);
        }
        let wrong = || {
            D::Error::custom(format!(
                "{text:?} is not valid; expected a range such as 10.89.0.0/16 or fd00:89::/64, or \"none\""
            ))
        };
        text.parse().map(Some).map_err(|_| wrong())
    }
}
