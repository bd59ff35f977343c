//! The section of the audit in the background.

use serde::{Deserialize, Serialize};

use crate::audit::AUDIT_INTERVAL_DEFAULT_MS;

/// The audit in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSettings {
    /// Time between two audits, in milliseconds, a tenth more or less by chance; 0 for none.
    pub interval_ms: u64,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self { interval_ms: AUDIT_INTERVAL_DEFAULT_MS }
    }
}
