//! Taking inventory, and removing what no record accounts for: by the commands by which it would have been removed with
//! its owner.

use std::sync::Arc;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, AsyncContext, Handler, Message, ResponseFuture};
use mainstay_messages::audit::{Inventory, Leak};
use mainstay_messages::router::TaskKey;
use mainstay_messages::supervisor::{
    DeleteTask, PodEnd, RemoveLeak, RestoreNetwork, SignalScope, SignalTask, StopShim, TakeInventory,
};
use mainstay_messages::{ContainerId, Error, ProcessIdentity, Result, SandboxId, Signal};

use super::{ShimSupervisor, guarded};
use crate::attach;
use crate::cgroup;
use crate::files;
use crate::identity;
use crate::inventory;
use crate::machine::Machine;
use crate::saga::Turn;
use crate::stop;
use crate::task;
use crate::watch::WatchedProcess;

/// Time for a container that was killed to be known as ended by its shim, which removes none that runs, in milliseconds.
pub const LEAK_ENDED_MS: u64 = 5_000;
/// Time between two attempts to remove it, in milliseconds.
const LEAK_RETRY_MS: u64 = 20;

impl Handler<TakeInventory> for ShimSupervisor {
    type Result = ResponseFuture<Result<Inventory>>;

    fn handle(&mut self, TakeInventory { processes }: TakeInventory, _: &mut Self::Context) -> Self::Result {
        let machine = Arc::clone(&self.machine);
        Box::pin(guarded(async move {
            machine.blocking("the inventory", move |machine| inventory::take(machine, processes)).await
        }))
    }
}

impl Handler<RestoreNetwork> for ShimSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, RestoreNetwork { record }: RestoreNetwork, _: &mut Self::Context) -> Self::Result {
        tracing::warn!(sandbox = %record.id, "what the pod has lost of its network is made anew");
        self.with_shim(&record.id.clone(), |shim| attach::restore(shim, record))
    }
}

impl Handler<RemoveLeak> for ShimSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, RemoveLeak { leak }: RemoveLeak, context: &mut Self::Context) -> Self::Result {
        let (this, machine) = (context.address(), Arc::clone(&self.machine));
        tracing::warn!(?leak, "what no record accounts for is removed");
        Box::pin(guarded(async move {
            match leak {
                Leak::Pod { sandbox } => send(&this, StopShim { sandbox, end: PodEnd::Removed }).await,
                Leak::Container { sandbox, container } => remove_container(&this, sandbox, container).await,
                Leak::Shim { sandbox, process } => end_shim(&sandbox, &process).await,
                Leak::PodProcesses { sandbox } => {
                    let what = format!("the killing of pod {sandbox}");
                    let kill = move |machine: &Machine| cgroup::kill(&machine.pod_group(&sandbox)?);
                    machine.blocking(what, kill).await
                }
                Leak::ContainerProcesses { sandbox, container } => {
                    task::kill_directly(&machine, &sandbox, &container).await
                }
                Leak::Layer { container } => {
                    let what = format!("the removal of the layer of container {container}");
                    let layer = machine.directories.layer(&container).directory;
                    machine.blocking(what, move |_| files::remove_tree(&layer)).await
                }
                Leak::Network { sandbox } => {
                    let what = format!("the taking back of the network of pod {sandbox}");
                    let after_ms = machine.settings.timeouts.network_ms;
                    // A saga of the pod may be at work on the same things.
                    let turn = Turn::take(&machine, format!("pod {sandbox}")).await?;
                    let work = move |machine: &Machine| attach::remove_leak(machine, &sandbox);
                    turn.blocking_within(what, after_ms, work).await
                }
                Leak::LogDirectory { sandbox } => {
                    let logs = machine.directories.pod_logs(&sandbox);
                    let what = format!("the removal of {}", logs.display());
                    machine.blocking(what, move |_| files::remove_empty(&logs)).await
                }
            }
        }))
    }
}

async fn send<M>(to: &Addr<ShimSupervisor>, message: M) -> Result<()>
where
    M: Message<Result = Result<()>> + Send + 'static,
    ShimSupervisor: Handler<M>,
    <ShimSupervisor as Actor>::Context: ToEnvelope<ShimSupervisor, M>,
{
    to.send(message).await.map_err(|error| Error::unavailable("the supervisor", error))?
}

/// Kills a container, then removes it. Its shim, if there is one, has to see it end in between.
async fn remove_container(
    this: &Addr<ShimSupervisor>,
    sandbox: SandboxId,
    container: ContainerId,
) -> Result<()> {
    let task = TaskKey { sandbox: sandbox.clone(), container: container.clone(), exec: None };
    send(this, SignalTask { task, signal: Signal::KILL, scope: SignalScope::Cgroup }).await?;
    let removed = async {
        loop {
            let delete = DeleteTask { sandbox: sandbox.clone(), container: container.clone() };
            match send(this, delete).await {
                Err(Error::Unavailable { .. }) => {
                    tokio::time::sleep(Duration::from_millis(LEAK_RETRY_MS)).await;
                }
                removed => return removed,
            }
        }
    };
    let late = |_| Error::DeadlineExceeded {
        what: format!("the removal of container {container}"),
        after_ms: LEAK_ENDED_MS,
    };
    tokio::time::timeout(Duration::from_millis(LEAK_ENDED_MS), removed).await.map_err(late)?
}

async fn end_shim(sandbox: &SandboxId, process: &ProcessIdentity) -> Result<()> {
    let opened = identity::open(process).map_err(|error| Error::unavailable("/proc", error))?;
    let Some(pidfd) = opened else { return Ok(()) };
    let process = WatchedProcess::new(pidfd).map_err(|error| Error::unavailable("a pidfd", error))?;
    stop::kill(&process, sandbox).await
}
