use proptest::prelude::*;

use super::*;

fn ended(how: Ending, oom_kills: OomKills) -> Input {
    Input::Ended { how, at: Timestamp(9), oom_kills }
}

fn started() -> Life {
    let mut life = Life::new(Role::Init);
    for input in [Input::Prepared, Input::StartAsked, Input::Executed] {
        assert_eq!(life.apply(input), Ok(Outcome::Accepted));
    }
    life
}

fn exit_after(mut life: Life, input: Input) -> Exit {
    life.apply(input).expect("an end is never refused");
    life.exit().expect("it has ended").clone()
}

/// Case 7: every 137 was called OOMKilled, or every exit after some child had been killed.
#[test]
fn out_of_memory_is_said_of_an_unasked_sigkill_of_pid_1_alone() {
    let kill = Ending::Signaled { signal: 9 };
    let risen = OomKills::Risen;
    let oom = |life, how, kills| exit_after(life, ended(how, kills)).oom;
    assert_eq!(oom(started(), kill, risen), OomVerdict::Killed);
    assert_eq!(oom(started(), kill, OomKills::Same), OomVerdict::NotKilled);
    assert_eq!(oom(started(), Ending::Exited { code: 0 }, risen), OomVerdict::NotKilled);
    assert_eq!(oom(started(), Ending::Exited { code: 137 }, risen), OomVerdict::NotKilled);
    assert_eq!(oom(started(), Ending::Signaled { signal: 15 }, risen), OomVerdict::NotKilled);
    let mut asked = started();
    asked.apply(Input::KillAsked).expect("never refused");
    assert_eq!(oom(asked, kill, risen), OomVerdict::NotKilled);
    let mut exec = Life::new(Role::Exec);
    exec.apply(Input::StartAsked).expect("created");
    assert_eq!(oom(exec, kill, risen), OomVerdict::NotKilled);
}

/// Case 8: a failed start showed code 0 or no end at all.
#[test]
fn a_failed_start_is_an_exit_with_its_reason() {
    let mut life = Life::new(Role::Init);
    life.apply(Input::Prepared).expect("preparing");
    life.apply(Input::StartAsked).expect("created");
    life.apply(Input::Failed { reason: "no such file".into() }).expect("starting");
    let exit = exit_after(life, ended(Ending::Exited { code: 1 }, OomKills::Same));
    assert_eq!((exit.code(), exit.reason()), (128, "StartError"));
}

#[test]
fn a_process_starts_once() {
    let mut life = Life::new(Role::Init);
    assert_eq!(life.apply(Input::StartAsked), Err(Refusal::NotReady));
    let mut life = started();
    assert_eq!(life.apply(Input::StartAsked), Err(Refusal::AlreadyStarted));
    life.apply(ended(Ending::Exited { code: 3 }, OomKills::Same)).expect("never refused");
    assert_eq!(life.apply(Input::StartAsked), Err(Refusal::HasExited));
}

fn input() -> impl Strategy<Value = Input> {
    let ending = prop_oneof![
        any::<u8>().prop_map(|code| Ending::Exited { code }),
        (1u8..65).prop_map(|signal| Ending::Signaled { signal }),
        Just(Ending::NeverBegan),
    ];
    prop_oneof![
        Just(Input::Prepared),
        Just(Input::StartAsked),
        Just(Input::Executed),
        Just(Input::Failed { reason: "x".into() }),
        Just(Input::KillAsked),
        (ending, any::<u64>()).prop_map(|(how, at)| Input::Ended {
            how,
            at: Timestamp(at),
            oom_kills: OomKills::Risen
        }),
    ]
}

proptest! {
    /// Whatever order the world brings things in: one exit, and it stays.
    #[test]
    fn a_process_has_one_exit(inputs in proptest::collection::vec(input(), 0..30)) {
        for role in [Role::Init, Role::Exec] {
            let mut life = Life::new(role);
            let mut exit: Option<Exit> = None;
            for input in inputs.clone() {
                let ends = matches!(input, Input::Ended { .. });
                let outcome = life.apply(input);
                if let Some(exit) = &exit {
                    prop_assert_eq!(life.exit(), Some(exit));
                } else {
                    prop_assert_eq!(life.exit().is_some(), ends);
                    prop_assert!(!ends || outcome == Ok(Outcome::Accepted));
                    exit = life.exit().cloned();
                }
            }
        }
    }
}
