//! The stories of one plugin. That nothing is lost between several is in `tests/gap.rs`.

use super::*;

const ALLOWANCE: Allowance = Allowance { parallel: 1, queue_max: 2, strikes_max: 2 };

fn pod(name: &str) -> Object {
    Object::Pod(name.parse().expect("an id"))
}

fn run(name: &str, ticket: u64) -> Call {
    Call { event: Event::RUN_POD_SANDBOX, object: pod(name), ticket: Some(Ticket(ticket)) }
}

fn stop(name: &str) -> Call {
    Call { event: Event::STOP_POD_SANDBOX, object: pod(name), ticket: None }
}

/// One that has been told of these.
fn live(objects: &[Object]) -> State {
    let mut state = State::new(EventMask::ALL, ALLOWANCE);
    assert_eq!(state.apply(Input::Joined), [Effect::Gather(BTreeSet::new())]);
    let objects: BTreeSet<_> = objects.iter().cloned().collect();
    assert_eq!(state.apply(Input::Gathered(objects.clone())), [Effect::Synchronise(objects)]);
    assert_eq!(state.apply(Input::Synchronised(Ending::Answered)), [Effect::Live]);
    state
}

fn silent() -> Ending {
    Ending::Silent("late".to_owned())
}

fn missed(why: &str) -> Verdict {
    Verdict::Missed(why.to_owned())
}

#[test]
fn calls_have_their_turn_one_after_the_other() {
    let mut state = live(&[]);
    assert_eq!(state.apply(Input::Call(CallId(1), run("a", 1))), [Effect::Send(CallId(1))]);
    assert_eq!(state.apply(Input::Call(CallId(2), run("b", 2))), []);
    let next = state.apply(Input::Ended(CallId(1), Ending::Answered));
    assert_eq!(next, [Effect::Answer(CallId(1), Verdict::Answered), Effect::Send(CallId(2))]);
}

#[test]
fn what_it_does_not_know_it_is_not_told_of() {
    let mut state = live(&[pod("known")]);
    assert_eq!(
        state.apply(Input::Call(CallId(1), stop("other"))),
        [Effect::Answer(CallId(1), Verdict::Unknown)]
    );
    assert_eq!(state.apply(Input::Call(CallId(2), stop("known"))), [Effect::Send(CallId(2))]);
}

/// nri#114: one late answer cost a plugin its life.
#[test]
fn a_missed_answer_is_a_strike_and_a_right_one_forgives_it() {
    let mut state = live(&[]);
    state.apply(Input::Call(CallId(1), run("a", 1)));
    let effects = state.apply(Input::Ended(CallId(1), silent()));
    let expected = [
        Effect::Answer(CallId(1), missed("late")),
        Effect::Struck(1, "late".to_owned()),
        Effect::Gather([Ticket(1)].into()),
    ];
    assert_eq!(effects, expected);
    // Meanwhile a request waits for it.
    assert_eq!(state.apply(Input::Call(CallId(2), run("b", 2))), []);
    state.apply(Input::Gathered([pod("a")].into()));
    let effects = state.apply(Input::Synchronised(Ending::Answered));
    assert_eq!(effects, [Effect::Live, Effect::Send(CallId(2))]);
    assert_eq!(state.strikes(), 1, "to be told is not to answer");
    state.apply(Input::Ended(CallId(2), Ending::Answered));
    assert_eq!(state.strikes(), 0);
}

#[test]
fn as_many_strikes_as_are_allowed_are_the_end_and_nobody_waits_for_it_any_more() {
    let mut state = live(&[]);
    state.apply(Input::Call(CallId(1), run("a", 1)));
    state.apply(Input::Ended(CallId(1), silent()));
    state.apply(Input::Call(CallId(2), run("b", 2)));
    state.apply(Input::Gathered(BTreeSet::new()));
    let effects = state.apply(Input::Synchronised(silent()));
    let reason = "it failed 2 times in a row, lastly: late";
    let expected = [
        Effect::Struck(2, "late".to_owned()),
        Effect::Answer(CallId(2), missed(&format!("it is gone: {reason}"))),
        Effect::Close(reason.to_owned()),
    ];
    assert_eq!(effects, expected);
    assert!(state.is_given_up());
    let effects = state.apply(Input::Call(CallId(3), run("c", 3)));
    assert_eq!(effects, [Effect::Answer(CallId(3), missed(&format!("it is gone: {reason}")))]);
}

#[test]
fn a_full_queue_and_a_long_wait_are_missed_and_no_fault_of_its_own() {
    let mut state = live(&[]);
    for number in 1..=3 {
        state.apply(Input::Call(CallId(number), run(&format!("p{number}"), number)));
    }
    let effects = state.apply(Input::Call(CallId(4), run("p4", 4)));
    assert_eq!(effects, [Effect::Answer(CallId(4), missed("2 calls wait for it already"))]);
    assert_eq!(*state.phase(), Phase::Settling, "it is told of all again once it is free");
    let effects = state.apply(Input::WaitedLong(CallId(2)));
    assert_eq!(effects, [Effect::Answer(CallId(2), missed("it is still being told of what there is"))]);
    let effects = state.apply(Input::Ended(CallId(1), Ending::Answered));
    let passed = [Ticket(1), Ticket(2), Ticket(4)].into();
    assert_eq!(effects, [Effect::Answer(CallId(1), Verdict::Answered), Effect::Gather(passed)]);
    assert_eq!(state.strikes(), 0);
}

/// A plugin that asked for few events is not waited for at the others, whatever it is doing.
#[test]
fn what_it_did_not_ask_for_waits_for_nobody() {
    let mut state = State::new(EventMask::NONE.with(Event::STOP_POD_SANDBOX), ALLOWANCE);
    state.apply(Input::Joined);
    let effects = state.apply(Input::Call(CallId(1), run("a", 1)));
    assert_eq!(effects, [Effect::Answer(CallId(1), Verdict::NotAsked)]);
    state.apply(Input::Gathered(BTreeSet::new()));
    state.apply(Input::Synchronised(Ending::Answered));
    assert_eq!(state.apply(Input::Call(CallId(2), stop("a"))), [Effect::Send(CallId(2))]);
}
