//! What is known of the processes of one shim, and what follows from news about them. Pure: no clock, no IO.
//!
//! ```text
//!            begun               announced            receipt Settled       acknowledged / forgotten
//!  (absent) ───────► Live ──────────────────► Reporting ─────────────► Settled ───────────────────► (absent)
//!     │                │ withdrawn               │  ▲                     ▲
//!     │                └────► (absent)   Pending │  │ announced again     │
//!     │                                          ▼  │                     │
//!     └────────────────── announced ──────────► Waiting ──────────────────┘  (by way of Reporting)
//!
//!   Live ──disowned──► Disowned ──forgotten──► (absent)        Live ──found ended──► Ended ──announced──► Reporting
//! ```
//!
//! Exits go up until the receipt says that they are settled, and only then is the shim told to forget them (P1). The removal
//! of the container changes nothing about that: what is on its way then is forgotten when the shim has been told.
//!
//! Invariants:
//! 1. What is settled or disowned is never reported again.
//! 2. Only what is settled or disowned is acknowledged.
//! 3. What is on its way up stays known until it is settled, also when its container is removed.
//! 4. When the shim dies, each other process is reported exactly once, with its real exit where one is known.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use mainstay_messages::process::{Exit, UnknownReason};
use mainstay_messages::router::ExitReceipt;
use mainstay_messages::{ContainerId, Timestamp};
use mainstay_task_api::convert::ProcessKey;

/// The processes of one shim.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    facts: BTreeMap<ProcessKey, Fact>,
    acknowledgements: BTreeSet<ProcessKey>,
    /// Containers that were removed while something of them had not been acknowledged.
    removed: BTreeSet<ContainerId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    /// Being made, or running.
    Live,
    /// It was found to have ended; whether that is in the journal is not known here.
    Ended(Exit),
    /// Its exit is on the way up.
    Reporting(Exit),
    /// Its exit was not taken yet: the shim will announce it again.
    Waiting(Exit),
    /// Its exit is in the journal.
    Settled,
    /// Its making has failed and is being undone: its end is no news.
    Disowned,
}

/// Whether a process was known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It was not.
    New,
    /// It was: it runs, or its exit is known.
    Known,
}

/// What to do about an announced exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// Tell the router.
    Report,
    /// The router has been told and has not answered.
    AlreadyReporting,
    /// It is settled; the acknowledgement has not reached the shim.
    AlreadySettled,
}

impl Ledger {
    /// A process is about to be made, or was found.
    pub fn begun(&mut self, process: ProcessKey) -> Begun {
        match self.facts.entry(process) {
            Entry::Vacant(free) => {
                free.insert(Fact::Live);
                Begun::New
            }
            Entry::Occupied(_) => Begun::Known,
        }
    }

    /// A process was found to have ended. Its shim announces that too, unless it was acknowledged before.
    pub fn found_ended(&mut self, process: ProcessKey, exit: &Exit) {
        let fact = self.facts.entry(process).or_insert(Fact::Live);
        if *fact == Fact::Live {
            *fact = Fact::Ended(exit.clone());
        }
    }

    /// A process could not be made: whoever asked for it has been told.
    pub fn withdrawn(&mut self, process: &ProcessKey) {
        if self.facts.get(process) == Some(&Fact::Live) {
            self.facts.remove(process);
        }
    }

    /// The making of a container has failed. What is ended while that is undone is not reported as if it had run.
    pub fn disowned(&mut self, process: &ProcessKey) {
        if let Some(fact @ Fact::Live) = self.facts.get_mut(process) {
            *fact = Fact::Disowned;
        }
    }

    /// The shim said that a process has ended.
    pub fn announced(&mut self, process: ProcessKey, exit: &Exit) -> Announcement {
        match self.facts.get(&process) {
            None | Some(Fact::Live | Fact::Ended(_) | Fact::Waiting(_)) => {
                self.facts.insert(process, Fact::Reporting(exit.clone()));
                Announcement::Report
            }
            Some(Fact::Reporting(_)) => Announcement::AlreadyReporting,
            Some(Fact::Settled | Fact::Disowned) => {
                self.acknowledgements.insert(process);
                Announcement::AlreadySettled
            }
        }
    }

    /// The router answered.
    pub fn receipt(&mut self, process: &ProcessKey, receipt: ExitReceipt) {
        let Some(fact) = self.facts.get_mut(process) else { return };
        match (&*fact, receipt) {
            (Fact::Reporting(_) | Fact::Waiting(_), ExitReceipt::Settled) => {
                *fact = Fact::Settled;
                self.acknowledgements.insert(process.clone());
            }
            (Fact::Reporting(exit), ExitReceipt::Pending) => *fact = Fact::Waiting(exit.clone()),
            (Fact::Live | Fact::Ended(_) | Fact::Waiting(_) | Fact::Settled | Fact::Disowned, _) => {}
        }
    }

    /// The containers whose end is not known.
    pub fn live(&self) -> Vec<ContainerId> {
        let live = self.facts.iter().filter(|(process, fact)| process.exec.is_none() && **fact == Fact::Live);
        live.map(|(process, _)| process.container.clone()).collect()
    }

    /// Whether a process is known of which no end is.
    pub fn is_live(&self, process: &ProcessKey) -> bool {
        self.facts.get(process) == Some(&Fact::Live)
    }

    /// What the shim has to be told to forget.
    pub fn acknowledgements(&self) -> Vec<ProcessKey> {
        self.acknowledgements.iter().cloned().collect()
    }

    /// The shim has been told. What it forgot of an exec can be forgotten here too; a container is remembered until it is
    /// removed.
    pub fn acknowledged(&mut self, processes: &[ProcessKey]) {
        for process in processes {
            self.acknowledgements.remove(process);
            if process.exec.is_some() || self.removed.contains(&process.container) {
                self.facts.remove(process);
            }
        }
        self.forget_removed();
    }

    /// A container was removed, and its execs with it.
    pub fn forgotten(&mut self, container: &ContainerId) {
        let pending = &self.acknowledgements;
        self.facts.retain(|process, fact| {
            let under_way = matches!(fact, Fact::Reporting(_) | Fact::Waiting(_));
            process.container != *container || under_way || pending.contains(process)
        });
        self.removed.insert(container.clone());
        self.forget_removed();
    }

    /// Of a removed container of which nothing is left, nothing has to be known.
    fn forget_removed(&mut self) {
        let facts = &self.facts;
        self.removed.retain(|container| facts.keys().any(|process| process.container == *container));
    }

    /// The shim died, and left these exit records. Answers what has to be reported; all of it is then on the way up.
    pub fn shim_died(
        &mut self,
        recorded: BTreeMap<ProcessKey, Exit>,
        reason: UnknownReason,
        now: Timestamp,
    ) -> Vec<(ProcessKey, Exit)> {
        for (process, exit) in recorded {
            match self.facts.get(&process) {
                Some(Fact::Settled | Fact::Disowned) => {}
                _ => drop(self.facts.insert(process, Fact::Reporting(exit))),
            }
        }
        self.acknowledgements.clear();
        let mut reports = Vec::new();
        for (process, fact) in &mut self.facts {
            let exit = match fact {
                Fact::Settled | Fact::Disowned => continue,
                Fact::Live => Exit::unknown(reason, now),
                Fact::Ended(exit) | Fact::Reporting(exit) | Fact::Waiting(exit) => exit.clone(),
            };
            *fact = Fact::Reporting(exit.clone());
            reports.push((process.clone(), exit));
        }
        reports
    }
}

#[cfg(test)]
mod tests;
