//! The pure state of the router: names, children, parked exits, tombstones. No addresses, no clock, no IO.

mod exits;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use mainstay_messages::id::Name;
use mainstay_messages::router::Child;
use mainstay_messages::{ContainerId, SandboxId};

pub use exits::{
    Exits, Fate, PARK_DEADLINE_MS, PARKED_MAX, Repetition, TOMBSTONE_AGE_MS, TOMBSTONES_MAX, Verdict,
};

/// Restarts of one actor within [`ACTOR_RESTART_WINDOW_MS`] after which it is left alone for as long.
pub const ACTOR_RESTARTS_MAX: usize = 5;
/// The time in which restarts are counted, and for which an actor rests that was restarted too often, in
/// milliseconds.
pub const ACTOR_RESTART_WINDOW_MS: u64 = 60_000;

/// A name, where it has to be unique.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NameKey {
    /// Among sandboxes.
    Sandbox(Name),
    /// Among the containers of one sandbox.
    Container(SandboxId, Name),
}

/// Who exists, under which name.
///
/// Invariants:
/// 1. Every name belongs to a registered child, and that child has that name.
/// 2. The generation of a child only rises.
/// 3. A child that runs is at its latest generation.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    names: HashMap<NameKey, Child>,
    children: HashMap<Child, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    name: Option<NameKey>,
    sandbox: Option<SandboxId>,
    generation: u32,
    /// When it was restarted, in milliseconds; within the window.
    restarts: VecDeque<u64>,
    /// How often it was restarted in all.
    restarted: u32,
    life: Life,
}

/// Whether a child's actor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Running,
    /// It is being started again.
    Restarting,
    /// It was restarted too often, and is left alone for a while.
    Resting,
}

/// What follows from the loss of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: it was an earlier start of it, or it is gone.
    Stale,
    /// It is started again.
    Restart {
        /// How often in all, with this time.
        count: u32,
    },
    /// It is left alone, then started again.
    Rest {
        /// For how long.
        for_ms: u64,
    },
}

impl Registry {
    /// Who has this name.
    pub fn holder(&self, name: &NameKey) -> Option<&Child> {
        self.names.get(name)
    }

    /// Takes a child in, before anything of it runs. Its name is left to whoever has it already.
    pub fn register(&mut self, child: Child, name: Option<NameKey>, sandbox: Option<SandboxId>) {
        let name = name.filter(|name| !self.names.contains_key(name));
        if let Some(name) = &name {
            self.names.insert(name.clone(), child.clone());
        }
        let entry = Entry {
            name,
            sandbox,
            generation: 0,
            restarts: VecDeque::new(),
            restarted: 0,
            life: Life::Running,
        };
        self.children.insert(child, entry);
    }

    /// Strikes a child off; its name is free from now on. Answers whose container it was.
    pub fn strike(&mut self, child: &Child) -> Option<SandboxId> {
        let entry = self.children.remove(child)?;
        if let Some(name) = entry.name {
            self.names.remove(&name);
        }
        entry.sandbox
    }

    /// Whether a child is registered, and whether its actor runs.
    pub fn life(&self, child: &Child) -> Option<Life> {
        self.children.get(child).map(|entry| entry.life)
    }

    /// The sandbox of a container.
    pub fn sandbox_of(&self, child: &Child) -> Option<&SandboxId> {
        self.children.get(child).and_then(|entry| entry.sandbox.as_ref())
    }

    /// The number of sandboxes.
    pub fn sandboxes(&self) -> usize {
        self.children.keys().filter(|child| matches!(child, Child::Sandbox(_))).count()
    }

    /// The containers of a sandbox.
    pub fn containers_of(&self, sandbox: &SandboxId) -> Vec<ContainerId> {
        let of_it = |(child, entry): (&Child, &Entry)| match child {
            Child::Container(id) if entry.sandbox.as_ref() == Some(sandbox) => Some(id.clone()),
            _ => None,
        };
        self.children.iter().filter_map(of_it).collect()
    }

    /// A child's actor is gone without having been struck off.
    pub fn lost(&mut self, child: &Child, generation: u32, now_ms: u64) -> Loss {
        let Some(entry) = self.children.get_mut(child) else { return Loss::Stale };
        if entry.generation != generation || entry.life != Life::Running {
            return Loss::Stale;
        }
        while entry.restarts.front().is_some_and(|at| now_ms.saturating_sub(*at) >= ACTOR_RESTART_WINDOW_MS) {
            entry.restarts.pop_front();
        }
        if entry.restarts.len() >= ACTOR_RESTARTS_MAX {
            entry.life = Life::Resting;
            return Loss::Rest { for_ms: ACTOR_RESTART_WINDOW_MS };
        }
        self.restart(child, now_ms).map_or(Loss::Stale, |count| Loss::Restart { count })
    }

    /// A child that rested is started again.
    pub fn rested(&mut self, child: &Child, now_ms: u64) -> Option<u32> {
        let entry = self.children.get_mut(child)?;
        if entry.life != Life::Resting {
            return None;
        }
        entry.restarts.clear();
        self.restart(child, now_ms)
    }

    fn restart(&mut self, child: &Child, now_ms: u64) -> Option<u32> {
        let entry = self.children.get_mut(child)?;
        entry.restarts.push_back(now_ms);
        entry.restarted = entry.restarted.saturating_add(1);
        entry.life = Life::Restarting;
        Some(entry.restarted)
    }

    /// The actor of a child that was being started again runs; answers its generation.
    pub fn runs_again(&mut self, child: &Child) -> Option<u32> {
        let entry = self.children.get_mut(child)?;
        if entry.life != Life::Restarting {
            return None;
        }
        entry.generation = entry.generation.saturating_add(1);
        entry.life = Life::Running;
        Some(entry.generation)
    }
}
