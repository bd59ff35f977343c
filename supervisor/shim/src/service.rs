//! containerd's Task service, in both of its versions.
//!
//! Owns: the translation between the wire and the shim's operations. Never: decides anything; README.md of
//! `mainstay-task-api` says what the fields mean.

use async_trait::async_trait;
use mainstay_launch::WindowSize;
use mainstay_messages::Signal;
use mainstay_messages::process::Exit;
use mainstay_task_api::convert::{ProcessKey, wire_timestamp};
use mainstay_task_api::streams::Terminal;
use mainstay_task_api::task::{self as wire, Status};
use mainstay_task_api::task_v2::Task;
use mainstay_task_api::well_known_types::empty::Empty;
use mainstay_task_api::{MessageField, RESOURCES_TYPE_URL};
use ttrpc::r#async::TtrpcContext;

use crate::container::{Container, Paused};
use crate::door::Door;
use crate::failure::Failure;
use crate::process::Process;
use crate::shim::Shim;
use crate::task::{Input, Phase};
use crate::{create, delete, run};

/// Handles the Task service's requests.
pub(crate) struct TaskService {
    pub(crate) door: Door,
}

#[async_trait]
impl Task for TaskService {
    async fn state(
        &self,
        _: &TtrpcContext,
        request: wire::StateRequest,
    ) -> ttrpc::Result<wire::StateResponse> {
        self.door.ask(move |shim| async move { state(&shim, &request) }).await
    }

    async fn create(
        &self,
        _: &TtrpcContext,
        request: wire::CreateTaskRequest,
    ) -> ttrpc::Result<wire::CreateTaskResponse> {
        let pid = self.door.ask(move |shim| create::create(shim, request)).await?;
        Ok(wire::CreateTaskResponse { pid, ..Default::default() })
    }

    async fn start(
        &self,
        _: &TtrpcContext,
        request: wire::StartRequest,
    ) -> ttrpc::Result<wire::StartResponse> {
        let pid = self.door.ask(move |shim| run::start(shim, request)).await?;
        Ok(wire::StartResponse { pid, ..Default::default() })
    }

    async fn delete(
        &self,
        _: &TtrpcContext,
        request: wire::DeleteRequest,
    ) -> ttrpc::Result<wire::DeleteResponse> {
        self.door
            .ask(move |shim| async move {
                let key = ProcessKey::parse(&request.id, &request.exec_id)?;
                let (process, exit) = delete::delete(shim, key).await?;
                Ok(deleted(process.pid_or_zero(), &exit))
            })
            .await
    }

    async fn pids(&self, _: &TtrpcContext, request: wire::PidsRequest) -> ttrpc::Result<wire::PidsResponse> {
        self.door
            .ask(move |shim| async move {
                let container = find(&shim, &request.id)?;
                let pids = container.backend.pids(&container).await?;
                let mut pids: Vec<i32> = pids.into_iter().map(|pid| pid.as_raw_pid()).collect();
                pids.sort_unstable();
                let info = |pid: i32| wire::ProcessInfo { pid: pid.unsigned_abs(), ..Default::default() };
                Ok(wire::PidsResponse {
                    processes: pids.into_iter().map(info).collect(),
                    ..Default::default()
                })
            })
            .await
    }

    async fn pause(&self, _: &TtrpcContext, request: wire::PauseRequest) -> ttrpc::Result<Empty> {
        self.door
            .ask(move |shim| async move {
                let container = find(&shim, &request.id)?;
                container.backend.pause(&container).await
            })
            .await
            .map(empty)
    }

    async fn resume(&self, _: &TtrpcContext, request: wire::ResumeRequest) -> ttrpc::Result<Empty> {
        self.door
            .ask(move |shim| async move {
                let container = find(&shim, &request.id)?;
                container.backend.resume(&container).await
            })
            .await
            .map(empty)
    }

    async fn checkpoint(&self, _: &TtrpcContext, _: wire::CheckpointTaskRequest) -> ttrpc::Result<Empty> {
        Err(Failure::Unsupported { what: "a checkpoint" }.into())
    }

    async fn kill(&self, _: &TtrpcContext, request: wire::KillRequest) -> ttrpc::Result<Empty> {
        self.door.ask(move |shim| async move { kill(&shim, &request).await }).await.map(empty)
    }

    async fn exec(&self, _: &TtrpcContext, request: wire::ExecProcessRequest) -> ttrpc::Result<Empty> {
        self.door.ask(move |shim| async move { run::register_exec(&shim, &request) }).await.map(empty)
    }

    async fn resize_pty(&self, _: &TtrpcContext, request: wire::ResizePtyRequest) -> ttrpc::Result<Empty> {
        self.door
            .ask(move |shim| async move {
                let key = ProcessKey::parse(&request.id, &request.exec_id)?;
                let rows = size_field("height", request.height)?;
                let columns = size_field("width", request.width)?;
                let container = shim.container(&key.container)?;
                let process = container.process(&key)?;
                container.backend.resize(&process, WindowSize { rows, columns }).await
            })
            .await
            .map(empty)
    }

    async fn close_io(&self, _: &TtrpcContext, request: wire::CloseIORequest) -> ttrpc::Result<Empty> {
        self.door
            .ask(move |shim| async move {
                let key = ProcessKey::parse(&request.id, &request.exec_id)?;
                let container = shim.container(&key.container)?;
                let process = container.process(&key)?;
                if request.stdin {
                    process.stdin.close();
                }
                Ok(())
            })
            .await
            .map(empty)
    }

    async fn update(&self, _: &TtrpcContext, request: wire::UpdateTaskRequest) -> ttrpc::Result<Empty> {
        self.door.ask(move |shim| async move { update(&shim, &request).await }).await.map(empty)
    }

    async fn wait(&self, _: &TtrpcContext, request: wire::WaitRequest) -> ttrpc::Result<wire::WaitResponse> {
        self.door
            .ask(move |shim| async move {
                let key = ProcessKey::parse(&request.id, &request.exec_id)?;
                let process = shim.process(&key)?;
                tokio::select! {
                    () = process.wait_ended() => {}
                    () = shim.closed() => {}
                }
                let exit = process.exit().ok_or(Failure::Closing)?;
                Ok(wire::WaitResponse {
                    exit_status: exit.code(),
                    exited_at: MessageField::some(wire_timestamp(exit.at)),
                    ..Default::default()
                })
            })
            .await
    }

    async fn stats(
        &self,
        _: &TtrpcContext,
        request: wire::StatsRequest,
    ) -> ttrpc::Result<wire::StatsResponse> {
        // The numbers go by the extension; this says only that the container is there.
        self.door.ask(move |shim| async move { find(&shim, &request.id).map(drop) }).await?;
        Ok(wire::StatsResponse { stats: MessageField::some(Default::default()), ..Default::default() })
    }

    async fn connect(
        &self,
        _: &TtrpcContext,
        request: wire::ConnectRequest,
    ) -> ttrpc::Result<wire::ConnectResponse> {
        let task_pid = self
            .door
            .ask(move |shim| async move { Ok(find(&shim, &request.id)?.init.pid_or_zero()) })
            .await?;
        Ok(connected(task_pid))
    }

    async fn shutdown(&self, context: &TtrpcContext, request: wire::ShutdownRequest) -> ttrpc::Result<Empty> {
        let time = delete::EndTime::of_call(context.timeout_nano);
        self.door
            .ask(move |shim| async move {
                if request.now {
                    shim.refuse_new();
                    delete::end_pod(&shim, time).await;
                } else if shim.containers().is_empty() {
                    shim.backend().end().await;
                    shim.kill_pod();
                    delete::remove_pod_cgroup(&shim).await;
                }
                if request.now || shim.containers().is_empty() {
                    shim.close();
                }
                Ok(())
            })
            .await
            .map(empty)
    }
}

pub(crate) fn empty((): ()) -> Empty {
    Empty::default()
}

/// The answer about a process that is deleted.
pub(crate) fn deleted(pid: u32, exit: &Exit) -> wire::DeleteResponse {
    wire::DeleteResponse {
        pid,
        exit_status: exit.code(),
        exited_at: MessageField::some(wire_timestamp(exit.at)),
        ..Default::default()
    }
}

/// The answer to who asks which shim this is.
pub(crate) fn connected(task_pid: u32) -> wire::ConnectResponse {
    wire::ConnectResponse {
        shim_pid: std::process::id(),
        task_pid,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    }
}

fn find(shim: &Shim, id: &str) -> Result<std::rc::Rc<Container>, Failure> {
    shim.container(&ProcessKey::parse(id, "")?.container)
}

fn state(shim: &Shim, request: &wire::StateRequest) -> Result<wire::StateResponse, Failure> {
    let key = ProcessKey::parse(&request.id, &request.exec_id)?;
    let container = shim.container(&key.container)?;
    let process = container.process(&key)?;
    let exit = process.exit();
    Ok(wire::StateResponse {
        id: request.id.clone(),
        exec_id: request.exec_id.clone(),
        bundle: container.bundle.to_string_lossy().into_owned(),
        pid: process.pid_or_zero(),
        status: status(&container, &process).into(),
        stdin: process.names.stdin.clone(),
        stdout: process.names.stdout.clone(),
        stderr: process.names.stderr.clone(),
        terminal: process.terminal == Terminal::Yes,
        exit_status: exit.as_ref().map_or(0, Exit::code),
        exited_at: exit.map(|exit| wire_timestamp(exit.at)).into(),
        ..Default::default()
    })
}

fn status(container: &Container, process: &Process) -> Status {
    match process.phase() {
        Phase::Exited(_) => Status::STOPPED,
        _ if container.paused() == Paused::Yes => Status::PAUSED,
        Phase::Running => Status::RUNNING,
        Phase::Preparing => Status::UNKNOWN,
        Phase::Created | Phase::Starting => Status::CREATED,
    }
}

async fn kill(shim: &Shim, request: &wire::KillRequest) -> Result<(), Failure> {
    let key = ProcessKey::parse(&request.id, &request.exec_id)?;
    let container = shim.container(&key.container)?;
    let process = container.process(&key)?;
    let signal = match u8::try_from(request.signal) {
        Ok(number @ 1..=64) => Signal(number),
        _ => {
            return Err(Failure::Invalid {
                field: "signal",
                value: request.signal.to_string(),
                expected: "a number from 1 to 64",
            });
        }
    };
    if process.exit().is_some() {
        return Err(Failure::Gone { process: key });
    }
    let all = request.all && key.exec.is_none();
    if signal == Signal::KILL {
        process.apply(Input::KillAsked)?;
    }
    if all {
        return container.backend.signal_all(&container, signal).await;
    }
    container.backend.signal(&container, &process, signal).await
}

async fn update(shim: &Shim, request: &wire::UpdateTaskRequest) -> Result<(), Failure> {
    let container = find(shim, &request.id)?;
    let invalid = |value| Failure::Invalid {
        field: "resources",
        value,
        expected: "OCI resources as JSON in an Any of type runtime-spec/1/LinuxResources",
    };
    let any = request.resources.as_ref().ok_or_else(|| invalid("nothing".to_owned()))?;
    if any.type_url != RESOURCES_TYPE_URL {
        return Err(invalid(format!("type {:?}", any.type_url)));
    }
    let resources = serde_json::from_slice(&any.value)
        .map_err(|error| invalid(format!("resources that cannot be read ({error})")))?;
    container.backend.update(&container, &resources).await
}

fn size_field(field: &'static str, value: u32) -> Result<u16, Failure> {
    u16::try_from(value).map_err(|_| Failure::Invalid {
        field,
        value: value.to_string(),
        expected: "a number up to 65535",
    })
}
