//! What is counted of the journal: each entry once, when it is durable.
//!
//! Owns: which entry counts as what. Never: an entry of before this process began, nor one that the journal itself has lost
//! (`journal_facts_lost`) or had trimmed before it was read (`journal_facts_uncounted`).

use std::time::Duration;

use mainstay_messages::Timestamp;
use mainstay_messages::audit::{Deviation, ThingKind};
use mainstay_messages::event::{
    Event, PluginOutcome as Called, PullEnding, Seq, StepTaken, Subject, Way, What,
};
use mainstay_messages::process::{Exit, ExitStatus, OomVerdict};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::catalogue::{Book, Kind};
use crate::labels::{
    Actor, Deviating, Names, Outcome, PluginCall, PluginOutcome, ProcessKind, ProcessOutcome, SagaOutcome,
    SagaStep, StepOutcome, StepWay, word,
};
use crate::pending::Pending;

/// The sagas that are shown from the beginning, so that the first failure of one is a rise from 0.
pub const SAGAS: [&str; 2] = ["run-pod", "create-container"];

/// Upper bounds for steps and calls of plugins, in seconds: from a file that is written to a shim that hangs.
const STEP_SECONDS: [f64; 14] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
/// Upper bounds for an exit on its way from the reaper to the journal, in seconds.
const EXIT_SECONDS: [f64; 12] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0];
/// Upper bounds for pulls, in seconds.
const PULL_SECONDS: [f64; 12] = [0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0];

type Timed<L> = Family<L, Histogram, fn() -> Histogram>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Facts {
    saga_runs: Family<SagaOutcome, Counter>,
    saga_failures: Family<SagaStep, Counter>,
    compensations: Family<SagaOutcome, Counter>,
    teardowns: Family<SagaOutcome, Counter>,
    undos: Family<StepOutcome, Counter>,
    undos_pending: Gauge,
    steps: Timed<StepWay>,
    starts: Family<ProcessKind, Counter>,
    exits: Family<ProcessOutcome, Counter>,
    exit_latency: Histogram,
    sandboxes_ready: Counter,
    shim_starts: Counter,
    shim_adoptions: Counter,
    shim_deaths: Counter,
    restarts: Family<Actor, Counter>,
    log_lost: Counter,
    pulls: Timed<Outcome>,
    audit_new: Family<Deviating, Counter>,
    plugin_calls: Family<PluginOutcome, Counter>,
    plugin_seconds: Timed<PluginCall>,
    uncounted: Counter,
    sagas: Names,
    step_names: Names,
    actors: Names,
    plugins: Names,
    calls: Names,
    pending: Pending,
}

impl Facts {
    pub(crate) fn register(book: &mut Book<'_>) -> Self {
        let counter = Kind::Counter;
        let by_saga = &["saga", "outcome"];
        let this = Self {
            saga_runs: book.add(
                "saga_runs",
                counter,
                by_saga,
                "Sagas that were run, by whether they came to their end",
                Family::default(),
            ),
            saga_failures: book.add(
                "saga_failures",
                counter,
                &["saga", "step"],
                "Sagas that failed, by the step that did; those of run-pod are pods that did not come up",
                Family::default(),
            ),
            compensations: book.add(
                "saga_compensations",
                counter,
                by_saga,
                "Failed sagas whose steps were undone at once, by whether something was left; what was left is tried again",
                Family::default(),
            ),
            teardowns: book.add(
                "saga_teardowns",
                counter,
                by_saga,
                "Times that all steps of a saga were undone because its object was to go, by whether something was left",
                Family::default(),
            ),
            undos: book.add(
                "saga_undos",
                counter,
                &["saga", "step", "outcome"],
                "Undone steps; one that depends on another that failed is not_tried",
                Family::default(),
            ),
            undos_pending: book.add(
                "saga_undos_pending",
                Kind::Gauge,
                &[],
                "Pods and containers of which something is left that could not be undone yet",
                Gauge::default(),
            ),
            steps: book.add(
                "saga_step_duration_seconds",
                Kind::Histogram,
                &["saga", "step", "way"],
                "How long steps of sagas took, and their undoing",
                Timed::new_with_constructor(|| Histogram::new(STEP_SECONDS)),
            ),
            starts: book.add(
                "process_starts",
                counter,
                &["process"],
                "First processes of containers, and execs, that were started",
                Family::default(),
            ),
            exits: book.add(
                "process_exits",
                counter,
                &["process", "outcome"],
                "First processes of containers, and execs, that have ended, by how",
                Family::default(),
            ),
            exit_latency: book.add(
                "exit_latency_seconds",
                Kind::Histogram,
                &[],
                "Time from the end of a process, as its shim saw it, to its terminal fact; while no daemon runs it goes on",
                Histogram::new(EXIT_SECONDS),
            ),
            sandboxes_ready: book.add(
                "sandboxes_ready",
                counter,
                &[],
                "Pods that have become ready",
                Counter::default(),
            ),
            shim_starts: book.add("shim_starts", counter, &[], "Shims that were started", Counter::default()),
            shim_adoptions: book.add(
                "shim_adoptions",
                counter,
                &[],
                "Shims that were found again after a restart of the daemon",
                Counter::default(),
            ),
            shim_deaths: book.add(
                "shim_deaths",
                counter,
                &[],
                "Shims that died and should not have",
                Counter::default(),
            ),
            restarts: book.add(
                "actor_restarts",
                counter,
                &["actor"],
                "Actors that panicked and were started again",
                Family::default(),
            ),
            log_lost: book.add(
                "log_lost_bytes",
                counter,
                &[],
                "Output of containers that have ended, which their logs lack because the disk did not take it",
                Counter::default(),
            ),
            pulls: book.add(
                "image_pull_duration_seconds",
                Kind::Histogram,
                &["outcome"],
                "How long pulls of images took, by how they ended",
                Timed::new_with_constructor(|| Histogram::new(PULL_SECONDS)),
            ),
            audit_new: book.add(
                "audit_new_findings",
                counter,
                &["deviation", "kind"],
                "Findings that the audit before had not",
                Family::default(),
            ),
            plugin_calls: book.add(
                "plugin_calls",
                counter,
                &["plugin", "call", "outcome"],
                "Calls of plugins, by how they ended",
                Family::default(),
            ),
            plugin_seconds: book.add(
                "plugin_call_duration_seconds",
                Kind::Histogram,
                &["plugin", "call"],
                "How long calls of plugins took",
                Timed::new_with_constructor(|| Histogram::new(STEP_SECONDS)),
            ),
            uncounted: book.add(
                "journal_facts_uncounted",
                counter,
                &[],
                "Journal entries that were trimmed before the metrics had counted them",
                Counter::default(),
            ),
            sagas: Names::default(),
            step_names: Names::default(),
            actors: Names::default(),
            plugins: Names::default(),
            calls: Names::default(),
            pending: Pending::default(),
        };
        this.begin_at_zero();
        this
    }

    /// A series that appears with 1 is no rise: what alerts look at is there from the beginning.
    fn begin_at_zero(&self) {
        for saga in SAGAS {
            let saga = self.sagas.shown(saga);
            for outcome in ["done", "failed"] {
                self.saga_runs.get_or_create(&SagaOutcome { saga: saga.clone(), outcome }).inc_by(0);
            }
            for outcome in ["complete", "incomplete"] {
                self.compensations.get_or_create(&SagaOutcome { saga: saga.clone(), outcome }).inc_by(0);
                self.teardowns.get_or_create(&SagaOutcome { saga: saga.clone(), outcome }).inc_by(0);
            }
        }
        for actor in ["sandbox", "container"] {
            self.restarts.get_or_create(&Actor { actor: self.actors.shown(actor) }).inc_by(0);
        }
        for process in ["container", "exec"] {
            self.starts.get_or_create(&ProcessKind { process }).inc_by(0);
        }
    }

    pub(crate) fn missed(&self, from: Seq, to: Seq) {
        self.uncounted.inc_by(to.0.saturating_sub(from.0) + 1);
    }

    pub(crate) fn observe(&self, event: &Event) {
        match &event.what {
            What::StepsTaken { saga, steps } => self.saga(&event.subject, saga, steps),
            What::ContainerStarted { .. } => self.started("container"),
            What::ExecStarted { .. } => self.started("exec"),
            What::ContainerExited { exit } => self.exited("container", exit, event.at),
            What::ExecExited { exit } => self.exited("exec", exit, event.at),
            What::SandboxReady => {
                self.sandboxes_ready.inc();
            }
            What::ShimStarted { .. } => {
                self.shim_starts.inc();
            }
            What::ShimAdopted { .. } => {
                self.shim_adoptions.inc();
            }
            What::ShimDied { .. } => {
                self.shim_deaths.inc();
            }
            What::ActorRestarted { actor, .. } => {
                self.restarts.get_or_create(&Actor { actor: self.actors.shown(actor) }).inc();
            }
            What::OutputLost { bytes } => {
                self.log_lost.inc_by(*bytes);
            }
            What::ImagePulled { took_ms, .. } => self.pulled("succeeded", *took_ms),
            What::ImagePullFailed { ending, took_ms, .. } => {
                let outcome = match ending {
                    PullEnding::Failed => "failed",
                    PullEnding::TimedOut => "timed_out",
                    PullEnding::Cancelled => "cancelled",
                };
                self.pulled(outcome, *took_ms);
            }
            What::AuditFound { deviation, kind, .. } => self.found(*deviation, *kind),
            What::PluginCalled { plugin, call, took_us, outcome, .. } => {
                self.plugin(plugin, call, *took_us, *outcome);
            }
            What::SandboxRemoved | What::ContainerRemoved => self.gone(&event.subject),
            _ => {}
        }
    }

    fn saga(&self, subject: &Subject, saga: &str, steps: &[StepTaken]) {
        let saga = self.sagas.shown(saga);
        let failed = steps.iter().find(|step| step.way == Way::Act && step.trouble.is_some());
        let acted = steps.iter().any(|step| step.way == Way::Act);
        let undone = steps.iter().any(|step| step.way == Way::Undo);
        let left = steps.iter().any(|step| step.way == Way::Undo && step.trouble.is_some());
        let count = |family: &Family<SagaOutcome, Counter>, outcome| {
            family.get_or_create(&SagaOutcome { saga: saga.clone(), outcome }).inc();
        };
        let undoing = if left { "incomplete" } else { "complete" };
        match (acted, failed) {
            (false, _) if undone => count(&self.teardowns, undoing),
            (false, _) => {}
            (true, None) => count(&self.saga_runs, "done"),
            (true, Some(step)) => {
                count(&self.saga_runs, "failed");
                count(&self.compensations, undoing);
                let step = self.step_names.shown(&step.step);
                self.saga_failures.get_or_create(&SagaStep { saga: saga.clone(), step }).inc();
            }
        }
        steps.iter().for_each(|step| self.step(&saga, step));
        match (undone, left) {
            (_, true) => {
                self.undos_pending.set(number(self.pending.left(subject)));
            }
            (true, false) => self.gone(subject),
            (false, false) => {}
        }
    }

    fn step(&self, saga: &str, StepTaken { step, way, took_us, trouble }: &StepTaken) {
        let (saga, step) = (saga.to_owned(), self.step_names.shown(step));
        // What was not tried took no time at all.
        let tried = trouble.is_none() || *took_us > 0;
        if tried {
            let way = match way {
                Way::Act => "act",
                Way::Undo => "undo",
            };
            let labels = StepWay { saga: saga.clone(), step: step.clone(), way };
            self.steps.get_or_create(&labels).observe(seconds(Duration::from_micros(*took_us)));
        }
        if *way == Way::Undo {
            let outcome = match (trouble, tried) {
                (None, _) => "done",
                (Some(_), true) => "failed",
                (Some(_), false) => "not_tried",
            };
            self.undos.get_or_create(&StepOutcome { saga, step, outcome }).inc();
        }
    }

    fn gone(&self, subject: &Subject) {
        self.undos_pending.set(number(self.pending.gone(subject)));
    }

    fn started(&self, process: &'static str) {
        self.starts.get_or_create(&ProcessKind { process }).inc();
    }

    fn exited(&self, process: &'static str, exit: &Exit, at: Timestamp) {
        let outcome = match (&exit.status, exit.oom) {
            (_, OomVerdict::Killed) => "oom_killed",
            (ExitStatus::Exited { code: 0 }, _) => "completed",
            (ExitStatus::Exited { .. }, _) => "error",
            (ExitStatus::Signaled { .. }, _) => "signal",
            (ExitStatus::StartError { .. }, _) => "start_error",
            (ExitStatus::Unknown { .. }, _) => "unknown",
        };
        self.exits.get_or_create(&ProcessOutcome { process, outcome }).inc();
        // The end of the others was seen by nobody, so that nothing was on its way.
        if matches!(exit.status, ExitStatus::Exited { .. } | ExitStatus::Signaled { .. }) {
            let nanos = at.0.saturating_sub(exit.at.0);
            self.exit_latency.observe(seconds(Duration::from_nanos(nanos)));
        }
    }

    fn pulled(&self, outcome: &'static str, took_ms: u64) {
        self.pulls.get_or_create(&Outcome { outcome }).observe(seconds(Duration::from_millis(took_ms)));
    }

    fn found(&self, deviation: Deviation, kind: ThingKind) {
        let labels = Deviating { deviation: deviation.to_string(), kind: word(&kind.to_string()) };
        self.audit_new.get_or_create(&labels).inc();
    }

    fn plugin(&self, plugin: &str, call: &str, took_us: u64, outcome: Called) {
        let (plugin, call) = (self.plugins.shown(plugin), self.calls.shown(call));
        let outcome = match outcome {
            Called::Answered => "answered",
            Called::Failed => "failed",
            Called::TimedOut => "timed_out",
            Called::Gone => "gone",
        };
        let labels = PluginCall { plugin: plugin.clone(), call: call.clone() };
        self.plugin_seconds.get_or_create(&labels).observe(seconds(Duration::from_micros(took_us)));
        self.plugin_calls.get_or_create(&PluginOutcome { plugin, call, outcome }).inc();
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn number(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}
