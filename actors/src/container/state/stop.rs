//! Stopping is a negotiation: the signal is sent once, the earliest deadline of all who asked counts, and a
//! caller that leaves changes nothing.
//!
//! ```text
//!  Waiting (being made or started) ─► Asked (signal sent) ─ grace over ─► Killing (cgroup, again and again)
//!        └────────────── grace 0, or it never ran ──────────────────────────►┘            │
//!                                                                exit seen: everybody is answered
//! ```

use mainstay_messages::event::What;
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::{ContainerPhase, Eviction};
use mainstay_messages::spec::STOP_GRACE_DEFAULT_MS;
use mainstay_messages::supervisor::{SignalScope, TaskKnowledge, TaskStatus};
use mainstay_messages::{Error, Result, Signal, Timestamp};

use super::{Ask, Draft, Flight, Standing, State, Wake};
use crate::call::CallId;
use crate::machine::{Now, Outcome, backoff_ms};

/// Time from a SIGKILL to the next one, in milliseconds; doubled after each.
pub const KILL_RETRY_MS: u64 = 1_000;
/// The longest time between two SIGKILLs, in milliseconds.
pub const KILL_RETRY_MAX_MS: u64 = 30_000;
/// Time from SIGKILL, or from the call when that is later, until a caller is told that the end takes too long,
/// in milliseconds. The work goes on.
pub const STOP_ANSWER_AFTER_KILL_MS: u64 = 10_000;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// A stop that is going on.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) since: Timestamp,
    signal: Signal,
    stage: Stage,
    callers: Vec<Caller>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting { grace_ms: u64 },
    Asked { deadline_ms: u64 },
    Killing { attempts: u32 },
}

/// Who waits for the end, or for the removal that comes after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) call: CallId,
    /// From SIGKILL on: when to answer it at the latest.
    answer_by_ms: Option<u64>,
}

impl Caller {
    /// One that waits for as long as nothing was killed.
    pub(super) fn patient(call: CallId) -> Self {
        Self { call, answer_by_ms: None }
    }
}

impl Stop {
    fn new(signal: Signal, stage: Stage, now: Now) -> Self {
        Self { since: now.wall, signal, stage, callers: Vec::new() }
    }

    /// Whether it waits for what it has asked to end.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.stage, Stage::Asked { .. })
    }

    /// What it is at, in words.
    /// Whether it was sent SIGKILL.
    pub(super) fn is_killing(&self) -> bool {
        matches!(self.stage, Stage::Killing { .. })
    }

    pub(super) fn step(&self) -> String {
        match self.stage {
            Stage::Waiting { .. } => "wait until it is made or started".to_owned(),
            Stage::Asked { .. } => format!("wait for its end after {}", self.signal),
            Stage::Killing { attempts } => format!("wait for its end after SIGKILL (sent {attempts} times)"),
        }
    }
}

impl State {
    pub(super) fn stop(
        &self,
        call: CallId,
        signal: Option<Signal>,
        grace_ms: Option<u64>,
        now: Now,
    ) -> Outcome<Self> {
        if self.ended().is_some() {
            return Outcome::Ignore { call: Some(call), why: "its process has ended" };
        }
        if self.phase() == ContainerPhase::Removing {
            return self.wait_for_removal(call, now);
        }
        let usual = self.usual_stop();
        let (signal, grace_ms) = (signal.unwrap_or(usual.0), grace_ms.unwrap_or(usual.1));
        let mut draft = self.draft(now);
        if self.standing == Standing::Recorded {
            draft.commanded("stop", format!("{signal}, grace {grace_ms} ms"));
        }
        draft.ask_to_stop(signal, grace_ms);
        draft.stop_caller(call);
        draft.go_on()
    }

    /// A stop that a plugin wants. Whoever wanted it first is remembered.
    pub(super) fn evict(&self, call: CallId, (plugin, reason): (String, String), now: Now) -> Outcome<Self> {
        if self.ended().is_some() {
            return Outcome::Ignore { call: Some(call), why: "its process has ended" };
        }
        if self.phase() == ContainerPhase::Removing {
            return self.wait_for_removal(call, now);
        }
        let mut draft = self.draft(now);
        if self.standing == Standing::Recorded && self.record.evicted.is_none() {
            draft.fact(What::ContainerEvicted { plugin: plugin.clone(), reason: reason.clone() });
            draft.record().evicted = Some(Box::new(Eviction { plugin, reason, at: now.wall }));
        }
        let (signal, grace_ms) = self.usual_stop();
        draft.ask_to_stop(signal, grace_ms);
        draft.stop_caller(call);
        draft.go_on()
    }

    /// The signal and the grace where nobody says otherwise.
    fn usual_stop(&self) -> (Signal, u64) {
        let spec = &self.record.spec;
        (spec.stop_signal.unwrap_or(Signal::TERM), spec.stop_grace_ms.unwrap_or(STOP_GRACE_DEFAULT_MS))
    }

    pub(super) fn stop_deadline(&self, set_for_ms: u64, now: Now) -> Outcome<Self> {
        match self.stop.as_ref().map(|stop| stop.stage) {
            Some(Stage::Asked { deadline_ms }) if deadline_ms == set_for_ms => {
                let mut draft = self.draft(now);
                match now.mono_ms < deadline_ms {
                    // A grace longer than one timer.
                    true => draft.wake(deadline_ms - now.mono_ms, Wake::StopDeadline { deadline_ms }),
                    false => draft.kill("grace elapsed"),
                }
                draft.go_on()
            }
            _ => Outcome::Ignore { call: None, why: "the deadline was moved" },
        }
    }

    pub(super) fn kill_again(&self, attempt: u32, now: Now) -> Outcome<Self> {
        match self.stop.as_ref().map(|stop| stop.stage) {
            Some(Stage::Killing { attempts }) if attempts == attempt => {
                let mut draft = self.draft(now);
                draft.kill("still there");
                draft.ask(Ask::Query { exec: None });
                draft.go_on()
            }
            _ => Outcome::Ignore { call: None, why: "no kill is waiting for its end" },
        }
    }

    /// Answers those who waited long enough. The work goes on.
    pub(super) fn answer_stops(&self, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        let Some(stop) = &mut draft.next.stop else {
            return Outcome::Ignore { call: None, why: "nobody waits" };
        };
        let is_due = |caller: &mut Caller| caller.answer_by_ms.is_some_and(|by| by <= now.mono_ms);
        let mut due: Vec<CallId> = stop.callers.extract_if(.., is_due).map(|caller| caller.call).collect();
        if let Some(removal) = &mut draft.next.removal {
            due.extend(removal.callers.extract_if(.., is_due).map(|caller| caller.call));
        }
        let what = format!("the end of container {} after SIGKILL", self.record.id);
        let error = Error::DeadlineExceeded { what, after_ms: STOP_ANSWER_AFTER_KILL_MS };
        draft.answer(due, Err(error));
        draft.in_memory()
    }

    /// The answer to a query about PID 1: it counts where no exit was reported although one is due.
    pub(super) fn queried(&self, result: Result<TaskKnowledge>, now: Now) -> Outcome<Self> {
        let killing = self.stop.as_ref().is_some_and(Stop::is_killing);
        if self.ended().is_some() || !killing {
            return Outcome::Ignore { call: None, why: "the answer is not needed" };
        }
        let mut draft = self.draft(now);
        match result {
            Ok(TaskKnowledge::Known(task)) => match task.status {
                TaskStatus::Exited(exit) => draft.ends(exit),
                TaskStatus::Created | TaskStatus::Running | TaskStatus::Paused => {
                    return Outcome::Ignore { call: None, why: "it has not ended" };
                }
            },
            Ok(TaskKnowledge::NotKnown) => draft.lost(UnknownReason::NotKnownToShim),
            Ok(TaskKnowledge::ShimGone) => draft.lost(UnknownReason::ShimDied),
            Err(_) => return Outcome::Ignore { call: None, why: "nobody knows" },
        }
        draft.go_on()
    }

    /// Those who wait for the stop, who wait no more.
    pub(super) fn take_stop_callers(&mut self) -> Vec<CallId> {
        let callers = self.stop.as_mut().map(|stop| std::mem::take(&mut stop.callers)).unwrap_or_default();
        callers.into_iter().map(|caller| caller.call).collect()
    }

    /// The timer without which the stop would stand still; none when it waits for an answer.
    #[cfg(test)]
    pub(super) fn stop_timer(&self) -> Option<Wake> {
        match self.stop.as_ref()?.stage {
            Stage::Waiting { .. } => None,
            Stage::Asked { deadline_ms } => Some(Wake::StopDeadline { deadline_ms }),
            Stage::Killing { attempts } => Some(Wake::KillAgain { attempt: attempts }),
        }
    }
}

impl Draft {
    /// Begins a stop, or moves the deadline of the one that is going on if this one is earlier.
    fn ask_to_stop(&mut self, signal: Signal, grace_ms: u64) {
        let now = self.now;
        let Some(stop) = &mut self.next.stop else {
            self.next.stop = Some(Stop::new(signal, Stage::Waiting { grace_ms }, now));
            if self.next.flight == Flight::None {
                self.begin_waiting_stop();
            }
            return;
        };
        match &mut stop.stage {
            Stage::Waiting { grace_ms: earlier } => *earlier = grace_ms.min(*earlier),
            Stage::Asked { .. } if grace_ms == 0 => self.kill("stop"),
            Stage::Asked { deadline_ms } => {
                let asked_for = now.mono_ms.saturating_add(grace_ms);
                if asked_for < *deadline_ms {
                    self.set_stop_deadline(asked_for);
                }
            }
            Stage::Killing { .. } => {}
        }
    }

    /// Begins the stop that waited until the process was made or started.
    pub(super) fn begin_waiting_stop(&mut self) {
        let Some(Stop { stage: Stage::Waiting { grace_ms }, signal, .. }) = self.next.stop else { return };
        let never_ran = self.next.phase() == ContainerPhase::Created;
        self.record().phase = ContainerPhase::Stopping;
        if grace_ms == 0 || never_ran {
            return self.kill("stop");
        }
        self.ask(Ask::Signal { exec: None, signal, scope: SignalScope::Process, cause: "stop" });
        self.let_go_on();
        self.set_stop_deadline(self.now.mono_ms.saturating_add(grace_ms));
    }

    /// Goes on with a stop that an earlier actor began. Its signal was sent; it is not sent twice.
    pub(super) fn resume_stop(&mut self) {
        let stop_by = self.next.record.stop_by;
        let left_ms = stop_by.map_or(0, |by| by.nanos_since(self.now.wall).div_ceil(NANOS_PER_MILLI));
        let signal = self.next.record.spec.stop_signal.unwrap_or(Signal::TERM);
        let deadline_ms = self.now.mono_ms.saturating_add(left_ms);
        self.next.stop = Some(Stop::new(signal, Stage::Asked { deadline_ms }, self.now));
        self.record().phase = ContainerPhase::Stopping;
        match left_ms {
            0 => self.kill("grace elapsed"),
            _ => self.wake(left_ms, Wake::StopDeadline { deadline_ms }),
        }
    }

    /// Ends it without asking.
    pub(super) fn force_stop(&mut self, cause: &'static str) {
        let now = self.now;
        let at_once = || Stop::new(Signal::KILL, Stage::Waiting { grace_ms: 0 }, now);
        let stop = self.next.stop.get_or_insert_with(at_once);
        if matches!(stop.stage, Stage::Killing { .. }) {
            return;
        }
        if self.next.phase() != ContainerPhase::Removing {
            self.record().phase = ContainerPhase::Stopping;
        }
        self.kill(cause);
    }

    /// Ends what is to be removed and may run. Its end may have come already, so it is asked about at once.
    pub(super) fn end_before_removal(&mut self) {
        if self.next.stop.is_none() {
            self.force_stop("remove");
            self.ask(Ask::Query { exec: None });
        }
    }

    fn set_stop_deadline(&mut self, deadline_ms: u64) {
        let left_ms = deadline_ms.saturating_sub(self.now.mono_ms);
        let by = self.now.wall.0.saturating_add(left_ms.saturating_mul(NANOS_PER_MILLI));
        self.record().stop_by = Some(Timestamp(by));
        if let Some(stop) = &mut self.next.stop {
            stop.stage = Stage::Asked { deadline_ms };
        }
        self.wake(left_ms, Wake::StopDeadline { deadline_ms });
    }

    /// SIGKILL to everything in the cgroup; repeated until an exit is seen.
    fn kill(&mut self, cause: &'static str) {
        let answer_by_ms = self.now.mono_ms.saturating_add(STOP_ANSWER_AFTER_KILL_MS);
        let Some(stop) = &mut self.next.stop else { return };
        let attempts = match stop.stage {
            Stage::Killing { attempts } => attempts.saturating_add(1),
            Stage::Waiting { .. } | Stage::Asked { .. } => {
                let removers = self.next.removal.iter_mut().flat_map(|removal| &mut removal.callers);
                for caller in stop.callers.iter_mut().chain(removers) {
                    caller.answer_by_ms = Some(answer_by_ms);
                }
                1
            }
        };
        stop.stage = Stage::Killing { attempts };
        if attempts == 1 {
            self.wake(STOP_ANSWER_AFTER_KILL_MS, Wake::AnswerStops);
        }
        self.ask(Ask::Signal { exec: None, signal: Signal::KILL, scope: SignalScope::Cgroup, cause });
        let again_ms = backoff_ms(KILL_RETRY_MS, KILL_RETRY_MAX_MS, attempts - 1);
        self.wake(again_ms, Wake::KillAgain { attempt: attempts });
    }

    fn stop_caller(&mut self, call: CallId) {
        let caller = self.caller(call);
        self.next.stop.iter_mut().for_each(|stop| stop.callers.push(caller));
    }

    /// Whoever waits for the removal. What cannot be killed is not waited for any longer than by a stop.
    pub(super) fn remove_caller(&mut self, call: CallId) {
        let caller = self.caller(call);
        self.next.removal.iter_mut().for_each(|removal| removal.callers.push(caller));
    }

    fn caller(&mut self, call: CallId) -> Caller {
        let killing = self.next.stop.as_ref().is_some_and(Stop::is_killing);
        if !killing {
            return Caller::patient(call);
        }
        self.wake(STOP_ANSWER_AFTER_KILL_MS, Wake::AnswerStops);
        Caller { call, answer_by_ms: Some(self.now.mono_ms.saturating_add(STOP_ANSWER_AFTER_KILL_MS)) }
    }
}
