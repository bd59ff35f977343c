//! Stop-pod: what undoes the steps of [`RUN_POD`]. It ends a pod's shim and removes what was made for the pod.
//!
//! Everything here may be done again, and what is not there is gone already.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::supervisor::PodEnd;
use mainstay_messages::{Error, Result, SandboxId};
use mainstay_task_api::task::ShutdownRequest;

use crate::cgroup;
use crate::files;
use crate::find::find_shim;
use crate::identity;
use crate::launch::RUN_POD;
use crate::link::{Call, CallError};
use crate::machine::Machine;
use crate::saga::Turn;
use crate::shim::{Shim, Stage};
use crate::watch::WatchedProcess;

/// Time for a shim that was sent SIGKILL to be gone, in milliseconds.
pub const SHIM_KILL_WAIT_MS: u64 = 5_000;
/// Time for the exits of a stopped shim to be settled before its exit records are removed, in milliseconds. They are
/// offered on from memory.
pub const STOP_REPORTS_MS: u64 = 5_000;

/// What may be there of a pod.
pub(crate) struct Remains {
    pub machine: Arc<Machine>,
    pub sandbox: SandboxId,
    /// Its shim, where it is known. One that is not is looked for.
    pub shim: RefCell<Option<Rc<Shim>>>,
    /// What comes after it is undone.
    pub end: PodEnd,
    pub turn: Turn,
}

impl Remains {
    /// Waits for its turn to work on the pod.
    pub async fn of(
        machine: &Arc<Machine>,
        sandbox: &SandboxId,
        shim: Option<Rc<Shim>>,
        end: PodEnd,
    ) -> Result<Self> {
        let turn = Turn::take(machine, format!("pod {sandbox}")).await?;
        let (machine, sandbox) = (Arc::clone(machine), sandbox.clone());
        Ok(Self { machine, sandbox, shim: RefCell::new(shim), end, turn })
    }
}

/// Ends a shim and everything in it, and removes the pod's directories and cgroup.
pub(crate) async fn stop(shim: Rc<Shim>, end: PodEnd) -> Result<()> {
    clear(Remains::of(&shim.machine, &shim.sandbox, Some(Rc::clone(&shim)), end).await?).await
}

/// Ends and removes what there is of a pod that no shim is known of.
pub(crate) async fn sweep(machine: &Arc<Machine>, sandbox: &SandboxId, end: PodEnd) -> Result<()> {
    clear(Remains::of(machine, sandbox, None, end).await?).await
}

async fn clear(remains: Remains) -> Result<()> {
    let (undone, report) = RUN_POD.undo_all(&remains).await;
    remains.machine.note_pod(&remains.sandbox, report);
    undone
}

/// Ends the shim, and waits until its exits are settled: they are offered on from its records.
pub(crate) async fn end_shim(remains: &Remains) -> Result<()> {
    let shim = remains.shim.borrow().clone();
    let Some(shim) = shim else { return end_unknown(remains).await };
    end(&shim).await?;
    let reported = shim.reached(Stage::Reported);
    if tokio::time::timeout(Duration::from_millis(STOP_REPORTS_MS), reported).await.is_err() {
        tracing::warn!(sandbox = %shim.sandbox, "exits of a stopped shim are not settled yet");
    }
    Ok(())
}

/// Kills what is left of a pod and removes its cgroup.
pub(crate) async fn remove_cgroup(remains: &Remains) -> Result<()> {
    let sandbox = remains.sandbox.clone();
    let work = move |machine: &Machine| cgroup::remove(&machine.pod_group(&sandbox)?);
    remains.turn.blocking(format!("the removal of the cgroup of pod {}", remains.sandbox), work).await
}

/// Removes the pod's directory and all that is in it.
pub(crate) async fn remove_directories(remains: &Remains) -> Result<()> {
    let sandbox = remains.sandbox.clone();
    let work = move |machine: &Machine| {
        files::remove_tree(&machine.directories.pod(&sandbox))?;
        machine.places.forget(&sandbox);
        Ok(())
    };
    remains.turn.blocking(format!("the removal of the directories of pod {}", remains.sandbox), work).await
}

/// Ends the shim's process: it is asked to, and killed when it does not.
pub(crate) async fn end(shim: &Shim) -> Result<()> {
    shim.intend_end();
    if shim.is_alive() {
        let limit_ms = shim.machine.settings.timeouts.stop_ms;
        let polite = async {
            let request =
                ShutdownRequest { id: shim.sandbox.as_str().to_owned(), now: true, ..Default::default() };
            let call = Call::new(format!("the shutdown of the shim of pod {}", shim.sandbox), limit_ms);
            let asked = shim
                .link
                .call(call, async |services, context| services.task.shutdown(context, &request).await);
            match asked.await {
                Ok(_) => {}
                // There is nothing to wait for.
                Err(CallError::OutOfReach { reason, .. }) => {
                    tracing::warn!(sandbox = %shim.sandbox, reason, "the shim is out of reach and is killed");
                    return;
                }
                Err(error) => tracing::debug!(sandbox = %shim.sandbox, ?error, "the shim was asked to end"),
            }
            shim.process.ended().await;
        };
        if tokio::time::timeout(Duration::from_millis(limit_ms), polite).await.is_err() {
            tracing::warn!(sandbox = %shim.sandbox, after_ms = limit_ms, "the shim does not end and is killed");
        }
    }
    kill(&shim.process, &shim.sandbox).await
}

/// Looks for a shim that nobody has told of, and kills it.
async fn end_unknown(remains: &Remains) -> Result<()> {
    let sandbox = remains.sandbox.clone();
    let work = move |machine: &Machine| {
        if !machine.directories.pod(&sandbox).exists() {
            return Ok(None);
        }
        let recorded = files::read_identity(&machine.directories, &sandbox).map(|shim| shim.process);
        let process = recorded.or_else(|| find_shim(&machine.directories, &sandbox));
        let Some(process) = process else { return Ok(None) };
        identity::open(&process).map_err(|error| Error::unavailable("/proc", error))
    };
    let found =
        remains.turn.blocking(format!("the search for the shim of pod {}", remains.sandbox), work).await?;
    let Some(pidfd) = found else { return Ok(()) };
    let process = WatchedProcess::new(pidfd).map_err(|error| Error::unavailable("a pidfd", error))?;
    kill(&process, &remains.sandbox).await
}

/// Kills a shim, and waits until it is gone.
pub(crate) async fn kill(process: &WatchedProcess, sandbox: &SandboxId) -> Result<()> {
    if process.has_ended() {
        return Ok(());
    }
    process.kill().map_err(|error| Error::unavailable(format!("the shim of pod {sandbox}"), error))?;
    match tokio::time::timeout(Duration::from_millis(SHIM_KILL_WAIT_MS), process.ended()).await {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::DeadlineExceeded {
            what: format!("the end of the shim of pod {sandbox} after SIGKILL"),
            after_ms: SHIM_KILL_WAIT_MS,
        }),
    }
}
