//! The life of an object as rows in the order in which things began: what was asked, what happened, each step of each saga, how
//! long each of it lasted. The table of `explain` and its picture are two looks at the same rows.
//!
//! Pure. Owns: what of the journal lasts, and from when to when. Never: makes a time up; a step begins where the one before it
//! ended, counted back from the entry, which was made when the last one was over.

mod axis;
pub mod svg;

use std::collections::HashMap;

use mainstay_messages::event::{Event, HookCall, HookOutcome, StepTaken, Subject, Way, What};
use mainstay_messages::{ContainerId, ExecId, SandboxId, Timestamp};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// When it began.
    pub start: Timestamp,
    /// When it was over; none for a moment, and for what goes on.
    pub end: Option<Timestamp>,
    /// To whom.
    pub who: String,
    /// What.
    pub text: String,
    /// What kind of thing it is.
    pub kind: RowKind,
}

/// What kind of thing a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// A moment.
    Moment,
    /// A moment at which something went wrong.
    Trouble,
    /// A phase of an object.
    Phase,
    /// A saga, as a whole.
    Saga,
    /// A step forth, within a saga.
    Act,
    /// A step back, within a saga.
    Undo,
    /// A step that failed, within a saga.
    FailedStep,
    /// Something that was waited for: plugins, a pull.
    Call,
}

impl Row {
    /// How long it lasted, in nanoseconds.
    pub fn took(&self) -> Option<u64> {
        self.end.map(|end| end.nanos_since(self.start))
    }

    /// Whether it is part of the row above it.
    pub fn is_step(&self) -> bool {
        matches!(self.kind, RowKind::Act | RowKind::Undo | RowKind::FailedStep)
    }
}

/// The rows of a life, by when they began.
pub fn rows(events: &[Event]) -> Vec<Row> {
    let ends = ends(events);
    let mut rows: Vec<Row> = events.iter().zip(ends).flat_map(|(event, end)| rows_of(event, end)).collect();
    // Stable: what began at the same time stays in the order of the journal, and steps stay below their saga.
    rows.sort_by_key(|row| row.start);
    rows
}

/// The object that an entry is about: the innermost one.
pub fn who(subject: &Subject) -> String {
    match (&subject.exec, &subject.container, &subject.sandbox) {
        (Some(exec), _, _) => format!("exec {}", exec.short()),
        (None, Some(container), _) => format!("container {}", container.short()),
        (None, None, Some(sandbox)) => format!("pod {}", sandbox.short()),
        (None, None, None) => "-".to_owned(),
    }
}

/// What ends what began before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Ending<'a> {
    Pod(Option<&'a SandboxId>),
    Container(Option<&'a ContainerId>),
    Pause(Option<&'a ContainerId>),
    Exec(Option<&'a ExecId>),
    Parking(Option<&'a ContainerId>, Option<&'a ExecId>),
}

/// When what each entry began was over, as far as the entries after it say.
fn ends(events: &[Event]) -> Vec<Option<Timestamp>> {
    let mut next: HashMap<Ending<'_>, Timestamp> = HashMap::new();
    let mut ends: Vec<Option<Timestamp>> = events
        .iter()
        .rev()
        .map(|event| {
            let end = begins(event).and_then(|ending| next.get(&ending).copied());
            next.extend(ended_by(event).into_iter().map(|ending| (ending, event.at)));
            end
        })
        .collect();
    ends.reverse();
    ends
}

/// What will end what this entry begins.
fn begins(event: &Event) -> Option<Ending<'_>> {
    let Subject { sandbox, container, exec } = &event.subject;
    match event.what {
        What::SandboxReady => Some(Ending::Pod(sandbox.as_ref())),
        What::ContainerStarted { .. } => Some(Ending::Container(container.as_ref())),
        What::ContainerPaused => Some(Ending::Pause(container.as_ref())),
        What::ExecStarted { .. } => Some(Ending::Exec(exec.as_ref())),
        What::ExitParked => Some(Ending::Parking(container.as_ref(), exec.as_ref())),
        _ => None,
    }
}

fn ended_by(event: &Event) -> Vec<Ending<'_>> {
    let Subject { sandbox, container, exec } = &event.subject;
    let (container, exec) = (container.as_ref(), exec.as_ref());
    match event.what {
        What::SandboxNotReady { .. } | What::SandboxStopped | What::SandboxRemoved => {
            vec![Ending::Pod(sandbox.as_ref())]
        }
        What::ContainerExited { .. } | What::ContainerUnknown { .. } => {
            vec![Ending::Container(container), Ending::Pause(container)]
        }
        What::ContainerResumed => vec![Ending::Pause(container)],
        What::ExecExited { .. } => vec![Ending::Exec(exec)],
        What::ExitDelivered | What::ExitUnclaimed { .. } => vec![Ending::Parking(container, exec)],
        _ => Vec::new(),
    }
}

fn rows_of(event: &Event, end: Option<Timestamp>) -> Vec<Row> {
    let (at, who) = (event.at, who(&event.subject));
    let text = event.what.to_string();
    let since = |nanos: u64| Timestamp(at.0.saturating_sub(nanos));
    match &event.what {
        What::StepsTaken { saga, steps } => saga_rows(at, &who, saga, steps),
        What::HookCalled { hook, calls } => hook_rows(at, &who, hook, calls),
        What::ImagePulled { took_ms, .. } => {
            let start = since(nanos(took_ms.saturating_mul(1_000)));
            vec![Row { start, end: Some(at), who, text, kind: RowKind::Call }]
        }
        What::ImagePullFailed { took_ms, .. } => {
            let start = since(nanos(took_ms.saturating_mul(1_000)));
            vec![Row { start, end: Some(at), who, text, kind: RowKind::Trouble }]
        }
        What::SandboxReady
        | What::ContainerStarted { .. }
        | What::ContainerPaused
        | What::ExecStarted { .. } => {
            vec![Row { start: at, end, who, text, kind: RowKind::Phase }]
        }
        What::ExitParked => vec![Row { start: at, end, who, text, kind: RowKind::Call }],
        what => {
            let kind = if is_trouble(what) { RowKind::Trouble } else { RowKind::Moment };
            vec![Row { start: at, end: None, who, text, kind }]
        }
    }
}

fn saga_rows(at: Timestamp, who: &str, saga: &str, steps: &[StepTaken]) -> Vec<Row> {
    let total = steps.iter().fold(0_u64, |sum, step| sum.saturating_add(nanos(step.took_us)));
    let mut start = Timestamp(at.0.saturating_sub(total));
    let undone = steps.iter().all(|step| step.way == Way::Undo);
    let failed = steps.iter().any(|step| step.way == Way::Act && step.trouble.is_some());
    let text = match (undone, failed) {
        (true, _) => format!("{saga} undone"),
        (false, true) => format!("{saga} failed, and was undone"),
        (false, false) => saga.to_owned(),
    };
    let mut rows = vec![Row { start, end: Some(at), who: who.to_owned(), text, kind: RowKind::Saga }];
    for StepTaken { step, way, took_us, trouble } in steps {
        let end = Timestamp(start.0.saturating_add(nanos(*took_us)));
        let forth = if *way == Way::Undo { "undo " } else { "" };
        let (text, kind) = match (trouble, way) {
            (Some(trouble), _) => (format!("{forth}{step} failed: {trouble}"), RowKind::FailedStep),
            (None, Way::Act) => (step.clone(), RowKind::Act),
            (None, Way::Undo) => (format!("undo {step}"), RowKind::Undo),
        };
        rows.push(Row { start, end: Some(end), who: who.to_owned(), text, kind });
        start = end;
    }
    rows
}

/// A hook, and below it each plugin that was asked, one after the other.
fn hook_rows(at: Timestamp, who: &str, hook: &str, calls: &[HookCall]) -> Vec<Row> {
    let total = calls.iter().fold(0_u64, |sum, call| sum.saturating_add(nanos(call.took_us)));
    let mut start = Timestamp(at.0.saturating_sub(total));
    let row = |start, end, text, kind| Row { start, end: Some(end), who: who.to_owned(), text, kind };
    let mut rows = vec![row(start, at, format!("hook {hook}"), RowKind::Call)];
    for HookCall { plugin, outcome, took_us, trouble } in calls {
        let end = Timestamp(start.0.saturating_add(nanos(*took_us)));
        let word = match outcome {
            HookOutcome::Answered => "answered",
            HookOutcome::Refused => "refused",
            HookOutcome::Missed => "missed",
        };
        rows.push(match trouble {
            None => row(start, end, plugin.clone(), RowKind::Act),
            Some(trouble) => row(start, end, format!("{plugin} {word}: {trouble}"), RowKind::FailedStep),
        });
        start = end;
    }
    rows
}

fn is_trouble(what: &What) -> bool {
    matches!(
        what,
        What::SandboxNotReady { .. }
            | What::ShimDied { .. }
            | What::ContainerUnknown { .. }
            | What::ExitUnclaimed { .. }
            | What::ActorRestarted { .. }
            | What::StoreReplaced { .. }
            | What::OutputLost { .. }
            | What::AuditFound { .. }
            | What::PluginGone { .. }
            | What::ContainerEvicted { .. }
    )
}

fn nanos(micros: u64) -> u64 {
    micros.saturating_mul(1_000)
}

#[cfg(test)]
mod tests;
