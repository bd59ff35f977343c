//! Plugins as operators see them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A plugin, or the want of one that is required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginStatus {
    /// Its name with its index, as in `10-logger`: plugins are called in the order of these.
    pub name: String,
    /// Where it is.
    pub state: PluginState,
    /// Its process, where it is known.
    pub pid: Option<u32>,
    /// The events that it asked for: `RunPodSandbox` and the like.
    pub events: Vec<String>,
    /// What becomes of a request that it does not answer.
    pub fail: PluginFail,
    /// Whether anything is made without it.
    pub need: PluginNeed,
    /// Answers missed in a row.
    pub strikes: u32,
    /// Requests that wait for it.
    pub waiting: u32,
    /// Pods and containers that it knows.
    pub objects: u32,
}

/// Where a plugin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginState {
    /// It is called.
    Live,
    /// It is being told of all there is; requests wait for it.
    Synchronising,
    /// It is not connected.
    Absent,
}

/// What becomes of a request that a plugin does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginFail {
    /// It goes on without the plugin.
    Open,
    /// It fails.
    Closed,
}

/// Whether anything is made without a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginNeed {
    /// It is.
    Optional,
    /// It is not.
    Required,
}

impl fmt::Display for PluginState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "live",
            Self::Synchronising => "synchronising",
            Self::Absent => "absent",
        })
    }
}

impl fmt::Display for PluginFail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Closed => "closed",
        })
    }
}
