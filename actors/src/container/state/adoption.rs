//! A container that was found in the store: what its shim says decides where it stands.
//!
//! | record \ shim | created | running | ended | not known, or no shim |
//! |---|---|---|---|---|
//! | Creating | Created | Running | Exited | never made: deleted (P4) |
//! | Created, Starting | Created | Running | Exited | Exited, Unknown |
//! | Running | Created | Running | Exited | Exited, Unknown |
//! | Stopping | killed | the stop goes on | Exited | Exited, Unknown |
//! | Removing | the removal goes on | … | … | … |
//! | Exited | Exited | Exited | Exited | Exited |
//!
//! While nobody answers it is Unknown; any later answer puts it where it belongs.

use mainstay_messages::event::What;
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::{ContainerPhase, Paused};
use mainstay_messages::supervisor::{TaskState, TaskStatus};
use mainstay_messages::{Exit, ExitStatus, ProcessIdentity};

use super::removal::Removal;
use super::stop::Caller;
use super::{Adoption, Draft, Effect, Input, Knowledge, State, Wake, never_ran};
use crate::machine::{Now, Outcome};

/// Time for the exit of a task whose shim is gone to be reported from the shim's records, in milliseconds.
pub const ADOPTED_GONE_WAIT_MS: u64 = 5_000;

impl State {
    pub(super) fn adopt(&self, knowledge: Knowledge, now: Now) -> Outcome<Self> {
        let open = self.adoption == Adoption::Waiting || self.phase() == ContainerPhase::Unknown;
        if !open || self.removal.is_some() {
            return Outcome::Ignore { call: None, why: "it knows where it stands" };
        }
        let mut draft = self.draft(now);
        draft.next.adoption = Adoption::Settled;
        if self.phase() == ContainerPhase::Removing && self.ended().is_none() {
            return draft.go_on_removing(knowledge);
        }
        if self.phase() == ContainerPhase::Removing {
            draft.resume_removal();
            return draft.go_on();
        }
        if self.ended().is_some() {
            // Its execs have ended too; those whose end was not written down get their terminal facts.
            draft.search_journal();
            if self.ended().is_some_and(never_ran) {
                // What was made for it may not have been undone when the earlier actor ended.
                draft.undo_task();
            }
            return draft.in_memory();
        }
        match knowledge {
            Knowledge::Task(task) => draft.follow(task),
            Knowledge::NotKnown(reason) | Knowledge::ShimGone(reason @ UnknownReason::HostRebooted) => {
                draft.lost(reason);
            }
            Knowledge::ShimGone(reason) => {
                draft.next.adoption = Adoption::Gone(reason);
                draft.wake(ADOPTED_GONE_WAIT_MS, Wake::GoneUnreported);
            }
            Knowledge::Unreachable(_) if self.adoption != Adoption::Waiting => {
                return Outcome::Ignore { call: None, why: "still nobody answers" };
            }
            Knowledge::Unreachable(reason) => return draft.unreachable(reason),
        }
        draft.go_on()
    }

    pub(super) fn gone_unreported(&self, now: Now) -> Outcome<Self> {
        let Adoption::Gone(reason) = self.adoption else {
            return Outcome::Ignore { call: None, why: "its exit was reported" };
        };
        let mut draft = self.draft(now);
        draft.next.adoption = Adoption::Settled;
        draft.lost(reason);
        draft.go_on()
    }
}

impl State {
    /// Whether no process of it was ever set up, as far as anybody has said.
    pub(super) fn never_made(&self) -> bool {
        self.record.process.is_none() && self.record.started_at.is_none()
    }
}

impl Draft {
    /// Its shim knows it.
    fn follow(&mut self, mut task: TaskState) {
        if let Some(adjustment) = task.adjustment.take().filter(|_| self.next.record.adjustment.is_none()) {
            let record = self.record();
            *record = record.clone().adjusted(*adjustment);
        }
        let stopping = self.next.phase() == ContainerPhase::Stopping || self.next.record.stop_by.is_some();
        match task.status {
            TaskStatus::Exited(exit) => self.ends(exit),
            TaskStatus::Created => {
                self.identify(task.process);
                match stopping {
                    true => self.force_stop("stop"),
                    false => self.record().phase = ContainerPhase::Created,
                }
            }
            TaskStatus::Running | TaskStatus::Paused => {
                let paused = if task.status == TaskStatus::Paused { Paused::Yes } else { Paused::No };
                self.identify(task.process);
                if self.next.record.started_at.is_none() {
                    // When exactly it was started, nobody knows any more.
                    let at = self.now.wall;
                    self.started(at);
                }
                self.now_is(paused);
                match stopping {
                    true => {
                        self.resume_stop();
                        self.let_go_on();
                    }
                    false if self.next.phase() != ContainerPhase::Running => {
                        self.record().phase = ContainerPhase::Running;
                    }
                    false => {}
                }
            }
        }
    }

    fn identify(&mut self, process: Option<ProcessIdentity>) {
        let Some(process) = process else { return };
        if self.next.record.process.is_none() {
            self.fact(What::ContainerPrepared { pid: process.pid });
        }
        if self.next.record.process.as_ref() != Some(&process) {
            self.record().process = Some(process);
        }
    }

    /// An earlier actor was removing it. What is known of its end counts; the removal finds out the rest.
    fn go_on_removing(mut self, knowledge: Knowledge) -> Outcome<State> {
        match knowledge {
            Knowledge::Task(TaskState { status: TaskStatus::Exited(exit), .. }) => self.ends(exit),
            _ => self.resume_removal(),
        }
        self.go_on()
    }

    /// It has ended, it is said. That nobody saw how does not mean that there ever was anything.
    pub(super) fn ends(&mut self, exit: Exit) {
        match exit.status {
            ExitStatus::Unknown { reason } if self.next.never_made() => self.lost(reason),
            _ => self.latch(exit),
        }
    }

    /// Nobody knows it any more.
    pub(super) fn lost(&mut self, reason: UnknownReason) {
        self.next.adoption = Adoption::Settled;
        if self.next.never_made() && !self.next.may_have_run() {
            let step = "create".to_owned();
            let outcome = "the runtime ended while it was being made".to_owned();
            self.fact(What::Undone { step, outcome });
            self.resume_removal();
        } else {
            let at = self.now.wall;
            self.latch(Exit::unknown(reason, at));
        }
    }

    pub(super) fn resume_removal(&mut self) {
        let content = self.next.take_stop_callers();
        self.next.stop = None;
        let removal = self.next.removal.get_or_insert_with(|| Removal::new(self.now.wall));
        // Whoever wanted it to stop has what they want when it is gone.
        removal.callers.extend(content.into_iter().map(Caller::patient));
        if self.next.phase() != ContainerPhase::Removing {
            self.record().phase = ContainerPhase::Removing;
        }
        self.effect(Effect::Again(Input::Dismantle));
    }

    /// Nobody answers. Readers see that; the store keeps what was last known.
    fn unreachable(mut self, reason: String) -> Outcome<State> {
        if self.next.phase() != ContainerPhase::Unknown {
            self.record().phase = ContainerPhase::Unknown;
        }
        self.effect(Effect::Note(What::ContainerUnknown { reason }));
        self.in_memory()
    }
}
