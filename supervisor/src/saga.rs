//! Sagas: lists of steps, each with what undoes it beside it (P4).
//!
//! ```text
//!  run:       act 1 ─► act 2 ─► act 3 ─► done
//!                         │ fails
//!                         ▼
//!             undo 1 ◄─ undo 2            each tried, whatever became of those that it does not depend on
//!
//!  undo_all:  undo 1 ◄─ undo 2 ◄─ undo 3  for what was made, or for what may have been
//! ```
//!
//! Progress is durable in two states, not in one for each step: the record that says what is being made is in the store
//! before the first step, and stands until the last undo has worked. Between them nobody knows how far a saga had come
//! whose program was killed, and nobody has to: to undo unknown progress is to undo all of it, and an undo whose step
//! was never made finds nothing and has worked. So every undo starts from names that follow from the object's id, and
//! never from what an act has kept in memory alone.
//!
//! Owns: the order, the report of what was done and how long it took, the places where tests strike
//! ([`crate::faults`]), and that sagas of one object never overlap ([`Turn`]): neither with each other nor with a piece of work
//! that its deadline has overtaken and that still runs. Never: repeats anything. Whoever asked for an undo repeats it,
//! with pauses that grow, for as long as the record stands. It depends on no caller: it is a task of its own. What a
//! step waits for has deadlines of the step's own.

mod turn;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use mainstay_messages::event::{StepTaken, Way, What};
use mainstay_messages::{Error, Result};

use crate::faults;

pub(crate) use turn::{Turn, Turns};

/// A step under way.
pub(crate) type Work<'a> = LocalBoxFuture<'a, Result<()>>;

/// A list of steps that lead from `A`, what is to be made, and back from `U`, what may be there of it.
pub(crate) struct Saga<A: 'static, U: 'static> {
    pub name: &'static str,
    pub steps: &'static [Step<A, U>],
}

/// One step. Both ways may be gone again, from wherever an earlier attempt has stopped.
pub(crate) struct Step<A, U> {
    pub name: &'static str,
    pub act: fn(&A) -> Work<'_>,
    /// None when another step's undo takes it along.
    pub undo: Option<fn(&U) -> Work<'_>>,
    /// Later steps that must have been undone before this one can be.
    pub undone_after: &'static [&'static str],
}

/// What a saga has come to, for the journal.
#[derive(Debug)]
pub(crate) struct Report {
    saga: &'static str,
    taken: Vec<StepTaken>,
}

/// The step that something is at. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct At(Rc<Cell<&'static str>>);

impl At {
    /// At its first one.
    pub fn begin(step: &'static str) -> Self {
        Self(Rc::new(Cell::new(step)))
    }

    /// It has come to this one.
    pub fn move_to(&self, step: &'static str) {
        self.0.set(step);
    }

    /// Where it is now.
    pub fn now(&self) -> &'static str {
        self.0.get()
    }
}

/// What a saga makes, which knows how far it is.
pub(crate) trait Progress {
    /// A step begins.
    fn at(&self, step: &'static str);
}

impl<A: AsRef<U> + Progress, U> Saga<A, U> {
    /// Takes the steps in their order. When one fails, it and those before it are undone, and its error is the answer.
    pub async fn run(&self, making: &A) -> (Result<()>, Report) {
        let mut report = Report::new(self.name);
        for (index, step) in self.steps.iter().enumerate() {
            making.at(step.name);
            let act = || (step.act)(making);
            let done = report.take(step.name, Way::Act, attempt(self.name, step.name, Way::Act, &act)).await;
            if let Err(error) = done {
                // What could not be undone is in the report, and undone again by whoever is answered.
                let _ = self.undo(&self.steps[..=index], making.as_ref(), &mut report).await;
                return (Err(error), report);
            }
        }
        (Ok(()), report)
    }

    /// Undoes every step, the last one first. The error is the first one.
    pub async fn undo_all(&self, remains: &U) -> (Result<()>, Report) {
        let mut report = Report::new(self.name);
        let undone = self.undo(self.steps, remains, &mut report).await;
        (undone, report)
    }

    async fn undo(&self, steps: &[Step<A, U>], remains: &U, report: &mut Report) -> Result<()> {
        let mut first = Ok(());
        let mut left = BTreeSet::new();
        for step in steps.iter().rev() {
            let Some(undo) = step.undo else { continue };
            if let Some(needed) = step.undone_after.iter().find(|name| left.contains(*name)) {
                left.insert(step.name);
                report.skipped(step.name, needed);
                continue;
            }
            let undo = || undo(remains);
            let undone =
                report.take(step.name, Way::Undo, attempt(self.name, step.name, Way::Undo, &undo)).await;
            if let Err(error) = undone {
                tracing::warn!(saga = self.name, step = step.name, %error, "a step could not be undone");
                left.insert(step.name);
                first = first.and(Err(error));
            }
        }
        first
    }

    /// The places where tests can strike.
    #[cfg(feature = "faults")]
    pub fn points(&self) -> impl Iterator<Item = String> {
        let saga = self.name;
        self.steps.iter().flat_map(move |step| {
            let ways = [Some(Way::Act), step.undo.map(|_| Way::Undo)];
            ways.into_iter().flatten().flat_map(move |way| {
                faults::Moment::ALL.map(|moment| faults::step_point(saga, step.name, way, moment))
            })
        })
    }
}

/// One way of one step. A panic in it is an error of it.
async fn attempt<'a>(
    saga: &'static str,
    step: &'static str,
    way: Way,
    work: &impl Fn() -> Work<'a>,
) -> Result<()> {
    let caught = async || match AssertUnwindSafe(async { work().await }).catch_unwind().await {
        Ok(result) => result,
        Err(_) => Err(Error::internal(format!("step {step} of {saga}"), "it panicked")),
    };
    faults::around_step(saga, step, way, caught).await
}

impl Report {
    fn new(saga: &'static str) -> Self {
        Self { saga, taken: Vec::new() }
    }

    async fn take(&mut self, step: &str, way: Way, work: impl Future<Output = Result<()>>) -> Result<()> {
        let began = Instant::now();
        let result = work.await;
        let trouble = result.as_ref().err().map(ToString::to_string);
        self.taken.push(StepTaken { step: step.to_owned(), way, took_us: micros(began.elapsed()), trouble });
        result
    }

    fn skipped(&mut self, step: &str, needed: &str) {
        let trouble = Some(format!("not tried: {needed} has to be undone first"));
        self.taken.push(StepTaken { step: step.to_owned(), way: Way::Undo, took_us: 0, trouble });
    }

    /// The fact for the journal.
    pub fn fact(self) -> What {
        What::StepsTaken { saga: self.saga.to_owned(), steps: self.taken }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
