//! Where facts go, and the exits of dead shims that are on the way there.
//!
//! Owns: that such an exit is offered until it is settled, and that it is known until then, also when the records from
//! which it was read are removed. Never: makes an exit up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use mainstay_messages::router::{ExitReceipt, ShimDied, TaskExited, TaskKey};
use mainstay_messages::{Exit, SandboxId};
use mainstay_task_api::convert::ProcessKey;

use crate::hooks;
use crate::machine::Machine;

/// Time for the router to take an exit, in milliseconds; then it is offered again.
pub const RECEIPT_TIMEOUT_MS: u64 = 10_000;
/// The first pause before an exit of a dead shim is offered again, in milliseconds; it doubles up to
/// [`REPORT_AGAIN_MAX_MS`].
const REPORT_AGAIN_MIN_MS: u64 = 100;
/// The longest pause before an exit of a dead shim is offered again, in milliseconds.
const REPORT_AGAIN_MAX_MS: u64 = 5_000;

/// See the module. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub task_exited: Recipient<TaskExited>,
    pub shim_died: Recipient<ShimDied>,
    machine: Arc<Machine>,
    offered: Rc<RefCell<BTreeMap<TaskKey, Exit>>>,
}

impl Facts {
    /// Facts go to these, and to plugins.
    pub fn new(
        machine: Arc<Machine>,
        task_exited: Recipient<TaskExited>,
        shim_died: Recipient<ShimDied>,
    ) -> Self {
        Self { task_exited, shim_died, machine, offered: Rc::default() }
    }

    /// The exit of a process of a dead shim that is being offered.
    pub fn offered(&self, task: &TaskKey) -> Option<Exit> {
        self.offered.borrow().get(task).cloned()
    }

    /// Offers an exit of a dead shim until it is settled.
    pub async fn settle(&self, sandbox: &SandboxId, process: &ProcessKey, exit: &Exit) {
        let task = task_key(sandbox, process);
        self.offered.borrow_mut().insert(task.clone(), exit.clone());
        let mut pause_ms = REPORT_AGAIN_MIN_MS;
        while self.report(sandbox, process, exit).await == ExitReceipt::Pending {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            pause_ms = (2 * pause_ms).min(REPORT_AGAIN_MAX_MS);
        }
        self.offered.borrow_mut().remove(&task);
    }

    /// Tells the router of an exit, once.
    pub async fn report(&self, sandbox: &SandboxId, process: &ProcessKey, exit: &Exit) -> ExitReceipt {
        hooks::ended(&self.machine, sandbox, process, exit);
        let task = task_key(sandbox, process);
        let send = self.task_exited.send(TaskExited { task, exit: exit.clone() });
        match tokio::time::timeout(Duration::from_millis(RECEIPT_TIMEOUT_MS), send).await {
            Ok(Ok(receipt)) => receipt,
            // It may have been taken all the same; a second time is absorbed.
            Ok(Err(_)) | Err(_) => ExitReceipt::Pending,
        }
    }
}

/// A process as the rest of the runtime knows it.
fn task_key(sandbox: &SandboxId, process: &ProcessKey) -> TaskKey {
    TaskKey { sandbox: sandbox.clone(), container: process.container.clone(), exec: process.exec.clone() }
}
