//! The world of these tests: a fake daemon behind a real server on a real socket.
//!
//! The fake answers what it is told to; what it does not implement is an error. Containers are named after
//! what the fake does with them. Each test file uses a part of it.
#![allow(dead_code, reason = "each test binary uses a part of this module")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_admin::{Backend, Client, InputStream, ItemSink, Limits, Server};
use mainstay_messages::admin::{
    End, Follow, Input, Item, LineEnd, LogRecord, OutputStream, Reference, Request, Response, StreamRequest,
    VersionInfo,
};
use mainstay_messages::error::{Error, Kind, Result};
use mainstay_messages::event::{Event, Seq, Subject, What};
use mainstay_messages::id::ContainerId;
use mainstay_messages::process::{Exit, ExitStatus, OomVerdict};
use mainstay_messages::record::{ContainerRecord, ContainerSnapshot};
use mainstay_messages::spec::ContainerSpec;
use mainstay_messages::{SandboxId, Timestamp};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Long enough for any machine; only a test that fails waits for it.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// What the fake daemon was asked and has done. Everything in it can be waited for.
pub struct Fake {
    pub containers: std::sync::Mutex<Vec<ContainerSnapshot>>,
    /// Opens the way for Wait and StartContainer of `gated`.
    pub gate: watch::Sender<Gate>,
    /// Calls that were begun.
    pub begun: watch::Sender<u64>,
    /// Operations on `gated` that were done.
    pub done: watch::Sender<u64>,
    /// Futures of Wait that were dropped or have returned.
    pub waits_over: watch::Sender<u64>,
    /// Streams that saw their client leave.
    pub left: watch::Sender<u64>,
    /// Log records sent.
    pub sent: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Closed,
    Open,
}

/// A running server.
pub struct World {
    pub fake: Arc<Fake>,
    pub path: PathBuf,
    pub serving: JoinHandle<std::io::Result<()>>,
    pub shutdown: Option<oneshot::Sender<()>>,
    pub directory: tempfile::TempDir,
}

impl World {
    pub fn start() -> Self {
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Self {
        let directory = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .expect("a temporary directory");
        let path = directory.path().join("admin.sock");
        let server = Server::bind(&path).expect("a free path").with_limits(limits);
        let fake = Arc::new(Fake::new());
        let (shutdown, stop) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(fake.clone(), async move {
            let _ = stop.await;
        }));
        Self { fake, path, serving, shutdown: Some(shutdown), directory }
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.path).await.expect("the server listens")
    }

    /// A connection without the client library, for what the library would never do.
    pub fn raw(&self) -> UnixStream {
        raw(&self.path)
    }

    /// Whether a new client is served.
    pub async fn assert_alive(&self) {
        let version = soon(self.client().await.version()).await.expect("the server answers");
        assert_eq!(version.version, "fake");
    }
}

pub fn raw(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream.set_write_timeout(Some(DEADLINE)).expect("a socket");
    stream
}

/// Waits for what must happen.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("it happens in time")
}

/// Waits until a count is reached.
pub async fn reached(count: &watch::Sender<u64>, target: u64) {
    soon(count.subscribe().wait_for(|n| *n >= target)).await.expect("the fake lives");
}

pub fn named(name: &str) -> Reference {
    Reference(name.to_owned())
}

pub fn exited(code: u8) -> Exit {
    Exit { status: ExitStatus::Exited { code }, at: Timestamp(1), oom: OomVerdict::NotKilled }
}

pub fn container(number: u32, annotation_bytes: usize) -> ContainerSnapshot {
    let mut spec = ContainerSpec::new("web".parse().expect("a name"), ["true"]);
    spec.annotations.insert("note".to_owned(), "x".repeat(annotation_bytes));
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    let record = ContainerRecord::intent(
        ContainerId::from_random(id),
        SandboxId::from_random([1; 16]),
        spec,
        PathBuf::from("/log"),
        Timestamp(1),
    );
    ContainerSnapshot { record, activity: None }
}

/// A request for log records that never ends before its reader does.
pub fn logs(tail: u64) -> StreamRequest {
    StreamRequest::Logs { container: named("web"), follow: Follow::No, tail: Some(tail), since: None }
}

pub fn follow_events() -> StreamRequest {
    StreamRequest::Events { after: Seq(0), follow: Follow::Yes, object: None }
}

pub fn exec(container: &str) -> StreamRequest {
    StreamRequest::Exec { container: named(container), spec: Box::default() }
}

impl Fake {
    fn new() -> Self {
        Self {
            containers: std::sync::Mutex::default(),
            gate: watch::channel(Gate::Closed).0,
            begun: watch::channel(0).0,
            done: watch::channel(0).0,
            waits_over: watch::channel(0).0,
            left: watch::channel(0).0,
            sent: AtomicU64::new(0),
        }
    }

    async fn through_the_gate(&self) {
        let _ = self.gate.subscribe().wait_for(|gate| *gate == Gate::Open).await;
    }

    async fn logs(&self, count: u64, items: &ItemSink) -> Result<End> {
        for number in 0..count {
            let bytes = [number.to_be_bytes().as_slice(), &[b'x'; 1_000]].concat();
            let at = Timestamp(number);
            items
                .send(Item::Log(LogRecord {
                    at,
                    stream: OutputStream::Stdout,
                    bytes,
                    ends: LineEnd::Newline,
                }))
                .await?;
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
        Ok(End::Done)
    }

    /// Like `cat`: gives back its input.
    async fn cat(&self, mut input: InputStream, items: &ItemSink) -> Result<End> {
        while let Some(input) = input.next().await {
            match input {
                Input::Stdin(bytes) => {
                    items.send(Item::Output { stream: OutputStream::Stdout, bytes }).await?
                }
                Input::StdinEnd => return Ok(End::Exited(exited(0))),
                Input::Resize(_) => {}
            }
        }
        self.left.send_modify(|n| *n += 1);
        Ok(End::Done)
    }
}

struct Counted<'a>(&'a watch::Sender<u64>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n += 1);
    }
}

#[async_trait]
impl Backend for Fake {
    async fn call(&self, request: Request) -> Result<Response> {
        self.begun.send_modify(|n| *n += 1);
        match request {
            Request::Version => Ok(Response::Version(VersionInfo {
                version: "fake".to_owned(),
                protocol: 1,
                pid: 1,
                root_dir: PathBuf::from("/root"),
                state_dir: PathBuf::from("/state"),
                started_at: Timestamp(1),
                counters: Default::default(),
            })),
            Request::ListContainers => {
                Ok(Response::Containers(self.containers.lock().expect("no panic").clone()))
            }
            Request::Wait { container } => {
                let _over = Counted(&self.waits_over);
                match container.0.parse() {
                    Ok(code) => Ok(Response::Exited(exited(code))),
                    Err(_) => {
                        self.through_the_gate().await;
                        Ok(Response::Exited(exited(0)))
                    }
                }
            }
            Request::StartContainer { container } if container.0 == "gated" => {
                self.through_the_gate().await;
                self.done.send_modify(|n| *n += 1);
                Ok(Response::Done)
            }
            Request::KillContainer { container, .. } if container.0 == "panic" => panic!("the fake panics"),
            Request::StopContainer { container, .. } => Err(Error::not_found(Kind::Container, container.0)),
            other => Err(Error::internal("the fake", format_args!("it does not implement {other:?}"))),
        }
    }

    async fn open(&self, request: StreamRequest, input: InputStream, items: ItemSink) -> Result<End> {
        self.begun.send_modify(|n| *n += 1);
        match request {
            StreamRequest::Logs { tail: Some(count), .. } => self.logs(count, &items).await,
            StreamRequest::Events { .. } => {
                let what = What::SandboxReady;
                let subject = Subject { sandbox: None, container: None, exec: None };
                items.send(Item::Event(Event { seq: Seq(1), at: Timestamp(1), subject, what })).await?;
                items.closed().await;
                self.left.send_modify(|n| *n += 1);
                Ok(End::Done)
            }
            StreamRequest::Exec { container, .. } => match container.0.as_str() {
                "cat" => self.cat(input, &items).await,
                "panic" => panic!("the fake panics"),
                "deaf" => {
                    drop(input);
                    self.through_the_gate().await;
                    Ok(End::Exited(exited(0)))
                }
                "busy" => {
                    // Does not read its input, and keeps the stream.
                    self.through_the_gate().await;
                    self.cat(input, &items).await
                }
                "gated" => {
                    self.through_the_gate().await;
                    self.done.send_modify(|n| *n += 1);
                    Ok(End::Exited(exited(0)))
                }
                _ => Err(Error::not_found(Kind::Container, container.0)),
            },
            // A backend that does not notice that its client has left.
            StreamRequest::Attach { .. } => {
                let _over = Counted(&self.waits_over);
                std::future::pending().await
            }
            other => Err(Error::internal("the fake", format_args!("it does not implement {other:?}"))),
        }
    }
}
