//! The section of what pods and containers use.

use serde::{Deserialize, Serialize};

use crate::usage::DISK_INTERVAL_DEFAULT_MS;

/// What pods and containers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageSettings {
    /// Time between two counts of the files of a container, in milliseconds, while somebody asks for them; more for one that
    /// takes long; 0 for never.
    pub disk_interval_ms: u64,
}

impl Default for UsageSettings {
    fn default() -> Self {
        Self { disk_interval_ms: DISK_INTERVAL_DEFAULT_MS }
    }
}
