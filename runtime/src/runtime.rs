//! The handle: what an embedding program calls. Reads are answered from published snapshots (P6); commands go to the
//! router. It keeps no state of its own.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message};
use mainstay_actors::Directory;
pub use mainstay_actors::ports::BEARERS_MAX;
use mainstay_actors::ports::{EventFilter, EventQuery};
use mainstay_actors::router::{Routed, Router};
use mainstay_messages::admin::{Attached, Follow, OnLag};
use mainstay_messages::audit::{Finding, Repair};
use mainstay_messages::container::{
    IfRunning, KillContainer, KillExec, MeasureContainer, PauseContainer, RemoveContainer, ReopenLog,
    ResizeTerminal, ResumeContainer, StartContainer, StartExec, StopContainer, UpdateContainer,
};
use mainstay_messages::error::Kind;
use mainstay_messages::event::{Bearer, Event, Seq};
use mainstay_messages::plugin::PluginStatus;
use mainstay_messages::record::{ContainerSnapshot, ExecSnapshot, SandboxSnapshot};
use mainstay_messages::router::{CreateContainer, Pulse, RunSandbox};
use mainstay_messages::sandbox::{MeasureSandbox, RemoveSandbox, SandboxChange, StopSandbox, UpdateSandbox};
use mainstay_messages::spec::{Network, Resources, Stdin, WindowSize};
use mainstay_messages::supervisor::{Consult, SandboxStats, Stats};
use mainstay_messages::{
    ContainerId, ContainerSpec, Error, ExecId, ExecSpec, Exit, Result, SandboxId, SandboxSpec, Signal,
};
use mainstay_metrics::Format;

use crate::closing::{Closed, closed};
use crate::config::Config;
use crate::events::{EventOptions, EventStream, Subject};
use crate::logs::{LogOptions, LogStream};
use crate::session::{AttachOptions, EXEC_OUTPUT_BYTES_MAX, ExecOutput, ExitWatch, Session};
use crate::system::System;

/// Events of a life that are read at once.
const EXPLAIN_PAGE_EVENTS: usize = 1_024;
/// How long a write that failed says that the next one would, in milliseconds: whoever asks nothing of a runtime that says no would never
/// learn that it could again.
pub const STORE_TROUBLE_MS: u64 = 30_000;
/// The most events of one life that are kept together in memory.
pub const EXPLAIN_EVENTS_MAX: usize = 65_536;

/// A runtime. Cheap to clone; all clones are the same one. Dropping the last without [`Runtime::close`] leaves
/// its containers as [`crate::config::ShimLifetime`] says.
#[derive(Clone)]
pub struct Runtime {
    system: Arc<System>,
}

/// How to stop a container. What is not given is as its spec says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopOptions {
    /// The signal that asks it to stop.
    pub signal: Option<Signal>,
    /// Time from the signal to SIGKILL; zero kills at once.
    pub grace: Option<Duration>,
}

/// What becomes of containers when the runtime is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// They run and log on; the next runtime on the same directories adopts them.
    LeaveRunning,
    /// They are stopped, each with its own grace, and their pods with them.
    StopContainers,
}

impl Runtime {
    /// Starts a runtime: opens the store, adopts what runs, and is ready. Works in any tokio program; the actors
    /// have threads of their own.
    ///
    /// # Errors
    /// A sentence about the first thing that is in the way: a directory, the store, the machine's cgroups, a
    /// missing right.
    pub async fn start(config: Config) -> Result<Self> {
        Ok(Self { system: System::start(config, None).await? })
    }

    /// One whose `directory`, with all of its others in it, is removed when this process is killed.
    pub(crate) async fn start_private(config: Config, directory: PathBuf) -> Result<Self> {
        Ok(Self { system: System::start(config, Some(directory)).await? })
    }

    /// The configuration that it was started with.
    pub fn config(&self) -> &Config {
        &self.system.config
    }

    /// Ends the runtime. Other clones of the handle answer with [`Error::Unavailable`] from then on, and so do all that wait:
    /// for an exit, an event, a line of a log, the output of a session, the answer to a call. Of what was there before,
    /// nothing is withheld from them. Its cgroup is removed when no pod is in it any more.
    ///
    /// # Errors
    /// Of stopping containers; the runtime has ended all the same.
    pub async fn close(self, shutdown: Shutdown) -> Result<()> {
        let stopped = match shutdown {
            Shutdown::LeaveRunning => Ok(()),
            Shutdown::StopContainers => self.stop_all().await,
        };
        self.system.stop().await?;
        stopped
    }

    async fn stop_all(&self) -> Result<()> {
        let sandboxes = self.sandboxes();
        let stops = sandboxes.iter().map(|sandbox| self.stop_sandbox(&sandbox.record.id, None));
        futures::future::join_all(stops).await.into_iter().collect()
    }

    /// Makes a pod and answers when it is ready. The same spec again joins the first.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::NameTaken`], [`Error::InProgress`], or what went wrong; then nothing
    /// of it is left, or it is listed as not ready until that is so.
    pub async fn run_sandbox(&self, mut spec: SandboxSpec) -> Result<SandboxId> {
        if spec.network == Network::Default {
            spec.network = self.config().network.default;
        }
        spec.check()?;
        // Before it has a record: one of an unknown handler would never run.
        self.config().handler.handlers().runner(spec.handler.as_ref())?;
        self.send(RunSandbox { spec }).await
    }

    /// Stops the containers of a pod, and its shim. One that is stopped or unknown counts as success.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] when it takes too long; it goes on all the same.
    pub async fn stop_sandbox(&self, sandbox: &SandboxId, grace: Option<Duration>) -> Result<()> {
        self.route(StopSandbox { sandbox: sandbox.clone(), grace_ms: grace.map(millis) }).await
    }

    /// Stops a pod and removes it with its containers. One that is unknown counts as success.
    ///
    /// # Errors
    /// What keeps it from being removed; it stays listed, and is tried on.
    pub async fn remove_sandbox(&self, sandbox: &SandboxId) -> Result<()> {
        self.route(RemoveSandbox { sandbox: sandbox.clone() }).await
    }

    /// Makes a container in a ready pod; it waits to be started. The same spec again joins the first. One of an image
    /// ([`mainstay_messages::spec::Rootfs::Image`]) keeps the image's layers as long as it is there; the image must have been
    /// pulled or imported.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an image that is not here.
    /// [`Error::InvalidArgument`], [`Error::NameTaken`], [`Error::WrongPhase`] for a pod that is not ready. When
    /// the machine could not make it, it stays listed as exited, with [`mainstay_messages::ExitStatus::StartError`].
    pub async fn create_container(&self, sandbox: &SandboxId, spec: ContainerSpec) -> Result<ContainerId> {
        spec.check()?;
        match spec.image().is_some() || spec.mounted_images().next().is_some() {
            true => self.create_on_images(sandbox.clone(), spec).await,
            false => self.send(CreateContainer { sandbox: sandbox.clone(), spec }).await,
        }
    }

    /// Lets a created container run.
    ///
    /// # Errors
    /// [`Error::StartFailed`] when its program cannot be executed: it then has exited with code 128.
    pub async fn start_container(&self, container: &ContainerId) -> Result<()> {
        self.route(StartContainer { container: container.clone() }).await
    }

    /// Asks a container to stop, kills it when the grace is over, and answers when it has ended. Of several stops
    /// the earliest deadline counts. A caller that leaves changes nothing. One that does not run, or is unknown,
    /// counts as success.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`] when the kernel does not let it die; it is tried on.
    pub async fn stop_container(&self, container: &ContainerId, options: StopOptions) -> Result<()> {
        let StopOptions { signal, grace } = options;
        let container = container.clone();
        self.route(StopContainer { container, signal, grace_ms: grace.map(millis) }).await
    }

    /// Sends a signal to a container's PID 1.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongPhase`] when it does not run.
    pub async fn kill_container(&self, container: &ContainerId, signal: Signal) -> Result<()> {
        self.route(KillContainer { container: container.clone(), signal }).await
    }

    /// Freezes all processes of a running container: they use no CPU time and see no signal until
    /// [`Self::resume_container`]. Stopping it lets it go on first.
    ///
    /// # Errors
    /// [`Error::WrongPhase`] when it does not run, [`Error::DeadlineExceeded`] when a process of it cannot be frozen.
    pub async fn pause_container(&self, container: &ContainerId) -> Result<()> {
        self.route(PauseContainer { container: container.clone() }).await
    }

    /// Lets a paused container go on. One that is not paused counts as success.
    ///
    /// # Errors
    /// [`Error::WrongPhase`] when it does not run.
    pub async fn resume_container(&self, container: &ContainerId) -> Result<()> {
        self.route(ResumeContainer { container: container.clone() }).await
    }

    /// Changes limits of a container that runs. What is not given stays as it is; a value of
    /// [`mainstay_messages::spec::UNLIMITED`] lifts a limit.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::WrongPhase`] when it does not run, [`Error::Unsupported`] for a limit that
    /// the machine does not have.
    pub async fn update_container(&self, container: &ContainerId, change: Resources) -> Result<()> {
        self.route(UpdateContainer { container: container.clone(), change, consult: Consult::Plugins }).await
    }

    /// Changes the limits of a ready pod, and what it is expected to take, of which plugins are told; one of them may say no.
    /// What is not given stays as it is; a value of [`mainstay_messages::spec::UNLIMITED`] lifts a limit.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::InvalidArgument`], [`Error::WrongPhase`] when it is not ready, [`Error::InProgress`]
    /// while another change is being made, [`Error::Unsupported`] for a limit that the machine does not have.
    pub async fn update_sandbox(&self, sandbox: &SandboxId, change: SandboxChange) -> Result<()> {
        change.check()?;
        self.route(UpdateSandbox { sandbox: sandbox.clone(), change }).await
    }

    /// Removes a container with its files. One that is unknown counts as success.
    ///
    /// # Errors
    /// [`Error::WrongPhase`] when it runs and that is not to be ended.
    pub async fn remove_container(&self, container: &ContainerId, running: IfRunning) -> Result<()> {
        self.route(RemoveContainer { container: container.clone(), running }).await
    }

    /// Waits for the end of a container, as long as that takes.
    ///
    /// # Errors
    /// [`Error::NotFound`], also when it is removed without having ended; [`Error::Unavailable`] when the runtime is closed
    /// before that.
    pub async fn wait(&self, container: &ContainerId) -> Result<Exit> {
        // When it is removed meanwhile, its last snapshot stays readable.
        let mut watch = self.exit_watch(container)?;
        let exit = self.closed().or(watch.exit()).await?;
        exit.ok_or_else(|| Error::not_found(Kind::Container, container))
    }

    fn exit_watch(&self, container: &ContainerId) -> Result<ExitWatch> {
        let watch = self.directory().watch_container(container);
        watch.map(ExitWatch::Init).ok_or_else(|| Error::not_found(Kind::Container, container))
    }

    /// Runs another process in a running container. Its output waits for the session to be read.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::WrongPhase`] when the container does not run, [`Error::StartFailed`].
    pub async fn exec(&self, container: &ContainerId, spec: ExecSpec) -> Result<Session> {
        spec.check()?;
        let stdin = if spec.stdin == Stdin::Null { Attached::No } else { Attached::Yes };
        let exec = self.route(StartExec { container: container.clone(), spec }).await?;
        let exit = self.directory().watch_exec(&exec).ok_or_else(|| Error::not_found(Kind::Exec, &exec))?;
        let options = AttachOptions { stdin, on_lag: OnLag::Block };
        self.session(container, Some(exec), ExitWatch::Exec(exit), options).await
    }

    /// Runs another process in a running container to its end, and keeps up to [`EXEC_OUTPUT_BYTES_MAX`] bytes of
    /// each of its output streams; the rest is read and thrown away.
    ///
    /// # Errors
    /// As [`Self::exec`].
    pub async fn exec_output(&self, container: &ContainerId, spec: ExecSpec) -> Result<ExecOutput> {
        self.exec(container, spec).await?.collect(EXEC_OUTPUT_BYTES_MAX).await
    }

    /// The streams of a container's PID 1 from now on. Before it is started, nothing of its output is missed.
    ///
    /// # Errors
    /// [`Error::NotFound`], or [`Error::Unavailable`] when it has ended or its input is not open.
    pub async fn attach(&self, container: &ContainerId, options: AttachOptions) -> Result<Session> {
        self.session(container, None, self.exit_watch(container)?, options).await
    }

    async fn session(
        &self,
        container: &ContainerId,
        exec: Option<ExecId>,
        exit: ExitWatch,
        options: AttachOptions,
    ) -> Result<Session> {
        let socket = self.streams_socket(&self.container(container)?.record.sandbox);
        Session::open(self.clone(), &socket, container.clone(), exec, exit, options).await
    }

    /// Sends a signal to an exec. One that has ended counts as success.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn kill_exec(&self, container: &ContainerId, exec: &ExecId, signal: Signal) -> Result<()> {
        self.route(KillExec { container: container.clone(), exec: exec.clone(), signal }).await
    }

    /// Changes the size of the terminal of PID 1 or of an exec.
    ///
    /// # Errors
    /// [`Error::WrongPhase`] when it does not run or has no terminal.
    pub async fn resize(
        &self,
        container: &ContainerId,
        exec: Option<&ExecId>,
        size: WindowSize,
    ) -> Result<()> {
        self.route(ResizeTerminal { container: container.clone(), exec: exec.cloned(), size }).await
    }

    /// Has a container's log file opened anew under its name, after it was moved away.
    ///
    /// # Errors
    /// What keeps it from being opened; the old file is written on.
    pub async fn reopen_log(&self, container: &ContainerId) -> Result<()> {
        self.route(ReopenLog { container: container.clone() }).await
    }

    /// The log of a container.
    ///
    /// # Errors
    /// [`Error::NotFound`], or [`Error::Unavailable`] when it cannot be read.
    pub async fn logs(&self, container: &ContainerId, options: LogOptions) -> Result<LogStream> {
        let unknown = || Error::not_found(Kind::Container, container);
        let snapshots = self.directory().watch_container(container).ok_or_else(unknown)?;
        let path = snapshots.borrow().record.log_path.clone();
        LogStream::open(path, options, snapshots, self.closed()).await
    }

    /// What a container uses now.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongPhase`], [`Error::DeadlineExceeded`].
    pub async fn stats(&self, container: &ContainerId) -> Result<Stats> {
        self.route(MeasureContainer { container: container.clone() }).await
    }

    /// What a pod uses now.
    ///
    /// # Errors
    /// As [`Self::stats`].
    pub async fn sandbox_stats(&self, sandbox: &SandboxId) -> Result<SandboxStats> {
        self.route(MeasureSandbox { sandbox: sandbox.clone() }).await
    }

    /// All pods.
    pub fn sandboxes(&self) -> Vec<Arc<SandboxSnapshot>> {
        self.directory().sandboxes()
    }

    /// All containers.
    pub fn containers(&self) -> Vec<Arc<ContainerSnapshot>> {
        self.directory().containers(None)
    }

    /// The containers of a pod.
    pub fn containers_of(&self, sandbox: &SandboxId) -> Vec<Arc<ContainerSnapshot>> {
        self.directory().containers(Some(sandbox))
    }

    /// The execs of a container: those that run, and the last ones that ended.
    pub fn execs(&self, container: &ContainerId) -> Vec<Arc<ExecSnapshot>> {
        self.directory().execs(container)
    }

    /// A pod.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn sandbox(&self, id: &SandboxId) -> Result<Arc<SandboxSnapshot>> {
        self.directory().sandbox(id).ok_or_else(|| Error::not_found(Kind::Sandbox, id))
    }

    /// A container.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn container(&self, id: &ContainerId) -> Result<Arc<ContainerSnapshot>> {
        self.directory().container(id).ok_or_else(|| Error::not_found(Kind::Container, id))
    }

    /// An exec: one that runs, or one of the last that ended.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn exec_snapshot(&self, id: &ExecId) -> Result<Arc<ExecSnapshot>> {
        self.directory().exec(id).ok_or_else(|| Error::not_found(Kind::Exec, id))
    }

    /// The pod that a person means: its id, the unique beginning of it, or its name.
    ///
    /// # Errors
    /// [`Error::NotFound`] with the nearest known one, [`Error::Ambiguous`].
    pub fn resolve_sandbox(&self, text: &str) -> Result<SandboxId> {
        self.directory().resolve_sandbox(text)
    }

    /// The container that a person means: its id, the unique beginning of it, `POD/NAME`, or a name that only one
    /// container has.
    ///
    /// # Errors
    /// [`Error::NotFound`] with the nearest known one, [`Error::Ambiguous`].
    pub fn resolve_container(&self, text: &str) -> Result<ContainerId> {
        self.directory().resolve_container(text)
    }

    /// The exec that a person means: its id or the unique beginning of it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Ambiguous`].
    pub fn resolve_exec(&self, text: &str) -> Result<ExecId> {
        self.directory().resolve_exec(text)
    }

    /// The journal as a stream.
    pub fn events(&self, options: EventOptions) -> EventStream {
        let log = &self.system.event_log;
        EventStream::new(log.subscribe(options.after), options, log.last(), self.closed())
    }

    /// The number of the newest entry of the journal.
    pub fn last_event(&self) -> Seq {
        self.system.event_log.last()
    }

    /// The number of the newest entry from before this runtime began: what comes after it has happened, or was found, since.
    pub fn began_after(&self) -> Seq {
        self.system.began_after
    }

    /// What happens from now on, to one object or to all.
    pub fn events_from_now(&self, subject: Option<Subject>) -> EventStream {
        let after = self.system.event_log.last();
        self.events(EventOptions { after, follow: Follow::Yes, subject })
    }

    /// The life of one pod or container as far as it is kept, in order; also when it is gone. Empty when nothing
    /// is known of it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn explain(&self, subject: Subject) -> Result<Vec<Event>> {
        let filter = match subject {
            Subject::Sandbox(id) => EventFilter::Sandbox(id),
            Subject::Container(id) => EventFilter::Container(id),
        };
        let (mut life, mut after) = (Vec::new(), Seq(0));
        while life.len() < EXPLAIN_EVENTS_MAX {
            let query = EventQuery { after, limit: EXPLAIN_PAGE_EVENTS, subject: Some(filter.clone()) };
            let page = self.system.event_log.page(query).await?;
            let Some(last) = page.events.last() else { break };
            after = last.seq;
            life.extend(page.events);
        }
        Ok(life)
    }

    /// Those who have or had a name, the newest first, at most [`BEARERS_MAX`]; also those that are gone, as long as something
    /// of them is kept. `POD/NAME` means the containers of that name in pods that have or had the other.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for what cannot be a name; those of the store.
    pub async fn who_had(&self, name: &str) -> Result<Vec<Bearer>> {
        let log = &self.system.event_log;
        let Some((pod, name)) = name.split_once('/') else { return log.bearers(&name.parse()?).await };
        let pods = log.bearers(&pod.parse()?).await?;
        let mut bearers = log.bearers(&name.parse()?).await?;
        bearers.retain(|bearer| {
            let mainstay_messages::event::Subject { sandbox, container, .. } = &bearer.subject;
            let of_pod = |pod: &Bearer| pod.subject.container.is_none() && pod.subject.sandbox == *sandbox;
            container.is_some() && pods.iter().any(of_pod)
        });
        Ok(bearers)
    }

    /// Compares what the kernel and the directories have with what is believed, below this runtime's own directories and
    /// cgroup alone: leaks that no record accounts for, and ghosts that a record counts on. With [`Repair::Yes`] they are
    /// cleaned up, and each finding says what came of that. Nothing that is being made or removed is a finding.
    ///
    /// # Errors
    /// Of looking at the machine.
    pub async fn audit(&self, repair: Repair) -> Result<Vec<Finding>> {
        self.system.audit(repair).await
    }

    /// Whether changes are taken: not while the store cannot be written (P7). Nothing is tried: it is told what the last write came to, for
    /// [`STORE_TROUBLE_MS`] after it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason.
    pub fn condition(&self) -> Result<()> {
        let trouble = self.system.store_trouble();
        match trouble.filter(|trouble| trouble.at.elapsed() < Duration::from_millis(STORE_TROUBLE_MS)) {
            None => Ok(()),
            Some(trouble) => Err(Error::unavailable("the store", trouble.reason)),
        }
    }

    /// Answers when the actors do: for a watchdog, with a time-out of its own. Nothing else waits for that.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the runtime is closed.
    pub async fn pulse(&self) -> Result<()> {
        self.closed().or(self.router().send(Pulse)).await?.map_err(|_| closed())
    }

    /// What the runtime counts, as a scraper gets it: [`mainstay_metrics::exposition`] reads it. All of it begins at 0
    /// with this process.
    pub fn metrics(&self, format: Format) -> String {
        self.system.metrics.text(format)
    }

    /// The plugins that are connected, in the order in which they are called, and those that are required and are not.
    ///
    /// # Errors
    /// When the runtime ends.
    pub async fn plugins(&self) -> Result<Vec<PluginStatus>> {
        self.system.plugins().await
    }

    /// Ends the connection of a plugin, by its name with its index, as in `10-logger`. One that the runtime has started is
    /// started again; another one may come again by itself, and is told of all there is then.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn restart_plugin(&self, plugin: &str) -> Result<()> {
        self.system.restart_plugin(plugin).await
    }

    /// What the runtime counts, by name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.system.counters()
    }

    pub(crate) fn system(&self) -> &System {
        &self.system
    }

    fn directory(&self) -> &Directory {
        &self.system.directory
    }

    fn streams_socket(&self, sandbox: &SandboxId) -> PathBuf {
        self.system.directories.streams_socket(sandbox)
    }

    async fn route<M, T>(&self, message: M) -> Result<T>
    where
        M: Message<Result = Result<T>> + Send + 'static,
        T: Send + 'static,
        Router: Handler<Routed<M>>,
        Routed<M>: Message<Result = Result<T>> + Send,
        <Router as Actor>::Context: ToEnvelope<Router, Routed<M>>,
    {
        self.send(Routed(message)).await
    }

    pub(crate) async fn send<M, T>(&self, message: M) -> Result<T>
    where
        M: Message<Result = Result<T>> + Send + 'static,
        T: Send + 'static,
        Router: Handler<M>,
        <Router as Actor>::Context: ToEnvelope<Router, M>,
    {
        let mut end = self.closed();
        let answer = end.or(self.router().send(message)).await?.map_err(|_| closed())?;
        match answer {
            // An actor that had the call and was ended with the runtime.
            Err(Error::Internal { .. }) if end.was_said() => Err(closed()),
            answer => answer,
        }
    }

    /// Hears of the end of this runtime.
    pub(crate) fn closed(&self) -> Closed {
        self.system.closed()
    }

    fn router(&self) -> &Addr<Router> {
        &self.system.router
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("config", self.config()).finish_non_exhaustive()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
