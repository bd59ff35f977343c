use mainstay_messages::error::PullFault;
use mainstay_messages::image::PullSpec;

use super::*;
use crate::ports::ImageDocument;

const A: CallerId = CallerId(1);
const B: CallerId = CallerId(2);

fn resolved(digest: &str) -> Arc<ResolvedImage> {
    let document = ImageDocument { digest: digest.into(), media_type: String::new(), bytes: 0 };
    Arc::new(ResolvedImage {
        spec: PullSpec::new("r/x:1".parse().expect("a name")),
        name: "r/x:1".into(),
        repository: "r/x".into(),
        target: document.clone(),
        manifest: document,
        platform: "linux/amd64".into(),
    })
}

fn key(digest: &str) -> PullKey {
    PullKey { digest: digest.into(), platform: "linux/amd64".into() }
}

fn asking(callers: &[CallerId]) -> State {
    let mut pulls = State::new(2);
    for caller in callers {
        assert_eq!(pulls.apply(Input::Ask(*caller)), [Effect::Resolve(*caller)]);
    }
    pulls
}

#[test]
fn the_second_caller_joins_once_its_own_question_is_answered() {
    let mut pulls = asking(&[A, B]);
    let first = pulls.apply(Input::Resolved(A, Ok(resolved("d"))));
    assert_eq!(first, [Effect::Start(key("d"), 1), Effect::Pass(key("d"), A, resolved("d"), Join::First)]);
    let second = pulls.apply(Input::Resolved(B, Ok(resolved("d"))));
    assert_eq!(second, [Effect::Pass(key("d"), B, resolved("d"), Join::Running)]);
}

/// containerd#4937: no caller gets an image that its own credentials could not fetch, whether it is being pulled or not.
#[test]
fn one_who_may_not_have_it_gets_its_own_error_and_nothing_else() {
    let mut pulls = asking(&[A, B]);
    pulls.apply(Input::Resolved(A, Ok(resolved("d"))));
    let denied = Error::pull("r/x:1", PullFault::Denied, "401");
    assert_eq!(pulls.apply(Input::Resolved(B, Err(denied.clone()))), [Effect::Refuse(B, denied)]);
    assert_eq!(pulls.apply(Input::Leave(B)), []);
}

#[test]
fn one_who_leaves_while_it_asks_is_asked_for_no_longer() {
    let mut pulls = asking(&[A]);
    assert_eq!(pulls.apply(Input::Leave(A)), [Effect::DropResolve(A)]);
    assert_eq!(pulls.apply(Input::Resolved(A, Ok(resolved("d")))), []);
}

#[test]
fn a_pull_ends_only_when_all_who_were_passed_on_have_reached_it() {
    let mut pulls = asking(&[A, B]);
    pulls.apply(Input::Resolved(A, Ok(resolved("d"))));
    pulls.apply(Input::Resolved(B, Ok(resolved("d"))));
    assert_eq!(pulls.farewell(&key("d"), 1, 1), Farewell::SomebodyComes);
    assert_eq!(pulls.farewell(&key("d"), 1, 2), Farewell::Struck);
    assert_eq!(pulls.apply(Input::Leave(A)), [], "there is nobody to tell");
}

/// A pull whose actor panicked must not stand in the way of the next one, nor its late news take that one down.
#[test]
fn a_lost_pull_makes_room_and_is_lost_once() {
    let mut pulls = asking(&[A, B]);
    pulls.apply(Input::Resolved(A, Ok(resolved("d"))));
    assert_eq!(pulls.apply(Input::Lost(key("d"), 1)), [Effect::Forget(key("d"))]);
    let again = pulls.apply(Input::Resolved(B, Ok(resolved("d"))));
    assert_eq!(again[0], Effect::Start(key("d"), 2));
    assert_eq!(pulls.apply(Input::Lost(key("d"), 1)), []);
    assert_eq!(pulls.farewell(&key("d"), 1, 7), Farewell::Struck);
    assert_eq!(pulls.farewell(&key("d"), 2, 1), Farewell::Struck);
}

#[test]
fn the_number_of_pulls_is_bounded_and_joining_is_not() {
    let mut pulls = asking(&[A, B, CallerId(3), CallerId(4)]);
    pulls.apply(Input::Resolved(A, Ok(resolved("d"))));
    pulls.apply(Input::Resolved(B, Ok(resolved("e"))));
    let refused = pulls.apply(Input::Resolved(CallerId(3), Ok(resolved("f"))));
    assert!(matches!(&refused[..], [Effect::Refuse(CallerId(3), Error::ResourceExhausted { limit: 2, .. })]));
    assert_eq!(pulls.apply(Input::Resolved(CallerId(4), Ok(resolved("d")))).len(), 1);
}
