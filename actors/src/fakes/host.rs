//! A pretended host: shims, tasks and execs that end as they are told to, and exits that are reported until they
//! are settled. It outlives the supervisor, as shims outlive the daemon.

mod director;
mod inside;
mod life;
mod program;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_messages::router::TaskKey;
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::TaskStatus;
use mainstay_messages::{ContainerId, Exit, SandboxId, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use director::{Behaviour, Call, Director, Made, Messenger, ReceiptWay};
pub use life::Life;
pub use program::{OnSignal, Program};

use super::fence::Fence;
use crate::ports::Clock;
use director::Rule;
pub(super) use inside::{Due, Inner};
use inside::{Kept, Report, Stamps};

/// Time after which an exit that was not settled is reported again, in milliseconds.
pub const REANNOUNCE_MS: u64 = 2_000;

/// See the module. Cheap to clone; all clones are the same host.
#[derive(Clone)]
pub struct FakeHost {
    inner: Arc<Mutex<Inner>>,
    pub(super) changed: Arc<Notify>,
    clock: Arc<dyn Clock>,
    fence: Fence,
}

impl FakeHost {
    /// A host without shims.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner::new())),
            changed: Arc::new(Notify::new()),
            clock,
            fence: Fence::default(),
        }
    }

    /// Containers of this name run this program.
    pub fn set_program(&self, name: &str, program: Program) {
        self.lock().programs.insert(name.to_owned(), program);
    }

    /// Execs run this program.
    pub fn set_exec_program(&self, program: Program) {
        self.lock().exec_program = program;
    }

    /// The next `times` calls of this kind go wrong like this.
    pub fn misbehave(&self, call: Call, behaviour: Behaviour, times: u32) {
        self.lock().rules.push(Rule { call, behaviour, times });
    }

    /// Calls that no rule is about, and reports, go as this director says.
    pub fn set_director(&self, director: impl Director) {
        self.lock().director = Some(Box::new(director));
    }

    /// Everything goes well again.
    pub fn behave(&self) {
        let mut inner = self.lock();
        inner.rules.clear();
        inner.director = None;
    }

    /// The calls of this kind that were made, in order.
    pub fn made(&self, call: Call) -> Vec<Made> {
        self.lock().made.iter().filter(|made| made.call == call).cloned().collect()
    }

    /// Shims that run.
    pub fn shims(&self) -> usize {
        self.lock().shims.len()
    }

    /// The pods whose shims run.
    pub fn pods(&self) -> Vec<SandboxId> {
        self.lock().shims.keys().cloned().collect()
    }

    /// Tasks that are there.
    pub fn tasks(&self) -> usize {
        self.lock().shims.values().map(|shim| shim.tasks.len()).sum()
    }

    /// The containers whose tasks are there, with their pods and states.
    pub fn containers(&self) -> Vec<(SandboxId, ContainerId, TaskStatus)> {
        let inner = self.lock();
        let of = |(pod, shim): (&SandboxId, &inside::Shim)| -> Vec<_> {
            shim.tasks.iter().map(|(id, task)| (pod.clone(), id.clone(), task.shown_status())).collect()
        };
        inner.shims.iter().flat_map(of).collect()
    }

    /// The limits of a container that were put in force last, if any were after its creation.
    pub fn limits(&self, container: &ContainerId) -> Option<Resources> {
        let inner = self.lock();
        inner.shims.values().find_map(|shim| shim.tasks.get(container)?.limits.clone())
    }

    /// The truth about every process that was told to run, or whose end had to be reported.
    pub fn lives(&self) -> Vec<(TaskKey, Life)> {
        self.lock().lives.iter().map(|(task, life)| (task.clone(), life.clone())).collect()
    }

    /// The truth about one process.
    pub fn life(&self, task: &TaskKey) -> Option<Life> {
        self.lock().lives.get(task).cloned()
    }

    /// Exits that have not been settled.
    pub fn unsettled(&self) -> usize {
        self.lock().reports.len()
    }

    /// An exit of a process that nobody knows of.
    pub fn report(&self, task: TaskKey, exit: Exit) {
        self.lock().reports.push(Report { task, exit, again_at: None, kept: Kept::OnHost });
        self.changed.notify_waiters();
    }

    /// A process ends now, with this code.
    pub fn end_task(&self, container: &ContainerId, code: u8) {
        self.lock().end_task(container, code);
        self.changed.notify_waiters();
    }

    /// A shim dies, and its tasks with it. Their exits are reported; when these are settled, the death is.
    pub fn kill_shim(&self, sandbox: &SandboxId) {
        self.lock().kill_shim(sandbox, self.stamps());
        self.changed.notify_waiters();
    }

    /// A shim dies while there is no supervisor: nobody sees it.
    pub fn kill_shim_unseen(&self, sandbox: &SandboxId) {
        let mut inner = self.lock();
        inner.kill_shim(sandbox, self.stamps());
        inner.forget_what_was_in_memory();
    }

    /// The machine is booted: nothing runs, nothing is reported.
    pub fn reboot(&self) {
        self.lock().reboot();
    }

    pub(super) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The daemon is killed: what only its supervisor knew is lost.
    pub(super) fn behind_a_new_fence(&self) -> Self {
        self.lock().forget_what_was_in_memory();
        Self { fence: Fence::default(), ..self.clone() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn stamps(&self) -> Stamps {
        Stamps { now: Instant::now(), wall: self.clock.now() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call and says how it goes.
    pub(super) fn begin(&self, made: Made) -> Option<Behaviour> {
        match self.fence.is_closed() {
            true => Some(Behaviour::Hang),
            false => self.lock().begin(made),
        }
    }

    /// Ends what is due; answers what is to be told now, and when to look again.
    pub(super) fn poll(&self) -> Due {
        self.lock().poll(self.stamps())
    }

    pub(super) fn settle(&self, task: &TaskKey) {
        self.lock().reports.retain(|report| report.task != *task);
        self.changed.notify_waiters();
    }

    pub(super) fn is_settled(&self, sandbox: &SandboxId) -> bool {
        !self.lock().reports.iter().any(|report| report.task.sandbox == *sandbox)
    }
}
