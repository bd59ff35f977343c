//! Faults that a simulation found, one by one.

use mainstay_messages::container::IfRunning;
use mainstay_messages::error::Error;
use mainstay_messages::event::What;
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::{ContainerPhase, ContainerRecord, Paused};
use mainstay_messages::spec::{Resources, UNLIMITED};
use mainstay_messages::supervisor::{Consult, TaskKnowledge, TaskStatus};
use mainstay_messages::{Exit, Timestamp};

use super::super::{Ask, Input, Knowledge, STOP_ANSWER_AFTER_KILL_MS, Standing};
use super::model::{Model, Move, exit, process, record, task};
use crate::machine::rig::{Store, at};
use crate::machine::{Machine, Outcome};

fn found(phase: ContainerPhase) -> ContainerRecord {
    let mut record = record();
    record.phase = phase;
    record.process = Some(process());
    record.started_at = Some(Timestamp(5));
    record
}

/// One that runs, under an actor that has started it.
fn running() -> Model {
    let mut model = Model::recovered(found(ContainerPhase::Running));
    model.feed(Input::Adopt(Knowledge::Task(task(TaskStatus::Running))));
    model.asked.clear();
    model
}

fn unanswered() -> Error {
    Error::unavailable("the shim", "the connection broke")
}

fn ends(model: &Model) -> Vec<Exit> {
    let end = |what: &What| match what {
        What::ContainerExited { exit } => Some(exit.clone()),
        _ => None,
    };
    model.rig.facts.iter().filter_map(|fact| end(&fact.what)).collect()
}

/// After a reboot a container is shown as Unknown before anybody is asked. When nobody answered then, that was taken for no
/// news, and every command waited for ever.
#[test]
fn after_a_reboot_commands_do_not_wait_for_a_shim_that_does_not_answer() {
    let mut model = Model::recovered(found(ContainerPhase::Unknown));
    let call = model.call();
    model.feed(Input::Start { call });
    assert!(model.open_calls.contains(&call), "it waits for what the shim says");
    model.feed(Input::Adopt(Knowledge::Unreachable("nobody answers".to_owned())));
    assert!(!model.open_calls.contains(&call), "it is answered");
}

/// A shim died while it made a container. The end that nobody saw came before the failure of the creation, and a process that
/// never was had an end in the journal.
#[test]
fn an_end_that_nobody_saw_waits_for_the_answer_to_the_creation() {
    let mut model = Model::proposed();
    model.play(Move::Create);
    model.feed(Input::Admitted(Ok(())));
    let call = model.call();
    let unseen = Exit::unknown(UnknownReason::ShimDied, Timestamp(7));
    model.feed(Input::Exit { call, exec: None, exit: unseen });
    assert_eq!(model.rig.machine.record().exit, None);
    model.feed(Input::TaskCreated(Err(unanswered())));
    model.feed(Input::TaskDeleted(Ok(())));
    assert_eq!((ends(&model), model.is_alive()), (Vec::new(), false));
}

/// A daemon was killed while it made a container, and the shim was gone. What is reported of all containers of such a shim was
/// taken for the end of this one as well, which had never been made.
#[test]
fn what_was_never_made_has_no_end() {
    let unseen = || Exit::unknown(UnknownReason::LostWhileDown, Timestamp(7));
    let mut told = Model::recovered(record());
    told.feed(Input::Adopt(Knowledge::Task(task(TaskStatus::Exited(unseen())))));
    let mut reported = Model::recovered(record());
    let call = reported.call();
    reported.feed(Input::Exit { call, exec: None, exit: unseen() });
    for mut model in [told, reported] {
        model.settle(|_| ());
        assert_eq!((ends(&model), model.is_alive()), (Vec::new(), false));
    }
}

/// A daemon was killed while it removed a container whose process had ended, or had not yet. The next one deleted the task
/// before it knew how, and the end was lost with it.
#[test]
fn a_removal_asks_for_the_end_before_it_deletes() {
    let end = exit(9, 70);
    let said = Knowledge::Task(task(TaskStatus::Exited(end.clone())));
    for (said, later) in [
        (said, None),
        (Knowledge::Task(task(TaskStatus::Running)), Some(task(TaskStatus::Exited(end.clone())))),
        (Knowledge::Unreachable("nobody answers".to_owned()), Some(task(TaskStatus::Exited(end.clone())))),
    ] {
        let mut model = Model::recovered(found(ContainerPhase::Removing));
        model.feed(Input::Adopt(said));
        model.feed(Input::JournalSearched(Ok(Default::default())));
        if let Some(task) = later {
            assert!(!model.asked.iter().any(|ask| matches!(ask, Ask::Delete)), "{:?}", model.asked);
            assert!(model.asked.iter().any(|ask| matches!(ask, Ask::Query { exec: None })));
            model.feed(Input::Queried(None, Ok(TaskKnowledge::Known(task))));
        }
        assert!(model.asked.iter().any(|ask| matches!(ask, Ask::Delete)), "{:?}", model.asked);
        assert_eq!(model.rig.machine.record().phase, ContainerPhase::Removing);
        model.feed(Input::TaskDeleted(Ok(())));
        assert_eq!((ends(&model), model.is_alive()), (vec![end.clone()], false));
    }
}

/// A container was removed while the store did not take it. Its end was reported once more and was said to be settled, so its
/// shim forgot it; then the daemon was killed, and with it the only one who knew.
#[test]
fn an_end_is_settled_only_when_the_removal_is_durable() {
    let mut model = Model::recovered(found(ContainerPhase::Running));
    model.feed(Input::Adopt(Knowledge::Task(task(TaskStatus::Running))));
    model.rig.store = Store::Fails;
    let end = exit(9, 70);
    let call = model.call();
    model.feed(Input::Remove { call, running: IfRunning::Kill });
    let call = model.call();
    model.feed(Input::Exit { call, exec: None, exit: end.clone() });
    model.feed(Input::JournalSearched(Ok(Default::default())));
    model.feed(Input::TaskDeleted(Ok(())));
    assert_eq!(model.rig.machine.standing(), Standing::Deleted);
    let report = |model: &mut Model| {
        let call = model.call();
        let input = Input::Exit { call, exec: None, exit: end.clone() };
        matches!(model.rig.machine.decide(input, at(100)), Outcome::Ignore { .. })
    };
    assert!(!report(&mut model), "nothing of it is durable");
    model.rig.heal();
    assert!(report(&mut model), "now it is absorbed");
}

/// A container was in an uninterruptible sleep. Whoever stopped it heard that it could not be killed; whoever removed it heard
/// nothing.
#[test]
fn a_removal_of_what_cannot_be_killed_is_answered() {
    let mut model = running();
    let first = model.call();
    model.feed(Input::Remove { call: first, running: IfRunning::Kill });
    model.play(Move::Time(5_000));
    let second = model.call();
    model.feed(Input::Remove { call: second, running: IfRunning::Kill });
    for _ in 0..20 {
        model.play(Move::Time(STOP_ANSWER_AFTER_KILL_MS / 10));
    }
    assert!(model.open_calls.is_empty(), "{:?} wait", model.open_calls);
    model.settle(|_| ());
    assert_eq!(model.rig.machine.standing(), Standing::Deleted, "the work goes on");
}

/// A container was let go on, the answer was lost, and it was shown as paused for as long as it lived. And one that was frozen
/// that way did not hear that it was to stop.
#[test]
fn after_a_lost_answer_the_shim_is_asked_whether_it_stands_still() {
    for (to, status, then) in [
        (Paused::No, TaskStatus::Running, Paused::No),
        (Paused::Yes, TaskStatus::Paused, Paused::Yes),
        (Paused::Yes, TaskStatus::Running, Paused::No),
    ] {
        let mut model = running();
        if to == Paused::No {
            let call = model.call();
            model.feed(Input::Freeze { call, to: Paused::Yes });
            model.feed(Input::Frozen(Paused::Yes, Ok(())));
        }
        let call = model.call();
        model.feed(Input::Freeze { call, to });
        model.feed(Input::Frozen(to, Err(unanswered())));
        assert!(!model.open_calls.contains(&call), "the caller is told");
        model.play(Move::Time(1_000));
        model.feed(Input::Looked(Err(unanswered())));
        model.play(Move::Time(2_000));
        model.feed(Input::Looked(Ok(TaskKnowledge::Known(task(status)))));
        assert_eq!(model.rig.machine.record().paused, then);
    }
}

/// Limits were changed and the answer was lost: those in force were not those that were shown.
#[test]
fn after_a_lost_answer_limits_are_put_back() {
    let mut model = running();
    let recorded = model.rig.machine.record().limits().clone();
    let call = model.call();
    let change = Box::new(Resources { pids: Some(100), ..Resources::default() });
    model.feed(Input::Update { call, change, consult: Consult::Plugins });
    let Some(Ask::Update(tried, Consult::Plugins)) = model.asked.pop() else { panic!("the shim is asked") };
    model.feed(Input::Updated(tried, Err(unanswered())));
    assert!(!model.open_calls.contains(&call), "the caller is told");
    for ms in [1_000, 2_000] {
        model.play(Move::Time(ms));
        let Some(Ask::Update(back, Consult::Nobody)) = model.asked.pop() else {
            panic!("limits are put back")
        };
        assert_eq!(back.clone().in_force(), recorded);
        assert_eq!(back.pids, Some(UNLIMITED), "what was not limited is not limited again");
        let result = if ms == 1_000 { Err(unanswered()) } else { Ok(None) };
        model.feed(Input::Updated(back, result));
    }
    assert_eq!(model.rig.machine.activity(), None);
    assert_eq!(model.rig.machine.record().limits(), &recorded);
}

/// Limits of a container that waited to be started were being changed when it was removed. It never ended, so nobody gave the
/// change up, and who had asked for it was never answered.
#[test]
fn a_change_of_what_is_removed_before_it_began_is_answered() {
    let created = ContainerRecord { started_at: None, ..found(ContainerPhase::Created) };
    let mut model = Model::recovered(created);
    model.feed(Input::Adopt(Knowledge::Task(task(TaskStatus::Created))));
    model.asked.clear();
    let call = model.call();
    let change = Box::new(Resources { pids: Some(100), ..Resources::default() });
    model.feed(Input::Update { call, change, consult: Consult::Plugins });
    let Some(Ask::Update(..)) = model.asked.pop() else { panic!("the shim is asked") };
    model.play(Move::Remove { force: false });
    model.settle(|_| ());
    assert!(!model.is_alive(), "it is gone");
    assert!(model.open_calls.is_empty(), "nobody answered {:?}", model.open_calls);
}

/// A plugin that has a container stopped was seen by nobody. Whoever wanted it first is remembered, whatever was asked for before
/// and after, and what has ended, or is going, is left alone.
#[test]
fn an_eviction_is_a_stop_that_is_remembered() {
    let evictions = |model: &Model| {
        let told = model.rig.facts.iter().filter(|fact| matches!(fact.what, What::ContainerEvicted { .. }));
        told.count()
    };
    let evict = |model: &mut Model, plugin: &str| {
        let call = model.call();
        model.feed(Input::Evict { call, plugin: plugin.to_owned(), reason: "no room".to_owned() });
        call
    };
    let mut model = running();
    model.play(Move::Stop { grace_ms: Some(60_000) });
    let first = evict(&mut model, "10-a");
    evict(&mut model, "20-b");
    let record = model.rig.machine.record().clone();
    assert_eq!((record.phase, evictions(&model)), (ContainerPhase::Stopping, 1));
    assert_eq!(record.evicted.expect("remembered").plugin, "10-a");
    assert!(model.open_calls.contains(&first), "it waits for the end");
    let call = model.call();
    model.feed(Input::Exit { call, exec: None, exit: exit(9, 70) });
    assert!(!model.open_calls.contains(&first), "it is answered");
    evict(&mut model, "30-c");
    assert_eq!(evictions(&model), 1);
    // One of which there is no record yet is stopped as well, and the record comes with what is made of it.
    let mut proposed = Model::proposed();
    proposed.play(Move::Create);
    evict(&mut proposed, "10-a");
    assert_eq!(evictions(&proposed), 0);
}
