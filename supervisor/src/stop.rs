//! Ending a pod's shim, and removing what was made for the pod.
//!
//! Everything here may be done again, and what is not there is gone already.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::{Error, Result, SandboxId};
use mainstay_task_api::task::ShutdownRequest;

use crate::cgroup;
use crate::files;
use crate::find::find_shim;
use crate::identity;
use crate::link::Call;
use crate::machine::Machine;
use crate::settings::Lifetime;
use crate::shim::{Shim, Stage};
use crate::watch::WatchedProcess;

/// Time for a shim that was sent SIGKILL to be gone, in milliseconds.
pub const SHIM_KILL_WAIT_MS: u64 = 5_000;
/// Time for the exits of a stopped shim to be settled before its exit records are removed, in milliseconds. They are
/// offered on from memory.
pub const STOP_REPORTS_MS: u64 = 5_000;

/// Ends a shim and everything in it, and removes the pod's directories and cgroup.
pub(crate) async fn stop(shim: Rc<Shim>) -> Result<()> {
    end(&shim).await?;
    let reported = shim.reached(Stage::Reported);
    if tokio::time::timeout(Duration::from_millis(STOP_REPORTS_MS), reported).await.is_err() {
        tracing::warn!(sandbox = %shim.sandbox, "exits of a stopped shim are not settled yet");
    }
    remove(&shim.machine, &shim.sandbox).await
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
            if let Err(error) = asked.await {
                tracing::debug!(sandbox = %shim.sandbox, ?error, "the shim was asked to end");
            }
            shim.process.ended().await
        };
        if tokio::time::timeout(Duration::from_millis(limit_ms), polite).await.is_err() {
            tracing::warn!(sandbox = %shim.sandbox, after_ms = limit_ms, "the shim does not end and is killed");
        }
    }
    kill(&shim.process, &shim.sandbox).await
}

/// Ends and removes what there is of a pod that no shim is known of.
pub(crate) async fn sweep(machine: &Arc<Machine>, sandbox: &SandboxId) -> Result<()> {
    let pod = sandbox.clone();
    let found = machine.blocking(format!("the search for the shim of pod {sandbox}"), move |machine| {
        if !machine.directories.pod(&pod).exists() {
            return Ok(None);
        }
        let recorded = files::read_identity(&machine.directories, &pod).map(|shim| shim.process);
        let process = recorded.or_else(|| find_shim(&machine.directories, &pod));
        let Some(process) = process else { return Ok(None) };
        identity::open(&process).map_err(|error| Error::unavailable("/proc", error))
    });
    if let Some(pidfd) = found.await? {
        let process = WatchedProcess::new(pidfd).map_err(|error| Error::unavailable("a pidfd", error))?;
        kill(&process, sandbox).await?;
    }
    remove(machine, sandbox).await
}

/// Kills what is left of a pod and removes its cgroup and directory.
async fn remove(machine: &Arc<Machine>, sandbox: &SandboxId) -> Result<()> {
    let pod = sandbox.clone();
    let what = format!("the removal of pod {sandbox}");
    let work = move |machine: &Machine| {
        cgroup::remove(&machine.pod_group(&pod)?)?;
        if machine.settings.lifetime == Lifetime::WithRuntime {
            machine.remove_parent_group();
        }
        files::remove_pod(&machine.directories, &pod)
    };
    machine.blocking(what, work).await
}

async fn kill(process: &WatchedProcess, sandbox: &SandboxId) -> Result<()> {
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
