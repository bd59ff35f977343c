//! Any order, repetition, delay and failure of inputs, with the invariants checked after every one of them.

mod model;
mod stories;

use mainstay_messages::event::What;
use mainstay_messages::record::{ContainerPhase, Paused};
use proptest::prelude::*;

use self::model::{Model, Move, move_strategy, recovered_strategy};
use super::{EXEC_HISTORY_MAX, EXECS_MAX};

fn invariant_an_exit_never_changes(model: &Model) {
    if let Some(first) = &model.first_exit {
        assert_eq!(model.rig.machine.record().exit.as_ref(), Some(first));
    }
}

fn invariant_exit_and_phase_agree(model: &Model) {
    let record = model.rig.machine.record();
    let ended = matches!(record.phase, ContainerPhase::Exited | ContainerPhase::Removing);
    assert!(record.exit.is_none() || ended, "{:?} with an exit", record.phase);
    assert!(record.exit.is_some() || record.phase != ContainerPhase::Exited, "Exited without an exit");
}

fn invariant_one_terminal_fact(model: &Model) {
    let exits =
        model.rig.all_facts().filter(|fact| matches!(fact.what, What::ContainerExited { .. })).count();
    let latched = usize::from(model.rig.machine.record().exit.is_some() && !model.began_with_an_exit);
    assert!(
        exits == latched || (model.is_deleted() && exits <= 1),
        "{exits} terminal facts, {latched} exits"
    );
}

fn invariant_nothing_starts_after_its_end(model: &Model) {
    let mut ended = false;
    for fact in model.rig.all_facts() {
        match fact.what {
            What::ContainerExited { .. } => ended = true,
            What::ContainerStarted { .. } => assert!(!ended, "started after its end"),
            _ => {}
        }
    }
}

fn invariant_one_terminal_fact_for_each_exec(model: &Model) {
    let mut ended = std::collections::BTreeSet::new();
    for fact in model.rig.all_facts() {
        if matches!(fact.what, What::ExecExited { .. }) {
            assert!(ended.insert(fact.subject.exec.clone()), "two ends of {:?}", fact.subject.exec);
        }
    }
}

fn invariant_a_stop_has_a_next_step(model: &Model) {
    if let Some(timer) = model.rig.machine.stop_timer() {
        let set = model.wakes.iter().any(|(_, wake)| *wake == timer);
        assert!(set, "the stop waits for {timer:?}, and no such timer is set");
    }
}

fn invariant_one_deletion_at_a_time(model: &Model) {
    assert!(model.deletions_under_way() <= 1);
}

fn invariant_execs_are_bounded(model: &Model) {
    let (live, shown, _) = model.rig.machine.exec_numbers();
    assert!(live <= EXECS_MAX && shown <= EXEC_HISTORY_MAX);
}

fn invariant_what_has_ended_does_not_stand_still(model: &Model) {
    let record = model.rig.machine.record();
    assert!(record.exit.is_none() || record.paused == Paused::No, "paused with an exit");
}

fn check(model: &Model) {
    invariant_what_has_ended_does_not_stand_still(model);
    invariant_an_exit_never_changes(model);
    invariant_exit_and_phase_agree(model);
    invariant_one_terminal_fact(model);
    invariant_nothing_starts_after_its_end(model);
    invariant_one_terminal_fact_for_each_exec(model);
    invariant_a_stop_has_a_next_step(model);
    invariant_one_deletion_at_a_time(model);
    invariant_execs_are_bounded(model);
}

/// After any beginning: when everybody answers again and the store works, every caller is answered, and the
/// container can be removed, with one terminal fact if it ever ran.
fn play(mut model: Model, moves: Vec<Move>) {
    for chosen in moves {
        model.play(chosen);
        check(&model);
    }
    model.settle(check);
    assert!(model.open_calls.is_empty(), "nobody answered {:?}", model.open_calls);
    if model.is_alive() {
        model.play(Move::Remove { force: true });
        model.settle(check);
    }
    assert!(model.open_calls.is_empty(), "nobody answered {:?}", model.open_calls);
    assert!(!model.is_alive(), "it cannot be removed: {:?}", model.rig.machine);
    let facts: Vec<&What> = model.rig.facts.iter().map(|fact| &fact.what).collect();
    let started = facts.iter().any(|what| matches!(what, What::ContainerStarted { .. }));
    let ended = facts.iter().filter(|what| matches!(what, What::ContainerExited { .. })).count();
    assert!(!started || ended == 1, "it was started, and has {ended} terminal facts");
    model.every_exec_that_was_started_has_ended();
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_new_container_keeps_its_invariants(moves in prop::collection::vec(move_strategy(), 0..60)) {
        let mut model = Model::proposed();
        model.play(Move::Create);
        play(model, moves);
    }

    #[test]
    fn a_found_container_keeps_its_invariants(
        record in recovered_strategy(),
        moves in prop::collection::vec(move_strategy(), 0..40),
    ) {
        play(Model::recovered(record), moves);
    }
}
