//! Execs: what else runs in the container. They live in memory; their facts are in the journal. Each has
//! exactly one terminal fact, also when it outlived the actor that started it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use mainstay_messages::error::Kind;
use mainstay_messages::event::What;
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::{ContainerPhase, ExecPhase, ExecSnapshot, Paused};
use mainstay_messages::spec::ExecSpec;
use mainstay_messages::supervisor::{SignalScope, TaskKnowledge, TaskStatus};
use mainstay_messages::{Error, ExecId, Exit, Result, Signal};

use super::{
    Answer, Ask, Draft, Effect, ExecLore, Forward, Input, Standing, StartLore, State, Stop, Wake, forward,
    is_definite, never_ran,
};
use crate::call::CallId;
use crate::machine::{Durability, Now, Outcome};

/// The most execs of a container that run at the same time.
pub const EXECS_MAX: usize = 1_024;
/// The execs that have ended and are still shown.
pub const EXEC_HISTORY_MAX: usize = 64;
/// The execs whose end is remembered, so that a second report of it changes nothing.
pub const EXEC_ENDED_REMEMBERED_MAX: usize = 4_096;
/// Time from the end of a container, or from a start that was not answered, until the shim is asked about
/// execs whose end it has not reported, in milliseconds.
pub const EXEC_ORPHAN_MS: u64 = 1_000;
/// How often the shim is asked about an exec before its end is written down as not known.
pub const EXEC_QUERIES_MAX: u32 = 3;
/// How often the journal is searched for what earlier actors did, once every [`EXEC_ORPHAN_MS`], before the search is
/// given up.
const SEARCHES_MAX: u32 = 30;

/// The execs of a container.
#[derive(Clone, Debug, Default)]
pub struct Execs {
    live: BTreeMap<ExecId, Live>,
    /// Ended and still shown, the oldest first.
    shown: VecDeque<Arc<ExecSnapshot>>,
    ended: BTreeSet<ExecId>,
    /// The same ids, the oldest first.
    ended_order: VecDeque<ExecId>,
    lore: Lore,
    start_lore: StartLore,
    failed_searches: u32,
    patrol: Patrol,
}

/// Whether a timer is set that looks after orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Patrol {
    #[default]
    Off,
    Set,
}

/// Whether the journal was searched for execs of earlier actors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lore {
    /// It was, or there was no earlier actor.
    #[default]
    Known,
    Unknown,
    Searching,
}

#[derive(Clone, Debug)]
struct Live {
    snapshot: Arc<ExecSnapshot>,
    /// Who waits for its start.
    caller: Option<CallId>,
    /// Whether it is certain that it was started.
    start: Start,
    queries: u32,
    query: Query,
}

/// Whether the shim is being asked about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    None,
    UnderWay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Certain,
    Doubtful,
}

impl Execs {
    /// Those of a container whose earlier actor may have started some.
    pub(super) fn of_an_earlier_actor() -> Self {
        Self { lore: Lore::Unknown, ..Self::default() }
    }

    /// Those that have not ended.
    pub fn live(&self) -> impl Iterator<Item = &Arc<ExecSnapshot>> {
        self.live.values().map(|exec| &exec.snapshot)
    }

    /// All that readers see.
    pub fn shown(&self) -> impl Iterator<Item = &Arc<ExecSnapshot>> {
        self.live().chain(&self.shown)
    }

    /// Whether the journal says that an earlier actor told PID 1 to run.
    pub(super) fn start_lore(&self) -> StartLore {
        self.start_lore
    }

    /// Whether all that earlier actors did is known.
    pub(super) fn is_searched(&self) -> bool {
        self.lore == Lore::Known
    }

    fn remember(&mut self, id: ExecId) {
        if self.ended.insert(id.clone()) {
            self.ended_order.push_back(id);
        }
        if self.ended_order.len() > EXEC_ENDED_REMEMBERED_MAX
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }
}

impl State {
    pub(super) fn exec(&self, call: CallId, id: ExecId, spec: Box<ExecSpec>, now: Now) -> Outcome<Self> {
        if self.removal.is_some() {
            return Outcome::Deny { call, error: self.terminating() };
        }
        // One that was asked to stop runs still: in its grace time people look into it, and probes go on.
        let runs = matches!(self.phase(), ContainerPhase::Running | ContainerPhase::Stopping);
        let is_killed = self.stop.as_ref().is_some_and(Stop::is_killing);
        if !runs || is_killed || self.record.exit.is_some() {
            return self.wrong_phase(call, "starting an exec", "running");
        }
        if self.record.paused == Paused::Yes {
            return self.wrong_phase(call, "starting an exec", "running, and not paused");
        }
        if self.execs.live.len() >= EXECS_MAX {
            let what = format!("execs that run in container {}", self.record.id);
            return Outcome::Deny { call, error: Error::ResourceExhausted { what, limit: EXECS_MAX as u64 } };
        }
        let mut draft = self.draft(now);
        let program = spec.process.command.first().cloned().unwrap_or_default();
        draft.exec_fact(&id, What::Commanded { command: "exec".to_owned(), detail: program });
        let snapshot = Arc::new(ExecSnapshot {
            id: id.clone(),
            container: self.record.id.clone(),
            spec: ExecSpec::clone(&spec),
            phase: ExecPhase::Starting,
            pid: None,
            created_at: now.wall,
            exit: None,
        });
        let live =
            Live { snapshot, caller: Some(call), start: Start::Certain, queries: 0, query: Query::None };
        draft.execs().live.insert(id.clone(), live);
        draft.ask(Ask::Exec { id, spec });
        draft.or_refuse(vec![Effect::Confirm { calls: vec![call] }])
    }

    /// The shim has started an exec, or could not.
    pub(super) fn exec_started(&self, id: &ExecId, result: Result<u32>, now: Now) -> Outcome<Self> {
        let Some(caller) = self.execs.live.get(id).map(|exec| exec.caller) else {
            return Outcome::Ignore { call: None, why: "the exec has ended" };
        };
        let calls: Vec<CallId> = caller.into_iter().collect();
        let mut draft = self.draft(now);
        match result {
            Ok(pid) => {
                draft.exec_fact(id, What::ExecStarted { pid });
                draft.change_exec(id, |exec| {
                    exec.caller = None;
                    let snapshot = Arc::make_mut(&mut exec.snapshot);
                    snapshot.phase = ExecPhase::Running;
                    snapshot.pid = Some(pid);
                });
                draft.answer(calls, Ok(Answer::Exec(id.clone())));
            }
            Err(error) if is_definite(&error) => {
                let exit = Exit::start_error(error.to_string(), now.wall);
                draft.change_exec(id, |exec| exec.caller = None);
                draft.answer(calls, Err(error));
                draft.end_exec(id, exit);
            }
            Err(error) => {
                // It may run or not: it is ended, and its true end is awaited.
                draft.change_exec(id, |exec| {
                    exec.caller = None;
                    exec.start = Start::Doubtful;
                });
                draft.answer(calls, Err(error));
                draft.ask(Ask::Signal {
                    exec: Some(id.clone()),
                    signal: Signal::KILL,
                    scope: SignalScope::Process,
                    cause: "the start was not answered",
                });
                draft.patrol();
            }
        }
        draft.go_on()
    }

    /// An exec ended. The first report counts.
    pub(super) fn exec_exit_seen(&self, call: CallId, id: &ExecId, exit: Exit, now: Now) -> Outcome<Self> {
        if self.standing == Standing::Proposed {
            return self.still_pending(call);
        }
        let mut draft = self.draft(now);
        if self.execs.live.contains_key(id) {
            draft.effect(Effect::Receipt { call });
            draft.end_exec(id, exit);
            return draft.go_on();
        }
        if self.execs.ended.contains(id) {
            return match self.durability {
                Durability::Behind => self.still_pending(call),
                Durability::Written => Outcome::Ignore { call: Some(call), why: "duplicate" },
            };
        }
        if self.execs.is_searched() {
            // Nobody has started it here, and it has no terminal fact: it gets one.
            draft.effect(Effect::Receipt { call });
            draft.exec_fact(id, What::ExecExited { exit });
            draft.execs().remember(id.clone());
            return draft.go_on();
        }
        // Whether it has one, the journal knows; the report is repeated meanwhile.
        draft.search_journal();
        draft.answer(vec![call], Ok(Answer::Receipt(mainstay_messages::router::ExitReceipt::Pending)));
        draft.in_memory()
    }

    pub(super) fn journal_searched(&self, result: Result<ExecLore>, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        let Ok(lore) = result else {
            let execs = draft.execs();
            execs.failed_searches += 1;
            let given_up = execs.failed_searches >= SEARCHES_MAX;
            execs.lore = if given_up { Lore::Known } else { Lore::Unknown };
            if self.ended().is_some() || self.removal.is_some() {
                draft.patrol();
            }
            draft.effect(Effect::Again(Input::Dismantle));
            return draft.in_memory();
        };
        let container = self.record.id.clone();
        let execs = draft.execs();
        execs.lore = Lore::Known;
        execs.start_lore = lore.start;
        lore.ended.into_iter().for_each(|id| execs.remember(id));
        for (id, created_at, pid) in lore.open {
            if execs.ended.contains(&id) || execs.live.contains_key(&id) {
                continue;
            }
            let (container, spec) = (container.clone(), ExecSpec::default());
            let phase = if pid.is_some() { ExecPhase::Running } else { ExecPhase::Starting };
            let snapshot =
                ExecSnapshot { id: id.clone(), container, spec, phase, pid, created_at, exit: None };
            let start = if pid.is_some() { Start::Certain } else { Start::Doubtful };
            let snapshot = Arc::new(snapshot);
            execs.live.insert(id, Live { snapshot, caller: None, start, queries: 0, query: Query::None });
        }
        if draft.next.has_orphans() {
            draft.patrol();
        }
        draft.effect(Effect::Again(Input::Dismantle));
        draft.in_memory()
    }

    /// Asks about execs whose end should have been reported.
    pub(super) fn look_after_orphans(&self, now: Now) -> Outcome<Self> {
        let mut draft = self.draft(now);
        draft.execs().patrol = Patrol::Off;
        let ended = self.ended().is_some();
        if ended || self.removal.is_some() {
            draft.search_journal();
        }
        let orphans: Vec<ExecId> = self
            .execs
            .live
            .values()
            .filter(|exec| exec.is_orphan(ended))
            .map(|exec| exec.snapshot.id.clone())
            .collect();
        for id in orphans {
            draft.patrol();
            if self.execs.live[&id].query == Query::UnderWay {
                continue;
            }
            draft.change_exec(&id, |exec| {
                exec.queries += 1;
                exec.query = Query::UnderWay;
            });
            draft.ask(Ask::Query { exec: Some(id) });
        }
        draft.effect(Effect::Again(Input::Dismantle));
        draft.in_memory()
    }

    pub(super) fn exec_queried(&self, id: &ExecId, result: Result<TaskKnowledge>, now: Now) -> Outcome<Self> {
        let Some(exec) = self.execs.live.get(id) else {
            return Outcome::Ignore { call: None, why: "the exec has ended" };
        };
        let exit = match result {
            Ok(TaskKnowledge::Known(task)) => match task.status {
                TaskStatus::Exited(exit) => Some(exit),
                TaskStatus::Created | TaskStatus::Running | TaskStatus::Paused => None,
            },
            Ok(TaskKnowledge::NotKnown) => Some(Exit::unknown(UnknownReason::NotKnownToShim, now.wall)),
            Ok(TaskKnowledge::ShimGone) => Some(Exit::unknown(UnknownReason::ShimDied, now.wall)),
            Err(_) => None,
        };
        let given_up = exec.queries >= EXEC_QUERIES_MAX && self.ended().is_some();
        let exit = exit.or_else(|| given_up.then(|| Exit::unknown(UnknownReason::NotKnownToShim, now.wall)));
        let mut draft = self.draft(now);
        match exit {
            Some(exit) => draft.end_exec(id, exit),
            None => draft.change_exec(id, |exec| exec.query = Query::None),
        }
        draft.go_on()
    }

    pub(super) fn kill_exec(&self, call: CallId, id: &ExecId, signal: Signal) -> Outcome<Self> {
        if self.execs.ended.contains(id) {
            return Outcome::Ignore { call: Some(call), why: "the exec has ended" };
        }
        match self.refuse_exec_unless_live(call, id, "sending a signal") {
            Some(refusal) => refusal,
            None => forward(call, Forward::Signal { exec: Some(id.clone()), signal }),
        }
    }

    pub(super) fn refuse_exec_unless_live(
        &self,
        call: CallId,
        id: &ExecId,
        operation: &str,
    ) -> Option<Outcome<Self>> {
        if self.execs.live.contains_key(id) {
            return None;
        }
        let error = match self.execs.ended.contains(id) {
            true => Error::WrongPhase {
                kind: Kind::Exec,
                id: id.to_string(),
                phase: ExecPhase::Exited.to_string(),
                operation: operation.to_owned(),
                needed: ExecPhase::Running.to_string(),
            },
            false => Error::not_found(Kind::Exec, id),
        };
        Some(Outcome::Deny { call, error })
    }

    fn has_orphans(&self) -> bool {
        let ended = self.ended().is_some();
        self.execs.live.values().any(|exec| exec.is_orphan(ended))
    }

    #[cfg(test)]
    pub(super) fn exec_numbers(&self) -> (usize, usize, usize) {
        (self.execs.live.len(), self.execs.shown.len(), self.execs.ended.len())
    }
}

impl Live {
    /// Whether its end should have been reported by now.
    fn is_orphan(&self, container_ended: bool) -> bool {
        (container_ended || self.start == Start::Doubtful) && self.caller.is_none()
    }
}

impl Draft {
    fn execs(&mut self) -> &mut Execs {
        Arc::make_mut(&mut self.next.execs)
    }

    fn change_exec(&mut self, id: &ExecId, change: impl FnOnce(&mut Live)) {
        if let Some(exec) = self.execs().live.get_mut(id) {
            change(exec);
        }
    }

    /// The one terminal fact of an exec.
    fn end_exec(&mut self, id: &ExecId, exit: Exit) {
        let Some(mut exec) = self.execs().live.remove(id) else { return };
        let answer = match never_ran(&exit) {
            true => Err(Error::StartFailed { reason: format!("exec {id} {exit}") }),
            false => Ok(Answer::Exec(id.clone())),
        };
        self.answer(exec.caller.take().into_iter().collect(), answer);
        self.exec_fact(id, What::ExecExited { exit: exit.clone() });
        let snapshot = Arc::make_mut(&mut exec.snapshot);
        snapshot.phase = ExecPhase::Exited;
        snapshot.exit = Some(exit);
        let execs = self.execs();
        execs.shown.push_back(exec.snapshot);
        if execs.shown.len() > EXEC_HISTORY_MAX {
            execs.shown.pop_front();
        }
        execs.remember(id.clone());
        if self.next.removal.is_some() {
            self.effect(Effect::Again(Input::Dismantle));
        }
    }

    /// Sets the timer that looks after orphans.
    pub(super) fn patrol(&mut self) {
        if self.next.execs.patrol == Patrol::Off {
            self.execs().patrol = Patrol::Set;
            self.wake(EXEC_ORPHAN_MS, Wake::Orphans);
        }
    }

    pub(super) fn search_journal(&mut self) {
        if self.next.execs.lore == Lore::Unknown {
            self.execs().lore = Lore::Searching;
            self.ask(Ask::SearchJournal);
        }
    }
}
