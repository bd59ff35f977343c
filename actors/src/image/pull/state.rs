//! The pure state of one pull: who waits for it, with whose credentials it runs, and when it is over. No clock, no IO.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mainstay_messages::error::PullFault;
use mainstay_messages::image::ImageId;
use mainstay_messages::{Error, Result};

use crate::image::CallerId;
use crate::ports::ResolvedImage;

/// One pull. The diagram of its phases is in [`super`].
///
/// Invariants:
/// 1. While anyone waits, work is under way, or the end of the pull is being agreed on.
/// 2. Work that is under way for nobody is dropped, unless it only writes a name down.
/// 3. Whoever has left is never answered, and nobody is answered twice.
/// 4. Nobody gets an error of another caller's credentials or registry, nor an image under a name that is not written
///    down.
#[derive(Clone, Debug, Default)]
pub struct State {
    joiners: BTreeMap<CallerId, Arc<ResolvedImage>>,
    phase: Phase,
    /// Fetches that were begun.
    attempts: u32,
    /// Callers who joined, those who have left included.
    joins: u64,
}

#[derive(Clone, Debug, Default)]
enum Phase {
    /// Nobody has joined, or somebody is on the way.
    #[default]
    Idle,
    /// The image is fetched, for this caller's name and with its credentials.
    Fetching(Arc<ResolvedImage>),
    /// The image is here, and under these names.
    Here { image: ImageId, named: BTreeSet<String>, naming: Naming },
    /// It is asked whether nobody is on the way beside those who have joined until then.
    Leaving(u64),
    /// It is over.
    Gone,
}

#[derive(Clone, Debug)]
enum Naming {
    Idle,
    Busy(Arc<ResolvedImage>),
}

/// Whatever can happen to a pull.
#[derive(Clone, Debug)]
pub enum Input {
    /// A caller who may have the image waits for it.
    Join(CallerId, Arc<ResolvedImage>),
    /// A caller does not wait any more.
    Leave(CallerId),
    /// The fetch of this number ended.
    Fetched(u32, Result<ImageId>),
    /// A name was written down.
    Named(Result<()>),
    /// Whether the pull may end.
    Farewell(Farewell),
}

/// The answer to a pull that wants to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// It is struck off: nobody joins it any more.
    Struck,
    /// Somebody is on the way who has joined it.
    SomebodyComes,
}

/// Whatever it wants to have done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fetch the image.
    Fetch(u32, Arc<ResolvedImage>),
    /// Stop fetching it.
    DropFetch,
    /// Write another name of it down.
    Name(Arc<ResolvedImage>, ImageId),
    /// Answer callers.
    Answer(Vec<CallerId>, Result<ImageId>),
    /// Tell the journal and the counters how a fetch ended.
    Record(Arc<ResolvedImage>, Ending),
    /// Ask whether the pull may end; so many have joined it.
    Leave(u64),
    /// End.
    Stop,
}

/// How a fetch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The image is here.
    Pulled,
    /// It failed.
    Failed(Error),
    /// Nobody waited for it any more.
    Cancelled,
}

impl State {
    /// What follows from an input, in this order. Nothing: it is so already, or it is too late to matter.
    pub fn apply(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Join(caller, wanted) => self.join(caller, wanted),
            Input::Leave(caller) => match self.joiners.remove(&caller) {
                Some(_) => self.go_on(),
                None => Vec::new(),
            },
            Input::Fetched(attempt, result) => self.fetched(attempt, result),
            Input::Named(result) => self.named(result),
            Input::Farewell(Farewell::Struck) => {
                self.phase = Phase::Gone;
                // Invariant 1: who joins is counted, so nobody can be left here.
                debug_assert!(self.joiners.is_empty(), "{self:?}");
                vec![Effect::Stop]
            }
            Input::Farewell(Farewell::SomebodyComes) => {
                let before = std::mem::take(&mut self.phase);
                // Who was on the way may have come, and may have left again.
                let has_come = matches!(before, Phase::Leaving(joins) if joins < self.joins);
                if has_come { self.go_on() } else { Vec::new() }
            }
        }
    }

    /// Those who wait.
    pub fn joiners(&self) -> impl Iterator<Item = CallerId> {
        self.joiners.keys().copied()
    }

    fn join(&mut self, caller: CallerId, wanted: Arc<ResolvedImage>) -> Vec<Effect> {
        self.joins += 1;
        self.joiners.insert(caller, wanted);
        self.go_on()
    }

    fn fetched(&mut self, attempt: u32, result: Result<ImageId>) -> Vec<Effect> {
        let Phase::Fetching(runner) = &self.phase else { return Vec::new() };
        if attempt != self.attempts {
            return Vec::new();
        }
        let runner = Arc::clone(runner);
        match result {
            Ok(image) => {
                let named = BTreeSet::from([runner.name.clone()]);
                self.phase = Phase::Here { image, named, naming: Naming::Idle };
                let mut effects = vec![Effect::Record(runner, Ending::Pulled)];
                effects.extend(self.go_on());
                effects
            }
            Err(error) => {
                self.phase = Phase::Idle;
                let concerned = self.take(|wanted| !is_of_the_source(&error) || same_source(wanted, &runner));
                let mut effects = vec![Effect::Record(runner, Ending::Failed(error.clone()))];
                effects.extend(answer(concerned, Err(error)));
                effects.extend(self.go_on());
                effects
            }
        }
    }

    fn named(&mut self, result: Result<()>) -> Vec<Effect> {
        let Phase::Here { named, naming, .. } = &mut self.phase else { return Vec::new() };
        let Naming::Busy(wanted) = std::mem::replace(naming, Naming::Idle) else { return Vec::new() };
        let mut effects = Vec::new();
        match result {
            Ok(()) => {
                named.insert(wanted.name.clone());
            }
            Err(error) => {
                let concerned = self.take(|other| other.name == wanted.name);
                effects.extend(answer(concerned, Err(error)));
            }
        }
        effects.extend(self.go_on());
        effects
    }

    /// The next thing to do for those who wait, or the end when nobody does.
    fn go_on(&mut self) -> Vec<Effect> {
        let first = self.joiners.values().next().cloned();
        match (&mut self.phase, first) {
            (Phase::Idle, Some(runner)) => {
                self.attempts += 1;
                self.phase = Phase::Fetching(Arc::clone(&runner));
                vec![Effect::Fetch(self.attempts, runner)]
            }
            (Phase::Idle, None) => self.leave(Vec::new()),
            (Phase::Fetching(_), Some(_)) | (Phase::Leaving(_) | Phase::Gone, _) => Vec::new(),
            (Phase::Fetching(runner), None) => {
                let record = Effect::Record(Arc::clone(runner), Ending::Cancelled);
                self.leave(vec![Effect::DropFetch, record])
            }
            (Phase::Here { .. }, _) => self.hand_out(),
        }
    }

    /// The image is here: those whose name is written down get it, and the next name is written.
    fn hand_out(&mut self) -> Vec<Effect> {
        let Phase::Here { image, named, naming } = &mut self.phase else { return Vec::new() };
        let image = image.clone();
        let (done, rest): (BTreeMap<_, _>, _) = std::mem::take(&mut self.joiners)
            .into_iter()
            .partition(|(_, wanted)| named.contains(&wanted.name));
        self.joiners = rest;
        let mut effects = answer(done.into_keys().collect(), Ok(image.clone()));
        if let Naming::Busy(_) = naming {
            return effects;
        }
        match self.joiners.values().next() {
            Some(wanted) => {
                *naming = Naming::Busy(Arc::clone(wanted));
                effects.push(Effect::Name(Arc::clone(wanted), image));
                effects
            }
            None => self.leave(effects),
        }
    }

    fn leave(&mut self, mut effects: Vec<Effect>) -> Vec<Effect> {
        self.phase = Phase::Leaving(self.joins);
        effects.push(Effect::Leave(self.joins));
        effects
    }

    fn take(&mut self, concerned: impl Fn(&ResolvedImage) -> bool) -> Vec<CallerId> {
        let callers: Vec<_> =
            self.joiners.iter().filter(|(_, wanted)| concerned(wanted)).map(|(caller, _)| *caller).collect();
        callers.iter().for_each(|caller| {
            self.joiners.remove(caller);
        });
        callers
    }
}

fn answer(callers: Vec<CallerId>, answer: Result<ImageId>) -> Vec<Effect> {
    if callers.is_empty() { Vec::new() } else { vec![Effect::Answer(callers, answer)] }
}

/// Whether two callers ask the same registry for the same repository as the same user.
fn same_source(one: &ResolvedImage, other: &ResolvedImage) -> bool {
    one.repository == other.repository && one.spec.credentials == other.spec.credentials
}

/// Whether another registry, or another user, may get what this one did not.
fn is_of_the_source(error: &Error) -> bool {
    use PullFault::{Denied, NotFound, Registry, Stalled};
    matches!(error, Error::PullFailed { fault: Denied | NotFound | Registry | Stalled, .. })
}
