//! One shim of others: its connection, its life and its death.
//!
//! ```text
//!  start ──▶ connected ──▶ [sandbox created, started] ──▶ serves ──▶ told to end ──▶ gone
//!                                                            └──── dies ──▶ everything of it is ended
//! ```
//!
//! Owns: knowing whether it lives, and what is done when it does not. Never: takes silence for death: one that hangs keeps its
//! containers, and they can be killed without it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::Cgroup;
use mainstay_messages::Signal;
use mainstay_messages::process::UnknownReason;
use mainstay_task_api::Message;
use mainstay_task_api::sandbox as wire;
use mainstay_task_api::task::{ConnectRequest, ConnectResponse, ShutdownRequest};
use mainstay_task_api::well_known_types::empty::Empty;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch as state;
use tokio::time::timeout;

use super::answer::{Answer, TaskVersion};
use super::client::{CallError, Client, Death};
use super::end::End;
use super::{Background, TaskShim, wait_status};
use crate::failure::Failure;
use crate::identity::{Identity, send_signal};
use crate::logger;
use crate::process::Process;
use crate::shim::Shim;
use crate::task::Ending;

/// How long the question may take who it is, in milliseconds.
const SHIM_CONNECT_TASK_MS: u64 = 4_000;
/// How long the shim of a pod and its machinery may take to start, in milliseconds: a virtual machine boots.
pub(super) const SANDBOX_START_MS: u64 = 60_000;
/// How long an orderly end may take, in milliseconds; after that it is killed.
const SHIM_END_MS: u64 = 1_500;
/// How long after a broken connection the end of its process is waited for, in milliseconds.
const PROCESS_END_SHOWS_MS: u64 = 300;
/// How long after the death of a shim the ends of its containers are waited for, in milliseconds: they are killed, and come to
/// this shim as orphans.
const ORPHANS_MS: u64 = 3_000;

/// One shim of others.
#[derive(Debug)]
pub(crate) struct External {
    /// Its program's name, for sentences.
    pub(super) name: Rc<str>,
    /// What it was started for: the pod, or a container.
    id: Box<str>,
    pub(super) socket: PathBuf,
    pub(super) client: Client,
    process: Option<ShimProcess>,
    sandbox: std::cell::Cell<Sandbox>,
    death: state::Sender<Death>,
    _log: Background,
}

#[derive(Debug)]
struct ShimProcess {
    identity: Identity,
    pidfd: AsyncFd<OwnedFd>,
}

/// Whether it has the sandbox API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sandbox {
    Without,
    /// And has begun to make one.
    With,
}

impl External {
    /// Connects to a shim that was started, and finds out who it is.
    pub(super) async fn connect(
        program: &Path,
        id: &str,
        answer: Answer,
        cgroup: &Cgroup,
        log: Background,
        end: End,
    ) -> Result<Rc<Self>, Failure> {
        let name: Rc<str> = program.file_name().unwrap_or_default().to_string_lossy().into();
        let (death, dead) = state::channel(None);
        let client = Client::connect(name.clone(), &answer.socket, answer.version, dead).await?;
        let process = match ask_pid(&client, id, end).await? {
            Some(pid) => ShimProcess::find(pid, &name, cgroup)?,
            None => None,
        };
        let (id, sandbox) = (id.into(), std::cell::Cell::new(Sandbox::Without));
        Ok(Rc::new(Self { name, id, socket: answer.socket, client, process, sandbox, death, _log: log }))
    }

    /// Why it is dead, if it is.
    pub(super) fn death(&self) -> Death {
        self.death.borrow().clone()
    }

    /// What it was started for.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Its process; none where that is not known.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(|process| process.identity.pid)
    }

    /// What is spoken with it.
    pub(super) fn protocol(&self) -> &'static str {
        match (self.client.version(), self.sandbox.get()) {
            (TaskVersion::V2, _) => "task v2",
            (TaskVersion::V3, Sandbox::Without) => "task v3",
            (TaskVersion::V3, Sandbox::With) => "task v3, sandbox",
        }
    }

    /// A call that needs it alive.
    pub(super) async fn task<A: Message>(
        &self,
        call: &'static str,
        request: &impl Message,
        limit_ms: u64,
    ) -> Result<A, CallError> {
        self.client.task(call, request, limit_ms).await
    }

    /// Has it make what the pod needs, where it has the sandbox API.
    pub(super) async fn begin_sandbox(
        &self,
        network: Option<String>,
        backend: &TaskShim,
        end: End,
    ) -> Result<(), Failure> {
        if self.client.version() == TaskVersion::V2 {
            return Ok(());
        }
        let id = self.id.to_string();
        let create = wire::CreateSandboxRequest {
            sandbox_id: id.clone(),
            bundle_path: backend.home.bundle().to_string_lossy().into_owned(),
            netns_path: network.unwrap_or_default(),
            options: backend.settings.any(&backend.home.runtime_root()).into(),
            ..Default::default()
        };
        let limit_ms = end.left_ms(SANDBOX_START_MS);
        let created = self.client.sandbox::<wire::CreateSandboxResponse>("CreateSandbox", &create, limit_ms);
        let created = created.await;
        if created.as_ref().is_err_and(CallError::is_unimplemented) {
            return Ok(());
        }
        // Whatever it has answered: it may have made something.
        self.sandbox.set(Sandbox::With);
        created?;
        let start = wire::StartSandboxRequest { sandbox_id: id, ..Default::default() };
        let limit_ms = end.left_ms(SANDBOX_START_MS);
        self.client.sandbox::<wire::StartSandboxResponse>("StartSandbox", &start, limit_ms).await?;
        Ok(())
    }

    /// Ends it in good order, for a bounded time. Its containers have been deleted.
    pub(super) async fn end(&self) {
        let id = self.id.to_string();
        let orderly = async {
            if self.sandbox.get() == Sandbox::With {
                let stop = wire::StopSandboxRequest { sandbox_id: id.clone(), ..Default::default() };
                let stopped =
                    self.client.sandbox::<wire::StopSandboxResponse>("StopSandbox", &stop, SHIM_END_MS);
                match stopped.await {
                    // One that has not started cannot be stopped, and ends all the same.
                    Err(error @ CallError::Refused { .. }) => logger::warning!("{error}"),
                    other => drop(other?),
                }
                let end = wire::ShutdownSandboxRequest { sandbox_id: id.clone(), ..Default::default() };
                let ended = self.client.sandbox::<wire::ShutdownSandboxResponse>(
                    "ShutdownSandbox",
                    &end,
                    SHIM_END_MS,
                );
                ended.await?;
            }
            let shutdown = ShutdownRequest { id, now: true, ..Default::default() };
            self.client.task::<Empty>("Shutdown", &shutdown, SHIM_END_MS).await?;
            let mut death = self.death.subscribe();
            // It fails only when the sender is gone, which `self` holds.
            let _ = death.wait_for(Option::is_some).await;
            Ok::<(), CallError>(())
        };
        match timeout(Duration::from_millis(SHIM_END_MS), orderly).await {
            // Gone in the middle of an answer is what was asked for.
            Ok(Ok(()) | Err(CallError::Gone { .. })) => {}
            Ok(Err(error)) => logger::warning!("{error}; it is killed"),
            Err(_) => logger::warning!("{}: it did not end within {SHIM_END_MS} ms; it is killed", self.name),
        }
    }

    /// Ends it in good order or, where that takes too long, at once.
    pub(super) async fn end_wholly(&self) {
        if self.death().is_none() {
            self.end().await;
        }
        self.kill();
    }

    /// Waits for the end of its process, where that is known.
    async fn process_end(&self) -> String {
        let Some(process) = &self.process else { return std::future::pending().await };
        // It fails when the runtime ends.
        let _ = process.pidfd.readable().await;
        let how = match wait_status::ending(process.identity, process.pidfd.get_ref().as_fd()) {
            Some(Ending::Exited { code }) => format!(" with code {code}"),
            Some(Ending::Signaled { signal }) => format!(" by signal {signal}"),
            _ => String::new(),
        };
        format!("its process {} has ended{how}", process.identity.pid)
    }

    async fn ended(&self, id: &str) -> String {
        let machinery = async {
            if self.sandbox.get() == Sandbox::Without {
                return std::future::pending().await;
            }
            match self.client.sandbox_end(id).await {
                Ok(end) => format!("its sandbox has ended with status {}", end.exit_status),
                Err(CallError::Gone { reason, .. }) => reason,
                Err(_) => std::future::pending().await,
            }
        };
        let connection = async {
            let reason = self.client.broken().await;
            // Mostly because its process ends, which says more.
            timeout(Duration::from_millis(PROCESS_END_SHOWS_MS), self.process_end()).await.unwrap_or(reason)
        };
        tokio::select! {
            reason = self.process_end() => reason,
            reason = machinery => reason,
            reason = connection => reason,
        }
    }

    /// Kills it: nobody can talk to it any more.
    fn kill(&self) {
        if let Some(process) = &self.process {
            // It has ended already, as a rule.
            let _ = send_signal(process.pidfd.get_ref().as_fd(), Signal::KILL);
        }
    }
}

impl ShimProcess {
    /// Finds the process that a shim says it is. One that is not where the shims of the pod are is a stranger, whose end would be
    /// taken for that of the shim, and who would be killed with it.
    fn find(pid: Pid, shim: &Rc<str>, cgroup: &Cgroup) -> Result<Option<Self>, Failure> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| CallError::Gone {
            shim: shim.clone(),
            reason: format!("it says that it is process {pid}, which is not there: {error}"),
        })?;
        // Only now is the number its own for as long as it is looked at.
        if !cgroup.pids()?.contains(&pid) {
            logger::warning!(
                "{shim}: it says that it is process {pid}, which is not in {}; it goes on without",
                cgroup.path()
            );
            return Ok(None);
        }
        let pidfd = crate::readiness::watch(pidfd, Interest::READABLE);
        let pidfd = pidfd.map_err(Failure::system("watching a process"))?;
        Ok(Some(Self { identity: Identity::of(pid), pidfd }))
    }
}

/// Which process it is; none when it does not say. The other version of the API is tried where it does not know ours.
async fn ask_pid(client: &Client, id: &str, end: End) -> Result<Option<Pid>, CallError> {
    let request = ConnectRequest { id: id.to_owned(), ..Default::default() };
    let mut answer =
        client.task::<ConnectResponse>("Connect", &request, end.left_ms(SHIM_CONNECT_TASK_MS)).await;
    if answer.as_ref().is_err_and(CallError::is_unimplemented) {
        client.fall_back();
        answer = client.task("Connect", &request, end.left_ms(SHIM_CONNECT_TASK_MS)).await;
        if answer.as_ref().is_err_and(CallError::is_unimplemented) {
            // It does not have this call in either.
            client.fall_back();
        }
    }
    match answer {
        Ok(answer) => Ok(i32::try_from(answer.shim_pid).ok().and_then(Pid::from_raw)),
        Err(error @ (CallError::Silent { .. } | CallError::Gone { .. })) => Err(error),
        Err(error) => {
            logger::warning!("{error}; it goes on without its process id");
            Ok(None)
        }
    }
}

/// Waits for the end of a shim, and ends all that was its own.
pub(super) async fn watch(backend: Rc<TaskShim>, shim: Rc<Shim>, external: Rc<External>) {
    let reason = external.ended(shim.arguments.sandbox.as_str()).await;
    external.death.send_replace(Some(reason.clone()));
    external.kill();
    let mut orphans = Vec::new();
    for container in shim.containers() {
        if backend.external_of(&container.id).is_ok_and(|by| Rc::ptr_eq(&by, &external)) {
            if let Err(failure) = container.kill_all() {
                logger::error!("container {}: {}", container.id, failure.sentence());
            }
            orphans.extend(container.processes().into_iter().filter(|it| it.identity().is_some()));
        }
    }
    if backend.living().next().is_none() {
        // Loggers, and whatever else it has left.
        backend.kill_group();
    }
    if orphans.iter().any(|process| process.exit().is_none()) {
        logger::error!("{}: {reason}; its containers are ended", external.name);
    }
    let all = async {
        for process in &orphans {
            process.wait_ended().await;
        }
    };
    // They are reaped here, with what they really ended with.
    let _ = timeout(Duration::from_millis(ORPHANS_MS), all).await;
    for process in orphans.iter().filter(|process| process.exit().is_none()) {
        unknown(&shim, process);
    }
}

fn unknown(shim: &Rc<Shim>, process: &Rc<Process>) {
    shim.forget_process(process);
    shim.process_ended(process, Ending::Unknown { reason: UnknownReason::ShimDied });
}
