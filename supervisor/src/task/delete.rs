//! Remove-container: what undoes the steps of [`CREATE_CONTAINER`].
//!
//! Everything here may be done again, and what is not there is gone already. With a shim that runs, the task is
//! removed by it and by nobody else: it knows whether something of it still runs.

use std::rc::Rc;
use std::sync::Arc;

use mainstay_messages::{ContainerId, Result, SandboxId};
use mainstay_task_api::task::DeleteRequest;

use super::{CREATE_CONTAINER, call, process_key};
use crate::cgroup;
use crate::files;
use crate::link::CallError;
use crate::machine::Machine;
use crate::saga::Turn;
use crate::shim::{Shim, Stage};

/// What may be there of a container.
pub(crate) struct Remains {
    pub turn: Turn,
    pub machine: Arc<Machine>,
    pub sandbox: SandboxId,
    pub container: ContainerId,
    /// The shim of its pod, dead or alive; none when there is none any more.
    shim: Option<Rc<Shim>>,
    was: Was,
}

/// What a container has come to before it is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Was {
    /// It was made, as far as anybody knows, and the end of its process is a fact.
    Made,
    /// Its making has failed.
    Failed,
}

impl Remains {
    /// Waits for its turn to work on the container.
    pub async fn of(
        machine: &Arc<Machine>,
        sandbox: &SandboxId,
        container: &ContainerId,
        shim: Option<Rc<Shim>>,
        was: Was,
    ) -> Result<Self> {
        let turn = Turn::of_container(machine, container).await?;
        let (machine, sandbox) = (Arc::clone(machine), sandbox.clone());
        Ok(Self { turn, machine, sandbox, container: container.clone(), shim, was })
    }
}

/// Removes a task, and all that was made for it.
pub(crate) async fn delete(shim: Rc<Shim>, container: ContainerId) -> Result<()> {
    let known = Some(Rc::clone(&shim));
    clear(Remains::of(&shim.machine, &shim.sandbox, &container, known, Was::Made).await?).await?;
    shim.forget(&container);
    Ok(())
}

/// Removes what was made for a task without the help of a shim.
pub(crate) async fn remove_directly(
    machine: &Arc<Machine>,
    sandbox: &SandboxId,
    container: &ContainerId,
) -> Result<()> {
    clear(Remains::of(machine, sandbox, container, None, Was::Made).await?).await
}

async fn clear(remains: Remains) -> Result<()> {
    let (undone, report) = CREATE_CONTAINER.undo_all(&remains).await;
    remains.machine.note_container(&remains.sandbox, &remains.container, report);
    undone
}

/// Removes the task and its cgroup.
pub(super) async fn remove_task(remains: &Remains) -> Result<()> {
    if let Some(shim) = &remains.shim {
        if remains.was == Was::Failed {
            shim.ledger.borrow_mut().disowned(&process_key(&remains.container, None));
        }
        remove_by_shim(shim, &remains.container).await?;
    }
    let (sandbox, container) = (remains.sandbox.clone(), remains.container.clone());
    let work = move |machine: &Machine| cgroup::remove(&machine.container_group(&sandbox, &container)?);
    remains.turn.blocking(format!("the removal of the cgroup of container {}", remains.container), work).await
}

async fn remove_by_shim(shim: &Shim, container: &ContainerId) -> Result<()> {
    if shim.is_alive() {
        let request = DeleteRequest { id: container.as_str().to_owned(), ..Default::default() };
        let call = call(shim, "the removal", container, shim.machine.settings.timeouts.delete_ms);
        let deleted =
            shim.link.call(call, async |services, context| services.task.delete(context, &request).await);
        match deleted.await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            // Nobody will ever hear from it how the container is; what kills its cgroup knows that nothing of it runs.
            Err(CallError::OutOfReach { .. }) => {}
            Err(error) if shim.survived(&error).await => return Err(error.into()),
            Err(_) => {}
        }
    }
    if !shim.is_alive() {
        // Its exit record must have been read before it is removed.
        shim.reached(Stage::Collected).await;
    }
    Ok(())
}

/// Removes the container's bundle.
pub(super) async fn remove_bundle(remains: &Remains) -> Result<()> {
    let (sandbox, container) = (remains.sandbox.clone(), remains.container.clone());
    let work = move |machine: &Machine| files::remove_tree(&machine.directories.bundle(&sandbox, &container));
    remains.turn.blocking(format!("the removal of the bundle of container {}", remains.container), work).await
}

/// Removes what the container has changed.
pub(super) async fn remove_layer(remains: &Remains) -> Result<()> {
    let container = remains.container.clone();
    let work = move |machine: &Machine| files::remove_tree(&machine.directories.layer(&container).directory);
    remains.turn.blocking(format!("the removal of the layer of container {}", remains.container), work).await
}

/// Removes the container's log and those that were rotated away.
pub(super) async fn remove_logs(remains: &Remains) -> Result<()> {
    let (sandbox, container) = (remains.sandbox.clone(), remains.container.clone());
    let work = move |machine: &Machine| files::remove_logs(&machine.directories, &sandbox, &container);
    remains.turn.blocking(format!("the removal of the logs of container {}", remains.container), work).await
}
