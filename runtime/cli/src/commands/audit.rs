//! `audit`: what the machine has that no record accounts for, and the other way round.

use std::process::ExitCode;

use mainstay_messages::Timestamp;
use mainstay_messages::audit::{Finding, Repair};

use crate::arguments::AuditArguments;
use crate::connection::Context;
use crate::failure::Result;
use crate::table::{Align, Table};
use crate::view::FindingView;
use crate::words::span;

/// The exit status when there are findings, or some are left after the repair.
const EXIT_FINDINGS: u8 = 1;

/// `mainstay audit`
pub(super) async fn audit(context: &Context, arguments: &AuditArguments) -> Result<ExitCode> {
    let repair = if arguments.repair { Repair::Yes } else { Repair::No };
    let findings = context.daemon().await?.audit(repair).await?;
    let views: Vec<_> = findings.iter().map(FindingView::from).collect();
    super::print(context.format(), || text(&findings, super::now()), &views)?;
    let left = findings.iter().any(|finding| finding.outcome != Some(Ok(())));
    Ok(if left { ExitCode::from(EXIT_FINDINGS) } else { ExitCode::SUCCESS })
}

fn text(findings: &[Finding], now: Timestamp) -> String {
    if findings.is_empty() {
        return "clean: nothing is left over, and nothing is missing\n".to_owned();
    }
    let mut table = Table::new([
        ("FOUND", Align::Left),
        ("WHAT", Align::Left),
        ("PID", Align::Right),
        ("FOR", Align::Left),
        ("POD", Align::Left),
        ("WHERE", Align::Left),
        ("WHY", Align::Left),
        ("REPAIR", Align::Left),
    ]);
    for finding in findings {
        let repair = match &finding.outcome {
            None => finding.remedy.to_string(),
            Some(Ok(())) => "done".to_owned(),
            Some(Err(error)) => format!("failed: {error}"),
        };
        table.row([
            finding.deviation.to_string(),
            finding.kind.to_string(),
            finding.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            finding.since.map(|since| span(now.nanos_since(since))).unwrap_or_default(),
            finding.owner.sandbox.as_ref().map(|pod| pod.short().to_owned()).unwrap_or_default(),
            finding.place.clone(),
            finding.reason.clone(),
            repair,
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use mainstay_messages::Error;
    use mainstay_messages::audit::{Deviation, Leak, Owner, Remedy, ThingKind};

    use super::*;

    fn finding() -> Finding {
        let sandbox: mainstay_messages::SandboxId = "aaaa".parse().expect("an id");
        Finding {
            deviation: Deviation::Leak,
            kind: ThingKind::PodDirectory,
            place: "/run/m/p/aaaa".to_owned(),
            pid: None,
            owner: Owner::pod(&sandbox),
            since: Some(Timestamp(0)),
            reason: "no record names pod aaaa".to_owned(),
            remedy: Remedy::Remove(Leak::Pod { sandbox }),
            outcome: None,
        }
    }

    #[test]
    fn findings_as_people_see_them() {
        let shim = Finding { kind: ThingKind::Shim, pid: Some(17), ..finding() };
        let outcome = Some(Err(Error::unavailable("the supervisor", "it is gone")));
        let failed = Finding { outcome, since: None, ..finding() };
        let shown = text(&[shim, failed], Timestamp(120_000_000_000));
        let expected = "\
FOUND   WHAT            PID   FOR         POD    WHERE           WHY                        REPAIR
leak    shim             17   2 minutes   aaaa   /run/m/p/aaaa   no record names pod aaaa   end and remove all of the pod
leak    pod directory                     aaaa   /run/m/p/aaaa   no record names pod aaaa   failed: the supervisor is not available: it is gone
";
        assert_eq!(shown, expected);
        assert_eq!(text(&[], Timestamp(0)), "clean: nothing is left over, and nothing is missing\n");
    }

    #[test]
    fn findings_as_programs_see_them() {
        let repaired = Finding { outcome: Some(Ok(())), ..finding() };
        let shown = serde_json::to_value([FindingView::from(&finding()), FindingView::from(&repaired)]);
        let shown = shown.expect("it has a form");
        assert_eq!(shown[0]["what"], "pod_directory");
        assert_eq!(shown[0]["pod"], "aaaa");
        assert_eq!(shown[0]["repairable"], true);
        assert_eq!(shown[0].get("repaired"), None);
        assert_eq!(shown[1]["repaired"], true);
    }
}
