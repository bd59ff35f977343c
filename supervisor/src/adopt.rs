//! Finding the shim of a pod again after the runtime was restarted.
//!
//! Owns: telling a shim that runs from one that is gone, by identity and never by number alone, and reporting what
//! became of the containers of one that is gone. Never: gives up a shim that runs and does not answer: it stays known
//! and watched, and its calls fail soon until it answers again.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use mainstay_messages::adjustment::Adjustment;
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::{SandboxRecord, ShimRecord};
use mainstay_messages::supervisor::{Adopted, TaskStatus};
use mainstay_messages::{ContainerId, Error, ProcessIdentity, Result, SandboxId};
use mainstay_task_api::EXTENSION_PROTOCOL;

use crate::attach;
use crate::facts::Facts;
use crate::files;
use crate::find::find_shim;
use crate::identity;
use crate::link::CallError;
use crate::machine::{Machine, now};
use crate::saga::Turn;
use crate::shim::{Shim, Stage, collect};
use crate::state::Ledger;
use crate::task;
use crate::user_namespaces;
use crate::watch::WatchedProcess;
use crate::witness;

/// Looks for the shim of a pod. None when it is gone: then what it left running is killed, and the ends of its containers
/// begin to be reported.
pub(crate) async fn adopt(
    machine: Arc<Machine>,
    facts: Facts,
    record: SandboxRecord,
    containers: Vec<ContainerId>,
) -> Result<Option<Rc<Shim>>> {
    let (sandbox, network) = (record.id.clone(), record.network.clone());
    machine.places.learn(&record)?;
    let what = format!("the search for the shim of pod {sandbox}");
    match machine.blocking(what, move |machine| look(machine, &record)).await? {
        Looked::Running(shim, pidfd, held) => {
            let process = WatchedProcess::new(pidfd)
                .map_err(|error| Error::unavailable(format!("the shim of pod {sandbox}"), error))?;
            if !process.has_ended() {
                let shim = Shim::begin(sandbox, shim, process, machine, facts);
                if let Some(held) = held {
                    shim.hold_namespace(held);
                }
                shim.set_network(network);
                return Ok(Some(shim));
            }
            bury(&machine, facts, sandbox, &containers, UnknownReason::LostWhileDown).await;
            Ok(None)
        }
        Looked::Gone(reason) => {
            bury(&machine, facts, sandbox.clone(), &containers, reason).await;
            if reason == UnknownReason::HostRebooted {
                release_network(&machine, sandbox);
            }
            Ok(None)
        }
    }
}

/// Asks a shim that runs for its tasks. What is being made is waited for: it is neither among them nor unknown. A shim that
/// is out of reach is an error, but the ends of its containers are reported all the same.
pub(crate) async fn ask(
    shim: &Rc<Shim>,
    containers: &[ContainerId],
    processes: BTreeMap<ContainerId, ProcessIdentity>,
) -> Result<Adopted> {
    shim.makings.over(containers, shim.machine.settings.timeouts.adopt_ms).await?;
    {
        let mut ledger = shim.ledger.borrow_mut();
        for container in containers {
            ledger.begun(task::process_key(container, None));
        }
    }
    let unknown: Vec<_> = containers.iter().filter(|id| !processes.contains_key(*id)).cloned().collect();
    for (container, process) in processes {
        shim.learned(&container, process);
    }
    let mut tasks = match task::tasks(shim, shim.machine.settings.timeouts.adopt_ms).await {
        Ok(tasks) => tasks,
        Err(error @ CallError::OutOfReach { .. }) if shim.is_alive() => {
            witness::begin(shim);
            return Err(error.into());
        }
        Err(error) if shim.survived(&error).await => return Err(error.into()),
        Err(_) => {
            // It died meanwhile; its exits are reported as after any death.
            shim.reached(Stage::Collected).await;
            return Ok(Adopted::Gone);
        }
    };
    let adjusted = adjustments(shim, unknown).await?;
    for (process, task) in &mut tasks {
        task.adjustment = adjusted.get(&process.container).cloned();
    }
    let mut ledger = shim.ledger.borrow_mut();
    for container in containers {
        let process = task::process_key(container, None);
        if !tasks.iter().any(|(known, _)| *known == process) {
            // Whoever asked sees that it is not in the answer.
            ledger.withdrawn(&process);
        }
    }
    for (process, task) in &tasks {
        match &task.status {
            TaskStatus::Exited(exit) => ledger.found_ended(process.clone(), exit),
            TaskStatus::Created | TaskStatus::Running | TaskStatus::Paused => {
                ledger.begun(process.clone());
            }
        }
        if let (None, Some(identity)) = (&process.exec, &task.process) {
            shim.learned(&process.container, identity.clone());
        }
    }
    Ok(Adopted::Running(
        tasks.into_iter().filter(|(process, _)| process.exec.is_none()).map(|(_, task)| task).collect(),
    ))
}

/// What plugins have changed of containers whose making was not answered before this program began: their bundles know.
async fn adjustments(
    shim: &Shim,
    containers: Vec<ContainerId>,
) -> Result<BTreeMap<ContainerId, Box<Adjustment>>> {
    if containers.is_empty() {
        return Ok(BTreeMap::new());
    }
    let sandbox = shim.sandbox.clone();
    let read = move |machine: &Machine| {
        let adjusted = containers.into_iter().filter_map(|id| {
            let record = files::read_container(&machine.directories, &sandbox, &id)?;
            Some((id, record.adjustment?))
        });
        Ok(adjusted.collect())
    };
    shim.machine.blocking(format!("the reading of bundles of pod {}", shim.sandbox), read).await
}

/// Kills what a shim that is gone has left running, and begins to report the ends of its containers.
async fn bury(
    machine: &Arc<Machine>,
    facts: Facts,
    sandbox: SandboxId,
    containers: &[ContainerId],
    reason: UnknownReason,
) {
    let recorded = collect(machine, &sandbox).await;
    let mut ledger = Ledger::default();
    for container in containers {
        ledger.begun(task::process_key(container, None));
    }
    for (process, exit) in ledger.shim_died(recorded, reason, now()) {
        let (facts, sandbox) = (facts.clone(), sandbox.clone());
        // Containers are registered with the answer to this, so none of these can be waited for.
        actix::spawn(async move { facts.settle(&sandbox, &process, &exit).await });
    }
}

/// Takes back what a pod of before a reboot had of networks: its addresses are free, whoever removes it and when. What does not
/// work now is tried again when it is stopped.
fn release_network(machine: &Arc<Machine>, sandbox: SandboxId) {
    let machine = Arc::clone(machine);
    actix::spawn(async move {
        let (pod, after_ms) = (sandbox.clone(), machine.settings.timeouts.network_ms);
        let what = format!("the taking back of the network of pod {sandbox}");
        let work = move |machine: &Machine| attach::detach_now(machine, &pod, None);
        let taken_back = async {
            let turn = Turn::take(&machine, format!("pod {sandbox}")).await?;
            turn.blocking_within(what, after_ms, work).await
        };
        if let Err(error) = taken_back.await {
            tracing::warn!(%sandbox, %error, "a pod of before the reboot still has a network");
        }
    });
}

enum Looked {
    Running(ShimRecord, OwnedFd, Option<File>),
    Gone(UnknownReason),
}

fn look(machine: &Machine, record: &SandboxRecord) -> Result<Looked> {
    let sandbox = &record.id;
    let unrecorded = || -> Result<Option<ShimRecord>> {
        let Some(process) = find_shim(&machine.directories, sandbox) else { return Ok(None) };
        let socket = machine.directories.shim_socket(sandbox);
        let ids = user_namespaces::of_pod(&machine.directories, sandbox);
        let ids = ids.map_err(|error| Error::unavailable(format!("the ids of pod {sandbox}"), error))?;
        Ok(Some(ShimRecord { process, socket, protocol: EXTENSION_PROTOCOL, ids }))
    };
    let recorded = record.shim.clone().or_else(|| files::read_identity(&machine.directories, sandbox));
    let Some(shim) = recorded.map_or_else(unrecorded, |shim| Ok(Some(shim)))? else {
        return Ok(Looked::Gone(UnknownReason::LostWhileDown));
    };
    if shim.process.boot_id != machine.boot_id {
        return Ok(Looked::Gone(UnknownReason::HostRebooted));
    }
    let pidfd = identity::open(&shim.process).map_err(|error| Error::unavailable("/proc", error))?;
    Ok(match pidfd {
        Some(pidfd) => {
            let held = machine.names.open(sandbox, shim.process.pid);
            Looked::Running(shim, pidfd, held)
        }
        None => Looked::Gone(UnknownReason::LostWhileDown),
    })
}
