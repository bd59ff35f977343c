//! Registrations, exits, answers and losses in any order.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_messages::process::OomVerdict;
use mainstay_messages::router::TaskKey;
use mainstay_messages::supervisor::{TaskKnowledge, TaskState, TaskStatus};
use mainstay_messages::{Error, Exit, ExitStatus, Result, Timestamp};
use proptest::prelude::*;

use super::exits::{Fate, PARK_DEADLINE_MS, PARKED_MAX, TOMBSTONES_MAX, Verdict};
use super::*;

fn container(number: u8) -> ContainerId {
    format!("c{number}").parse().expect("an id")
}

fn task(number: u8) -> TaskKey {
    TaskKey { sandbox: "s".parse().expect("an id"), container: container(number), exec: None }
}

fn exit() -> Exit {
    Exit { status: ExitStatus::Exited { code: 1 }, at: Timestamp(1), oom: OomVerdict::NotKilled }
}

/// What may happen to the router.
#[derive(Clone, Debug)]
enum Move {
    Register(u8),
    Strike(u8),
    /// The supervisor reports an exit, once more unless it is settled.
    Report(u8),
    Time(u64),
    Answer(usize, u8),
    Write(usize, bool),
}

fn move_strategy() -> impl Strategy<Value = Move> {
    let index = any::<usize>;
    prop_oneof![
        2 => (0_u8..6).prop_map(Move::Register),
        2 => (0_u8..6).prop_map(Move::Strike),
        4 => (0_u8..6).prop_map(Move::Report),
        2 => prop_oneof![Just(1_000), Just(PARK_DEADLINE_MS), Just(4_000_000)].prop_map(Move::Time),
        3 => (index(), 0_u8..4).prop_map(|(index, kind)| Move::Answer(index, kind)),
        3 => (index(), any::<bool>()).prop_map(|(index, works)| Move::Write(index, works)),
    ]
}

/// The router's state, with what came of each exit.
#[derive(Default)]
struct Model {
    registry: Registry,
    exits: Exits,
    now_ms: u64,
    asking: Vec<TaskKey>,
    writing: Vec<TaskKey>,
    /// Exits that were reported and are not settled: the supervisor still has them.
    reported: BTreeSet<u8>,
    ends: BTreeMap<u8, Vec<&'static str>>,
}

impl Model {
    fn child(number: u8) -> Child {
        Child::Container(container(number))
    }

    fn is_registered(&self, number: u8) -> bool {
        self.registry.life(&Self::child(number)).is_some()
    }

    fn end(&mut self, number: u8, how: &'static str) {
        self.reported.remove(&number);
        self.ends.entry(number).or_default().push(how);
    }

    fn report(&mut self, number: u8) {
        self.reported.insert(number);
        if self.is_registered(number) {
            return self.end(number, "delivered");
        }
        match self.exits.take(task(number), exit(), self.now_ms) {
            Fate::Parked(_) => {}
            Fate::NoRoom { ask } => self.asking.extend(ask),
            Fate::Absorbed(..) => self.end(number, "absorbed"),
        }
    }

    fn play(&mut self, chosen: Move) {
        match chosen {
            Move::Register(number) => {
                if !self.is_registered(number) && !self.exits.is_buried(&container(number)) {
                    let name = NameKey::Container("s".parse().expect("an id"), "n".parse().expect("a name"));
                    self.registry.register(Self::child(number), Some(name), "s".parse().ok());
                    for (task, _) in self.exits.claim(&container(number)) {
                        assert_eq!(task.container, container(number));
                        self.end(number, "delivered");
                    }
                }
            }
            Move::Strike(number) => {
                if self.is_registered(number) {
                    self.registry.strike(&Self::child(number));
                    self.exits.bury(container(number), self.now_ms);
                }
            }
            Move::Report(number) => self.report(number),
            Move::Time(ms) => {
                self.now_ms += ms;
                let due = self.exits.due(self.now_ms);
                self.asking.extend(due);
            }
            Move::Answer(index, kind) if !self.asking.is_empty() => {
                let task = self.asking.remove(index % self.asking.len());
                let answer: Result<TaskKnowledge> = match kind {
                    0 => Ok(TaskKnowledge::NotKnown),
                    1 => Ok(TaskKnowledge::ShimGone),
                    2 => Ok(TaskKnowledge::Known(TaskState {
                        container: task.container.clone(),
                        process: None,
                        status: TaskStatus::Exited(exit()),
                        adjustment: None,
                    })),
                    _ => Err(Error::internal("the shim", "no answer")),
                };
                if let Verdict::Unclaimed(_) = self.exits.answered(&task, &answer, self.now_ms) {
                    self.writing.push(task);
                }
            }
            Move::Write(index, works) if !self.writing.is_empty() => {
                let task = self.writing.remove(index % self.writing.len());
                let result = if works { Ok(()) } else { Err(Error::unavailable("the store", "full")) };
                self.exits.written(&task, &result, self.now_ms);
            }
            Move::Answer(..) | Move::Write(..) => {}
        }
    }
}

fn invariant_parked_exits_are_bounded(model: &Model) {
    assert!(model.exits.numbers().0 <= PARKED_MAX);
}

fn invariant_tombstones_are_bounded(model: &Model) {
    assert!(model.exits.numbers().1 <= TOMBSTONES_MAX);
}

fn invariant_a_parked_exit_is_nothing_else(model: &Model) {
    for task in model.exits.parked_keys() {
        assert!(!model.exits.is_unclaimed(task) && !model.exits.is_buried(&task.container));
        assert!(model.registry.life(&Child::Container(task.container.clone())).is_none());
    }
}

fn invariant_names_and_children_agree(model: &Model) {
    for (name, child) in &model.registry.names {
        let entry = model.registry.children.get(child).expect("a name belongs to a child");
        assert_eq!(entry.name.as_ref(), Some(name));
    }
    let named = model.registry.children.values().filter(|entry| entry.name.is_some()).count();
    assert_eq!(named, model.registry.names.len());
}

/// Nothing is lost: an exit that is not settled is parked here, or the supervisor reports it again.
fn invariant_an_unsettled_exit_is_still_somewhere(model: &Model) {
    for task in model.exits.parked_keys() {
        let number: u8 = task.container.as_str()[1..].parse().expect("a number");
        assert!(model.reported.contains(&number), "the supervisor was told to forget {task:?}");
    }
}

proptest! {
    #[test]
    fn every_exit_comes_to_one_end(moves in prop::collection::vec(move_strategy(), 0..80)) {
        let mut model = Model::default();
        for chosen in moves {
            model.play(chosen);
            invariant_parked_exits_are_bounded(&model);
            invariant_tombstones_are_bounded(&model);
            invariant_a_parked_exit_is_nothing_else(&model);
            invariant_names_and_children_agree(&model);
            invariant_an_unsettled_exit_is_still_somewhere(&model);
        }
        // From now on the supervisor says that it knows none of them, and reports on until all are settled.
        for _ in 0..20 {
            model.play(Move::Time(PARK_DEADLINE_MS));
            while !model.asking.is_empty() {
                model.play(Move::Answer(0, 0));
            }
            while !model.writing.is_empty() {
                model.play(Move::Write(0, true));
            }
            for number in model.reported.clone() {
                model.report(number);
            }
        }
        prop_assert!(model.reported.is_empty(), "never settled: {:?}", model.reported);
        prop_assert_eq!(model.exits.numbers().0, 0);
    }
}

#[test]
fn a_full_parking_place_asks_about_the_oldest_and_loses_nothing() {
    let mut exits = Exits::default();
    let key = |number: usize| TaskKey { exec: Some(format!("e{number}").parse().expect("an id")), ..task(0) };
    for number in 0..PARKED_MAX {
        assert!(matches!(exits.take(key(number), exit(), number as u64), Fate::Parked(_)));
    }
    let Fate::NoRoom { ask: Some(oldest) } = exits.take(key(PARKED_MAX), exit(), 9_999) else {
        panic!("there is no room")
    };
    assert_eq!(oldest, key(0));
    assert!(matches!(exits.answered(&oldest, &Ok(TaskKnowledge::NotKnown), 9_999), Verdict::Unclaimed(_)));
    exits.written(&oldest, &Ok(()), 9_999);
    assert!(matches!(exits.take(key(PARKED_MAX), exit(), 9_999), Fate::Parked(_)), "now there is");
}

#[test]
fn tombstones_are_forgotten_by_number_and_by_age() {
    let mut exits = Exits::default();
    for number in 0..=TOMBSTONES_MAX {
        exits.bury(format!("c{number}").parse().expect("an id"), 0);
    }
    assert_eq!(exits.numbers().1, TOMBSTONES_MAX);
    assert!(!exits.is_buried(&container(0)) && exits.is_buried(&container(1)));
    assert!(matches!(exits.take(task(1), exit(), TOMBSTONE_AGE_MS), Fate::Absorbed(..)));
    assert!(matches!(exits.take(task(1), exit(), TOMBSTONE_AGE_MS + 1), Fate::Parked(_)));
}

#[test]
fn a_stale_loss_restarts_nobody() {
    let mut registry = Registry::default();
    let child = Child::Container(container(0));
    assert_eq!(registry.lost(&child, 0, 0), Loss::Stale);
    registry.register(child.clone(), None, None);
    assert_eq!(registry.lost(&child, 0, 0), Loss::Restart { count: 1 });
    assert_eq!(registry.lost(&child, 0, 0), Loss::Stale, "it is being started again already");
    assert_eq!(registry.runs_again(&child), Some(1));
    assert_eq!(registry.lost(&child, 0, 0), Loss::Stale, "that was its predecessor");
    assert_eq!(registry.lost(&child, 1, 0), Loss::Restart { count: 2 });
}

#[test]
fn restarts_are_limited_in_time() {
    let mut registry = Registry::default();
    let child = Child::Container(container(0));
    registry.register(child.clone(), None, None);
    for generation in 0..5 {
        assert!(matches!(registry.lost(&child, generation, 10), Loss::Restart { .. }));
        registry.runs_again(&child);
    }
    assert_eq!(registry.lost(&child, 5, 20), Loss::Rest { for_ms: ACTOR_RESTART_WINDOW_MS });
    assert_eq!(registry.rested(&child, 20 + ACTOR_RESTART_WINDOW_MS), Some(6));
    assert_eq!(registry.runs_again(&child), Some(6));
    let later = 30 + 2 * ACTOR_RESTART_WINDOW_MS;
    assert!(matches!(registry.lost(&child, 6, later), Loss::Restart { .. }), "old restarts do not count");
}
