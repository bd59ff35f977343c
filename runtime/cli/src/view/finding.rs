//! What `audit --json` prints.

use mainstay_messages::audit::{Finding, Remedy};
use serde::Serialize;

/// A difference between the machine and the records.
#[derive(Debug, Serialize)]
pub struct FindingView<'a> {
    deviation: String,
    what: String,
    place: &'a str,
    pid: Option<u32>,
    pod: Option<&'a str>,
    container: Option<&'a str>,
    since: Option<String>,
    reason: &'a str,
    repair: String,
    repairable: bool,
    /// Absent when no repair was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired: Option<bool>,
    /// Why the repair failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<'a> From<&'a Finding> for FindingView<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            deviation: finding.deviation.to_string(),
            what: finding.kind.to_string().replace(' ', "_"),
            place: &finding.place,
            pid: finding.pid,
            pod: finding.owner.sandbox.as_ref().map(|id| id.as_str()),
            container: finding.owner.container.as_ref().map(|id| id.as_str()),
            since: finding.since.map(|since| since.to_string()),
            reason: &finding.reason,
            repair: finding.remedy.to_string(),
            repairable: !matches!(finding.remedy, Remedy::ByHand { .. }),
            repaired: finding.outcome.as_ref().map(Result::is_ok),
            error: finding.outcome.as_ref().and_then(|outcome| outcome.as_ref().err()).map(|e| e.to_string()),
        }
    }
}
