//! The pure state of a sandbox: every decision about it, with no clock and no IO. `teardown` holds stop, remove
//! and undo, `adoption` what happens to one that was found in the store.

mod adoption;
mod change;
mod draft;
mod teardown;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;

use mainstay_messages::error::Kind;
use mainstay_messages::event::What;
use mainstay_messages::journal::{Change, Commit};
use mainstay_messages::record::{Activity, SandboxPhase, SandboxRecord, SandboxSnapshot};
use mainstay_messages::spec::SandboxSpec;
use mainstay_messages::supervisor::{Adopted, Launched};
use mainstay_messages::{ContainerId, Error, Result, Timestamp};

use crate::call::CallId;
use crate::machine::{Durability, Machine, Now, Outcome, Plan, Write};

pub use adoption::{ADOPT_RETRY_MAX_MS, ADOPT_RETRY_MS, HowDown};
pub use change::{LIMITS_RETRY_MAX_MS, LIMITS_RETRY_MS};
pub use teardown::{TEARDOWN_RETRY_MAX_MS, TEARDOWN_RETRY_MS};

pub use vocabulary::{Answer, Ask, Effect, Input};

use adoption::Adoption;
use change::Changing;
use draft::Draft;
use teardown::Pace;

/// The most containers of one sandbox.
pub const SANDBOX_CONTAINERS_MAX: usize = 4_096;

/// A sandbox. The diagram of its phases is in [`super`].
///
/// Invariants:
/// 1. It admits containers only while it is Ready and nobody has asked to stop or remove it.
/// 2. Whoever asked to make it waits only while it is being made or undone.
/// 3. Whoever asked to stop or remove it waits only while work is going on.
/// 4. Its record is deleted only when it has no containers and its shim is ended.
/// 5. Work that failed has a time for its next attempt.
#[derive(Clone, Debug)]
pub struct State {
    record: Arc<SandboxRecord>,
    standing: Standing,
    durability: Durability,
    work: Work,
    pace: Pace,
    failures: u32,
    /// Why the last attempt of the work failed.
    trouble: Option<String>,
    /// Why it could not be made.
    failure: Option<Error>,
    adoption: Adoption,
    /// Who waits for it to be made.
    runners: Vec<CallId>,
    /// Who waits for it to be stopped.
    stoppers: Vec<CallId>,
    /// Who waits for it to be removed.
    removers: Vec<CallId>,
    wish: Wish,
    since: Timestamp,
    change: Option<Changing>,
    containers: Arc<BTreeSet<ContainerId>>,
}

/// What the store knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing yet.
    Proposed,
    /// Its record.
    Recorded,
    /// Nothing any more, or it is about to.
    Deleted,
}

/// What it is to come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    /// Go on.
    Stay,
    /// Be stopped, each container with this grace.
    Stop { grace_ms: Option<u64> },
    /// Be gone.
    Remove,
}

/// The call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    None,
    Launch,
    /// The launch failed: nothing must be left of it.
    Undo,
    StopContainers,
    StopShim,
    RemoveContainers,
    /// The shim once more, in case that a container of it was still there.
    ClearUp,
}

impl State {
    /// A sandbox that is to be made.
    pub fn proposed(record: SandboxRecord) -> Self {
        Self::new(record, Standing::Proposed, Adoption::Settled, BTreeSet::new())
    }

    /// A sandbox whose record was found in the store, with its containers. Feed [`Input::Recover`] first.
    pub fn recovered(record: SandboxRecord, containers: BTreeSet<ContainerId>, how: HowDown) -> Self {
        let adoption = Adoption::Waiting { how, phase: record.phase };
        let mut shown = record;
        if how == HowDown::Rebooted && shown.phase == SandboxPhase::Ready {
            // Nothing of before runs: readers must not see that it does, not even until that is written.
            shown.phase = SandboxPhase::Unknown;
            shown.reason = Some("the host was rebooted".to_owned());
        }
        Self::new(shown, Standing::Recorded, adoption, containers)
    }

    fn new(
        record: SandboxRecord,
        standing: Standing,
        adoption: Adoption,
        containers: BTreeSet<ContainerId>,
    ) -> Self {
        Self {
            since: record.created_at,
            record: Arc::new(record),
            standing,
            durability: Durability::Written,
            work: Work::None,
            pace: Pace::UnderWay,
            failures: 0,
            trouble: None,
            failure: None,
            adoption,
            runners: Vec::new(),
            stoppers: Vec::new(),
            removers: Vec::new(),
            wish: Wish::Stay,
            change: None,
            containers: Arc::new(containers),
        }
    }

    /// Its record, as memory has it.
    pub fn record(&self) -> &SandboxRecord {
        &self.record
    }

    /// What the store knows of it.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Its containers.
    pub fn containers(&self) -> &BTreeSet<ContainerId> {
        &self.containers
    }

    /// What readers see.
    pub fn snapshot(&self) -> SandboxSnapshot {
        SandboxSnapshot { record: SandboxRecord::clone(&self.record), activity: self.activity() }
    }

    /// Whether readers see any difference.
    pub fn looks_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.record, &other.record) && self.activity() == other.activity()
    }

    fn activity(&self) -> Option<Activity> {
        let step = match self.work {
            Work::None => {
                return self.change.as_ref().map(|change| Activity {
                    operation: "update".to_owned(),
                    step: "change the limits".to_owned(),
                    since: change.since,
                });
            }
            Work::Launch => "start the shim",
            Work::Undo => "undo the start of the shim",
            Work::StopContainers => "stop the containers",
            Work::StopShim | Work::ClearUp => "end the shim",
            Work::RemoveContainers => "remove the containers",
        };
        let operation = match (self.work, self.wish) {
            (Work::Launch | Work::Undo, _) => "run",
            (_, Wish::Remove) => "remove",
            _ => "stop",
        };
        let step = match &self.trouble {
            Some(trouble) => format!("{step}, again and again: {trouble}"),
            None => step.to_owned(),
        };
        Some(Activity { operation: operation.to_owned(), step, since: self.since })
    }

    fn id(&self) -> String {
        self.record.id.to_string()
    }

    fn phase(&self) -> SandboxPhase {
        self.record.phase
    }

    fn terminating(&self) -> Error {
        Error::Terminating { kind: Kind::Sandbox, id: self.id() }
    }

    fn wrong_phase(&self, call: CallId, operation: &str) -> Outcome<Self> {
        let error = Error::WrongPhase {
            kind: Kind::Sandbox,
            id: self.id(),
            phase: self.phase().to_string(),
            operation: operation.to_owned(),
            needed: SandboxPhase::Ready.to_string(),
        };
        Outcome::Deny { call, error }
    }

    /// A first call writes the record and starts the shim; later ones join.
    fn run(&self, call: CallId, spec: &SandboxSpec, now: Now) -> Outcome<Self> {
        let same = self.record.spec == *spec;
        let mut draft = self.draft(now);
        match (self.standing, self.work) {
            (Standing::Proposed, _) => {
                draft.next.runners.push(call);
                draft.next.standing = Standing::Recorded;
                draft.next.work = Work::Launch;
                draft.commanded("run", format!("name {}", self.record.name()));
                draft.fact(What::SandboxCreated);
                draft.record();
                draft.ask(Ask::Launch);
                let refusal = vec![Effect::Abandon { calls: vec![call] }];
                let mut refused = self.clone();
                refused.standing = Standing::Deleted;
                draft.or_instead(refused, refusal)
            }
            (_, Work::Launch) if same && self.wish == Wish::Stay => {
                draft.next.runners.push(call);
                draft.in_memory()
            }
            (_, Work::Launch | Work::Undo) => Outcome::Deny { call, error: self.in_progress() },
            _ if self.wish == Wish::Remove => Outcome::Deny { call, error: self.terminating() },
            _ if same && self.phase() == SandboxPhase::Ready && self.wish == Wish::Stay => {
                draft.answer(vec![call], Ok(Answer::Ready(self.record.id.clone())));
                draft.in_memory()
            }
            _ => {
                let (name, holder) = (self.record.name().to_string(), self.id());
                Outcome::Deny { call, error: Error::NameTaken { kind: Kind::Sandbox, name, holder } }
            }
        }
    }

    fn in_progress(&self) -> Error {
        match self.activity() {
            Some(Activity { operation, step, since }) => {
                Error::InProgress { id: self.id(), operation, step, since }
            }
            None => self.terminating(),
        }
    }

    fn launched(&self, result: Result<Launched>, now: Now) -> Outcome<Self> {
        if self.work != Work::Launch {
            return Outcome::Ignore { call: None, why: "not being started" };
        }
        let mut draft = self.draft(now);
        draft.next.work = Work::None;
        match result {
            Ok(Launched { shim, network }) => {
                draft.fact(What::ShimStarted { pid: shim.process.pid });
                let runners = take(&mut draft.next.runners);
                let record = draft.record();
                record.shim = Some(shim);
                record.network = network;
                if self.wish == Wish::Stay {
                    draft.record().phase = SandboxPhase::Ready;
                    draft.fact(What::SandboxReady);
                    draft.answer(runners, Ok(Answer::Ready(self.record.id.clone())));
                    // After a crash, one that is not recorded as Ready is undone: nobody may count on it.
                    return draft.or_instead(self.clone(), vec![Effect::LaunchUnwritten]);
                }
                draft.answer(runners, Err(self.terminating()));
                draft.effect(Effect::Again(Input::Proceed));
            }
            Err(error) => {
                draft.next.failure = Some(error.clone());
                draft.undo(error.to_string());
            }
        }
        draft.go_on()
    }

    fn admit(&self, call: CallId, container: ContainerId, now: Now) -> Outcome<Self> {
        if self.wish == Wish::Remove {
            return Outcome::Deny { call, error: self.terminating() };
        }
        if self.phase() != SandboxPhase::Ready || self.wish != Wish::Stay {
            return self.wrong_phase(call, "creating a container");
        }
        if self.containers.len() >= SANDBOX_CONTAINERS_MAX {
            let what = format!("containers of pod {}", self.record.id);
            let limit = SANDBOX_CONTAINERS_MAX as u64;
            return Outcome::Deny { call, error: Error::ResourceExhausted { what, limit } };
        }
        let mut draft = self.draft(now);
        Arc::make_mut(&mut draft.next.containers).insert(container);
        draft.answer(vec![call], Ok(Answer::Done));
        draft.in_memory()
    }

    fn shim_died(&self, reason: String, now: Now) -> Outcome<Self> {
        if self.work == Work::Launch {
            // Its death overtook the answer to its launch, which comes too late then.
            let dead = Error::unavailable(format!("the shim of pod {}", self.record.id), reason);
            return self.launched(Err(dead), now);
        }
        if self.adoption != Adoption::Settled {
            // Its death overtook the answer that it was found.
            return self.adopted(Ok(Adopted::Gone), now);
        }
        if self.phase() != SandboxPhase::Ready {
            return Outcome::Ignore { call: None, why: "it was to end, or nobody counted on it" };
        }
        let mut draft = self.draft(now);
        draft.fact(What::ShimDied { reason: reason.clone() });
        draft.not_ready(format!("its shim died: {reason}"));
        draft.go_on()
    }

    fn measure(&self, call: CallId) -> Outcome<Self> {
        match self.phase() {
            SandboxPhase::Ready | SandboxPhase::Stopping | SandboxPhase::Unknown => {
                Outcome::Accept(Plan { next: None, write: None, effects: vec![Effect::Measure { call }] })
            }
            _ => self.wrong_phase(call, "measuring"),
        }
    }

    /// The decision about an input while nothing of the sandbox is left but its actor.
    fn decide_deleted(&self, input: Input, now: Now) -> Outcome<Self> {
        match input {
            Input::Remove { call } if self.durability == Durability::Behind => {
                // Written now, and answered with what comes of that: there may be room again.
                let effects =
                    vec![Effect::Retire { runners: Vec::new(), failure: None, content: vec![call] }];
                Outcome::Accept(Plan {
                    next: None,
                    write: Some(Write::GoOn { commit: Commit::default() }),
                    effects,
                })
            }
            Input::Stop { call, .. } | Input::Remove { call } => {
                Outcome::Ignore { call: Some(call), why: "already gone" }
            }
            Input::Run { call, .. }
            | Input::Admit { call, .. }
            | Input::Measure { call }
            | Input::Update { call, .. } => Outcome::Deny { call, error: self.terminating() },
            Input::Written => {
                let mut draft = self.draft(now);
                draft.retire();
                draft.in_memory()
            }
            _ => Outcome::Ignore { call: None, why: "already gone" },
        }
    }
}

impl Machine for State {
    type Input = Input;
    type Effect = Effect;

    fn decide(&self, input: Input, now: Now) -> Outcome<Self> {
        if self.standing == Standing::Deleted {
            return self.decide_deleted(input, now);
        }
        match input {
            Input::Run { call, spec } => self.run(call, &spec, now),
            Input::Launched(result) => self.launched(result, now),
            Input::Admit { call, container } => self.admit(call, container, now),
            Input::ContainerGone(container) => self.container_gone(&container, now),
            Input::Stop { call, grace_ms } => self.stop(call, grace_ms, now),
            Input::Remove { call } => self.remove(call, now),
            Input::Measure { call } => self.measure(call),
            Input::Update { call, change } => self.update(call, &change, now),
            Input::Updated(result) => self.updated(result, now),
            Input::LimitsAgain(failures) => self.limits_again(failures, now),
            Input::ShimDied(reason) => self.shim_died(reason, now),
            Input::ContainersStopped => self.containers_stopped(now),
            Input::ContainersRemoved(result) => self.containers_removed(result, now),
            Input::ShimStopped(result) => self.shim_stopped(result, now),
            Input::WorkAgain(failures) => self.work_again(failures, now),
            Input::Proceed => self.proceed(now),
            Input::Recover => self.recover(now),
            Input::Adopted(result) => self.adopted(result, now),
            Input::AdoptAgain => self.adopt_again(now),
            Input::Written => Outcome::Ignore { call: None, why: "the store has caught up" },
        }
    }

    fn holds(&self, input: &Input) -> bool {
        let command = matches!(
            input,
            Input::Run { .. }
                | Input::Admit { .. }
                | Input::Stop { .. }
                | Input::Remove { .. }
                | Input::Measure { .. }
                | Input::Update { .. }
        );
        command && matches!(self.adoption, Adoption::Waiting { .. }) && self.standing == Standing::Recorded
    }

    fn written() -> Input {
        Input::Written
    }

    fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    fn truth(&self) -> Change {
        match self.standing {
            Standing::Recorded => Change::PutSandbox(Box::new(SandboxRecord::clone(&self.record))),
            Standing::Proposed | Standing::Deleted => Change::DeleteSandbox(self.record.id.clone()),
        }
    }
}
