//! The seeded scheduler: how each call to the supervisor, each report from it and each commit goes. It also sees
//! each of them at the moment at which it is made, and so checks that the intent is durable by then (P3).

use mainstay_actors::fakes::{
    Behaviour, Call, Director, FakeHost, Made, MemoryStore, Messenger, ReceiptWay, StoreCall, StoreFault,
};
use mainstay_messages::event::{Event, Seq, What};
use mainstay_messages::journal::Commit;
use mainstay_messages::record::ContainerPhase;
use mainstay_messages::router::TaskKey;
use mainstay_messages::{Error, SandboxId};

use crate::promise;
use crate::stage::{Stage, Weather};

/// The longest that a call takes and is still answered in time, in milliseconds.
const CALL_LATE_MAX_MS: u64 = 8_000;
/// The longest that a call takes that makes something, in milliseconds: longer than the actors wait for it.
const MAKING_LATE_MAX_MS: u64 = 120_000;
/// The longest that a report takes, in milliseconds.
const REPORT_LATE_MAX_MS: u64 = 30_000;
/// The longest that a commit takes, in milliseconds: longer than the actors wait for it.
const COMMIT_LATE_MAX_MS: u64 = 14_000;

/// Decides about the host.
pub struct Chaos {
    stage: Stage,
    store: MemoryStore,
}

impl Chaos {
    /// Sets it on a host and a store.
    pub fn begin(stage: &Stage, host: &FakeHost, store: &MemoryStore) {
        host.set_director(Self { stage: stage.clone(), store: store.clone() });
        let stage = stage.clone();
        store.set_director(move |call| commit_goes(&stage, stage.weather(), call));
    }

    /// Intent before effect, at the moment of the call.
    fn invariant_intent_before_effect(&self, made: &Made) {
        let sandbox = self.store.sandbox(&made.sandbox);
        let container = made.container.as_ref().and_then(|id| self.store.container(id));
        let named = match made.call {
            Call::LaunchShim => sandbox.is_some(),
            Call::CreateTask => sandbox.is_some() && container.is_some(),
            Call::StartTask => container.is_some_and(|record| {
                !matches!(record.phase, ContainerPhase::Creating | ContainerPhase::Created)
            }),
            Call::StartExecTask => container.is_some() && self.is_commanded(made),
            _ => true,
        };
        let Made { call, sandbox, container, exec, .. } = made;
        promise!(self.stage, named, "P3: {call:?} {sandbox} {container:?} {exec:?} has no durable intent");
    }

    fn is_commanded(&self, made: &Made) -> bool {
        let is_it =
            |event: &Event| event.subject.exec == made.exec && matches!(event.what, What::Commanded { .. });
        self.store.events_after(Seq(0)).iter().any(is_it)
    }
}

impl Director for Chaos {
    fn call(&mut self, made: &Made) -> Option<Behaviour> {
        self.invariant_intent_before_effect(made);
        let weather = self.stage.weather();
        let behaviour = self.stage.roll(|chance| {
            let late = |ms| if ms % 2 == 0 { Behaviour::Delay(ms) } else { Behaviour::AnswerLate(ms) };
            if chance.happens(weather.call_lost) {
                return Some(if chance.happens(50) { Behaviour::Hang } else { Behaviour::AnswerNever });
            }
            if chance.happens(weather.call_fails) {
                let surely = chance.happens(50);
                // What makes something cleans up after itself as well as it can; what was started is not denied.
                let may_leave = !surely || matches!(made.call, Call::LaunchShim | Call::CreateTask);
                let fails =
                    if may_leave && chance.happens(50) { Behaviour::FailAfter } else { Behaviour::Fail };
                return Some(fails(failure(made.call, surely)));
            }
            if !chance.happens(weather.call_late) {
                return None;
            }
            // What makes something may even be done after its caller has given up.
            let makes = matches!(
                made.call,
                Call::LaunchShim | Call::CreateTask | Call::StartTask | Call::StartExecTask
            );
            match makes && chance.happens(10) {
                true => Some(Behaviour::Delay(chance.time_ms(MAKING_LATE_MAX_MS))),
                false => Some(late(chance.time_ms(CALL_LATE_MAX_MS))),
            }
        });
        let Made { call, sandbox, container, exec, signal, .. } = made;
        let short = container.as_ref().map_or("-", |id| id.short());
        let exec = exec.as_ref().map_or("-", |id| id.short());
        self.stage.note(format_args!(
            "  host: {call:?} {} {short} {exec} {signal:?}: {behaviour:?}",
            sandbox.short()
        ));
        behaviour
    }

    fn report(&mut self, task: &TaskKey) -> Vec<Messenger> {
        let rough = self.stage.weather().report_rough;
        let messengers = self.stage.roll(|chance| {
            if !chance.happens(rough) {
                return vec![Messenger::RELIABLE];
            }
            let messenger = |after_ms, lost| Messenger {
                after_ms,
                receipt: if lost { ReceiptWay::GetsLost } else { ReceiptWay::Comes },
            };
            let copies = chance.pick(0..4);
            (0..copies).map(|_| messenger(chance.time_ms(REPORT_LATE_MAX_MS), chance.happens(30))).collect()
        });
        let exec = task.exec.as_ref().map_or("-", |id| id.short());
        self.stage.note(format_args!("  report: {} {exec}: {messengers:?}", task.container.short()));
        messengers
    }

    fn death(&mut self, sandbox: &SandboxId) -> Vec<u64> {
        let rough = self.stage.weather().report_rough;
        let times: Vec<u64> = self.stage.roll(|chance| {
            let copies = if chance.happens(rough) { chance.pick(1..3) } else { 0 };
            (0..copies).map(|_| chance.time_ms(REPORT_LATE_MAX_MS)).collect()
        });
        self.stage.note(format_args!("  death: {}: {times:?}", sandbox.short()));
        times
    }
}

/// An error that a call may give; `surely` says whether it tells for certain that nothing was done.
fn failure(call: Call, surely: bool) -> Error {
    match call {
        Call::CreateTask | Call::StartTask | Call::StartExecTask | Call::LaunchShim if surely => {
            Error::StartFailed { reason: "simulated: no such program".to_owned() }
        }
        _ if surely => Error::internal("the simulated shim", "it refuses"),
        _ => Error::unavailable("the simulated shim", "the connection broke"),
    }
}

fn commit_goes(stage: &Stage, weather: Weather, call: StoreCall<'_>) -> StoreFault {
    let fault = stage.roll(|chance| match call {
        StoreCall::Read if chance.happens(weather.read_fails) => StoreFault::Fail,
        StoreCall::Read => StoreFault::None,
        StoreCall::Commit(_) if chance.happens(weather.commit_fails) => StoreFault::Fail,
        StoreCall::Commit(_) if chance.happens(weather.commit_late) => StoreFault::Late {
            durable_ms: chance.time_ms(COMMIT_LATE_MAX_MS),
            answer_ms: chance.time_ms(COMMIT_LATE_MAX_MS),
        },
        StoreCall::Commit(_) => StoreFault::None,
    });
    if let StoreCall::Commit(Commit { changes, facts }) = call {
        let (changes, facts) = (changes.len(), facts.len());
        stage.note(format_args!("  store: {changes} changes, {facts} facts: {fault:?}"));
    }
    fault
}
