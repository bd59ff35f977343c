//! What the last audit has found, as gauges. Between two audits they stand still; the time of the last one is among them.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainstay_messages::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::catalogue::{Book, Kind};
use crate::labels::{By, Deviating, Outcome, word};

type Seconds = Gauge<f64, AtomicU64>;

/// What an audit has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// When it ended.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// What it has found.
    pub found: Vec<Found>,
    /// Containers with a first process.
    pub containers: Running,
    /// Shims.
    pub shims: Running,
}

/// One finding, as far as it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub kind: FindingKind,
    /// For how long it is there, or missing, as far as that is known.
    pub age: Duration,
}

/// What a finding is, in words of the audit: `leak`, `ghost`, and `shim`, `cgroup` and so on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FindingKind {
    /// In which direction machine and records differ.
    pub deviation: String,
    /// The thing.
    pub thing: String,
}

/// How many run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// As the records say.
    pub by_records: u64,
    /// As the kernel says.
    pub by_kernel: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Audits {
    findings: Family<Deviating, Gauge>,
    oldest: Family<Deviating, Seconds>,
    leaked_shims: Gauge,
    containers: Family<By, Gauge>,
    shims: Family<By, Gauge>,
    audits: Family<Outcome, Counter>,
    duration: Seconds,
    last: Seconds,
    /// Kinds that were found once: they are shown as 0 when they are gone.
    seen: Mutex<BTreeSet<FindingKind>>,
}

impl Audits {
    pub(crate) fn register(book: &mut Book<'_>) -> Self {
        let labels = &["deviation", "kind"];
        let help = "Leaks (there, and no record accounts for them) and ghosts (a record counts on them, and they are not there) that the last audit found";
        let findings = book.add("audit_findings", Kind::Gauge, labels, help, Family::default());
        let help = "Age of the oldest finding of its kind; where the machine does not know it, since it was found first";
        let oldest = book.add("audit_oldest_finding_seconds", Kind::Gauge, labels, help, Family::default());
        let help = "Shims that run and no record accounts for, at the last audit";
        let leaked_shims = book.add("leaked_shims", Kind::Gauge, &[], help, Gauge::default());
        let help = "Containers with processes at the last audit, as the records have it and as the kernel has it; they differ for a moment while containers come and go";
        let containers = book.add("running_containers", Kind::Gauge, &["source"], help, Family::default());
        let help = "Shims that run at the last audit, as the records have it and as the kernel has it; they differ for a moment while pods come and go";
        let shims = book.add("running_shims", Kind::Gauge, &["source"], help, Family::default());
        let help = "Audits, those that were asked for among them";
        let audits: Family<Outcome, Counter> =
            book.add("audits", Kind::Counter, &["outcome"], help, Family::default());
        for outcome in ["done", "failed"] {
            audits.get_or_create(&Outcome { outcome }).inc_by(0);
        }
        let help = "How long the last audit took";
        let duration = book.add("audit_duration_seconds", Kind::Gauge, &[], help, Seconds::default());
        let help = "When the last audit ended, in seconds since 1970; 0 when there was none";
        let last = book.add("audit_last_timestamp_seconds", Kind::Gauge, &[], help, Seconds::default());
        let seen = Mutex::default();
        Self { findings, oldest, leaked_shims, containers, shims, audits, duration, last, seen }
    }

    pub(crate) fn show(&self, audited: &Audited) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(audited.found.iter().map(|found| found.kind.clone()));
        for kind in seen.iter() {
            let of_kind = || audited.found.iter().filter(|found| found.kind == *kind);
            let labels = Deviating { deviation: word(&kind.deviation), kind: word(&kind.thing) };
            self.findings.get_or_create(&labels).set(count(of_kind().count()));
            let oldest = of_kind().map(|found| found.age).max().unwrap_or_default();
            self.oldest.get_or_create(&labels).set(oldest.as_secs_f64());
        }
        let leaked = audited.found.iter().filter(|found| found.kind.is("leak", "shim")).count();
        self.leaked_shims.set(count(leaked));
        show_running(&self.containers, audited.containers);
        show_running(&self.shims, audited.shims);
        self.duration.set(audited.took.as_secs_f64());
        self.last.set(Duration::from_nanos(audited.at.0).as_secs_f64());
        self.audits.get_or_create(&Outcome { outcome: "done" }).inc();
    }

    pub(crate) fn failed(&self) {
        self.audits.get_or_create(&Outcome { outcome: "failed" }).inc();
    }
}

impl FindingKind {
    fn is(&self, deviation: &str, thing: &str) -> bool {
        self.deviation == deviation && self.thing == thing
    }
}

fn show_running(family: &Family<By, Gauge>, Running { by_records, by_kernel }: Running) {
    for (source, running) in [("records", by_records), ("kernel", by_kernel)] {
        family.get_or_create(&By { source }).set(i64::try_from(running).unwrap_or(i64::MAX));
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
