//! Devices of the host in a container.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The most devices, and the most device rules, of a container.
pub const DEVICES_MAX: usize = 1_024;

/// A device of the host that a container gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its node on the host, or a directory with nodes.
    pub path: PathBuf,
    /// Where it is in the container; as on the host when not given.
    #[serde(default)]
    pub target: Option<PathBuf>,
    /// What the container may do with it: letters of `rwm` (read, write, make nodes of it).
    #[serde(default = "all_access")]
    pub access: String,
}

/// Devices that a container may use when it has, or makes, a node of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRule {
    /// Which kind.
    pub kind: DeviceKind,
    /// The major number; any when not given.
    #[serde(default)]
    pub major: Option<u32>,
    /// The minor number; any when not given.
    #[serde(default)]
    pub minor: Option<u32>,
    /// What it may do with them: letters of `rwm`.
    #[serde(default = "all_access")]
    pub access: String,
}

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// Both.
    All,
    /// Character devices.
    Character,
    /// Block devices.
    Block,
}

fn all_access() -> String {
    "rwm".to_owned()
}
