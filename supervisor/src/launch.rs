//! Run-pod: the steps that make a pod's shim, namespaces and network, and what undoes each. Stopping a pod is this saga undone
//! ([`crate::stop`]).
//!
//! The pod's directory is the first to come and the last to go, so that where it is not, nothing is. What plugins were told of
//! the pod is known beside it: they are told of its end after all of it.

use std::borrow::Cow;
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::record::SandboxRecord;
use mainstay_messages::supervisor::PodEnd;
use mainstay_messages::{Error, Handler, Result};
use mainstay_task_api::extension::Backend;
use mainstay_task_api::extension::backend::Kind;

use crate::attach;
use crate::cgroup;
use crate::disks;
use crate::facts::Facts;
use crate::files;
use crate::handlers::probe::PROBES_MS;
use crate::handlers::{OciProgram, Runner, handler_name};
use crate::hooks;
use crate::link::CallError;
use crate::machine::Machine;
use crate::oci::pod_resources;
use crate::saga::{At, Progress, Saga, Step};
use crate::settings::Lifetime;
use crate::shim::Shim;
use crate::spawn;
use crate::stop::{self, Remains};
use crate::user_namespaces;
use crate::watch::WatchedProcess;

/// How much of a shim's log is shown when it could not be started, in bytes.
const LOG_SHOWN_MAX: usize = 512;

/// See the module.
pub(crate) static RUN_POD: Saga<Launch, Remains> = Saga {
    name: "run-pod",
    steps: &[
        Step {
            // Nothing is made: it is here so that plugins hear of the end when nothing is left.
            name: "announcement",
            act: |_| Box::pin(std::future::ready(Ok(()))),
            undo: Some(|remains| Box::pin(hooks::pod_is_gone(remains))),
            undone_after: &["directories", "cgroup", "shim", "netns", "network"],
        },
        Step {
            name: "directories",
            act: |launch| Box::pin(make_directories(launch)),
            undo: Some(|remains| Box::pin(stop::remove_directories(remains))),
            // They lead to the shim and to the cgroup, hold exit records, and tell whose a network is that could not be taken
            // back.
            undone_after: &["cgroup", "shim", "network"],
        },
        Step {
            name: "cgroup",
            act: |launch| Box::pin(make_cgroup(launch)),
            undo: Some(|remains| Box::pin(stop::remove_cgroup(remains))),
            undone_after: &[],
        },
        Step {
            name: "shim",
            act: |launch| Box::pin(start_shim(launch)),
            undo: Some(|remains| Box::pin(stop::end_shim(remains))),
            undone_after: &[],
        },
        Step {
            name: "namespaces",
            act: |launch| Box::pin(make_namespaces(launch)),
            // The shim holds them.
            undo: None,
            undone_after: &[],
        },
        Step {
            name: "netns",
            act: |launch| Box::pin(name_namespace(launch)),
            undo: Some(|remains| Box::pin(attach::remove_name(remains))),
            // It is found by its name.
            undone_after: &["network"],
        },
        Step {
            name: "network",
            act: |launch| Box::pin(attach_network(launch)),
            undo: Some(|remains| Box::pin(attach::detach(remains))),
            undone_after: &[],
        },
        Step {
            name: "hook",
            act: |launch| Box::pin(hooks::run_pod(launch)),
            undo: Some(|remains| Box::pin(hooks::pod_stops(remains))),
            undone_after: &[],
        },
    ],
};

/// A pod that is being made.
pub(crate) struct Launch {
    remains: Remains,
    record: SandboxRecord,
    facts: Facts,
    /// What is to run its containers.
    backend: Option<Backend>,
    /// Whether plugins were told of it.
    told: Cell<Telling>,
    at: At,
}

/// Whether plugins were told of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    Due,
    Done,
}

/// What a shim is told of the programs that run its containers, which are asked what they are. A file system that they are on may
/// hang.
fn ask_backend(machine: &Machine, runner: &Runner, handler: Option<&Handler>) -> Result<Option<Backend>> {
    let admit = |program: Cow<'_, OciProgram>| {
        machine.runtimes.admit(handler_name(handler), &program, &machine.layout)
    };
    let runtime_version = runner.runtime().map(admit).transpose()?;
    let mut backend = runner.backend(handler)?;
    match backend.as_mut().and_then(|backend| backend.kind.as_mut()) {
        Some(Kind::Oci(runtime)) => {
            runtime.version = runtime_version.unwrap_or_default();
            runtime.call_ms = call_limit_ms(machine.settings.timeouts.create_ms);
        }
        Some(Kind::Shim(shim)) => shim.version = machine.runtimes.shim_version(Path::new(&shim.program)),
        Some(_) | None => {}
    }
    Ok(backend)
}

/// How long one call of a runtime may take where so long is waited for the creation of a container: the rest is for killing it and
/// undoing what it has made.
fn call_limit_ms(create_ms: u64) -> u32 {
    u32::try_from(create_ms / 4 * 3).unwrap_or(u32::MAX).max(1)
}

impl AsRef<Remains> for Launch {
    fn as_ref(&self) -> &Remains {
        &self.remains
    }
}

impl Progress for Launch {
    fn at(&self, step: &'static str) {
        self.at.move_to(step);
    }
}

/// Takes the steps of [`RUN_POD`], the last of which waits for plugins. When it fails, nothing is left, or the next stop
/// finds it. Where it is can be seen at `at`.
pub(crate) async fn launch(
    (machine, facts): (Arc<Machine>, Facts),
    record: SandboxRecord,
    at: At,
) -> Result<Rc<Shim>> {
    if record.spec.cgroup_parent.is_some() && machine.settings.lifetime == Lifetime::WithRuntime {
        let reason =
            "the shims of this runtime end with it, and remove the cgroup above their pods' then".to_owned();
        return Err(Error::Unsupported { setting: "cgroup_parent".to_owned(), reason });
    }
    let handler = record.spec.handler.as_ref();
    let runner = machine.settings.handlers.runner(handler)?;
    let backend = match runner {
        Runner::Own => None,
        Runner::Oci(_) | Runner::Shim(_) => {
            let (runner, handler) = (runner.clone(), handler.cloned());
            let what = format!("asking the programs of handler {}", handler_name(handler.as_ref()));
            let ask = move |machine: &Machine| ask_backend(machine, &runner, handler.as_ref());
            machine.blocking_within(what, 2 * PROBES_MS, ask).await?
        }
    };
    let remains = Remains::of(&machine, &record.id, None, PodEnd::Removed).await?;
    machine.places.learn(&record)?;
    let launch = Launch { remains, record, facts, backend, told: Cell::new(Telling::Due), at };
    let (made, report) = RUN_POD.run(&launch).await;
    machine.note_pod(&launch.record.id, report);
    made.and_then(|()| launch.shim())
}

impl Launch {
    /// What is there of it so far.
    pub fn remains(&self) -> &Remains {
        &self.remains
    }

    /// Whether plugins were told of it.
    pub fn telling(&self) -> &Cell<Telling> {
        &self.told
    }

    /// Its record, with its shim and the network that it has by now.
    pub fn record(&self) -> Result<SandboxRecord> {
        let shim = self.shim()?;
        let network = shim.network();
        Ok(SandboxRecord { shim: Some(shim.record.clone()), network, ..self.record.clone() })
    }

    /// The shim that was started.
    fn shim(&self) -> Result<Rc<Shim>> {
        let shim = self.remains.shim.borrow().clone();
        shim.ok_or_else(|| Error::internal("the launch of a pod", "it has no shim"))
    }
}

async fn make_directories(launch: &Launch) -> Result<()> {
    let make = || {
        let record = launch.record.clone();
        let what = format!("the making of directories for pod {}", record.id);
        let work = move |machine: &Machine| {
            let before = files::make_pod(&machine.directories, &record)?;
            if before == files::Before::Absent {
                user_namespaces::assign(machine, &record)?;
            }
            Ok(before)
        };
        launch.remains.turn.blocking(what, work)
    };
    match make().await? {
        files::Before::Absent => Ok(()),
        files::Before::Present => {
            // What an attempt left behind that was cut short by the end of this program.
            RUN_POD.undo_all(&launch.remains).await.0?;
            // The last undo takes it for a pod that is gone.
            launch.remains.machine.places.learn(&launch.record)?;
            make().await.map(drop)
        }
    }
}

async fn make_cgroup(launch: &Launch) -> Result<()> {
    let (sandbox, limits) = (launch.record.id.clone(), launch.record.spec.resources.clone());
    let work = move |machine: &Machine| {
        let resources = pod_resources(&limits, &disks::numbers(&limits.block_io)?);
        cgroup::create(&machine.pod_group(&sandbox)?, &machine.layout, &resources)
    };
    launch.remains.turn.blocking(format!("the making of a cgroup for pod {}", launch.record.id), work).await
}

async fn start_shim(launch: &Launch) -> Result<()> {
    if launch.remains.shim.borrow().as_ref().is_some_and(|shim| shim.is_alive()) {
        return Ok(());
    }
    let sandbox = launch.record.id.clone();
    let what = format!("the start of the shim of pod {sandbox}");
    let spawned = launch.remains.turn.blocking(what, move |machine| spawn::spawn(machine, &sandbox)).await?;
    let process = WatchedProcess::new(spawned.pidfd)
        .map_err(|error| Error::unavailable(format!("the shim of pod {}", launch.record.id), error))?;
    let (id, machine) = (launch.record.id.clone(), Arc::clone(&launch.remains.machine));
    let shim = Shim::begin(id, spawned.record, process, machine, launch.facts.clone());
    shim.set_backend(launch.backend.clone());
    launch.remains.shim.replace(Some(shim));
    Ok(())
}

/// Waits until the shim answers and the pod's namespaces are there.
async fn make_namespaces(launch: &Launch) -> Result<()> {
    let shim = launch.shim()?;
    let machine = &launch.remains.machine;
    let after_ms = machine.settings.timeouts.launch_ms;
    let ready = async {
        loop {
            match shim.namespaces(&launch.record.spec).await {
                Ok(_) => break Ok(()),
                // On a busy machine it may take longer than a sign of life may otherwise take.
                Err(CallError::Silent { .. }) if shim.is_alive() => {}
                Err(error) if shim.survived(&error).await => break Err(Error::from(error)),
                Err(_) => break Err(died(machine, &shim).await),
            }
        }
    };
    tokio::select! {
        ready = ready => ready,
        _ = shim.process.ended() => Err(died(machine, &shim).await),
        () = tokio::time::sleep(Duration::from_millis(after_ms)) => Err(Error::DeadlineExceeded {
            what: format!("the start of the shim of pod {}", launch.record.id),
            after_ms,
        }),
    }
}

/// Gives the pod's network namespace its name.
async fn name_namespace(launch: &Launch) -> Result<()> {
    let shim = launch.shim()?;
    let ends_by_itself = launch.remains.machine.settings.lifetime == Lifetime::WithRuntime;
    if ends_by_itself && !launch.record.spec.network.is_attached() {
        // Whoever kills the runtime would find nothing left but the name.
        return Ok(());
    }
    // They are made, so that this asks nobody.
    let made = shim.namespaces(&launch.record.spec).await?.network;
    attach::name_namespace(&launch.remains, &shim, made).await
}

async fn attach_network(launch: &Launch) -> Result<()> {
    let shim = launch.shim()?;
    attach::attach(&launch.remains, &shim, &launch.record).await
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
