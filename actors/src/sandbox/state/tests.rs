//! Any order, repetition, delay and failure of inputs, with the invariants checked after every one of them.

use std::collections::{BTreeSet, VecDeque};

use mainstay_messages::ProcessIdentity;
use mainstay_messages::event::What;
use mainstay_messages::record::ShimRecord;
use mainstay_messages::sandbox::SandboxChange;
use mainstay_messages::spec::{Resources, SandboxSpec};
use mainstay_messages::supervisor::{Adopted, Consult, Launched, TaskState, TaskStatus};
use proptest::prelude::*;

use super::*;
use crate::machine::rig::{Rig, Step, Store, at};

struct Model {
    rig: Rig<State>,
    now_ms: u64,
    asked: VecDeque<Ask>,
    wakes: Vec<(u64, Input)>,
    open_calls: BTreeSet<CallId>,
    last_call: u64,
    retired: bool,
}

#[derive(Clone, Debug)]
enum Move {
    Run,
    RunOther,
    Admit(u8),
    ContainerGone(u8),
    Stop(Option<u64>),
    Remove,
    Measure,
    Update(u64),
    ShimDied,
    Answer(usize, bool),
    Time(u64),
    Break,
    Heal,
}

fn move_strategy() -> impl Strategy<Value = Move> {
    let index = any::<usize>;
    prop_oneof![
        1 => Just(Move::Run),
        1 => Just(Move::RunOther),
        3 => (0_u8..4).prop_map(Move::Admit),
        2 => (0_u8..4).prop_map(Move::ContainerGone),
        1 => prop_oneof![Just(None), Just(Some(0)), Just(Some(1_000))].prop_map(Move::Stop),
        1 => Just(Move::Remove),
        1 => Just(Move::Measure),
        2 => (5_u64..8).prop_map(Move::Update),
        1 => Just(Move::ShimDied),
        6 => (index(), prop::bool::weighted(0.7)).prop_map(|(index, works)| Move::Answer(index, works)),
        3 => prop_oneof![Just(100), Just(1_000), Just(40_000)].prop_map(Move::Time),
        1 => Just(Move::Break),
        1 => Just(Move::Heal),
    ]
}

fn recovered_strategy() -> impl Strategy<Value = (SandboxRecord, u8, HowDown)> {
    let phases = prop_oneof![
        Just(SandboxPhase::Starting),
        Just(SandboxPhase::Ready),
        Just(SandboxPhase::NotReady),
        Just(SandboxPhase::Stopping),
        Just(SandboxPhase::Stopped),
        Just(SandboxPhase::Removing),
        Just(SandboxPhase::Unknown),
    ];
    let how = prop_oneof![Just(HowDown::Restarted), Just(HowDown::Rebooted), Just(HowDown::ActorLost)];
    (phases, any::<bool>(), 0_u8..4, how).prop_map(|(phase, shim_known, containers, how)| {
        let mut record = record();
        record.phase = phase;
        record.shim = shim_known.then(shim);
        (record, containers, how)
    })
}

fn record() -> SandboxRecord {
    SandboxRecord::intent("s1".parse().expect("an id"), spec(), Timestamp(1))
}

fn spec() -> SandboxSpec {
    SandboxSpec::new("pod".parse().expect("a name"))
}

fn shim() -> ShimRecord {
    let process = ProcessIdentity { pid: 9, start_ticks: 1, boot_id: "b".to_owned() };
    ShimRecord { process, socket: "/s".into(), protocol: 1, ids: None }
}

fn container(number: u8) -> ContainerId {
    format!("c{number}").parse().expect("an id")
}

impl Model {
    fn new(state: State) -> Self {
        Self {
            rig: Rig::new(state),
            now_ms: 0,
            asked: VecDeque::new(),
            wakes: Vec::new(),
            open_calls: BTreeSet::new(),
            last_call: 0,
            retired: false,
        }
    }

    fn call(&mut self) -> CallId {
        self.last_call += 1;
        self.open_calls.insert(CallId(self.last_call));
        CallId(self.last_call)
    }

    fn answered(&mut self, calls: Vec<CallId>) {
        for call in calls {
            assert!(self.open_calls.remove(&call), "{call:?} was answered twice, or never asked");
        }
    }

    fn feed(&mut self, input: Input) {
        self.rig.queue.push_back(input);
        while let Some(step) = self.rig.step(at(self.now_ms)) {
            match step {
                Step::Denied(call) => self.answered(vec![call]),
                Step::Ignored(call) => self.answered(call.into_iter().collect()),
                Step::Did(effects, wrote) => {
                    effects.into_iter().for_each(|effect| self.perform(effect, wrote))
                }
            }
        }
    }

    fn perform(&mut self, effect: Effect, wrote: Store) {
        match effect {
            Effect::Answer { calls, .. } => self.answered(calls),
            Effect::Ask(ask) => self.asked.push_back(ask),
            Effect::Measure { call } => self.answered(vec![call]),
            Effect::Tell(_) | Effect::Note(_) => {}
            Effect::Wake { after_ms, input } => self.wakes.push((self.now_ms + after_ms, input)),
            Effect::Again(input) => self.rig.queue.push_back(input),
            Effect::LaunchUnwritten => {
                self.rig.queue.push_back(Input::Launched(Err(Error::unavailable("the store", "no space"))));
            }
            Effect::Retire { runners, content, .. } => {
                self.answered(runners);
                self.answered(content);
                if wrote == Store::Works {
                    assert!(!self.retired, "it retires once");
                    self.retired = true;
                }
            }
            Effect::Abandon { calls } => {
                self.answered(calls);
                self.retired = true;
            }
        }
    }

    fn play(&mut self, chosen: Move) {
        if self.retired {
            return;
        }
        match chosen {
            Move::Run => {
                let call = self.call();
                self.feed(Input::Run { call, spec: Box::new(spec()) });
            }
            Move::RunOther => {
                // A sandbox begins with its own spec.
                if self.rig.machine.standing() != Standing::Proposed {
                    let mut other = spec();
                    other.hostname = Some("other".to_owned());
                    let call = self.call();
                    self.feed(Input::Run { call, spec: Box::new(other) });
                }
            }
            Move::Admit(number) => {
                let call = self.call();
                self.feed(Input::Admit { call, container: container(number) });
            }
            Move::ContainerGone(number) => self.feed(Input::ContainerGone(container(number))),
            Move::Stop(grace_ms) => {
                let call = self.call();
                self.feed(Input::Stop { call, grace_ms });
            }
            Move::Remove => {
                let call = self.call();
                self.feed(Input::Remove { call });
            }
            Move::Measure => {
                let call = self.call();
                self.feed(Input::Measure { call });
            }
            Move::Update(pids) => {
                let call = self.call();
                let limits = Resources { pids: Some(pids), ..Resources::default() };
                let change = Box::new(SandboxChange { limits, ..SandboxChange::default() });
                self.feed(Input::Update { call, change });
            }
            Move::ShimDied => self.feed(Input::ShimDied("killed".to_owned())),
            Move::Answer(index, works) => {
                if !self.asked.is_empty() {
                    let ask = self.asked.remove(index % self.asked.len()).expect("it is there");
                    self.answer(&ask, works);
                }
            }
            Move::Time(ms) => {
                self.now_ms += ms;
                self.fire();
            }
            Move::Break => self.rig.store = Store::Fails,
            Move::Heal => self.heal(),
        }
    }

    fn heal(&mut self) {
        self.rig.heal();
        self.feed(Input::Proceed);
    }

    fn answer(&mut self, ask: &Ask, works: bool) {
        let done = if works { Ok(()) } else { Err(Error::unavailable("the shim", "busy")) };
        let input = match ask {
            Ask::Launch => Input::Launched(done.map(|()| Launched { shim: shim(), network: None })),
            Ask::Adopt => Input::Adopted(done.map(|()| match self.last_call % 2 {
                0 => Adopted::Gone,
                _ => Adopted::Running(vec![TaskState {
                    container: container(0),
                    process: None,
                    status: TaskStatus::Running,
                    adjustment: None,
                }]),
            })),
            Ask::StopShim => Input::ShimStopped(done),
            Ask::StopContainers { .. } => Input::ContainersStopped,
            Ask::RemoveContainers => Input::ContainersRemoved(done),
            Ask::Update(..) => Input::Updated(done),
        };
        self.feed(input);
    }

    fn fire(&mut self) {
        let due = self.wakes.iter().enumerate().filter(|(_, (at, _))| *at <= self.now_ms);
        if let Some((first, _)) = due.min_by_key(|(_, (at, _))| *at) {
            let (_, input) = self.wakes.remove(first);
            self.feed(input);
        }
    }

    fn settle(&mut self) {
        self.heal();
        for _ in 0..1_000 {
            if self.retired || (self.asked.is_empty() && self.wakes.is_empty()) {
                return;
            }
            if let Some(ask) = self.asked.pop_front() {
                self.answer(&ask, true);
            } else if let Some(next) = self.wakes.iter().map(|(at, _)| *at).min() {
                self.now_ms = self.now_ms.max(next);
                self.fire();
            }
            check(self);
        }
        panic!("it never comes to rest: {:?}", self.rig.machine);
    }
}

fn invariant_waiting_makers_are_being_served(model: &Model) {
    let state = &model.rig.machine;
    assert!(state.runners.is_empty() || matches!(state.work, Work::Launch | Work::Undo));
}

fn invariant_waiting_stoppers_are_being_served(model: &Model) {
    let state = &model.rig.machine;
    let idle = state.work == Work::None && state.durability == Durability::Written;
    assert!((state.stoppers.is_empty() && state.removers.is_empty()) || !idle, "{state:?}");
}

fn invariant_the_record_goes_last(model: &Model) {
    if model.rig.machine.standing == Standing::Deleted {
        assert!(model.rig.machine.containers.is_empty(), "it left containers behind");
    }
}

fn invariant_work_goes_on(model: &Model) {
    let state = &model.rig.machine;
    if state.work != Work::None && !model.retired {
        let again =
            model.wakes.iter().any(|(_, input)| matches!(input, Input::WorkAgain(n) if *n == state.failures));
        match state.pace {
            Pace::UnderWay => assert!(!model.asked.is_empty(), "nobody works: {state:?}"),
            Pace::Waiting => assert!(again, "nobody will work: {state:?}"),
        }
    }
}

fn check(model: &Model) {
    invariant_waiting_makers_are_being_served(model);
    invariant_waiting_stoppers_are_being_served(model);
    invariant_the_record_goes_last(model);
    invariant_work_goes_on(model);
}

fn play(mut model: Model, moves: Vec<Move>) {
    for chosen in moves {
        model.play(chosen);
        check(&model);
    }
    model.settle();
    assert!(model.open_calls.is_empty(), "nobody answered {:?}", model.open_calls);
    if !model.retired {
        model.play(Move::Remove);
        model.settle();
    }
    assert!(model.open_calls.is_empty(), "nobody answered {:?}", model.open_calls);
    assert!(model.retired, "it cannot be removed: {:?}", model.rig.machine);
    let removed = model.rig.facts.iter().filter(|fact| matches!(fact.what, What::SandboxRemoved)).count();
    assert!(removed == 1 || model.rig.facts.is_empty(), "{removed} removals");
}

proptest! {
    #[test]
    fn a_new_sandbox_keeps_its_invariants(moves in prop::collection::vec(move_strategy(), 0..50)) {
        let mut model = Model::new(State::proposed(record()));
        model.play(Move::Run);
        play(model, moves);
    }

    #[test]
    fn a_found_sandbox_keeps_its_invariants(
        (record, containers, how) in recovered_strategy(),
        moves in prop::collection::vec(move_strategy(), 0..40),
    ) {
        let mut model = Model::new(State::recovered(record, (0..containers).map(container).collect(), how));
        model.feed(Input::Recover);
        check(&model);
        play(model, moves);
    }
}

/// A container is admitted only while the sandbox is Ready and stays.
#[test]
fn only_a_ready_sandbox_admits() {
    let mut model = Model::new(State::proposed(record()));
    model.play(Move::Run);
    model.play(Move::Admit(0));
    assert!(model.rig.machine.containers().is_empty(), "it is being started");
    model.play(Move::Answer(0, true));
    model.play(Move::Admit(1));
    assert_eq!(model.rig.machine.containers().len(), 1);
    model.play(Move::Stop(None));
    model.play(Move::Admit(2));
    assert_eq!(model.rig.machine.containers().len(), 1, "it is being stopped");
}

/// A pod was removed while its shim was being started, and the daemon was killed. The next one was killed while it undid the
/// start, and the one after that took the undoing for a pod whose shim had died: the shim ran on, and the name was taken.
#[test]
fn an_undoing_is_gone_on_with_by_the_next_daemon() {
    let mut record = record();
    record.shim = Some(shim());
    let mut model = Model::new(State::recovered(record, BTreeSet::new(), HowDown::Restarted));
    model.feed(Input::Recover);
    assert_eq!(model.asked, [Ask::StopShim]);
    let record = model.rig.machine.record().clone();
    assert_eq!(record.phase, SandboxPhase::NotReady);
    let mut model = Model::new(State::recovered(record, BTreeSet::new(), HowDown::Restarted));
    model.feed(Input::Recover);
    assert_eq!(model.asked, [Ask::StopShim]);
}

/// The same change again joins the first, another one is refused until that is over, and one that nobody answered is taken
/// back: the limits that are recorded are the ones in force.
#[test]
fn a_change_that_nobody_answered_is_taken_back() {
    let mut model = Model::new(State::proposed(record()));
    model.play(Move::Run);
    model.play(Move::Answer(0, true));
    model.play(Move::Update(7));
    model.play(Move::Update(7));
    model.play(Move::Update(6));
    assert_eq!(model.asked.len(), 1, "one change at a time");
    model.play(Move::Answer(0, true));
    assert_eq!(model.rig.machine.record().limits().pids, Some(7));
    assert!(model.open_calls.is_empty(), "all three are answered");
    model.play(Move::Update(5));
    model.play(Move::Answer(0, false));
    assert_eq!(model.rig.machine.record().limits().pids, Some(7));
    model.play(Move::Time(1_000));
    let Some(Ask::Update(wanted, Consult::Nobody)) = model.asked.front() else { panic!("{:?}", model.asked) };
    assert_eq!(wanted.0.pids, Some(7));
    model.settle();
    assert!(model.rig.machine.activity().is_none());
}
