//! The pure state of all pulls: which callers are still asking what their name means, and which pulls run. No
//! addresses, no clock, no IO.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_messages::{Error, Result};

use crate::image::pull::state::Farewell;
use crate::image::{CallerId, PullKey};
use crate::ports::ResolvedImage;

/// See the module.
///
/// Invariants:
/// 1. A caller is passed on to a pull only after its own question was answered.
/// 2. There is at most one pull of a key, and never more than `pulls_max` in all.
/// 3. The generation of a pull is higher than that of every earlier one.
#[derive(Clone, Debug)]
pub struct State {
    callers: BTreeMap<CallerId, Standing>,
    pulls: BTreeMap<PullKey, Entry>,
    generation: u64,
    pulls_max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// The registry is asked what its name means.
    Asking,
    /// It was passed on to a pull of this key.
    Passed(PullKey),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    generation: u64,
    /// Callers who were passed on to it.
    joins: u64,
}

/// Whatever can happen.
#[derive(Clone, Debug)]
pub enum Input {
    /// A caller asks for an image.
    Ask(CallerId),
    /// What its name means.
    Resolved(CallerId, Result<Arc<ResolvedImage>>),
    /// A caller has dropped its handle.
    Leave(CallerId),
    /// The actor of a pull is gone, however it ended.
    Lost(PullKey, u64),
}

/// Whatever has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the registry.
    Resolve(CallerId),
    /// Stop asking it.
    DropResolve(CallerId),
    /// Start the actor of a pull.
    Start(PullKey, u64),
    /// Pass a caller on to the running pull.
    Pass(PullKey, CallerId, Arc<ResolvedImage>, Join),
    /// Tell the running pull that a caller has left.
    Tell(PullKey, CallerId),
    /// Tell a caller that it cannot be done.
    Refuse(CallerId, Error),
    /// The pull has no address any more.
    Forget(PullKey),
}

/// How a caller comes to a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// It is the first.
    First,
    /// The pull runs already.
    Running,
}

impl State {
    /// Nobody asks, and nothing runs.
    pub fn new(pulls_max: usize) -> Self {
        Self { callers: BTreeMap::new(), pulls: BTreeMap::new(), generation: 0, pulls_max }
    }

    /// What follows from an input, in this order. Nothing: it is so already, or it is too late to matter.
    pub fn apply(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Ask(caller) => {
                self.callers.insert(caller, Standing::Asking);
                vec![Effect::Resolve(caller)]
            }
            Input::Resolved(caller, result) => {
                if self.callers.get(&caller) != Some(&Standing::Asking) {
                    return Vec::new();
                }
                match result {
                    Ok(resolved) => self.pass(caller, resolved),
                    Err(error) => self.refuse(caller, error),
                }
            }
            Input::Leave(caller) => match self.callers.remove(&caller) {
                Some(Standing::Asking) => vec![Effect::DropResolve(caller)],
                Some(Standing::Passed(key)) if self.pulls.contains_key(&key) => {
                    vec![Effect::Tell(key, caller)]
                }
                Some(Standing::Passed(_)) | None => Vec::new(),
            },
            Input::Lost(key, generation) => {
                if self.pulls.get(&key).is_none_or(|entry| entry.generation != generation) {
                    return Vec::new();
                }
                self.pulls.remove(&key);
                vec![Effect::Forget(key)]
            }
        }
    }

    /// A pull wants to end, and has seen so many callers join it.
    pub fn farewell(&mut self, key: &PullKey, generation: u64, joins: u64) -> Farewell {
        match self.pulls.get(key) {
            Some(entry) if entry.generation == generation && entry.joins != joins => Farewell::SomebodyComes,
            Some(entry) if entry.generation == generation => {
                self.pulls.remove(key);
                Farewell::Struck
            }
            // It was struck off before, and what runs under its key now is another one.
            _ => Farewell::Struck,
        }
    }

    /// Whether a pull of this key runs.
    pub fn runs(&self, key: &PullKey) -> bool {
        self.pulls.contains_key(key)
    }

    fn pass(&mut self, caller: CallerId, resolved: Arc<ResolvedImage>) -> Vec<Effect> {
        let key = PullKey { digest: resolved.manifest.digest.clone(), platform: resolved.platform.clone() };
        let mut effects = Vec::new();
        let join = if self.pulls.contains_key(&key) { Join::Running } else { Join::First };
        if join == Join::First {
            if self.pulls.len() >= self.pulls_max {
                let limit = u64::try_from(self.pulls_max).unwrap_or(u64::MAX);
                let what = "pulls of images at the same time".to_owned();
                return self.refuse(caller, Error::ResourceExhausted { what, limit });
            }
            self.generation += 1;
            self.pulls.insert(key.clone(), Entry { generation: self.generation, joins: 0 });
            effects.push(Effect::Start(key.clone(), self.generation));
        }
        if let Some(entry) = self.pulls.get_mut(&key) {
            entry.joins += 1;
        }
        self.callers.insert(caller, Standing::Passed(key.clone()));
        effects.push(Effect::Pass(key, caller, resolved, join));
        effects
    }

    fn refuse(&mut self, caller: CallerId, error: Error) -> Vec<Effect> {
        self.callers.remove(&caller);
        vec![Effect::Refuse(caller, error)]
    }
}
