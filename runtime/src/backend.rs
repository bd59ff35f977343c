//! The admin RPC's view of a runtime: resolves what people name, calls the handle, and turns its streams into
//! items. It decides nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_admin::{Backend, InputStream, ItemSink};
use mainstay_messages::admin::{
    ContainerStats, End, IfRunning, Input, Item, MetricsFormat, Object, OutputStream, Reference, Request,
    Response, StreamRequest, VersionInfo,
};
use mainstay_messages::error::Kind;
use mainstay_messages::id::ID_BYTES;
use mainstay_messages::image::{ImageName, PullSpec};
use mainstay_messages::record::ContainerPhase;
use mainstay_messages::{ContainerId, Error, Result, SandboxId, Timestamp, container};
use mainstay_metrics::Format;
use tokio::sync::mpsc;

use crate::events::{EventOptions, Journaled, Subject};
use crate::images::Piece;
use crate::logs::LogOptions;
use crate::runtime::{Runtime, StopOptions};
use crate::session::{AttachOptions, Session, SessionItem, SessionWriter};

/// Containers that are measured at the same time when all are asked for.
const STATS_PARALLEL_MAX: usize = 32;

/// Serves the admin RPC from a runtime.
#[derive(Clone, Debug)]
pub struct AdminBackend {
    runtime: Runtime,
    started_at: Timestamp,
}

impl AdminBackend {
    /// A backend for `runtime`, which counts as started now.
    pub fn new(runtime: Runtime) -> Self {
        Self { runtime, started_at: Timestamp::from_system(std::time::SystemTime::now()) }
    }

    fn container(&self, reference: &Reference) -> Result<ContainerId> {
        self.runtime.resolve_container(&reference.0)
    }

    fn sandbox(&self, reference: &Reference) -> Result<SandboxId> {
        self.runtime.resolve_sandbox(&reference.0)
    }

    fn version(&self) -> VersionInfo {
        let config = self.runtime.config();
        VersionInfo {
            version: crate::VERSION.to_owned(),
            protocol: mainstay_admin::wire::PROTOCOL_VERSION,
            pid: std::process::id(),
            root_dir: config.root_dir.clone(),
            state_dir: config.state_dir.clone(),
            started_at: self.started_at,
            counters: self.runtime.counters().into_iter().collect::<BTreeMap<_, _>>(),
        }
    }

    /// Stopping and removing what is not there is a success (P2) when it was named by a whole id, which shows that
    /// it was there once. A name or the beginning of an id that fits nothing may as well be a slip of the pen.
    fn gone_is_done(reference: &Reference, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(Error::NotFound { nearest: None, .. }) if is_whole_id(&reference.0) => Ok(()),
            outcome => outcome,
        }
    }

    fn inspect(&self, reference: &Reference) -> Result<Object> {
        let subject = self.subject(reference);
        if let Err(unknown @ Error::NotFound { .. }) = subject {
            return match self.runtime.resolve_exec(&reference.0) {
                Ok(id) => Ok(Object::Exec((*self.runtime.exec_snapshot(&id)?).clone())),
                Err(Error::NotFound { .. }) => Err(unknown),
                Err(ambiguous) => Err(ambiguous),
            };
        }
        match subject? {
            Subject::Container(id) => Ok(Object::Container {
                container: (*self.runtime.container(&id)?).clone(),
                execs: self.runtime.execs(&id).iter().map(|exec| (**exec).clone()).collect(),
            }),
            Subject::Sandbox(id) => Ok(Object::Sandbox {
                sandbox: (*self.runtime.sandbox(&id)?).clone(),
                containers: self.runtime.containers_of(&id).iter().map(|c| (**c).clone()).collect(),
            }),
        }
    }

    /// A container, else a pod: of two that fit, the container is what people mean.
    fn subject(&self, reference: &Reference) -> Result<Subject> {
        match self.container(reference) {
            Ok(id) => Ok(Subject::Container(id)),
            Err(Error::NotFound { nearest, .. }) => match self.sandbox(reference) {
                Ok(id) => Ok(Subject::Sandbox(id)),
                Err(Error::NotFound { id, nearest: pod, .. }) => {
                    Err(Error::NotFound { kind: Kind::Either, id, nearest: nearest.or(pod) })
                }
                Err(other) => Err(other),
            },
            Err(other) => Err(other),
        }
    }

    /// Like [`Self::subject`], for what may be gone already: then the text must be the whole id.
    fn subject_of_journal(&self, reference: &Reference) -> Result<Vec<Subject>> {
        match self.subject(reference) {
            Ok(subject) => Ok(vec![subject]),
            Err(Error::NotFound { kind, id, nearest }) => {
                let container = reference.0.parse::<ContainerId>().ok().map(Subject::Container);
                let sandbox = reference.0.parse::<SandboxId>().ok().map(Subject::Sandbox);
                let candidates: Vec<_> = container.into_iter().chain(sandbox).collect();
                if candidates.is_empty() {
                    Err(Error::NotFound { kind, id, nearest })
                } else {
                    Ok(candidates)
                }
            }
            Err(other) => Err(other),
        }
    }

    async fn explain(&self, reference: &Reference) -> Result<Response> {
        for subject in self.subject_of_journal(reference)? {
            let events = self.runtime.explain(subject).await?;
            if !events.is_empty() {
                return Ok(Response::Events(events));
            }
        }
        Err(Error::not_found(Kind::Either, &reference.0))
    }

    async fn stats(&self, reference: Option<&Reference>) -> Result<Response> {
        use futures::stream::{self, StreamExt};
        let snapshots = match reference {
            Some(reference) => vec![self.runtime.container(&self.container(reference)?)?],
            None => {
                let mut running = self.runtime.containers();
                running
                    .retain(|c| matches!(c.record.phase, ContainerPhase::Running | ContainerPhase::Stopping));
                running
            }
        };
        let all = stream::iter(snapshots)
            .map(|snapshot| async move {
                let container = snapshot.record.id.clone();
                let stats = self.runtime.stats(&container).await;
                ContainerStats { container, name: snapshot.record.name().to_string(), stats }
            })
            .buffered(STATS_PARALLEL_MAX)
            .collect()
            .await;
        Ok(Response::Stats(all))
    }

    async fn exec(
        &self,
        container: &ContainerId,
        spec: mainstay_messages::ExecSpec,
        input: InputStream,
        items: ItemSink,
    ) -> Result<End> {
        let session = self.runtime.exec(container, spec).await?;
        if let Some(exec) = session.exec() {
            items.send(Item::ExecStarted { exec: exec.clone() }).await?;
        }
        self.relay(session, input, items).await
    }

    /// Copies output to the client until the process has ended, and input to the process as long as it comes:
    /// side by side, because a process may wait for its output to be read before it reads its input.
    async fn relay(&self, session: Session, input: InputStream, items: ItemSink) -> Result<End> {
        let (mut reader, writer) = session.split();
        let output = async {
            loop {
                match reader.next().await? {
                    Some(SessionItem::Output { stream, bytes }) => {
                        items.send(Item::Output { stream, bytes }).await?;
                    }
                    Some(SessionItem::CutOff { bytes }) => return Ok(End::CutOff { bytes }),
                    Some(SessionItem::Exited(exit)) => return Ok(End::Exited(exit)),
                    None => return Ok(End::Done),
                }
            }
        };
        tokio::select! {
            end = output => end,
            never = feed(input, writer) => match never {},
            () = items.closed() => Ok(End::Done),
        }
    }

    async fn logs(&self, id: &ContainerId, options: LogOptions, items: ItemSink) -> Result<End> {
        let mut stream = self.runtime.logs(id, options).await?;
        loop {
            tokio::select! {
                record = stream.next() => match record? {
                    Some(record) => items.send(Item::Log(record)).await?,
                    None => return Ok(End::Done),
                },
                () = items.closed() => return Ok(End::Done),
            }
        }
    }

    async fn pull(&self, spec: PullSpec, items: ItemSink) -> Result<End> {
        let mut pull = self.runtime.pull_image(spec);
        let news = async {
            while let Some(progress) = pull.progress().await {
                items.send(Item::Pull(progress)).await?;
            }
            pull.image().await.map(|image| End::Images(vec![image]))
        };
        tokio::select! {
            end = news => end,
            // Dropping the pull is leaving it.
            () = items.closed() => Ok(End::Done),
        }
    }

    async fn import(&self, name: Option<ImageName>, input: InputStream, items: ItemSink) -> Result<End> {
        let (mut import, pieces) = self.runtime.begin_import(name)?;
        let news = async {
            while let Some(progress) = import.progress().await {
                items.send(Item::Pull(progress)).await?;
            }
            import.images().await.map(End::Images)
        };
        let fed = async {
            feed_archive(input, pieces).await;
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            end = news => end,
            never = fed => match never {},
            () = items.closed() => Ok(End::Done),
        }
    }

    async fn export(&self, images: Vec<ImageName>, items: ItemSink) -> Result<End> {
        let mut export = self.runtime.begin_export(images);
        loop {
            tokio::select! {
                piece = export.next() => match piece? {
                    Some(bytes) => items.send(Item::Output { stream: OutputStream::Stdout, bytes }).await?,
                    None => return Ok(End::Done),
                },
                () = items.closed() => return Ok(End::Done),
            }
        }
    }

    async fn events(&self, options: EventOptions, items: ItemSink) -> Result<End> {
        let mut stream = self.runtime.events(options);
        items.send(Item::Opened).await?;
        loop {
            tokio::select! {
                entry = stream.next() => match entry? {
                    Some(Journaled::Event(event)) => items.send(Item::Event(event)).await?,
                    Some(Journaled::Lagged { from, to }) => items.send(Item::Lagged { from, to }).await?,
                    None => return Ok(End::Done),
                },
                () = items.closed() => return Ok(End::Done),
            }
        }
    }
}

/// Gives an archive to an import, which hears that it is not whole when the client leaves in the middle.
async fn feed_archive(mut input: InputStream, pieces: mpsc::Sender<Piece>) {
    while let Some(item) = input.next().await {
        let piece = match item {
            Input::Stdin(bytes) => Piece::Bytes(bytes),
            Input::StdinEnd => Piece::End,
            Input::Resize(_) => continue,
        };
        let last = matches!(piece, Piece::End);
        // An import that wants no more has its reason, and says it.
        if pieces.send(piece).await.is_err() || last {
            return;
        }
    }
}

/// Whether a text is an id as this runtime makes them, and not the beginning of one.
fn is_whole_id(text: &str) -> bool {
    text.len() == 2 * ID_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Gives input to the process. Never ready: the end of the input is not the end of the stream.
async fn feed(mut input: InputStream, mut writer: SessionWriter) -> Infallible {
    while let Some(item) = input.next().await {
        let outcome = match item {
            Input::Stdin(bytes) => writer.write(&bytes).await,
            Input::StdinEnd => writer.close_stdin().await,
            Input::Resize(size) => writer.resize(size).await,
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "input for a process was not taken");
        }
    }
    std::future::pending().await
}

#[async_trait]
impl Backend for AdminBackend {
    async fn call(&self, request: Request) -> Result<Response> {
        let runtime = &self.runtime;
        let done = |()| Response::Done;
        match request {
            Request::Version => Ok(Response::Version(self.version())),
            Request::RunSandbox(spec) => runtime.run_sandbox(*spec).await.map(Response::Sandbox),
            Request::StopSandbox { sandbox, grace_ms } => {
                let grace = grace_ms.map(Duration::from_millis);
                let stop = async { runtime.stop_sandbox(&self.sandbox(&sandbox)?, grace).await };
                Self::gone_is_done(&sandbox, stop.await).map(done)
            }
            Request::RemoveSandbox { sandbox } => {
                let remove = async { runtime.remove_sandbox(&self.sandbox(&sandbox)?).await };
                Self::gone_is_done(&sandbox, remove.await).map(done)
            }
            Request::ListSandboxes => {
                Ok(Response::Sandboxes(runtime.sandboxes().iter().map(|s| (**s).clone()).collect()))
            }
            Request::CreateContainer { sandbox, spec } => {
                let sandbox = self.sandbox(&sandbox)?;
                runtime.create_container(&sandbox, *spec).await.map(Response::Container)
            }
            Request::StartContainer { container } => {
                runtime.start_container(&self.container(&container)?).await.map(done)
            }
            Request::StopContainer { container, signal, grace_ms } => {
                let options = StopOptions { signal, grace: grace_ms.map(Duration::from_millis) };
                let stop = async { runtime.stop_container(&self.container(&container)?, options).await };
                Self::gone_is_done(&container, stop.await).map(done)
            }
            Request::KillContainer { container, signal } => {
                runtime.kill_container(&self.container(&container)?, signal).await.map(done)
            }
            Request::RemoveContainer { container, running } => {
                let running = match running {
                    IfRunning::Refuse => container::IfRunning::Refuse,
                    IfRunning::Kill => container::IfRunning::Kill,
                };
                let remove = async { runtime.remove_container(&self.container(&container)?, running).await };
                Self::gone_is_done(&container, remove.await).map(done)
            }
            Request::ListContainers => {
                Ok(Response::Containers(runtime.containers().iter().map(|c| (**c).clone()).collect()))
            }
            Request::Inspect { object } => self.inspect(&object).map(|o| Response::Object(Box::new(o))),
            Request::Wait { container } => {
                runtime.wait(&self.container(&container)?).await.map(Response::Exited)
            }
            Request::Stats { container } => self.stats(container.as_ref()).await,
            Request::DiskUsage { container } => {
                runtime.disk_usage(&self.container(&container)?).await.map(Response::DiskUsage)
            }
            Request::Explain { object } => self.explain(&object).await,
            Request::WhoHad { name } => runtime.who_had(&name.0).await.map(Response::Bearers),
            Request::ReopenLog { container } => {
                runtime.reopen_log(&self.container(&container)?).await.map(done)
            }
            Request::Resize { container, exec, size } => {
                runtime.resize(&self.container(&container)?, exec.as_ref(), size).await.map(done)
            }
            Request::PauseContainer { container } => {
                runtime.pause_container(&self.container(&container)?).await.map(done)
            }
            Request::ResumeContainer { container } => {
                runtime.resume_container(&self.container(&container)?).await.map(done)
            }
            Request::UpdateContainer { container, change } => {
                runtime.update_container(&self.container(&container)?, *change).await.map(done)
            }
            Request::UpdateSandbox { sandbox, change } => {
                runtime.update_sandbox(&self.sandbox(&sandbox)?, *change).await.map(done)
            }
            Request::Metrics { format } => {
                let format = match format {
                    MetricsFormat::Prometheus => Format::Prometheus,
                    MetricsFormat::OpenMetrics => Format::OpenMetrics,
                };
                Ok(Response::Metrics(runtime.metrics(format)))
            }
            Request::Audit { repair } => runtime.audit(repair).await.map(Response::Findings),
            Request::KillExec { container, exec, signal } => {
                runtime.kill_exec(&self.container(&container)?, &exec, signal).await.map(done)
            }
            Request::ListImages => runtime.images().await.map(Response::Images),
            Request::InspectImage { image } => {
                runtime.image(&image).await.map(|image| Response::Images(vec![image]))
            }
            Request::RemoveImage { image } => runtime.remove_image(&image).await.map(Response::ImageRemoved),
            Request::CollectImages => runtime.collect_images().await.map(Response::ImagesCollected),
            Request::ListShims => runtime.shims().await.map(Response::Shims),
            Request::ListPlugins => runtime.plugins().await.map(Response::Plugins),
            Request::RestartPlugin { plugin } => {
                runtime.restart_plugin(&plugin).await.map(|()| Response::Done)
            }
            Request::VerifyImages { image } => {
                runtime.verify_images(image.as_ref()).await.map(Response::ImagesVerified)
            }
        }
    }

    async fn open(&self, request: StreamRequest, input: InputStream, items: ItemSink) -> Result<End> {
        match request {
            StreamRequest::Exec { container, spec } => {
                self.exec(&self.container(&container)?, *spec, input, items).await
            }
            StreamRequest::Attach { container, stdin, on_lag } => {
                let options = AttachOptions { stdin, on_lag };
                let session = self.runtime.attach(&self.container(&container)?, options).await?;
                items.send(Item::Opened).await?;
                self.relay(session, input, items).await
            }
            StreamRequest::Logs { container, follow, tail, since } => {
                let options = LogOptions { follow, tail, since };
                self.logs(&self.container(&container)?, options, items).await
            }
            StreamRequest::Events { after, follow, object } => {
                let subject = object.map(|o| self.subject(&o)).transpose()?;
                self.events(EventOptions { after, follow, subject }, items).await
            }
            StreamRequest::PullImage(spec) => self.pull(*spec, items).await,
            StreamRequest::ImportImages { name } => self.import(name, input, items).await,
            StreamRequest::ExportImages { images } => self.export(images, items).await,
        }
    }
}
