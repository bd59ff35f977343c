//! The pure state of one plugin: what it knows, whose turn it is, and what a failure costs it. No clock, no IO.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mainstay_nri_api::{Event, EventMask};

use crate::hook::{Bearing, Object, bearing};
use crate::policy::Verdict;
use crate::roster::Ticket;

/// The number of a call inside one plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// How much a plugin may have, and be forgiven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Calls that may be under way at once.
    pub parallel: usize,
    /// Calls that may wait for their turn.
    pub queue_max: usize,
    /// Failures in a row after which the connection is given up.
    pub strikes_max: u32,
}

/// A plugin.
///
/// Invariants:
/// 1. A call is sent only while it is live, and never more than `parallel` at once.
/// 2. No more than `queue_max` calls wait.
/// 3. It is asked about an object only if it knows it, or hears of it by this call.
/// 4. Each call gets exactly one verdict.
/// 5. What is given up stays so, and has no call.
#[derive(Clone, Debug)]
pub struct State {
    events: EventMask,
    allowance: Allowance,
    phase: Phase,
    known: BTreeSet<Object>,
    /// Objects that were announced while it was being told of what there is, by an event that it did not ask for.
    unasked: BTreeSet<Object>,
    /// Announcements whose turn has come here: they do not come again.
    passed: BTreeSet<Ticket>,
    freshness: Freshness,
    waiting: VecDeque<CallId>,
    running: BTreeSet<CallId>,
    calls: BTreeMap<CallId, Call>,
    strikes: u32,
}

/// Whether what it is being told of is all it has to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freshness {
    Current,
    /// It has missed something since that was put together.
    Stale,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is to be told of all there is, once its calls that are under way have ended.
    Settling,
    /// What there is, is being put together.
    Gathering,
    /// It is being told of it.
    Synchronising,
    /// It is called.
    Live,
    /// It was given up, or is gone.
    Closed {
        /// Why.
        reason: String,
    },
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// About which event.
    pub event: Event,
    /// About what.
    pub object: Object,
    /// The announcement that it is part of.
    pub ticket: Option<Ticket>,
}

/// What comes of a call, or of a synchronisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An answer.
    Answered,
    /// A no.
    Refused(String),
    /// None in time, or one that nobody can read.
    Silent(String),
    /// The connection has ended.
    Gone(String),
}

/// What happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// It has registered.
    Joined,
    /// What it is to be told of.
    Gathered(BTreeSet<Object>),
    /// How that went.
    Synchronised(Ending),
    /// It is to be called.
    Call(CallId, Call),
    /// A call that does not come any more: those before it have taken too long.
    Skipped(Call),
    /// A call has waited for its turn as long as it may.
    WaitedLong(CallId),
    /// How a call went.
    Ended(CallId, Ending),
    /// An announcement is over.
    Over(Ticket),
    /// It heard of these in an earlier life of this program, and is to be told of their end.
    Acquaint(BTreeSet<Object>),
    /// Its connection has ended, or it is to end, for this reason.
    Close(String),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Have put together what it is to be told of; these announcements do not come to it any more.
    Gather(BTreeSet<Ticket>),
    /// Tell it of these.
    Synchronise(BTreeSet<Object>),
    /// Send a call.
    Send(CallId),
    /// Answer a call.
    Answer(CallId, Verdict),
    /// It has failed so many times in a row, lastly for this reason.
    Struck(u32, String),
    /// It is live.
    Live,
    /// End the connection.
    Close(String),
}

impl State {
    /// One that asked for these events.
    pub fn new(events: EventMask, allowance: Allowance) -> Self {
        Self {
            events,
            allowance,
            phase: Phase::Settling,
            known: BTreeSet::new(),
            unasked: BTreeSet::new(),
            passed: BTreeSet::new(),
            freshness: Freshness::Current,
            waiting: VecDeque::new(),
            running: BTreeSet::new(),
            calls: BTreeMap::new(),
            strikes: 0,
        }
    }

    /// Where it is.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Failures in a row.
    pub fn strikes(&self) -> u32 {
        self.strikes
    }

    /// Whether it has failed as often as it is forgiven.
    pub fn is_given_up(&self) -> bool {
        self.strikes >= self.allowance.strikes_max
    }

    /// Calls that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Objects that it knows.
    pub fn known(&self) -> &BTreeSet<Object> {
        &self.known
    }

    /// The next state and what is to be done.
    pub fn apply(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Phase::Closed { reason } = &self.phase {
            if let Input::Call(id, _) = input {
                effects.push(Effect::Answer(id, Verdict::Missed(format!("it is gone: {reason}"))));
            }
            return effects;
        }
        match input {
            Input::Joined => self.settle(&mut effects),
            Input::Gathered(objects) => self.gathered(objects, &mut effects),
            Input::Synchronised(ending) => self.synchronised(ending, &mut effects),
            Input::Call(id, call) => self.call(id, call, &mut effects),
            Input::Skipped(call) => self.miss(&call, &mut effects),
            Input::WaitedLong(id) => self.waited_long(id, &mut effects),
            Input::Ended(id, ending) => self.ended(id, ending, &mut effects),
            Input::Over(ticket) => drop(self.passed.remove(&ticket)),
            Input::Acquaint(objects) => self.known.extend(objects),
            Input::Close(reason) => self.close(reason, &mut effects),
        }
        self.send_next(&mut effects);
        effects
    }

    /// Once nothing is under way any more, it is told of all there is.
    fn settle(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Settling;
        if self.running.is_empty() {
            self.phase = Phase::Gathering;
            self.freshness = Freshness::Current;
            effects.push(Effect::Gather(self.passed.clone()));
        }
    }

    fn gathered(&mut self, objects: BTreeSet<Object>, effects: &mut Vec<Effect>) {
        if self.phase != Phase::Gathering {
            return;
        }
        self.phase = Phase::Synchronising;
        // What it saw and what is on its way out is not told again, but its end is.
        let leaving = self.calls.values().map(|call| &call.object);
        let mut known: BTreeSet<_> = leaving.filter(|object| self.known.contains(object)).cloned().collect();
        known.append(&mut self.unasked);
        known.extend(objects.iter().cloned());
        self.known = known;
        effects.push(Effect::Synchronise(objects));
    }

    fn synchronised(&mut self, ending: Ending, effects: &mut Vec<Effect>) {
        if self.phase != Phase::Synchronising {
            return;
        }
        match ending {
            Ending::Answered if self.freshness == Freshness::Stale => self.settle(effects),
            Ending::Answered => {
                self.phase = Phase::Live;
                effects.push(Effect::Live);
            }
            Ending::Refused(reason) | Ending::Silent(reason) => self.strike(reason, effects),
            Ending::Gone(reason) => self.close(reason, effects),
        }
    }

    fn call(&mut self, id: CallId, call: Call, effects: &mut Vec<Effect>) {
        if !self.events.contains(call.event) {
            let verdict = self.pass_by(&call);
            effects.push(Effect::Answer(id, verdict));
            return;
        }
        if self.waiting.len() >= self.allowance.queue_max {
            self.miss(&call, effects);
            let max = self.allowance.queue_max;
            effects.push(Effect::Answer(id, Verdict::Missed(format!("{max} calls wait for it already"))));
            return;
        }
        self.calls.insert(id, call);
        self.waiting.push_back(id);
    }

    /// It did not ask for this event: nobody waits for it, but what becomes of the object is followed.
    fn pass_by(&mut self, call: &Call) -> Verdict {
        self.passed.extend(call.ticket);
        let known = match bearing(call.event) {
            Bearing::Announces => {
                self.known.insert(call.object.clone());
                if self.phase != Phase::Live {
                    self.unasked.insert(call.object.clone());
                }
                true
            }
            Bearing::Withdraws => {
                self.unasked.remove(&call.object);
                self.known.remove(&call.object)
            }
            Bearing::Concerns => self.known.contains(&call.object),
        };
        if known { Verdict::NotAsked } else { Verdict::Unknown }
    }

    fn waited_long(&mut self, id: CallId, effects: &mut Vec<Effect>) {
        let Some(at) = self.waiting.iter().position(|waiting| *waiting == id) else { return };
        self.waiting.remove(at);
        let Some(call) = self.calls.remove(&id) else { return };
        self.miss(&call, effects);
        let reason = match self.phase {
            Phase::Live => "it is busy with other calls",
            _ => "it is still being told of what there is",
        };
        effects.push(Effect::Answer(id, Verdict::Missed(reason.to_owned())));
    }

    /// It has not heard of something that it asked to hear of: it is told of all there is again. No fault of its own.
    fn miss(&mut self, call: &Call, effects: &mut Vec<Effect>) {
        self.passed.extend(call.ticket);
        match self.phase {
            Phase::Live => self.settle(effects),
            Phase::Gathering | Phase::Synchronising => self.freshness = Freshness::Stale,
            Phase::Settling | Phase::Closed { .. } => {}
        }
    }

    fn ended(&mut self, id: CallId, ending: Ending, effects: &mut Vec<Effect>) {
        if !self.running.remove(&id) {
            return;
        }
        self.calls.remove(&id);
        match ending {
            Ending::Answered => {
                self.strikes = 0;
                effects.push(Effect::Answer(id, Verdict::Answered));
            }
            Ending::Refused(reason) => {
                // It is well: it thinks, and says so.
                self.strikes = 0;
                effects.push(Effect::Answer(id, Verdict::Refused(reason)));
            }
            Ending::Silent(reason) => {
                effects.push(Effect::Answer(id, Verdict::Missed(reason.clone())));
                return self.strike(reason, effects);
            }
            Ending::Gone(reason) => {
                effects.push(Effect::Answer(id, Verdict::Missed(reason.clone())));
                return self.close(reason, effects);
            }
        }
        if self.phase == Phase::Settling {
            self.settle(effects);
        }
    }

    fn strike(&mut self, reason: String, effects: &mut Vec<Effect>) {
        self.strikes += 1;
        effects.push(Effect::Struck(self.strikes, reason.clone()));
        if self.is_given_up() {
            let max = self.allowance.strikes_max;
            return self.close(format!("it failed {max} times in a row, lastly: {reason}"), effects);
        }
        self.settle(effects);
    }

    fn close(&mut self, reason: String, effects: &mut Vec<Effect>) {
        let verdict = Verdict::Missed(format!("it is gone: {reason}"));
        self.phase = Phase::Closed { reason: reason.clone() };
        self.waiting.clear();
        self.running.clear();
        for id in std::mem::take(&mut self.calls).into_keys() {
            effects.push(Effect::Answer(id, verdict.clone()));
        }
        effects.push(Effect::Close(reason));
    }

    fn send_next(&mut self, effects: &mut Vec<Effect>) {
        while self.phase == Phase::Live && self.running.len() < self.allowance.parallel {
            let Some(id) = self.waiting.pop_front() else { return };
            let Some(call) = self.calls.get(&id) else { continue };
            self.passed.extend(call.ticket);
            let concerned = match bearing(call.event) {
                Bearing::Announces => {
                    self.known.insert(call.object.clone());
                    true
                }
                Bearing::Withdraws => self.known.remove(&call.object),
                Bearing::Concerns => self.known.contains(&call.object),
            };
            if concerned {
                self.running.insert(id);
                effects.push(Effect::Send(id));
            } else {
                self.calls.remove(&id);
                effects.push(Effect::Answer(id, Verdict::Unknown));
            }
        }
    }
}

#[cfg(test)]
mod tests;
