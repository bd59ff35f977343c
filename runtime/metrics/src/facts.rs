//! What is counted of the journal: each entry once, when it is durable.
//!
//! Owns: which entry counts as what. Never: an entry of before this process began, nor one that the journal itself has lost
//! (`journal_facts_lost`) or had trimmed before it was read (`journal_facts_uncounted`).

use std::time::Duration;

use mainstay_messages::Timestamp;
use mainstay_messages::audit::{Deviation, ThingKind};
use mainstay_messages::event::{Event, HookCall, HookOutcome, PullEnding, Seq, What};
use mainstay_messages::process::{Exit, ExitStatus, OomVerdict};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::catalogue::{Book, Kind};
use crate::labels::{
    Actor, Deviating, Names, Outcome, Plugin, PluginHook, PluginMove, PluginOutcome, ProcessKind,
    ProcessOutcome, word,
};
use crate::sagas::Sagas;

/// Upper bounds for steps and calls of plugins, in seconds: from a file that is written to a shim that hangs.
pub(crate) const STEP_SECONDS: [f64; 14] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
/// Upper bounds for an exit on its way from the reaper to the journal, in seconds.
const EXIT_SECONDS: [f64; 12] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0];
/// Upper bounds for pulls, in seconds.
const PULL_SECONDS: [f64; 12] = [0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0];

pub(crate) type Timed<L> = Family<L, Histogram, fn() -> Histogram>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Facts {
    sagas: Sagas,
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
    plugin_seconds: Timed<PluginHook>,
    plugin_moves: Family<PluginMove, Counter>,
    evictions: Family<Plugin, Counter>,
    uncounted: Counter,
    actors: Names,
    plugins: Names,
    hooks: Names,
}

impl Facts {
    pub(crate) fn register(book: &mut Book<'_>) -> Self {
        let counter = Kind::Counter;
        let this = Self {
            sagas: Sagas::register(book),
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
                &["plugin", "hook", "outcome"],
                "Calls of plugins, by what came of them: one that was missed had no answer in time, or went away",
                Family::default(),
            ),
            plugin_seconds: book.add(
                "plugin_call_duration_seconds",
                Kind::Histogram,
                &["plugin", "hook"],
                "How long calls of plugins took, each from when it was the plugin's turn",
                Timed::new_with_constructor(|| Histogram::new(STEP_SECONDS)),
            ),
            plugin_moves: book.add(
                "plugin_connections",
                counter,
                &["plugin", "event"],
                "Plugins that came to be called (ready), and that are not called any more (gone)",
                Family::default(),
            ),
            evictions: book.add(
                "plugin_evictions",
                counter,
                &["plugin"],
                "Containers that were stopped because a plugin wanted them to end",
                Family::default(),
            ),
            uncounted: book.add(
                "journal_facts_uncounted",
                counter,
                &[],
                "Journal entries that were trimmed before the metrics had counted them",
                Counter::default(),
            ),
            actors: Names::default(),
            plugins: Names::default(),
            hooks: Names::default(),
        };
        this.begin_at_zero();
        this
    }

    /// A series that appears with 1 is no rise: what alerts look at is there from the beginning.
    fn begin_at_zero(&self) {
        for actor in ["sandbox", "container"] {
            self.restarts.get_or_create(&Actor { actor: self.actors.shown(actor) }).inc_by(0);
        }
        for process in ["container", "exec"] {
            self.starts.get_or_create(&ProcessKind { process }).inc_by(0);
        }
    }

    pub(crate) fn missed(&self, from: Seq, to: Seq) {
        self.uncounted.inc_by(to.0.saturating_sub(from.0) + 1);
        self.sagas.missed();
    }

    pub(crate) fn observe(&self, event: &Event) {
        match &event.what {
            What::StepsTaken { saga, steps } => self.sagas.ran(&event.subject, saga, steps),
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
            What::HookCalled { hook, calls } => calls.iter().for_each(|call| self.plugin(hook, call)),
            What::PluginReady { plugin } => self.plugin_moved(plugin, "ready"),
            What::PluginGone { plugin, .. } => self.plugin_moved(plugin, "gone"),
            What::ContainerEvicted { plugin, .. } => {
                self.evictions.get_or_create(&Plugin { plugin: self.plugins.shown(plugin) }).inc();
            }
            What::SandboxRemoved | What::ContainerRemoved => self.sagas.gone(&event.subject),
            _ => {}
        }
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

    fn plugin(&self, hook: &str, HookCall { plugin, outcome, took_us, .. }: &HookCall) {
        let (plugin, hook) = (self.plugins.shown(plugin), self.hooks.shown(hook));
        let outcome = match outcome {
            HookOutcome::Answered => "answered",
            HookOutcome::Refused => "refused",
            HookOutcome::Missed => "missed",
        };
        let labels = PluginHook { plugin: plugin.clone(), hook: hook.clone() };
        self.plugin_seconds.get_or_create(&labels).observe(seconds(Duration::from_micros(*took_us)));
        self.plugin_calls.get_or_create(&PluginOutcome { plugin, hook, outcome }).inc();
    }

    fn plugin_moved(&self, plugin: &str, event: &'static str) {
        self.plugin_moves.get_or_create(&PluginMove { plugin: self.plugins.shown(plugin), event }).inc();
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
