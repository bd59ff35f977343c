//! What becomes of an exit that the supervisor reports (P2): delivered, parked, absorbed or unclaimed.
//!
//! ```text
//!                    registered ──────────────────────────────► deliver
//!  exit ─► known? ── torn down, or unclaimed before ──────────► absorb
//!                    neither ─► park ── registered by then ───► deliver
//!                                 └──── deadline ─► ask ─ runs, or no answer ──► park on
//!                                                       └ ended, or not known ──► unclaimed
//! ```

use std::collections::{BTreeMap, HashSet, VecDeque};

use mainstay_messages::router::TaskKey;
use mainstay_messages::supervisor::{TaskKnowledge, TaskStatus};
use mainstay_messages::{ContainerId, Exit, Result};

/// The most exits that wait for their containers.
pub const PARKED_MAX: usize = 4_096;
/// Time that an exit waits for its container before the supervisor is asked about it, in milliseconds.
pub const PARK_DEADLINE_MS: u64 = 10_000;
/// The most containers that are remembered after they are gone.
pub const TOMBSTONES_MAX: usize = 16_384;
/// Time for which a container is remembered after it is gone, in milliseconds.
pub const TOMBSTONE_AGE_MS: u64 = 3_600_000;
/// The most exits that nobody claimed, and of absorbed ones, that are remembered.
const REMEMBERED_MAX: usize = 4_096;

/// Exits without a registered container.
///
/// Invariants:
/// 1. Never more than [`PARKED_MAX`] exits are parked.
/// 2. Never more than [`TOMBSTONES_MAX`] tombstones stand.
/// 3. No parked exit is remembered as unclaimed, and none is of a container with a tombstone.
#[derive(Clone, Debug, Default)]
pub struct Exits {
    /// In an order that does not depend on chance, so that a simulation can be repeated.
    parked: BTreeMap<TaskKey, Parked>,
    tombstones: HashSet<ContainerId>,
    /// The same ids with the time of their end, the oldest first.
    tombstone_order: VecDeque<(u64, ContainerId)>,
    unclaimed: Remembered,
    absorbed: Remembered,
}

#[derive(Clone, Debug)]
struct Parked {
    exit: Exit,
    since_ms: u64,
    deadline_ms: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// For its container.
    Waiting,
    /// For the answer of the supervisor.
    Asking,
    /// For the journal.
    Writing,
}

/// The last so many keys.
#[derive(Clone, Debug, Default)]
struct Remembered {
    keys: HashSet<TaskKey>,
    order: VecDeque<TaskKey>,
}

/// What becomes of an exit whose container is not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits; the first report of it is worth a note.
    Parked(Repetition),
    /// There is no room. The shim keeps it; the oldest one is asked about to make room.
    NoRoom {
        /// The oldest one, unless it is being asked about.
        ask: Option<TaskKey>,
    },
    /// It changes nothing; the first report of it is worth a note.
    Absorbed(Repetition, &'static str),
}

/// Whether something was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// It was not.
    First,
    /// It was.
    Again,
}

/// What the supervisor's answer about a parked exit comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was delivered meanwhile.
    Settled,
    /// It waits on.
    Keep,
    /// Nobody claims it: this is to be written.
    Unclaimed(Exit),
}

impl Remembered {
    fn insert(&mut self, key: TaskKey) -> Repetition {
        if !self.keys.insert(key.clone()) {
            return Repetition::Again;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        Repetition::First
    }
}

impl Exits {
    /// Takes an exit whose container is not registered.
    pub fn take(&mut self, task: TaskKey, exit: Exit, now_ms: u64) -> Fate {
        self.forget_old_tombstones(now_ms);
        if self.tombstones.contains(&task.container) {
            return Fate::Absorbed(self.absorbed.insert(task), "already torn down");
        }
        if self.unclaimed.keys.contains(&task) {
            return Fate::Absorbed(self.absorbed.insert(task), "nobody claimed it before");
        }
        if self.parked.contains_key(&task) {
            return Fate::Parked(Repetition::Again);
        }
        if self.parked.len() >= PARKED_MAX {
            return Fate::NoRoom { ask: self.ask_about_the_oldest() };
        }
        let deadline_ms = now_ms.saturating_add(PARK_DEADLINE_MS);
        self.parked.insert(task, Parked { exit, since_ms: now_ms, deadline_ms, stage: Stage::Waiting });
        Fate::Parked(Repetition::First)
    }

    /// The exits that waited for this container, which is registered now.
    pub fn claim(&mut self, container: &ContainerId) -> Vec<(TaskKey, Exit)> {
        let claimed: Vec<TaskKey> =
            self.parked.keys().filter(|task| task.container == *container).cloned().collect();
        let mut exits: Vec<(u64, TaskKey, Exit)> = claimed
            .into_iter()
            .filter_map(|task| self.parked.remove(&task).map(|parked| (parked.since_ms, task, parked.exit)))
            .collect();
        // In the order of their arrival; at the same time, execs before PID 1.
        exits.sort_by_key(|(since_ms, task, _)| (*since_ms, task.exec.is_none()));
        exits.into_iter().map(|(_, task, exit)| (task, exit)).collect()
    }

    /// A container is gone: what still arrives for it is absorbed.
    pub fn bury(&mut self, container: ContainerId, now_ms: u64) {
        self.parked.retain(|task, _| task.container != container);
        if self.tombstones.insert(container.clone()) {
            self.tombstone_order.push_back((now_ms, container));
        }
        if self.tombstone_order.len() > TOMBSTONES_MAX {
            self.forget_oldest_tombstone();
        }
    }

    /// Whether this container was here.
    pub fn is_buried(&self, container: &ContainerId) -> bool {
        self.tombstones.contains(container)
    }

    /// Whether any exit is parked.
    pub fn is_waiting(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Exits that waited too long; from now on they are being asked about.
    pub fn due(&mut self, now_ms: u64) -> Vec<TaskKey> {
        let mut due = Vec::new();
        for (task, parked) in &mut self.parked {
            if parked.stage == Stage::Waiting && parked.deadline_ms <= now_ms {
                parked.stage = Stage::Asking;
                due.push(task.clone());
            }
        }
        due
    }

    /// The supervisor's answer.
    pub fn answered(&mut self, task: &TaskKey, answer: &Result<TaskKnowledge>, now_ms: u64) -> Verdict {
        let Some(parked) = self.parked.get_mut(task).filter(|parked| parked.stage == Stage::Asking) else {
            return Verdict::Settled;
        };
        let may_run = match answer {
            Ok(TaskKnowledge::Known(task)) => !matches!(task.status, TaskStatus::Exited(_)),
            Ok(TaskKnowledge::NotKnown | TaskKnowledge::ShimGone) => false,
            Err(_) => true,
        };
        if may_run {
            parked.wait_on(now_ms);
            return Verdict::Keep;
        }
        // That it has ended is what was reported: whoever it belonged to is not there.
        parked.stage = Stage::Writing;
        Verdict::Unclaimed(parked.exit.clone())
    }

    /// The fact that nobody claims it is durable, or could not be written.
    pub fn written<T>(&mut self, task: &TaskKey, result: &Result<T>, now_ms: u64) {
        let Some(parked) = self.parked.get_mut(task).filter(|parked| parked.stage == Stage::Writing) else {
            return;
        };
        match result {
            Ok(_) => {
                self.parked.remove(task);
                self.unclaimed.insert(task.clone());
            }
            Err(_) => parked.wait_on(now_ms),
        }
    }

    fn ask_about_the_oldest(&mut self) -> Option<TaskKey> {
        let waiting = self.parked.iter_mut().filter(|(_, parked)| parked.stage == Stage::Waiting);
        let (task, parked) = waiting.min_by_key(|(_, parked)| parked.since_ms)?;
        parked.stage = Stage::Asking;
        Some(task.clone())
    }

    fn forget_old_tombstones(&mut self, now_ms: u64) {
        let old = |at: u64| now_ms.saturating_sub(at) > TOMBSTONE_AGE_MS;
        while self.tombstone_order.front().is_some_and(|(at, _)| old(*at)) {
            self.forget_oldest_tombstone();
        }
    }

    fn forget_oldest_tombstone(&mut self) {
        if let Some((_, container)) = self.tombstone_order.pop_front() {
            self.tombstones.remove(&container);
        }
    }

    #[cfg(test)]
    pub(super) fn numbers(&self) -> (usize, usize) {
        (self.parked.len(), self.tombstones.len())
    }

    #[cfg(test)]
    pub(super) fn parked_keys(&self) -> impl Iterator<Item = &TaskKey> {
        self.parked.keys()
    }

    #[cfg(test)]
    pub(super) fn is_unclaimed(&self, task: &TaskKey) -> bool {
        self.unclaimed.keys.contains(task)
    }
}

impl Parked {
    fn wait_on(&mut self, now_ms: u64) {
        self.stage = Stage::Waiting;
        self.deadline_ms = now_ms.saturating_add(PARK_DEADLINE_MS);
    }
}
