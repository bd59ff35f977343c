//! Starting a pod's shim, and taking everything away again when a step fails.

use std::fs;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::record::SandboxRecord;
use mainstay_messages::{Error, Result};

use crate::cgroup;
use crate::link::CallError;
use crate::machine::Machine;
use crate::oci::pod_resources;
use crate::shim::{Facts, Shim};
use crate::spawn::{self, Spawned};
use crate::stop;
use crate::watch::WatchedProcess;

/// How much of a shim's log is shown when it could not be started, in bytes.
const LOG_SHOWN_MAX: usize = 512;

/// Makes the pod's cgroup, starts the shim, and has it make the pod's namespaces.
pub(crate) async fn launch(machine: Arc<Machine>, facts: Facts, record: SandboxRecord) -> Result<Rc<Shim>> {
    // What an attempt left behind that was cut short by the end of this program.
    stop::sweep(&machine, &record.id).await?;
    let spawned = {
        let record = record.clone();
        machine.blocking(format!("the start of the shim of pod {}", record.id), move |machine| {
            begin(machine, &record)
        })
    };
    let launched = match spawned.await {
        Ok(spawned) => settle(&machine, facts, &record, spawned).await,
        Err(error) => Err(error),
    };
    if launched.is_err() {
        undo(&machine, &record).await;
    }
    launched
}

fn begin(machine: &Machine, record: &SandboxRecord) -> Result<Spawned> {
    let group = machine.pod_group(&record.id)?;
    cgroup::create(&group, &machine.layout, &pod_resources(&record.spec.resources))?;
    spawn::spawn(machine, &record.id)
}

/// Waits until the shim answers and the pod's namespaces are there.
async fn settle(
    machine: &Arc<Machine>,
    facts: Facts,
    record: &SandboxRecord,
    spawned: Spawned,
) -> Result<Rc<Shim>> {
    let process = WatchedProcess::new(spawned.pidfd)
        .map_err(|error| Error::unavailable(format!("the shim of pod {}", record.id), error))?;
    let shim = Shim::begin(record.id.clone(), spawned.record, process, Arc::clone(machine), facts);
    let after_ms = machine.settings.timeouts.launch_ms;
    let ready = async {
        loop {
            match shim.namespaces(&record.spec).await {
                Ok(_) => break Ok(()),
                // On a busy machine it may take longer than a sign of life may otherwise take.
                Err(CallError::Silent { .. }) if shim.is_alive() => {}
                Err(error) if shim.survived(&error).await => break Err(Error::from(error)),
                Err(_) => break Err(died(machine, &shim).await),
            }
        }
    };
    let ready = tokio::select! {
        ready = ready => ready,
        _ = shim.process.ended() => Err(died(machine, &shim).await),
        () = tokio::time::sleep(Duration::from_millis(after_ms)) => Err(Error::DeadlineExceeded {
            what: format!("the start of the shim of pod {}", record.id),
            after_ms,
        }),
    };
    match ready {
        Ok(()) => Ok(shim),
        Err(error) => {
            if let Err(left) = stop::end(&shim).await {
                tracing::warn!(sandbox = %record.id, error = %left, "a shim that could not be started does not end");
            }
            Err(error)
        }
    }
}

/// Why a shim ended before it could be used, with the last thing it said.
async fn died(machine: &Arc<Machine>, shim: &Shim) -> Error {
    let how = shim.process.ended().await;
    let path = machine.directories.shim_log(&shim.sandbox);
    let log = fs::read(path).unwrap_or_default();
    let tail = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_SHOWN_MAX)..]).trim().to_owned();
    let reason =
        if tail.is_empty() { format!("it {how}") } else { format!("it {how}; its log ends with: {tail}") };
    Error::unavailable(format!("the shim of pod {}", shim.sandbox), reason)
}

/// Removes what a launch that failed has made. What resists is left to [`stop::sweep`], with the next stop or launch.
async fn undo(machine: &Arc<Machine>, record: &SandboxRecord) {
    if let Err(left) = stop::sweep(machine, &record.id).await {
        tracing::warn!(sandbox = %record.id, error = %left, "a failed launch left something behind");
    }
}
