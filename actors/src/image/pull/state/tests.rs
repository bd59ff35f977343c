use mainstay_messages::image::{Credentials, PullSpec};
use proptest::prelude::*;

use super::*;
use crate::ports::ImageDocument;

fn wanted(name: &str, user: &str) -> Arc<ResolvedImage> {
    let mut spec = PullSpec::new(name.parse().expect("a name"));
    spec.credentials = Some(Credentials::RegistryToken(user.into()));
    Arc::new(ResolvedImage {
        spec,
        name: name.into(),
        repository: name.split(':').next().unwrap_or_default().into(),
        target: document(),
        manifest: document(),
        platform: "linux/amd64".into(),
    })
}

fn document() -> ImageDocument {
    ImageDocument { digest: "sha256:0".into(), media_type: String::new(), bytes: 0 }
}

fn id() -> ImageId {
    ImageId("sha256:1".into())
}

fn failure(fault: PullFault) -> Error {
    Error::pull("x", fault, "it failed")
}

const A: CallerId = CallerId(1);
const B: CallerId = CallerId(2);

#[test]
fn two_callers_share_a_fetch() {
    let mut pull = State::default();
    let (a, b) = (wanted("r/x:1", "me"), wanted("r/x:1", "you"));
    assert_eq!(pull.apply(Input::Join(A, a.clone())), [Effect::Fetch(1, a.clone())]);
    assert_eq!(pull.apply(Input::Join(B, b)), []);
    let ended = pull.apply(Input::Fetched(1, Ok(id())));
    let expected =
        [Effect::Record(a, Ending::Pulled), Effect::Answer(vec![A, B], Ok(id())), Effect::Leave(2)];
    assert_eq!(ended, expected);
    assert_eq!(pull.apply(Input::Farewell(Farewell::Struck)), [Effect::Stop]);
}

/// containerd#4937: the first caller left, and the others had to begin anew.
#[test]
fn a_caller_who_leaves_changes_nothing_for_the_others_and_the_last_one_cancels() {
    let mut pull = State::default();
    let a = wanted("r/x:1", "me");
    pull.apply(Input::Join(A, a.clone()));
    pull.apply(Input::Join(B, wanted("r/x:1", "you")));
    assert_eq!(pull.apply(Input::Leave(A)), []);
    let cancelled = [Effect::DropFetch, Effect::Record(a, Ending::Cancelled), Effect::Leave(2)];
    assert_eq!(pull.apply(Input::Leave(B)), cancelled);
    assert_eq!(pull.apply(Input::Fetched(1, Ok(id()))), [], "it is too late");
}

/// The token of the first caller was taken back in the middle. That is no concern of the second one.
#[test]
fn a_failure_of_ones_credentials_is_not_the_others() {
    let mut pull = State::default();
    let (a, b) = (wanted("r/x:1", "me"), wanted("r/x:1", "you"));
    pull.apply(Input::Join(A, a.clone()));
    pull.apply(Input::Join(B, b.clone()));
    let denied = failure(PullFault::Denied);
    let effects = pull.apply(Input::Fetched(1, Err(denied.clone())));
    let expected = [
        Effect::Record(a, Ending::Failed(denied.clone())),
        Effect::Answer(vec![A], Err(denied)),
        Effect::Fetch(2, b.clone()),
    ];
    assert_eq!(effects, expected);
    let wrong = failure(PullFault::Content);
    let effects = pull.apply(Input::Fetched(2, Err(wrong.clone())));
    assert_eq!(effects[1..], [Effect::Answer(vec![B], Err(wrong)), Effect::Leave(2)]);
}

/// Wrong bytes stay wrong, whoever asks for them.
#[test]
fn a_failure_of_the_image_is_everyones() {
    let mut pull = State::default();
    pull.apply(Input::Join(A, wanted("r/x:1", "me")));
    pull.apply(Input::Join(B, wanted("s/x:1", "you")));
    let wrong = failure(PullFault::Content);
    let effects = pull.apply(Input::Fetched(1, Err(wrong.clone())));
    assert_eq!(effects[1..], [Effect::Answer(vec![A, B], Err(wrong)), Effect::Leave(2)]);
}

#[test]
fn every_name_is_written_down_before_its_callers_are_answered() {
    let mut pull = State::default();
    let (a, b) = (wanted("r/x:1", "me"), wanted("r/x:2", "me"));
    pull.apply(Input::Join(A, a.clone()));
    pull.apply(Input::Join(B, b.clone()));
    let effects = pull.apply(Input::Fetched(1, Ok(id())));
    assert_eq!(effects[1..], [Effect::Answer(vec![A], Ok(id())), Effect::Name(b, id())]);
    assert_eq!(pull.apply(Input::Named(Ok(()))), [Effect::Answer(vec![B], Ok(id())), Effect::Leave(2)]);
}

#[test]
fn one_who_joins_a_pull_on_its_way_out_is_served() {
    let mut pull = State::default();
    let a = wanted("r/x:1", "me");
    pull.apply(Input::Join(A, a.clone()));
    pull.apply(Input::Leave(A));
    assert_eq!(pull.apply(Input::Farewell(Farewell::SomebodyComes)), []);
    assert_eq!(pull.apply(Input::Join(B, a.clone())), [Effect::Fetch(2, a.clone())]);
    // The other way round: the caller is here before the answer.
    let mut pull = State::default();
    pull.apply(Input::Join(A, a.clone()));
    pull.apply(Input::Leave(A));
    assert_eq!(pull.apply(Input::Join(B, a.clone())), []);
    assert_eq!(pull.apply(Input::Farewell(Farewell::SomebodyComes)), [Effect::Fetch(2, a)]);
}

/// It waited for ever for one who had come, and left, before the answer was there.
#[test]
fn one_who_joins_a_pull_on_its_way_out_and_leaves_at_once_does_not_keep_it() {
    let mut pull = State::default();
    let a = wanted("r/x:1", "me");
    for caller in [A, B] {
        pull.apply(Input::Join(caller, a.clone()));
        pull.apply(Input::Leave(caller));
    }
    assert_eq!(pull.apply(Input::Farewell(Farewell::SomebodyComes)), [Effect::Leave(2)]);
    assert_eq!(pull.apply(Input::Farewell(Farewell::Struck)), [Effect::Stop]);
}

/// A caller who waits, and what was told to it.
#[derive(Default)]
struct Ledger {
    waiting: BTreeMap<CallerId, Arc<ResolvedImage>>,
    fetching: Option<u32>,
    naming: bool,
    leaving: Option<u64>,
    stopped: bool,
    image: BTreeSet<String>,
}

impl Ledger {
    /// Takes what the pull wants, and checks the invariants on the way.
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Fetch(attempt, _) => {
                    assert_eq!(self.fetching.replace(attempt), None, "two fetches at once");
                    self.image.clear();
                }
                Effect::DropFetch => assert!(self.fetching.take().is_some() && self.waiting.is_empty()),
                Effect::Name(..) => assert!(!std::mem::replace(&mut self.naming, true)),
                Effect::Answer(callers, answer) => {
                    for caller in callers {
                        let wanted = self.waiting.remove(&caller).expect("it waited, and was not answered");
                        assert!(answer.is_err() || self.image.contains(&wanted.name), "no such name");
                    }
                }
                Effect::Record(wanted, Ending::Pulled) => drop(self.image.insert(wanted.name.clone())),
                Effect::Record(..) => {}
                Effect::Leave(joins) => assert_eq!(self.leaving.replace(joins), None),
                Effect::Stop => self.stopped = true,
            }
        }
    }

    fn invariant_those_who_wait_are_worked_for(&self) {
        let works = self.fetching.is_some() || self.naming || self.leaving.is_some();
        assert!(self.waiting.is_empty() || works, "{:?}", self.waiting.keys());
    }
}

proptest! {
    /// Callers come and go, fetches and names fail or not, in any order: everyone who stays is answered once, and the
    /// pull ends.
    #[test]
    fn everyone_is_answered_and_the_pull_ends(
        steps in prop::collection::vec((0_u8..6, 0_usize..60, 0_u8..3), 1..60),
    ) {
        let mut pull = State::default();
        let mut ledger = Ledger::default();
        let mut joins = 0_u64;
        let end = std::iter::repeat_n((9, 0, 0), 400);
        for (kind, which, flavour) in steps.into_iter().chain(end) {
            if ledger.stopped {
                break;
            }
            let input = match kind {
                0 | 1 => {
                    joins += 1;
                    let user = ["me", "you", "her"][usize::from(flavour)];
                    let wanted = wanted(["r/x:1", "r/x:2", "s/x:1"][which % 3], user);
                    ledger.waiting.insert(CallerId(joins), wanted.clone());
                    Input::Join(CallerId(joins), wanted)
                }
                2 if !ledger.waiting.is_empty() => {
                    let caller = *ledger.waiting.keys().nth(which % ledger.waiting.len()).expect("one");
                    ledger.waiting.remove(&caller);
                    Input::Leave(caller)
                }
                _ if joins == 0 => continue,
                _ => {
                    if let Some(attempt) = ledger.fetching.take() {
                        let faults = [PullFault::Denied, PullFault::Content];
                        let result = match flavour {
                            0 => Ok(id()),
                            _ => Err(failure(faults[usize::from(flavour) - 1])),
                        };
                        Input::Fetched(attempt, result)
                    } else if std::mem::take(&mut ledger.naming) {
                        if flavour == 0 {
                            // Which one is being written only the pull knows.
                            ledger.image.extend(["r/x:1", "r/x:2", "s/x:1"].map(str::to_owned));
                        }
                        Input::Named(if flavour == 0 { Ok(()) } else { Err(failure(PullFault::Storage)) })
                    } else if let Some(seen) = ledger.leaving.take() {
                        Input::Farewell(if seen == joins { Farewell::Struck } else { Farewell::SomebodyComes })
                    } else {
                        continue;
                    }
                }
            };
            let effects = pull.apply(input);
            ledger.take(effects);
            ledger.invariant_those_who_wait_are_worked_for();
        }
        prop_assert!(ledger.waiting.is_empty());
        prop_assert!(ledger.stopped || joins == 0);
    }
}
