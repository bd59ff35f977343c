//! A daemon for the command to talk to: the real server of the admin RPC over a backend whose containers are
//! plain child processes, so that it needs no root. What it does not implement is an error.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_admin::{Backend, InputStream, ItemSink, Server};
use mainstay_messages::admin::{
    End, IfRunning, Input, Item, Object, OutputStream, Reference, Request, Response, StreamRequest,
};
use mainstay_messages::error::Kind;
use mainstay_messages::process::{ExitStatus, OomVerdict};
use mainstay_messages::record::{
    ContainerPhase, ContainerRecord, ContainerSnapshot, SandboxPhase, SandboxRecord, SandboxSnapshot,
};
use mainstay_messages::spec::{ProcessSpec, STOP_GRACE_DEFAULT_MS};
use mainstay_messages::{
    ContainerId, ContainerSpec, Error, ExecId, Exit, Result, SandboxId, SandboxSpec, Signal, Timestamp,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};

/// The program that cannot be started here.
pub const NOT_STARTABLE: &str = "/not/startable";
/// The program that cannot even be set up here.
pub const NOT_CREATABLE: &str = "/not/creatable";
/// The name of the pod that is not made before [`FakeDaemon::let_pods_be_made`].
pub const SLOW_POD: &str = "slow";

type Output = (OutputStream, Vec<u8>);

/// The daemon, on a thread of its own. Dropped, it ends, and its processes with it.
pub struct FakeDaemon {
    pub socket: PathBuf,
    directory: PathBuf,
    backend: Arc<FakeBackend>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct FakeBackend {
    state: Mutex<State>,
    pods_may_be_made: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    made: u8,
    sandboxes: BTreeMap<SandboxId, SandboxRecord>,
    containers: BTreeMap<ContainerId, Arc<FakeContainer>>,
    execs: BTreeMap<ExecId, u32>,
    /// Every request that changes something, in words.
    requests: Vec<String>,
}

struct FakeContainer {
    id: ContainerId,
    sandbox: SandboxId,
    spec: ContainerSpec,
    pid: watch::Sender<Option<u32>>,
    exit: watch::Sender<Option<Exit>>,
    /// Where whoever is attached gets output from and puts input to.
    attached: Mutex<Option<(mpsc::Sender<Output>, mpsc::Receiver<Input>)>>,
}

impl FakeDaemon {
    pub fn start() -> Self {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("mainstay-cli-test-{}-{count}", std::process::id()));
        let socket = directory.join("admin.sock");
        let server = Server::bind(&socket).expect("a socket in a new directory");
        let (pods_may_be_made, _) = watch::channel(false);
        let backend = Arc::new(FakeBackend { state: Mutex::default(), pods_may_be_made });
        let (stop, stopped) = oneshot::channel::<()>();
        let served = backend.clone();
        let thread = std::thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("tokio");
            let shutdown = async {
                let _ = stopped.await;
            };
            tokio.block_on(server.serve(served, shutdown)).expect("served");
        });
        Self { socket, directory, backend, stop: Some(stop), thread: Some(thread) }
    }

    /// Every request that changed something so far, in words.
    pub fn requests(&self) -> Vec<String> {
        self.backend.state().requests.clone()
    }

    /// Waits until a request was made.
    pub fn wait_for_request(&self, request: &str) {
        super::wait_until(request, || self.requests().iter().any(|made| made == request));
    }

    /// How many pods and containers there are.
    pub fn objects(&self) -> (usize, usize) {
        let state = self.backend.state();
        (state.sandboxes.len(), state.containers.len())
    }

    pub fn let_pods_be_made(&self) {
        self.backend.pods_may_be_made.send_replace(true);
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        for container in self.backend.state().containers.values() {
            container.signal(Signal::KILL);
        }
        self.let_pods_be_made();
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok(), "the fake daemon panicked");
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl FakeContainer {
    fn signal(&self, signal: Signal) {
        if let (Some(pid), None) = (*self.pid.borrow(), self.exit.borrow().as_ref()) {
            send(pid, signal);
        }
    }

    async fn wait(&self) -> Exit {
        let mut exit = self.exit.subscribe();
        let seen = exit.wait_for(Option::is_some).await.expect("the sender lives as long as we do");
        seen.clone().expect("waited for")
    }

    fn snapshot(&self) -> ContainerSnapshot {
        let log = Path::new("/none").to_path_buf();
        let mut record = ContainerRecord::intent(
            self.id.clone(),
            self.sandbox.clone(),
            self.spec.clone(),
            log,
            Timestamp(0),
        );
        record.exit = self.exit.borrow().clone();
        record.phase = match (&record.exit, *self.pid.borrow()) {
            (Some(_), _) => ContainerPhase::Exited,
            (None, Some(_)) => ContainerPhase::Running,
            (None, None) => ContainerPhase::Created,
        };
        ContainerSnapshot { record, activity: None }
    }
}

impl FakeBackend {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, request: String) {
        self.state().requests.push(request);
    }

    fn container(&self, reference: &Reference) -> Result<Arc<FakeContainer>> {
        let state = self.state();
        let name = reference.0.rsplit('/').next().unwrap_or_default();
        let fits = |container: &&Arc<FakeContainer>| {
            container.id.as_str() == reference.0 || container.spec.name.as_str() == name
        };
        let found = state.containers.values().find(fits).cloned();
        found.ok_or_else(|| Error::not_found(Kind::Container, &reference.0))
    }

    fn sandbox(&self, reference: &Reference) -> Result<SandboxRecord> {
        let state = self.state();
        let fits = |record: &&SandboxRecord| {
            record.id.as_str() == reference.0 || record.name().as_str() == reference.0
        };
        let found = state.sandboxes.values().find(fits).cloned();
        found.ok_or_else(|| Error::not_found(Kind::Sandbox, &reference.0))
    }

    async fn run_sandbox(&self, spec: SandboxSpec) -> Result<Response> {
        self.note(format!("run pod {}", spec.name));
        if spec.name.as_str() == SLOW_POD {
            let mut may = self.pods_may_be_made.subscribe();
            may.wait_for(|may| *may).await.map_err(|e| Error::internal("fake", e))?;
        }
        let mut state = self.state();
        if let Some(holder) = state.sandboxes.values().find(|record| *record.name() == spec.name) {
            let (name, holder) = (spec.name.to_string(), holder.id.to_string());
            return Err(Error::NameTaken { kind: Kind::Sandbox, name, holder });
        }
        state.made += 1;
        let id = SandboxId::from_random([state.made; 16]);
        let mut record = SandboxRecord::intent(id.clone(), spec, Timestamp(0));
        record.phase = SandboxPhase::Ready;
        state.sandboxes.insert(id.clone(), record);
        Ok(Response::Sandbox(id))
    }

    fn create(&self, sandbox: &Reference, spec: ContainerSpec) -> Result<Response> {
        self.note("create".to_owned());
        let sandbox = self.sandbox(sandbox)?.id;
        if spec.process.command[0] == NOT_CREATABLE {
            return Err(Error::invalid("command", "\"/not/creatable\"", "something else"));
        }
        let mut state = self.state();
        state.made += 1;
        let id = ContainerId::from_random([state.made; 16]);
        let container = FakeContainer {
            id: id.clone(),
            sandbox,
            spec,
            pid: watch::channel(None).0,
            exit: watch::channel(None).0,
            attached: Mutex::new(None),
        };
        state.containers.insert(id.clone(), Arc::new(container));
        Ok(Response::Container(id))
    }

    fn start(&self, container: Arc<FakeContainer>) -> Result<Response> {
        self.note("start".to_owned());
        if container.spec.process.command[0] == NOT_STARTABLE {
            let reason = format!("{NOT_STARTABLE:?} was not found");
            container.exit.send_replace(Some(Exit::start_error(reason.clone(), Timestamp(0))));
            return Err(Error::StartFailed { reason });
        }
        let attached = container.attached.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (output, input) = attached.unwrap_or_else(|| (mpsc::channel(1).0, mpsc::channel(1).1));
        let process = Process::spawn(&container.spec.process)?;
        container.pid.send_replace(Some(process.pid));
        tokio::spawn(async move {
            let exit = process.run(output, input).await;
            container.exit.send_replace(Some(exit));
        });
        Ok(Response::Done)
    }

    async fn stop(&self, container: &FakeContainer, signal: Option<Signal>, grace_ms: Option<u64>) {
        let signal = signal.unwrap_or(Signal::TERM);
        let grace_ms = grace_ms.or(container.spec.stop_grace_ms).unwrap_or(STOP_GRACE_DEFAULT_MS);
        self.note(format!("stop {signal} {grace_ms}"));
        container.signal(signal);
        let grace = Duration::from_millis(grace_ms);
        if tokio::time::timeout(grace, container.wait()).await.is_err() {
            container.signal(Signal::KILL);
            container.wait().await;
        }
    }

    async fn attach(&self, reference: &Reference, mut input: InputStream, items: ItemSink) -> Result<End> {
        let container = self.container(reference)?;
        let (output, mut pieces) = mpsc::channel(1);
        let (keys, typed) = mpsc::channel(1);
        *container.attached.lock().unwrap_or_else(PoisonError::into_inner) = Some((output, typed));
        items.send(Item::Opened).await?;
        let feed = tokio::spawn(async move {
            while let Some(input) = input.next().await {
                if keys.send(input).await.is_err() {
                    return;
                }
            }
        });
        while let Some((stream, bytes)) = pieces.recv().await {
            if items.send(Item::Output { stream, bytes }).await.is_err() {
                // The one who attached left. The process goes on without a reader.
                while pieces.recv().await.is_some() {}
            }
        }
        feed.abort();
        Ok(End::Exited(container.wait().await))
    }

    async fn exec(&self, spec: &ProcessSpec, mut input: InputStream, items: ItemSink) -> Result<End> {
        let process = Process::spawn(spec)?;
        let exec = ExecId::from_random([7; 16]);
        self.state().execs.insert(exec.clone(), process.pid);
        items.send(Item::ExecStarted { exec }).await?;
        let (output, mut pieces) = mpsc::channel(1);
        let (keys, typed) = mpsc::channel(1);
        let feed = tokio::spawn(async move {
            while let Some(input) = input.next().await {
                if keys.send(input).await.is_err() {
                    return;
                }
            }
        });
        let exit = tokio::spawn(process.run(output, typed));
        while let Some((stream, bytes)) = pieces.recv().await {
            // An exec goes on when nobody takes its output.
            let _ = items.send(Item::Output { stream, bytes }).await;
        }
        feed.abort();
        exit.await.map(End::Exited).map_err(|e| Error::internal("fake", e))
    }
}

#[async_trait]
impl Backend for FakeBackend {
    async fn call(&self, request: Request) -> Result<Response> {
        match request {
            Request::RunSandbox(spec) => self.run_sandbox(*spec).await,
            Request::CreateContainer { sandbox, spec } => self.create(&sandbox, *spec),
            Request::StartContainer { container } => self.start(self.container(&container)?),
            Request::StopContainer { container, signal, grace_ms } => {
                self.stop(&*self.container(&container)?, signal, grace_ms).await;
                Ok(Response::Done)
            }
            Request::KillContainer { container, signal } => {
                self.note(format!("kill {signal}"));
                self.container(&container)?.signal(signal);
                Ok(Response::Done)
            }
            Request::KillExec { exec, signal, .. } => {
                self.note(format!("kill exec {signal}"));
                let pid = self.state().execs.get(&exec).copied();
                send(pid.ok_or_else(|| Error::not_found(Kind::Exec, &exec))?, signal);
                Ok(Response::Done)
            }
            Request::RemoveContainer { container, running } => {
                self.note("remove".to_owned());
                let container = self.container(&container)?;
                if running == IfRunning::Kill {
                    container.signal(Signal::KILL);
                }
                self.state().containers.remove(&container.id);
                Ok(Response::Done)
            }
            Request::RemoveSandbox { sandbox } => {
                let id = self.sandbox(&sandbox)?.id;
                self.note("remove pod".to_owned());
                let mut state = self.state();
                state.containers.retain(|_, container| container.sandbox != id);
                state.sandboxes.remove(&id);
                Ok(Response::Done)
            }
            Request::ListContainers => {
                let state = self.state();
                Ok(Response::Containers(state.containers.values().map(|c| c.snapshot()).collect()))
            }
            Request::ListSandboxes => {
                let snapshot =
                    |record: &SandboxRecord| SandboxSnapshot { record: record.clone(), activity: None };
                Ok(Response::Sandboxes(self.state().sandboxes.values().map(snapshot).collect()))
            }
            Request::Inspect { object } => Ok(Response::Object(Box::new(match self.container(&object) {
                Ok(container) => Object::Container { container: container.snapshot(), execs: Vec::new() },
                Err(_) => {
                    let unknown = |_| Error::not_found(Kind::Either, &object.0);
                    let record = self.sandbox(&object).map_err(unknown)?;
                    let state = self.state();
                    let own = state.containers.values().filter(|container| container.sandbox == record.id);
                    let containers = own.map(|container| container.snapshot()).collect();
                    Object::Sandbox { sandbox: SandboxSnapshot { record, activity: None }, containers }
                }
            }))),
            Request::Wait { container } => Ok(Response::Exited(self.container(&container)?.wait().await)),
            Request::Resize { size, .. } => {
                self.note(format!("resize {}x{}", size.rows, size.columns));
                Ok(Response::Done)
            }
            other => Err(Error::internal("fake", format!("{other:?} is not implemented"))),
        }
    }

    async fn open(&self, request: StreamRequest, input: InputStream, items: ItemSink) -> Result<End> {
        match request {
            StreamRequest::Attach { container, .. } => self.attach(&container, input, items).await,
            StreamRequest::Exec { container, spec } => {
                self.container(&container)?;
                self.exec(&spec.process, input, items).await
            }
            other => Err(Error::internal("fake", format!("{other:?} is not implemented"))),
        }
    }
}

/// A child process, and our ends of its pipes.
struct Process {
    pid: u32,
    child: tokio::process::Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

impl Process {
    fn spawn(spec: &ProcessSpec) -> Result<Self> {
        let mut child = tokio::process::Command::new(&spec.command[0])
            .args(&spec.command[1..])
            .envs(&spec.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| Error::StartFailed { reason: e.to_string() })?;
        let missing = || Error::internal("fake", "no pipe");
        Ok(Self {
            pid: child.id().ok_or_else(missing)?,
            stdin: child.stdin.take().ok_or_else(missing)?,
            stdout: child.stdout.take().ok_or_else(missing)?,
            stderr: child.stderr.take().ok_or_else(missing)?,
            child,
        })
    }

    /// Copies until the process has ended and all its output is delivered.
    async fn run(mut self, output: mpsc::Sender<Output>, mut input: mpsc::Receiver<Input>) -> Exit {
        let mut stdin = self.stdin;
        let feed = tokio::spawn(async move {
            while let Some(Input::Stdin(bytes)) = input.recv().await {
                if stdin.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        tokio::join!(
            copy(self.stdout, OutputStream::Stdout, output.clone()),
            copy(self.stderr, OutputStream::Stderr, output),
        );
        let status = self.child.wait().await.expect("our own child");
        feed.abort();
        let status = match (status.code(), status.signal()) {
            (Some(code), _) => ExitStatus::Exited { code: u8::try_from(code).expect("a byte") },
            (None, signal) => {
                ExitStatus::Signaled { signal: u8::try_from(signal.unwrap_or_default()).expect("a signal") }
            }
        };
        Exit { status, at: Timestamp(0), oom: OomVerdict::NotKilled }
    }
}

async fn copy(mut pipe: impl AsyncReadExt + Unpin, stream: OutputStream, output: mpsc::Sender<Output>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        // Without a reader the output is thrown away, and the process goes on.
        let _ = output.send((stream, buffer[..count].to_vec())).await;
    }
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    // SAFETY: only numbers of this platform's signals are used in these tests.
    let signal = unsafe { rustix::process::Signal::from_raw_unchecked(i32::from(signal.0)) };
    // It may have ended just now; nobody else has its number before it is reaped.
    let _ = rustix::process::kill_process(pid, signal);
}
