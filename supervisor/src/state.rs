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
//!   Live ──disowned──► Disowned ──forgotten──► (absent)
//! ```
//!
//! Exits go up until the receipt says that they are settled, and only then is the shim told to forget them (P1).
//!
//! Invariants:
//! 1. What is settled or disowned is never reported again.
//! 2. Only what is settled or disowned is acknowledged.
//! 3. When the shim dies, each other process is reported exactly once, with its real exit where one is known.

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
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    /// Being made, or running.
    Live,
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
            None | Some(Fact::Live | Fact::Waiting(_)) => {
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
            (Fact::Live | Fact::Waiting(_) | Fact::Settled | Fact::Disowned, _) => {}
        }
    }

    /// The containers whose end is not known.
    pub fn live(&self) -> Vec<ContainerId> {
        let live = self.facts.iter().filter(|(process, fact)| process.exec.is_none() && **fact == Fact::Live);
        live.map(|(process, _)| process.container.clone()).collect()
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
            if process.exec.is_some() {
                self.facts.remove(process);
            }
        }
    }

    /// A container was removed, and its execs with it.
    pub fn forgotten(&mut self, container: &ContainerId) {
        self.facts.retain(|process, _| process.container != *container);
        self.acknowledgements.retain(|process| process.container != *container);
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
                Fact::Reporting(exit) | Fact::Waiting(exit) => exit.clone(),
            };
            *fact = Fact::Reporting(exit.clone());
            reports.push((process.clone(), exit));
        }
        reports
    }
}

#[cfg(test)]
mod tests;
