use mainstay_messages::audit::{Deviation, ThingKind};
use mainstay_messages::event::{HookCall, HookOutcome, StepTaken, Subject, Way, What};
use mainstay_messages::process::{Exit, ExitStatus, OomVerdict};
use mainstay_messages::{SandboxId, Timestamp};

use super::*;
use crate::exposition::Scrape;

#[derive(Debug)]
struct Fixed(State);

impl Source for Fixed {
    fn state(&self) -> State {
        self.0.clone()
    }
}

fn metrics() -> Metrics {
    let state = State {
        exits_parked: 7,
        sandboxes: [("ready", 2), ("not ready", 1)].into(),
        journal: Journal { write_us: 1_500_000, ..Journal::default() },
        pulls: Pulls { started: 9, succeeded: 3, failed: 2, ..Pulls::default() },
        ..State::default()
    };
    Metrics::new("1.2.3", Arc::new(Fixed(state)))
}

fn scrape(metrics: &Metrics) -> Scrape {
    let open = metrics.text(Format::OpenMetrics);
    Scrape::parse(&open, Format::OpenMetrics).expect("right OpenMetrics");
    Scrape::parse(&metrics.text(Format::Prometheus), Format::Prometheus).expect("right text")
}

fn step(step: &str, way: Way, trouble: Option<&str>) -> StepTaken {
    StepTaken { step: step.to_owned(), way, took_us: 1_500, trouble: trouble.map(str::to_owned) }
}

fn observe(metrics: &Metrics, what: What) {
    let subject = Subject::sandbox(&SandboxId::from_random([7; 16]));
    metrics.observe(&Event { seq: Seq(1), at: Timestamp(2_000_000_000), subject, what });
}

fn ran(metrics: &Metrics, steps: &[StepTaken]) {
    observe(metrics, What::StepsTaken { saga: "run-pod".to_owned(), steps: steps.to_vec() });
}

/// One of each, so that every metric shows.
fn everything(metrics: &Metrics) {
    ran(metrics, &[step("shim", Way::Act, Some("no"))]);
    ran(metrics, &[step("shim", Way::Undo, None)]);
    let exit = |status| Exit { status, at: Timestamp(1_000_000_000), oom: OomVerdict::NotKilled };
    observe(metrics, What::ContainerStarted { pid: 1 });
    observe(metrics, What::ContainerExited { exit: exit(ExitStatus::Exited { code: 0 }) });
    let found =
        |deviation, kind| What::AuditFound { deviation, kind, place: "/x".into(), reason: "y".into() };
    observe(metrics, found(Deviation::Leak, ThingKind::PodDirectory));
    let (image, digest) = ("a".to_owned(), "b".to_owned());
    observe(metrics, What::ImagePulled { image, digest, took_ms: 1_200 });
    let (plugin, hook) = ("p\"\n".to_owned(), "RunPodSandbox".to_owned());
    observe(metrics, What::PluginReady { plugin: plugin.clone() });
    observe(metrics, What::ContainerEvicted { plugin: plugin.clone(), reason: "no room".to_owned() });
    let call = HookCall { plugin, outcome: HookOutcome::Answered, took_us: 1, trouble: None };
    observe(metrics, What::HookCalled { hook, calls: vec![call] });
    let kind = FindingKind { deviation: "leak".to_owned(), thing: "shim".to_owned() };
    let found = vec![Found { kind, age: Duration::from_secs(60) }];
    let running = Running { by_records: 3, by_kernel: 4 };
    let took = Duration::from_millis(20);
    metrics.audited(&Audited {
        at: Timestamp(5_000_000_000),
        took,
        found,
        containers: running,
        shims: running,
    });
}

use std::time::Duration;

#[test]
fn what_is_looked_up_is_shown() {
    let scrape = scrape(&metrics());
    assert_eq!(scrape.value("mainstay_build_info", &[("version", "1.2.3")]), Some(1.0));
    assert_eq!(scrape.value("mainstay_exits_parked_total", &[]), Some(7.0));
    assert_eq!(scrape.value("mainstay_sandboxes", &[("phase", "not_ready")]), Some(1.0));
    assert_eq!(scrape.value("mainstay_journal_write_seconds_total", &[]), Some(1.5));
    assert_eq!(scrape.value("mainstay_image_pulls_total", &[("outcome", "succeeded")]), Some(3.0));
    assert_eq!(scrape.value("mainstay_image_pulls_running", &[]), Some(4.0));
    assert_eq!(scrape.value("mainstay_leaked_shims", &[]), Some(0.0));
    let zero = [("outcome", "failed"), ("saga", "run-pod")];
    assert_eq!(scrape.value("mainstay_saga_runs_total", &zero), Some(0.0), "a first failure is a rise");
}

#[test]
fn a_failed_saga_counts_by_its_step_and_by_what_is_left() {
    let metrics = metrics();
    let (act, undo) = (Way::Act, Way::Undo);
    ran(&metrics, &[step("cgroup", act, None), step("shim", act, None)]);
    ran(
        &metrics,
        &[step("cgroup", act, None), step("shim", act, Some("no")), step("cgroup", undo, Some("busy"))],
    );
    let first = scrape(&metrics);
    let saga = |name: &str, more: (&str, &str), scrape: &Scrape| {
        scrape.value(&format!("mainstay_{name}"), &[more, ("saga", "run-pod")])
    };
    assert_eq!(saga("saga_runs_total", ("outcome", "done"), &first), Some(1.0));
    assert_eq!(saga("saga_runs_total", ("outcome", "failed"), &first), Some(1.0));
    assert_eq!(saga("saga_failures_total", ("step", "shim"), &first), Some(1.0));
    assert_eq!(saga("saga_compensations_total", ("outcome", "incomplete"), &first), Some(1.0));
    assert_eq!(first.value("mainstay_saga_undos_pending", &[]), Some(1.0));
    // Whoever asked tries the undo again, and it works.
    let skipped = StepTaken { took_us: 0, ..step("directories", undo, Some("not tried")) };
    ran(&metrics, &[step("cgroup", undo, Some("busy")), skipped]);
    ran(&metrics, &[step("cgroup", undo, None)]);
    let second = scrape(&metrics);
    assert_eq!(saga("saga_teardowns_total", ("outcome", "incomplete"), &second), Some(1.0));
    assert_eq!(saga("saga_teardowns_total", ("outcome", "complete"), &second), Some(1.0));
    assert_eq!(second.value("mainstay_saga_undos_pending", &[]), Some(0.0));
    let undos = |step, outcome| {
        let labels = [("saga", "run-pod"), ("step", step), ("outcome", outcome)];
        second.value("mainstay_saga_undos_total", &labels)
    };
    assert_eq!(undos("cgroup", "failed"), Some(2.0));
    assert_eq!(undos("cgroup", "done"), Some(1.0));
    assert_eq!(undos("directories", "not_tried"), Some(1.0));
    let times = [("saga", "run-pod"), ("step", "cgroup"), ("way", "undo")];
    assert_eq!(second.value("mainstay_saga_step_duration_seconds_count", &times), Some(3.0));
}

#[test]
fn exits_are_timed_where_somebody_saw_them() {
    let metrics = metrics();
    let exit = |status| Exit { status, at: Timestamp(1_990_000_000), oom: OomVerdict::NotKilled };
    observe(&metrics, What::ContainerExited { exit: exit(ExitStatus::Exited { code: 0 }) });
    observe(&metrics, What::ExecExited { exit: exit(ExitStatus::Signaled { signal: 9 }) });
    observe(&metrics, What::ContainerExited { exit: exit(ExitStatus::StartError { reason: "x".into() }) });
    let scrape = scrape(&metrics);
    assert_eq!(scrape.value("mainstay_exit_latency_seconds_bucket", &[("le", "0.01")]), Some(2.0));
    assert_eq!(scrape.value("mainstay_exit_latency_seconds_bucket", &[("le", "0.005")]), Some(0.0));
    assert_eq!(scrape.value("mainstay_exit_latency_seconds_count", &[]), Some(2.0));
    let outcome = |process, outcome| {
        scrape.value("mainstay_process_exits_total", &[("process", process), ("outcome", outcome)])
    };
    assert_eq!(outcome("container", "completed"), Some(1.0));
    assert_eq!(outcome("container", "start_error"), Some(1.0));
    assert_eq!(outcome("exec", "signal"), Some(1.0));
}

#[test]
fn an_audit_is_shown_until_the_next_and_what_is_gone_is_zero() {
    let metrics = metrics();
    everything(&metrics);
    let labels = [("deviation", "leak"), ("kind", "shim")];
    let first = scrape(&metrics);
    assert_eq!(first.value("mainstay_audit_findings", &labels), Some(1.0));
    assert_eq!(first.value("mainstay_audit_oldest_finding_seconds", &labels), Some(60.0));
    assert_eq!(first.value("mainstay_leaked_shims", &[]), Some(1.0));
    assert_eq!(first.value("mainstay_running_shims", &[("source", "kernel")]), Some(4.0));
    assert_eq!(first.value("mainstay_audit_last_timestamp_seconds", &[]), Some(5.0));
    let running = Running::default();
    let took = Duration::ZERO;
    let clean =
        Audited { at: Timestamp(6_000_000_000), took, found: vec![], containers: running, shims: running };
    metrics.audited(&clean);
    metrics.audit_failed();
    let second = scrape(&metrics);
    assert_eq!(second.value("mainstay_audit_findings", &labels), Some(0.0));
    assert_eq!(second.value("mainstay_leaked_shims", &[]), Some(0.0));
    assert_eq!(second.value("mainstay_audits_total", &[("outcome", "done")]), Some(2.0));
    assert_eq!(second.value("mainstay_audits_total", &[("outcome", "failed")]), Some(1.0));
}

/// The end of what could not be undone was among entries that nobody read, and the gauge stood at 1 until the next start.
#[test]
fn what_is_left_is_forgotten_with_entries_that_were_missed() {
    let metrics = metrics();
    let pending = || scrape(&metrics).value("mainstay_saga_undos_pending", &[]);
    ran(&metrics, &[step("cgroup", Way::Undo, Some("busy"))]);
    assert_eq!(pending(), Some(1.0));
    metrics.missed(Seq(2), Seq(4));
    assert_eq!(pending(), Some(0.0));
    assert_eq!(scrape(&metrics).value("mainstay_journal_facts_uncounted_total", &[]), Some(3.0));
    ran(&metrics, &[step("cgroup", Way::Undo, Some("busy"))]);
    assert_eq!(pending(), Some(1.0), "it was tried again");
}

/// A catalogue that forgets a metric, or a label of one, makes a page and alerts that are wrong.
#[test]
fn the_catalogue_has_all_that_is_shown_and_nothing_else() {
    let metrics = metrics();
    everything(&metrics);
    let scrape = scrape(&metrics);
    let catalogue = metrics.catalogue();
    for family in &scrape.families {
        // The type line of an info has its name with the suffix, or without, by the library's taste.
        let sample = family.samples.first();
        let series = sample.map_or(family.name.as_str(), |sample| sample.name.as_str());
        let entry = catalogue.entry_of(series).unwrap_or_else(|| panic!("{series} is not in the catalogue"));
        assert_eq!(format!("{}.", entry.help), family.help, "{series}");
        for sample in &family.samples {
            let mut labels: Vec<&str> = sample.labels.keys().map(String::as_str).collect();
            labels.retain(|label| entry.kind != Kind::Histogram || *label != "le");
            let mut expected = entry.labels.to_vec();
            expected.sort_unstable();
            assert_eq!(labels, expected, "{series}");
        }
    }
    assert_eq!(scrape.families.len(), catalogue.entries().len(), "one of them is never shown");
}

#[test]
fn names_are_as_the_field_has_them() {
    for Entry { name, kind, help, .. } in metrics().catalogue().entries() {
        let base = name.trim_end_matches("_total");
        assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
        assert!(
            !["_ms", "_us", "_minutes", "_kb"].iter().any(|unit| base.ends_with(unit)),
            "{name}: a base unit"
        );
        assert!(name.starts_with("mainstay_") && !help.ends_with('.'), "{name}");
    }
}
