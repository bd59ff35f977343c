//! One shim, from the supervisor's side.
//!
//! Owns: its process, its connection, the ledger of its processes, the loop that fetches exits, and what follows from
//! its death. Never: is shared between threads: all of it lives on the supervisor's.
//!
//! ```text
//!   Alive ──process ends──► Ended ──cgroup killed, records read──► Collected ──exits settled──► Reported
//! ```
//!
//! The work for one shim waits for no other: each call is a task of its own with a deadline of its own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

use mainstay_messages::network::PodNetwork;
use mainstay_messages::process::{Exit, UnknownReason};
use mainstay_messages::record::ShimRecord;
use mainstay_messages::router::{ExitReceipt, ShimDied};
use mainstay_messages::spec::IpcMode;
use mainstay_messages::{ContainerId, Error, ProcessIdentity, Result, SandboxId, SandboxSpec};
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::extension::{self as wire, CreatePodRequest, IdMapping, NetworkMode, PidMode};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use ttrpc::Code;

use crate::cgroup;
use crate::exits;
use crate::facts::Facts;
use crate::files;
use crate::link::{Call, CallError, Link};
use crate::machine::{Machine, now};
use crate::oci::PodNamespaces;
use crate::state::Ledger;
use crate::task::Makings;
use crate::watch::WatchedProcess;

/// How soon a shim's containers are dead and their exits are reported after its own death, in milliseconds.
pub const SHIM_DEATH_DEADLINE_MS: u64 = 5_000;
/// The version of the extension since which a shim has other programs run its containers.
const BACKEND_PROTOCOL: u32 = 3;
/// How much longer the making of a pod may take where another program stands behind its shim, in milliseconds: a virtual machine
/// boots.
const BACKEND_LAUNCH_MS: u64 = 70_000;

/// How far the end of a shim has been dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It runs.
    Alive,
    /// Its process has ended.
    Ended,
    /// Nothing of its pod runs any more, and its exit records have been read.
    Collected,
    /// All exits are settled.
    Reported,
}

/// Whether a shim's end was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Unexpected,
    Intended,
}

/// One shim.
pub(crate) struct Shim {
    pub sandbox: SandboxId,
    pub record: ShimRecord,
    pub machine: Arc<Machine>,
    pub link: Link,
    pub process: WatchedProcess,
    pub ledger: RefCell<Ledger>,
    pub makings: Makings,
    pub facts: Facts,
    namespaces: RefCell<Option<PodNamespaces>>,
    /// What its pod's containers are to be run by; of use until the pod is made.
    backend: RefCell<Option<wire::Backend>>,
    /// The pod's network namespace, held so that it outlives a shim that dies.
    netns: RefCell<Option<Arc<File>>>,
    network: RefCell<Option<PodNetwork>>,
    /// The PID 1 of each container, as far as it is known.
    processes: RefCell<BTreeMap<ContainerId, ProcessIdentity>>,
    /// The containers whose ends are reported without the shim.
    witnessed: RefCell<BTreeSet<ContainerId>>,
    ending: Cell<Ending>,
    stage: watch::Sender<Stage>,
    tasks: RefCell<Vec<AbortHandle>>,
}

impl Shim {
    /// Begins to watch a shim and to fetch its exits.
    pub fn begin(
        sandbox: SandboxId,
        record: ShimRecord,
        process: WatchedProcess,
        machine: Arc<Machine>,
        facts: Facts,
    ) -> Rc<Self> {
        let timeouts = machine.settings.timeouts.clone();
        let link = Link::new(sandbox.clone(), record.socket.clone(), record.process.clone(), timeouts);
        let shim = Rc::new(Self {
            sandbox,
            record,
            machine,
            link,
            process,
            ledger: RefCell::default(),
            makings: Makings::default(),
            facts,
            namespaces: RefCell::new(None),
            backend: RefCell::new(None),
            netns: RefCell::new(None),
            network: RefCell::new(None),
            processes: RefCell::default(),
            witnessed: RefCell::default(),
            ending: Cell::new(Ending::Unexpected),
            stage: watch::Sender::new(Stage::Alive),
            tasks: RefCell::default(),
        });
        let exits = actix::spawn(exits::fetch(Rc::clone(&shim))).abort_handle();
        let end = actix::spawn(Rc::clone(&shim).outlive(exits.clone())).abort_handle();
        *shim.tasks.borrow_mut() = vec![exits, end];
        shim
    }

    /// The pod's network namespace, as far as it has one of its own and it was found.
    pub fn namespace(&self) -> Option<Arc<File>> {
        self.netns.borrow().clone()
    }

    /// Holds the pod's network namespace for as long as this shim is known.
    pub fn hold_namespace(&self, held: File) {
        self.netns.replace(Some(Arc::new(held)));
    }

    /// Says what runs the containers of the pod that it is to make.
    pub fn set_backend(&self, backend: Option<wire::Backend>) {
        self.backend.replace(backend);
    }

    /// What the pod has of a network.
    pub fn network(&self) -> Option<PodNetwork> {
        self.network.borrow().clone()
    }

    /// The pod has its network, or none any more.
    pub fn set_network(&self, network: Option<PodNetwork>) {
        self.network.replace(network);
    }

    /// Stops dealing with a shim and lets it run, to be adopted by another supervisor.
    pub fn let_go(&self) {
        self.link.close();
        for task in self.tasks.borrow_mut().drain(..) {
            task.abort();
        }
    }

    /// Keeps work for it, which ends when it is let go.
    pub fn hold(&self, task: AbortHandle) {
        self.tasks.borrow_mut().push(task);
    }

    /// The PID 1 of a container is known.
    pub fn learned(&self, container: &ContainerId, process: ProcessIdentity) {
        self.processes.borrow_mut().insert(container.clone(), process);
    }

    /// The PID 1 of a container.
    pub fn process_of(&self, container: &ContainerId) -> Option<ProcessIdentity> {
        self.processes.borrow().get(container).cloned()
    }

    /// A container was removed.
    pub fn forget(&self, container: &ContainerId) {
        self.ledger.borrow_mut().forgotten(container);
        self.processes.borrow_mut().remove(container);
        self.witnessed.borrow_mut().remove(container);
    }

    /// The containers that have not ended and for which there has been no witness so far, with their processes as far as these
    /// are known; there is a witness from now on.
    pub fn unwitnessed(&self) -> Vec<(ContainerId, Option<ProcessIdentity>)> {
        let mut witnessed = self.witnessed.borrow_mut();
        let mut live = self.ledger.borrow().live();
        live.retain(|container| witnessed.insert(container.clone()));
        live.into_iter().map(|container| (container.clone(), self.process_of(&container))).collect()
    }

    /// Whether it runs, as far as anybody knows.
    pub fn is_alive(&self) -> bool {
        *self.stage.borrow() == Stage::Alive && !self.process.has_ended()
    }

    /// Whether it runs, for whoever has just been told `error` by it: a connection that breaks is often the first sign of
    /// its end.
    pub async fn survived(&self, error: &CallError) -> bool {
        let broken = matches!(error, CallError::Apart { .. });
        !(broken && self.process.has_ended_soon().await) && self.is_alive()
    }

    /// An error when it does not run.
    pub fn alive(&self) -> Result<()> {
        if self.is_alive() {
            return Ok(());
        }
        Err(Error::unavailable(format!("the shim of pod {}", self.sandbox), "its process has ended"))
    }

    /// Its end is asked for: it will not be reported as a death.
    pub fn intend_end(&self) {
        self.ending.set(Ending::Intended);
    }

    /// Waits until its end has been dealt with so far.
    pub async fn reached(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        // The sender is ours: it cannot be gone.
        let _ = stages.wait_for(|reached| *reached >= stage).await;
    }

    /// The pod's namespaces, which the shim makes when it is first asked.
    pub async fn namespaces(&self, pod: &SandboxSpec) -> Result<PodNamespaces, CallError> {
        if let Some(namespaces) = &*self.namespaces.borrow() {
            return Ok(namespaces.clone());
        }
        let request = CreatePodRequest {
            hostname: pod.hostname().to_owned(),
            network: network(pod.network).into(),
            pid: pid_mode(pod.pid).into(),
            ipc: ipc_mode(pod.ipc).into(),
            sysctls: pod.sysctls.clone().into_iter().collect(),
            uids: self.record.ids.iter().flat_map(|ids| &ids.uids).map(mapping).collect(),
            gids: self.record.ids.iter().flat_map(|ids| &ids.gids).map(mapping).collect(),
            backend: self.backend.borrow().clone().into(),
            ..Default::default()
        };
        let with_backend = request.backend.is_some();
        let call = Call::new(
            format!("the making of namespaces by the shim of pod {}", self.sandbox),
            self.machine.settings.timeouts.launch_ms + if with_backend { BACKEND_LAUNCH_MS } else { 0 },
        );
        let made = self
            .link
            .call(call, async |services, context| services.extension.create_pod(context, &request).await);
        let made = made.await?;
        let mut namespaces = PodNamespaces {
            shm: (!made.shm_path.is_empty()).then(|| made.shm_path.clone().into()),
            ids: self.record.ids.clone(),
            ..PodNamespaces::default()
        };
        for namespace in made.namespaces {
            let place = match namespace.kind.as_str() {
                "network" => &mut namespaces.network,
                "ipc" => &mut namespaces.ipc,
                "uts" => &mut namespaces.uts,
                "pid" => &mut namespaces.pid,
                "user" => &mut namespaces.user,
                other => {
                    tracing::warn!(sandbox = %self.sandbox, other, "the shim made a namespace of an unknown kind");
                    continue;
                }
            };
            *place = Some(namespace.path.into());
        }
        // Its containers would have the host's ids.
        let without_ids = namespaces.ids.is_some() && namespaces.user.is_none();
        let with_own_ipc = pod.ipc == IpcMode::Host && namespaces.ipc.is_some();
        let without_backend = with_backend && self.link.protocol() < BACKEND_PROTOCOL;
        let ignored = [(without_ids, "user_namespace"), (with_own_ipc, "ipc"), (without_backend, "handler")];
        if let Some((_, setting)) = ignored.into_iter().find(|(ignored, _)| *ignored) {
            let what = format!("the making of namespaces by the shim of pod {}", self.sandbox);
            let reason = format!("{setting}: the program of the shim is too old for it");
            return Err(CallError::Refused { what, code: Code::UNIMPLEMENTED, reason });
        }
        Ok(self.namespaces.borrow_mut().insert(namespaces).clone())
    }

    /// Tells the router of an exit, once.
    pub async fn report(&self, process: &ProcessKey, exit: &Exit) -> ExitReceipt {
        self.facts.report(&self.sandbox, process, exit).await
    }

    /// Waits for the end of the process, and deals with it.
    async fn outlive(self: Rc<Self>, exits: AbortHandle) {
        let how = self.process.ended().await;
        exits.abort();
        self.link.close();
        self.stage.send_replace(Stage::Ended);
        match self.ending.get() {
            Ending::Intended => tracing::debug!(sandbox = %self.sandbox, how, "shim ended"),
            Ending::Unexpected => tracing::warn!(sandbox = %self.sandbox, how, "shim died"),
        }
        let recorded = collect(&self.machine, &self.sandbox).await;
        self.stage.send_replace(Stage::Collected);
        let exits = self.ledger.borrow_mut().shim_died(recorded, UnknownReason::ShimDied, now());
        let settle = exits.iter().map(|(process, exit)| async {
            self.facts.settle(&self.sandbox, process, exit).await;
            self.ledger.borrow_mut().receipt(process, ExitReceipt::Settled);
        });
        futures::future::join_all(settle).await;
        self.stage.send_replace(Stage::Reported);
        if self.ending.get() == Ending::Unexpected {
            self.facts
                .shim_died
                .do_send(ShimDied { sandbox: self.sandbox.clone(), reason: format!("the shim {how}") });
        }
    }
}

/// Reads what a dead shim has left behind, and kills what it has left running.
pub(crate) async fn collect(machine: &Arc<Machine>, sandbox: &SandboxId) -> BTreeMap<ProcessKey, Exit> {
    let pod = sandbox.clone();
    let work = machine.blocking(format!("the end of pod {sandbox}"), move |machine| {
        // The records first: they are complete, since their writer is dead.
        let recorded = files::exit_records(&machine.directories, &pod);
        // Its number may be another process's by and by, and the name must not lead there.
        if let Err(error) = machine.names.remove(&pod) {
            tracing::warn!(sandbox = %pod, %error, "the name of a dead shim's network namespace stays");
        }
        let killed = machine.pod_group(&pod).and_then(|group| cgroup::kill(&group));
        Ok((recorded, killed))
    });
    match work.await {
        Ok((recorded, killed)) => {
            if let Err(error) = killed {
                tracing::error!(%sandbox, %error, "processes of a dead shim are left");
            }
            recorded
        }
        Err(error) => {
            tracing::error!(%sandbox, %error, "a dead shim's pod could not be looked at: exits become unknown");
            BTreeMap::new()
        }
    }
}

fn mapping(mapping: &mainstay_messages::spec::IdMapping) -> IdMapping {
    let mainstay_messages::spec::IdMapping { container, host, size } = *mapping;
    IdMapping { container, host, size, ..Default::default() }
}

fn network(network: mainstay_messages::spec::Network) -> NetworkMode {
    match network {
        mainstay_messages::spec::Network::Host => NetworkMode::NETWORK_HOST,
        mainstay_messages::spec::Network::Default
        | mainstay_messages::spec::Network::None
        | mainstay_messages::spec::Network::Builtin
        | mainstay_messages::spec::Network::Cni => NetworkMode::NETWORK_PRIVATE,
    }
}

fn ipc_mode(ipc: IpcMode) -> wire::IpcMode {
    match ipc {
        IpcMode::Pod => wire::IpcMode::IPC_POD,
        IpcMode::Host => wire::IpcMode::IPC_HOST,
    }
}

fn pid_mode(pid: mainstay_messages::spec::PidMode) -> PidMode {
    match pid {
        mainstay_messages::spec::PidMode::Container => PidMode::PID_CONTAINER,
        mainstay_messages::spec::PidMode::Pod => PidMode::PID_POD,
        mainstay_messages::spec::PidMode::Host => PidMode::PID_HOST,
    }
}
