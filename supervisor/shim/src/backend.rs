//! Who makes the processes of a pod, and does to them what its makers alone can do.
//!
//! Owns: which operations differ, and which backend does them. What is common to all stays where it was: the life of a
//! process in `task`, its output and input, its exit, the cgroup that it is in. Never: decides when something is done.
//!
//! | | makes containers with |
//! |---|---|
//! | `Own` | this program: crate `mainstay-launch` |
//! | `Oci` | `runc`, `crun`, or another program with their command line |
//! | `Task` | another shim, as containerd has them |
//!
//! What a backend may count on: a process was admitted, its entry is in the table, its cgroup exists, and the phase allows
//! what is asked. What it owes: the process is adopted before anything waits after its birth, a failure is one sentence,
//! and nothing takes longer than its named limit.

mod oci;
mod own;
pub(crate) mod task_shim;

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use mainstay_launch::{RootMount, WindowSize};
use mainstay_messages::Signal;
use mainstay_messages::supervisor::Stats;
use mainstay_task_api::extension as wire;
use oci_spec::runtime::{LinuxResources, Spec};
use rustix::process::Pid;

use crate::container::Container;
use crate::door::Door;
use crate::failure::Failure;
use crate::pod::Pod;
use crate::process::Process;
use crate::shim::Shim;

pub(crate) use oci::Oci;
pub(crate) use task_shim::TaskShim;

/// What a container is made of, besides what its entry says.
pub(crate) struct Parts {
    pub(crate) spec: Spec,
    pub(crate) root: RootMount,
}

/// Who makes the containers of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) enum Backend {
    /// This program.
    #[default]
    Own,
    /// A program on its command line.
    Oci(Rc<Oci>),
    /// Another shim, which stands behind this one.
    Task(Rc<TaskShim>),
}

impl Backend {
    /// What the request for a pod names, begun.
    pub(crate) async fn begin(shim: &Rc<Shim>, door: Door, pod: &Pod) -> Result<Self, Failure> {
        match pod.request.backend.as_ref().and_then(|backend| backend.kind.as_ref()) {
            None => Ok(Self::Own),
            Some(wire::backend::Kind::Shim(request)) => {
                Ok(Self::Task(TaskShim::begin(shim, door, request.try_into()?, pod).await?))
            }
            Some(wire::backend::Kind::Oci(runtime)) => Oci::new(runtime).map(Self::Oci),
            Some(_) => Err(Failure::Unsupported { what: "this backend" }),
        }
    }

    /// Whether it has to be asked before a pod's cgroup is killed.
    pub(crate) fn ends_in_order(&self) -> bool {
        matches!(self, Self::Task(_))
    }

    /// What stands behind this shim.
    pub(crate) fn info(&self) -> Option<wire::BackendInfo> {
        match self {
            Self::Own => None,
            Self::Oci(oci) => Some(oci.info()),
            Self::Task(task) => Some(task.info()),
        }
    }

    /// Makes a container up to the point where its PID 1 is set up and waits to be let go. Its cgroup is there, with its
    /// limits, its log is open. What was made when this fails is ended by [`Backend::tear_down`].
    pub(crate) async fn set_up(
        &self,
        shim: &Rc<Shim>,
        container: &Rc<Container>,
        parts: Parts,
    ) -> Result<(), Failure> {
        match self {
            Self::Own => own::set_up(shim, container, parts).await,
            Self::Oci(oci) => oci.set_up(shim, container, parts).await,
            Self::Task(task) => task.set_up(shim, container, parts).await,
        }
    }

    /// Lets a PID 1 go, and waits until its program has been executed.
    pub(crate) async fn let_run(&self, shim: &Rc<Shim>, container: &Rc<Container>) -> Result<(), Failure> {
        match self {
            Self::Own => own::let_run(shim, container).await,
            Self::Oci(oci) => oci.let_run(shim, container).await,
            Self::Task(task) => task.let_run(container).await,
        }
    }

    /// Makes the process of an exec, and waits until its program has been executed. One that fails before there is a
    /// process has no identity.
    pub(crate) async fn exec(
        &self,
        shim: &Rc<Shim>,
        container: &Rc<Container>,
        process: &Rc<Process>,
    ) -> Result<(), Failure> {
        match self {
            Self::Own => own::exec(shim, container, process).await,
            Self::Oci(oci) => oci.exec(shim, container, process).await,
            Self::Task(task) => task.exec(shim, container, process).await,
        }
    }

    /// Sends a process a signal.
    pub(crate) async fn signal(
        &self,
        container: &Container,
        process: &Process,
        signal: Signal,
    ) -> Result<(), Failure> {
        match self {
            Self::Own | Self::Oci(_) => process.signal(signal)?,
            Self::Task(task) => task.signal(container, process, signal).await?,
        }
        if signal == Signal::KILL {
            // A frozen process of a v1 hierarchy cannot die.
            container.thaw_if_paused()?;
        }
        Ok(())
    }

    /// Sends a signal to every process of a container.
    pub(crate) async fn signal_all(&self, container: &Container, signal: Signal) -> Result<(), Failure> {
        match self {
            Self::Own | Self::Oci(_) => container.signal_all(signal),
            Self::Task(task) => task.signal_all(container, signal).await,
        }
    }

    /// Freezes a container, and waits until all of it has stopped.
    pub(crate) async fn pause(&self, container: &Container) -> Result<(), Failure> {
        match self {
            Self::Own | Self::Oci(_) => container.freeze().await,
            Self::Task(task) => task.pause(container).await,
        }
    }

    /// Lets a container run again.
    pub(crate) async fn resume(&self, container: &Container) -> Result<(), Failure> {
        match self {
            Self::Own | Self::Oci(_) => container.thaw(),
            Self::Task(task) => task.resume(container).await,
        }
    }

    /// Changes the limits of a container.
    pub(crate) async fn update(
        &self,
        container: &Container,
        resources: &LinuxResources,
    ) -> Result<(), Failure> {
        match self {
            Self::Own | Self::Oci(_) => container.limit(resources),
            Self::Task(task) => task.update(container, resources).await,
        }
    }

    /// What a container uses now.
    pub(crate) async fn stats(&self, container: &Container) -> Result<Stats, Failure> {
        match self {
            Self::Own | Self::Oci(_) => container.measure(),
            Self::Task(task) => task.stats(container).await,
        }
    }

    /// The processes of a container, as this process sees them.
    pub(crate) async fn pids(&self, container: &Container) -> Result<HashSet<Pid>, Failure> {
        match self {
            Self::Own | Self::Oci(_) => container.pids(),
            Self::Task(task) => task.pids(container).await,
        }
    }

    /// Sets the size of a process's terminal, also of one that does not exist yet.
    pub(crate) async fn resize(&self, process: &Process, size: WindowSize) -> Result<(), Failure> {
        match self {
            Self::Own | Self::Oci(_) => process.resize(size),
            Self::Task(task) => task.resize(process, size).await,
        }
    }

    /// Undoes what was made for a container whose processes have ended and whose cgroup is gone. What fails is logged: the
    /// container is gone whatever becomes of it. It may be asked for again.
    pub(crate) async fn tear_down(&self, shim: &Rc<Shim>, container: &Rc<Container>, limit: Duration) {
        match self {
            Self::Own => own::tear_down(shim, container, limit).await,
            Self::Oci(oci) => oci.tear_down(shim, container, limit).await,
            Self::Task(task) => task.tear_down(shim, container, limit).await,
        }
    }

    /// Ends what stands behind this shim, for a bounded time. Its containers have been deleted.
    pub(crate) async fn end(&self) {
        match self {
            Self::Own | Self::Oci(_) => {}
            Self::Task(task) => task.end().await,
        }
    }

    /// The shims behind this one, where there are any.
    pub(crate) fn task_shim(&self) -> Option<Rc<TaskShim>> {
        match self {
            Self::Own | Self::Oci(_) => None,
            Self::Task(task) => Some(task.clone()),
        }
    }
}
