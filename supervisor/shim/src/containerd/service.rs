//! containerd's Task service, as containerd wants it of a shim.
//!
//! Owns: what is told of each request, and what differs from what our supervisor is answered. Never: decides anything; what is
//! the same is answered by the one service (`crate::service`).

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_task_api::MessageField;
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::task as wire;
use mainstay_task_api::task_v2::Task;
use mainstay_task_api::well_known_types::empty::Empty;
use tokio::time::timeout;
use ttrpc::r#async::TtrpcContext;

use super::face::Face;
use super::{create, metrics};
use crate::door::Door;
use crate::failure::Failure;
use crate::output::sink::SINK_CLOSE_MS;
use crate::service::{TaskService, connected, deleted, empty};
use crate::shim::Shim;
use crate::{delete, run};

/// Handles the Task service's requests.
pub(super) struct ContainerdTask {
    door: Door,
    usual: TaskService,
}

impl ContainerdTask {
    pub(super) fn new(door: Door) -> Self {
        Self { usual: TaskService { door: door.clone() }, door }
    }
}

fn face(shim: &Shim) -> Result<&Rc<Face>, Failure> {
    shim.containerd.as_ref().ok_or(Failure::Unsupported { what: "what containerd asks for" })
}

#[async_trait]
impl Task for ContainerdTask {
    async fn state(
        &self,
        context: &TtrpcContext,
        request: wire::StateRequest,
    ) -> ttrpc::Result<wire::StateResponse> {
        self.usual.state(context, request).await
    }

    async fn create(
        &self,
        _: &TtrpcContext,
        request: wire::CreateTaskRequest,
    ) -> ttrpc::Result<wire::CreateTaskResponse> {
        self.door
            .ask(move |shim| async move {
                let face = face(&shim)?.clone();
                let key = ProcessKey::parse(&request.id, "")?;
                let _starting = face.starting(&key);
                let pid = create::create(&shim, &face, &request).await?;
                face.created(&request, pid);
                Ok(wire::CreateTaskResponse { pid, ..Default::default() })
            })
            .await
    }

    async fn start(
        &self,
        _: &TtrpcContext,
        request: wire::StartRequest,
    ) -> ttrpc::Result<wire::StartResponse> {
        self.door
            .ask(move |shim| async move {
                let face = face(&shim)?.clone();
                let key = ProcessKey::parse(&request.id, &request.exec_id)?;
                let _starting = face.starting(&key);
                let pid = run::start(shim, request).await?;
                face.started(&key, pid);
                Ok(wire::StartResponse { pid, ..Default::default() })
            })
            .await
    }

    async fn delete(
        &self,
        _: &TtrpcContext,
        request: wire::DeleteRequest,
    ) -> ttrpc::Result<wire::DeleteResponse> {
        self.door
            .ask(move |shim| async move {
                let face = face(&shim)?.clone();
                let key = ProcessKey::parse(&request.id, &request.exec_id)?;
                let process = shim.process(&key)?;
                if process.exit().is_some() {
                    // Who deletes it closes the other ends after that.
                    let _ = timeout(Duration::from_millis(SINK_CLOSE_MS), process.output.delivered()).await;
                }
                let (process, exit) = delete::delete(shim, key.clone()).await?;
                let pid = process.pid_or_zero();
                if key.exec.is_none() {
                    face.deleted(&key, pid, &exit);
                }
                Ok(deleted(pid, &exit))
            })
            .await
    }

    async fn pids(
        &self,
        context: &TtrpcContext,
        request: wire::PidsRequest,
    ) -> ttrpc::Result<wire::PidsResponse> {
        self.usual.pids(context, request).await
    }

    async fn pause(&self, context: &TtrpcContext, request: wire::PauseRequest) -> ttrpc::Result<Empty> {
        let id = request.id.clone();
        self.usual.pause(context, request).await?;
        self.door.ask(move |shim| async move { face(&shim).map(|face| face.paused(&id)) }).await.map(empty)
    }

    async fn resume(&self, context: &TtrpcContext, request: wire::ResumeRequest) -> ttrpc::Result<Empty> {
        let id = request.id.clone();
        self.usual.resume(context, request).await?;
        self.door.ask(move |shim| async move { face(&shim).map(|face| face.resumed(&id)) }).await.map(empty)
    }

    async fn checkpoint(
        &self,
        context: &TtrpcContext,
        request: wire::CheckpointTaskRequest,
    ) -> ttrpc::Result<Empty> {
        self.usual.checkpoint(context, request).await
    }

    async fn kill(&self, context: &TtrpcContext, request: wire::KillRequest) -> ttrpc::Result<Empty> {
        self.usual.kill(context, request).await
    }

    async fn exec(&self, _: &TtrpcContext, request: wire::ExecProcessRequest) -> ttrpc::Result<Empty> {
        self.door
            .ask(move |shim| async move {
                let face = face(&shim)?.clone();
                let key = create::register_exec(&shim, &face, &request).await?;
                face.exec_added(&key);
                Ok(())
            })
            .await
            .map(empty)
    }

    async fn resize_pty(
        &self,
        context: &TtrpcContext,
        request: wire::ResizePtyRequest,
    ) -> ttrpc::Result<Empty> {
        self.usual.resize_pty(context, request).await
    }

    async fn close_io(&self, _: &TtrpcContext, request: wire::CloseIORequest) -> ttrpc::Result<Empty> {
        self.door
            .ask(move |shim| async move {
                let process = shim.process(&ProcessKey::parse(&request.id, &request.exec_id)?)?;
                if request.stdin {
                    process.stdin.no_more();
                }
                Ok(())
            })
            .await
            .map(empty)
    }

    async fn update(&self, context: &TtrpcContext, request: wire::UpdateTaskRequest) -> ttrpc::Result<Empty> {
        self.usual.update(context, request).await
    }

    async fn wait(
        &self,
        context: &TtrpcContext,
        request: wire::WaitRequest,
    ) -> ttrpc::Result<wire::WaitResponse> {
        self.usual.wait(context, request).await
    }

    async fn stats(
        &self,
        _: &TtrpcContext,
        request: wire::StatsRequest,
    ) -> ttrpc::Result<wire::StatsResponse> {
        self.door
            .ask(move |shim| async move {
                let container = shim.container(&ProcessKey::parse(&request.id, "")?.container)?;
                let (mut stats, details) = (container.cgroup.stats()?, container.cgroup.details()?);
                if stats.pids_current.is_none() {
                    // On v1 a container without a bound for them is not in the hierarchy that counts them.
                    stats.pids_current = Some(container.cgroup.members()?.len() as u64);
                }
                let any = metrics::any(&shim.layout, &stats, &details);
                Ok(wire::StatsResponse { stats: MessageField::some(any), ..Default::default() })
            })
            .await
    }

    async fn connect(
        &self,
        _: &TtrpcContext,
        request: wire::ConnectRequest,
    ) -> ttrpc::Result<wire::ConnectResponse> {
        self.door
            .ask(move |shim| async move {
                // A containerd that comes back asks each shim of a bundle so, and lets go of one that answers with an error.
                let container = ProcessKey::parse(&request.id, "")
                    .ok()
                    .and_then(|key| shim.container(&key.container).ok());
                Ok(connected(container.map_or(0, |container| container.init.pid_or_zero())))
            })
            .await
    }

    async fn shutdown(&self, context: &TtrpcContext, request: wire::ShutdownRequest) -> ttrpc::Result<Empty> {
        self.usual.shutdown(context, request).await
    }
}
