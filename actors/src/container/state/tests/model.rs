//! A container among a shim, a store, a sandbox and callers that do whatever they like.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use mainstay_messages::container::IfRunning;
use mainstay_messages::event::What;
use mainstay_messages::process::{OomVerdict, UnknownReason};
use mainstay_messages::record::{ContainerPhase, ContainerRecord, Paused};
use mainstay_messages::spec::{ContainerSpec, ExecSpec, Resources};
use mainstay_messages::supervisor::{Consult, TaskKnowledge, TaskMade, TaskState, TaskStatus};
use mainstay_messages::{Error, ExecId, Exit, ExitStatus, ProcessIdentity, Signal, Timestamp};
use proptest::prelude::*;

use super::super::{Ask, Effect, ExecLore, Input, Knowledge, Standing, State, Wake};
use crate::call::CallId;
use crate::machine::Now;
use crate::machine::rig::{Rig, Step, Store, at};

pub(super) struct Model {
    pub(super) rig: Rig<State>,
    pub(super) now_ms: u64,
    pub(super) asked: Vec<Ask>,
    pub(super) wakes: Vec<(u64, Wake)>,
    pub(super) open_calls: BTreeSet<CallId>,
    pub(super) first_exit: Option<Exit>,
    pub(super) began_with_an_exit: bool,
    last_call: u64,
    last_exec: u8,
    /// Those that the shim was asked to start.
    execs: Vec<ExecId>,
    retired: bool,
    /// Signals that were asked for, by cause.
    pub(super) signals: BTreeMap<&'static str, u32>,
}

/// What may happen next.
#[derive(Clone, Debug)]
pub(super) enum Move {
    Create,
    Start,
    Stop {
        grace_ms: Option<u64>,
    },
    Kill,
    Remove {
        force: bool,
    },
    Exec,
    KillExec(prop::sample::Index),
    Measure,
    Freeze(bool),
    Update,
    Exit {
        code: u8,
    },
    ExecExit(prop::sample::Index),
    /// One of the questions under way is answered so.
    Answer(prop::sample::Index, Reply),
    /// The clock goes on, and one of the timers that are due fires.
    Time(u64),
    Store(StoreMove),
    Adopt(u8),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum StoreMove {
    Break,
    Heal,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Good,
    Definite,
    Doubtful,
    Odd,
}

pub(super) fn move_strategy() -> impl Strategy<Value = Move> {
    let index = any::<prop::sample::Index>;
    let reply = prop_oneof![
        6 => Just(Reply::Good),
        1 => Just(Reply::Definite),
        1 => Just(Reply::Doubtful),
        1 => Just(Reply::Odd),
    ];
    prop_oneof![
        1 => Just(Move::Create),
        2 => Just(Move::Start),
        2 => prop_oneof![Just(None), Just(Some(0)), Just(Some(50)), Just(Some(5_000))]
            .prop_map(|grace_ms| Move::Stop { grace_ms }),
        1 => Just(Move::Kill),
        1 => any::<bool>().prop_map(|force| Move::Remove { force }),
        2 => Just(Move::Exec),
        1 => index().prop_map(Move::KillExec),
        1 => Just(Move::Measure),
        2 => any::<bool>().prop_map(Move::Freeze),
        1 => Just(Move::Update),
        2 => any::<u8>().prop_map(|code| Move::Exit { code }),
        2 => index().prop_map(Move::ExecExit),
        8 => (index(), reply).prop_map(|(index, reply)| Move::Answer(index, reply)),
        4 => prop_oneof![Just(1), Just(100), Just(3_000), Just(40_000)].prop_map(Move::Time),
        1 => prop_oneof![Just(StoreMove::Break), Just(StoreMove::Heal)].prop_map(Move::Store),
        1 => any::<u8>().prop_map(Move::Adopt),
    ]
}

pub(super) fn recovered_strategy() -> impl Strategy<Value = ContainerRecord> {
    let phases = prop_oneof![
        Just(ContainerPhase::Creating),
        Just(ContainerPhase::Created),
        Just(ContainerPhase::Starting),
        Just(ContainerPhase::Running),
        Just(ContainerPhase::Stopping),
        Just(ContainerPhase::Exited),
        Just(ContainerPhase::Removing),
    ];
    (phases, any::<bool>()).prop_map(|(phase, ended)| {
        let mut record = record();
        record.phase = phase;
        let made = phase != ContainerPhase::Creating;
        let ran =
            matches!(phase, ContainerPhase::Running | ContainerPhase::Stopping | ContainerPhase::Exited);
        record.process = made.then(process);
        record.started_at = ran.then_some(Timestamp(5));
        let removing = phase == ContainerPhase::Removing && ended;
        record.exit = (removing || phase == ContainerPhase::Exited).then(|| exit(3, 6));
        record.stop_by =
            (phase == ContainerPhase::Stopping && ended).then_some(Timestamp(1_000_000_500_000_000));
        record
    })
}

pub(super) fn record() -> ContainerRecord {
    let id = "c1".parse().expect("an id");
    let sandbox = "s1".parse().expect("an id");
    ContainerRecord::intent(id, sandbox, spec(), PathBuf::from("/log"), Timestamp(1))
}

pub(super) fn spec() -> ContainerSpec {
    ContainerSpec::new("web".parse().expect("a name"), ["true"])
}

pub(super) fn process() -> ProcessIdentity {
    ProcessIdentity { pid: 42, start_ticks: 7, boot_id: "b".to_owned() }
}

pub(super) fn exit(code: u8, at: u64) -> Exit {
    Exit { status: ExitStatus::Exited { code }, at: Timestamp(at), oom: OomVerdict::NotKilled }
}

pub(super) fn task(status: TaskStatus) -> TaskState {
    TaskState { container: "c1".parse().expect("an id"), process: Some(process()), status, adjustment: None }
}

fn definite() -> Error {
    Error::StartFailed { reason: "no such file".to_owned() }
}

fn doubtful() -> Error {
    Error::DeadlineExceeded { what: "the shim".to_owned(), after_ms: 1 }
}

impl Model {
    fn new(state: State) -> Self {
        let exit = state.record().exit.clone();
        Self {
            rig: Rig::new(state),
            now_ms: 0,
            asked: Vec::new(),
            wakes: Vec::new(),
            open_calls: BTreeSet::new(),
            began_with_an_exit: exit.is_some(),
            first_exit: exit,
            last_call: 0,
            last_exec: 0,
            execs: Vec::new(),
            retired: false,
            signals: BTreeMap::new(),
        }
    }

    pub(super) fn proposed() -> Self {
        Self::new(State::proposed(record()))
    }

    pub(super) fn recovered(record: ContainerRecord) -> Self {
        Self::new(State::recovered(record))
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.rig.machine.standing() == Standing::Deleted
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.retired
    }

    pub(super) fn deletions_under_way(&self) -> usize {
        self.asked.iter().filter(|ask| matches!(ask, Ask::Delete)).count()
    }

    fn now(&self) -> Now {
        at(self.now_ms)
    }

    pub(super) fn call(&mut self) -> CallId {
        self.last_call += 1;
        let call = CallId(self.last_call);
        self.open_calls.insert(call);
        call
    }

    pub(super) fn feed(&mut self, input: Input) {
        self.rig.queue.push_back(input);
        while let Some(step) = self.rig.step(self.now()) {
            match step {
                Step::Denied(call) => self.answered(vec![call]),
                Step::Ignored(call) => self.answered(call.into_iter().collect()),
                Step::Did(effects, wrote) => {
                    effects.into_iter().for_each(|effect| self.perform(effect, wrote))
                }
            }
            let latched = self.rig.machine.record().exit.clone();
            self.first_exit = self.first_exit.take().or(latched);
        }
    }

    fn answered(&mut self, calls: Vec<CallId>) {
        for call in calls {
            assert!(self.open_calls.remove(&call), "{call:?} was answered twice, or never asked");
        }
    }

    fn perform(&mut self, effect: Effect, wrote: Store) {
        match effect {
            Effect::Answer { calls, .. } | Effect::Confirm { calls } => self.answered(calls),
            Effect::Receipt { call } | Effect::Forward { call, .. } => self.answered(vec![call]),
            Effect::Ask(Ask::Signal { cause, .. }) => *self.signals.entry(cause).or_default() += 1,
            Effect::Ask(ask) => {
                if let Ask::Exec { id, .. } = &ask {
                    self.execs.push(id.clone());
                }
                self.asked.push(ask);
            }
            Effect::Wake { after_ms, wake } => self.wakes.push((self.now_ms + after_ms, wake)),
            Effect::Note(_) => {}
            Effect::Again(input) => self.rig.queue.push_back(input),
            Effect::Retire { calls, failed } => {
                self.answered(calls);
                failed.into_iter().for_each(|(makers, _)| self.answered(makers));
                if wrote == Store::Works {
                    assert!(!self.retired, "it retires once");
                    self.retired = true;
                }
            }
            Effect::Abandon { calls, .. } => {
                self.answered(calls);
                assert!(self.rig.machine.standing() != Standing::Recorded, "a record is not abandoned");
                self.retired = true;
            }
        }
    }

    pub(super) fn play(&mut self, chosen: Move) {
        if self.retired {
            return;
        }
        match chosen {
            Move::Create => {
                let call = self.call();
                self.feed(Input::Create { call, spec: Box::new(spec()) });
            }
            Move::Start => {
                let call = self.call();
                self.feed(Input::Start { call });
            }
            Move::Stop { grace_ms } => {
                let call = self.call();
                self.feed(Input::Stop { call, signal: None, grace_ms });
            }
            Move::Kill => {
                let call = self.call();
                self.feed(Input::Kill { call, signal: Signal(10) });
            }
            Move::Remove { force } => {
                let call = self.call();
                let running = if force { IfRunning::Kill } else { IfRunning::Refuse };
                self.feed(Input::Remove { call, running });
            }
            Move::Exec => {
                self.last_exec += 1;
                let id: ExecId = format!("e{}", self.last_exec).parse().expect("an id");
                let call = self.call();
                self.feed(Input::Exec { call, id, spec: Box::new(ExecSpec::new(["true"])) });
            }
            Move::KillExec(index) => {
                if !self.execs.is_empty() {
                    let id = index.get(&self.execs).clone();
                    let call = self.call();
                    self.feed(Input::KillExec { call, id, signal: Signal::TERM });
                }
            }
            Move::Measure => {
                let call = self.call();
                self.feed(Input::Measure { call });
            }
            Move::Freeze(freeze) => {
                let call = self.call();
                let to = if freeze { Paused::Yes } else { Paused::No };
                self.feed(Input::Freeze { call, to });
            }
            Move::Update => {
                let call = self.call();
                let change = Resources { pids: Some(100), ..Resources::default() };
                self.feed(Input::Update { call, change: Box::new(change), consult: Consult::Plugins });
            }
            Move::Exit { code } => {
                let call = self.call();
                let exit = exit(code, self.now_ms);
                self.feed(Input::Exit { call, exec: None, exit });
            }
            Move::ExecExit(index) => self.exec_exit(index),
            Move::Answer(index, reply) => {
                if !self.asked.is_empty() {
                    let ask = self.asked.remove(index.index(self.asked.len()));
                    self.answer(ask, reply);
                }
            }
            Move::Time(ms) => {
                self.now_ms += ms;
                self.fire();
            }
            Move::Store(StoreMove::Break) => self.rig.store = Store::Fails,
            Move::Store(StoreMove::Heal) => self.heal(),
            Move::Adopt(kind) => self.adopt(kind),
        }
    }

    /// The exit of an exec that was asked for here, or of one of an earlier actor.
    fn exec_exit(&mut self, index: prop::sample::Index) {
        let mut known = self.execs.clone();
        known.push("e-of-old".parse().expect("an id"));
        let id = index.get(&known).clone();
        let call = self.call();
        self.feed(Input::Exit { call, exec: Some(id), exit: exit(0, self.now_ms) });
    }

    fn adopt(&mut self, kind: u8) {
        let knowledge = match kind % 7 {
            0 => Knowledge::Task(task(TaskStatus::Created)),
            1 => Knowledge::Task(task(TaskStatus::Running)),
            2 => Knowledge::Task(task(TaskStatus::Exited(exit(9, self.now_ms)))),
            3 => Knowledge::NotKnown(UnknownReason::LostWhileDown),
            4 => Knowledge::ShimGone(UnknownReason::ShimDied),
            5 => Knowledge::Task(task(TaskStatus::Paused)),
            _ => Knowledge::Unreachable("nobody answers".to_owned()),
        };
        self.feed(Input::Adopt(knowledge));
    }

    fn heal(&mut self) {
        self.rig.heal();
        // What the store's recovery put into the queue is decided now.
        self.feed(Input::Dismantle);
    }

    fn answer(&mut self, ask: Ask, reply: Reply) {
        let done = match reply {
            Reply::Good | Reply::Odd => Ok(()),
            Reply::Definite => Err(definite()),
            Reply::Doubtful => Err(doubtful()),
        };
        let input = match ask {
            Ask::Admit => Input::Admitted(done),
            Ask::Create => Input::TaskCreated(done.map(|()| TaskMade {
                process: process(),
                adjustment: None,
                user: None,
            })),
            Ask::Start => Input::TaskStarted(done.map(|()| Timestamp(self.now_ms))),
            Ask::Delete => Input::TaskDeleted(done),
            Ask::Exec { id, .. } => Input::ExecStarted(id, done.map(|()| 77)),
            Ask::Query { exec } => {
                let knowledge = match reply {
                    Reply::Good => Ok(TaskKnowledge::NotKnown),
                    Reply::Definite => Ok(TaskKnowledge::Known(task(TaskStatus::Running))),
                    Reply::Odd => Ok(TaskKnowledge::ShimGone),
                    Reply::Doubtful => Err(doubtful()),
                };
                Input::Queried(exec, knowledge)
            }
            Ask::Look => Input::Looked(match reply {
                Reply::Good => Ok(TaskKnowledge::Known(task(TaskStatus::Running))),
                Reply::Definite => Ok(TaskKnowledge::Known(task(TaskStatus::Paused))),
                Reply::Odd => Ok(TaskKnowledge::NotKnown),
                Reply::Doubtful => Err(doubtful()),
            }),
            Ask::Freeze(to) => Input::Frozen(to, done),
            Ask::Update(limits, _) => Input::Updated(limits, done.map(|()| None)),
            Ask::SearchJournal => Input::JournalSearched(done.map(|()| self.search())),
            Ask::Signal { .. } => return,
        };
        self.feed(input);
    }

    /// What the journal holds, as the actor's search would find it.
    fn search(&self) -> ExecLore {
        let mut open: BTreeMap<ExecId, (Timestamp, Option<u32>)> = BTreeMap::new();
        let mut lore = ExecLore::default();
        for fact in &self.rig.facts {
            let Some(id) = fact.subject.exec.clone() else { continue };
            match &fact.what {
                What::ExecExited { .. } => {
                    open.remove(&id);
                    lore.ended.push(id);
                }
                What::ExecStarted { pid } => drop(open.insert(id, (fact.at, Some(*pid)))),
                _ => drop(open.insert(id, (fact.at, None))),
            }
        }
        lore.open = open.into_iter().map(|(id, (at, pid))| (id, at, pid)).collect();
        lore
    }

    /// Fires the first timer that is due.
    fn fire(&mut self) {
        let due = self.wakes.iter().enumerate().filter(|(_, (at, _))| *at <= self.now_ms);
        if let Some((first, _)) = due.min_by_key(|(_, (at, _))| *at) {
            let (_, wake) = self.wakes.remove(first);
            self.feed(Input::Woke(wake));
        }
    }

    /// From now on everybody answers, kills kill, and the store works, until nothing is left to do.
    pub(super) fn settle(&mut self, check: impl Fn(&Self)) {
        self.heal();
        self.adopt(1);
        check(self);
        for _ in 0..2_000 {
            if self.retired || (self.asked.is_empty() && self.wakes.is_empty()) {
                return;
            }
            if let Some(ask) = self.asked.pop() {
                self.answer(ask, Reply::Good);
            } else if let Some(next) = self.wakes.iter().map(|(at, _)| *at).min() {
                self.now_ms = self.now_ms.max(next);
                self.fire();
            }
            check(self);
        }
        panic!("it never comes to rest: {:?}", self.rig.machine);
    }

    pub(super) fn every_exec_that_was_started_has_ended(&self) {
        let of = |wanted: fn(&What) -> bool| -> BTreeSet<_> {
            self.rig
                .facts
                .iter()
                .filter(|fact| wanted(&fact.what))
                .map(|fact| fact.subject.exec.clone())
                .collect()
        };
        let started = of(|what| matches!(what, What::ExecStarted { .. }));
        let ended = of(|what| matches!(what, What::ExecExited { .. }));
        assert!(started.is_subset(&ended), "started {started:?}, ended {ended:?}");
    }
}
