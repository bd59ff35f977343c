//! What is counted of sagas: whether they came to their end, what was undone, and how long each step took.
//!
//! Owns: telling apart the undoing of a saga that failed from the tearing down of one that had worked, and how many objects
//! something is left of. Never: knows which sagas there are; the two that matter most are only shown from the beginning.

use std::time::Duration;

use mainstay_messages::event::{StepTaken, Subject, Way};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::catalogue::{Book, Kind};
use crate::facts::{STEP_SECONDS, Timed};
use crate::labels::{Names, SagaOutcome, SagaStep, StepOutcome, StepWay};
use crate::pending::Pending;

/// The sagas that are shown from the beginning, so that the first failure of one is a rise from 0.
const SAGAS: [&str; 2] = ["run-pod", "create-container"];

/// See the module.
#[derive(Debug)]
pub(crate) struct Sagas {
    runs: Family<SagaOutcome, Counter>,
    failures: Family<SagaStep, Counter>,
    compensations: Family<SagaOutcome, Counter>,
    teardowns: Family<SagaOutcome, Counter>,
    undos: Family<StepOutcome, Counter>,
    undos_pending: Gauge,
    steps: Timed<StepWay>,
    names: Names,
    step_names: Names,
    pending: Pending,
}

impl Sagas {
    pub(crate) fn register(book: &mut Book<'_>) -> Self {
        let counter = Kind::Counter;
        let by_saga = &["saga", "outcome"];
        let this = Self {
            runs: book.add(
                "saga_runs",
                counter,
                by_saga,
                "Sagas that were run, by whether they came to their end",
                Family::default(),
            ),
            failures: book.add(
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
            names: Names::default(),
            step_names: Names::default(),
            pending: Pending::default(),
        };
        this.begin_at_zero();
        this
    }

    /// A series that appears with 1 is no rise: what alerts look at is there from the beginning.
    fn begin_at_zero(&self) {
        for saga in SAGAS {
            let saga = self.names.shown(saga);
            for outcome in ["done", "failed"] {
                self.runs.get_or_create(&SagaOutcome { saga: saga.clone(), outcome }).inc_by(0);
            }
            for outcome in ["complete", "incomplete"] {
                self.compensations.get_or_create(&SagaOutcome { saga: saga.clone(), outcome }).inc_by(0);
                self.teardowns.get_or_create(&SagaOutcome { saga: saga.clone(), outcome }).inc_by(0);
            }
        }
    }

    /// A saga was run, or undone.
    pub(crate) fn ran(&self, subject: &Subject, saga: &str, steps: &[StepTaken]) {
        let saga = self.names.shown(saga);
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
            (true, None) => count(&self.runs, "done"),
            (true, Some(step)) => {
                count(&self.runs, "failed");
                count(&self.compensations, undoing);
                let step = self.step_names.shown(&step.step);
                self.failures.get_or_create(&SagaStep { saga: saga.clone(), step }).inc();
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
            self.steps.get_or_create(&labels).observe(Duration::from_micros(*took_us).as_secs_f64());
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

    /// The object is gone, and all that was left of it.
    pub(crate) fn gone(&self, subject: &Subject) {
        self.undos_pending.set(number(self.pending.gone(subject)));
    }

    /// Entries are missing. An end may be among them, and an object that waits for it would be shown for ever; what is really
    /// left is told again at the next try.
    pub(crate) fn missed(&self) {
        self.pending.clear();
        self.undos_pending.set(0);
    }
}

fn number(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}
