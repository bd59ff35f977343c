//! The Task API. Owns: what each call does, right; and the events that go with it, of which some are wrong by plan. Never:
//! knows of frames.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mainstay_task_api::Message;
use mainstay_task_api::events::{
    TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskStart,
};
use mainstay_task_api::task::{
    ConnectRequest, ConnectResponse, CreateTaskRequest, CreateTaskResponse, DeleteRequest, DeleteResponse,
    ExecProcessRequest, KillRequest, PidsRequest, PidsResponse, ProcessInfo, ShutdownRequest, StartRequest,
    StartResponse, StateRequest, StateResponse, Status as Phase, WaitRequest, WaitResponse,
};
use mainstay_task_api::well_known_types::empty::Empty;
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::Notify;
use ttrpc::{Code, Status, get_status};

use crate::container::{self, Ended, Key, Process, Processes};
use crate::control_groups::ControlGroup;
use crate::events::Publisher;
use crate::output::{self, Wanted};
use crate::plan::Plan;
use crate::serve::{Answer, unimplemented};

/// SIGKILL.
const SIGKILL: u32 = 9;

/// A shim that serves.
#[derive(Debug)]
pub struct Shim {
    pub namespace: String,
    pub folder: PathBuf,
    publisher: Publisher,
    processes: Mutex<Processes>,
    end: Notify,
}

fn read<M: Message>(payload: &[u8]) -> Result<M, Status> {
    M::parse_from_bytes(payload).map_err(|error| get_status(Code::INVALID_ARGUMENT, error))
}

fn written(message: &impl Message) -> Answer {
    message.write_to_bytes().map_err(|error| get_status(Code::INTERNAL, error))
}

fn failed(error: io::Error) -> Status {
    let code = if error.kind() == io::ErrorKind::NotFound { Code::NOT_FOUND } else { Code::UNKNOWN };
    get_status(code, error)
}

impl Shim {
    pub fn new(namespace: String, folder: PathBuf, publisher: Publisher) -> Self {
        Self { namespace, folder, publisher, processes: Mutex::default(), end: Notify::new() }
    }

    /// The plan as it is now.
    pub fn plan(&self) -> Plan {
        Plan::read(&self.folder)
    }

    /// Ends when it shall.
    pub async fn told_to_end(&self) {
        self.end.notified().await;
    }

    /// The same from another service.
    pub fn end(&self) {
        self.end.notify_one();
    }

    /// The cgroups of its containers.
    pub fn groups(&self) -> Vec<ControlGroup> {
        self.processes().values().map(|process| process.group.clone()).collect()
    }

    /// Which process a call is about, for the list of calls.
    pub fn named(&self, method: &str, payload: &[u8]) -> String {
        // Fields 1 and 2 of most requests; where the second is no text, it is no exec.
        match read::<StateRequest>(payload) {
            Ok(request) if method != "Create" => {
                format!("{} {}", request.id, request.exec_id).trim_end().to_owned()
            }
            _ => read::<CreateTaskRequest>(payload).map_or(String::new(), |request| request.id),
        }
    }

    fn processes(&self) -> MutexGuard<'_, Processes> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, key: &Key, look: impl FnOnce(&mut Process) -> T) -> Result<T, Status> {
        let mut processes = self.processes();
        let process = processes.get_mut(key);
        process
            .map(look)
            .ok_or_else(|| get_status(Code::NOT_FOUND, format!("{key:?}: process does not exist")))
    }

    /// A call.
    pub async fn call(&self, method: &str, payload: &[u8]) -> Answer {
        match method {
            "State" => self.state(&read(payload)?),
            "Create" => self.create(&read(payload)?),
            "Start" => self.start(&read(payload)?).await,
            "Delete" => self.delete(&read(payload)?),
            "Pids" => self.pids(&read(payload)?),
            "Kill" => self.kill(&read(payload)?),
            "Exec" => self.exec(&read(payload)?),
            // The process has the FIFO itself: there is nothing to close here.
            "CloseIO" => written(&Empty::new()),
            "Wait" => self.wait(&read(payload)?).await,
            "Connect" => self.connect(&read(payload)?),
            "Shutdown" => self.shutdown(&read(payload)?),
            other => Err(unimplemented("Task", other)),
        }
    }

    /// What happens when the answer is out.
    pub fn answered(&self, method: &str, payload: &[u8]) {
        if method != "Delete" || self.plan().get("exits") != "late" {
            return;
        }
        let Ok(request) = read::<DeleteRequest>(payload) else { return };
        self.publish_exit(
            &(request.id, request.exec_id),
            0,
            &Ended::of(Ok(std::process::ExitStatus::default())),
        );
    }

    fn create(&self, request: &CreateTaskRequest) -> Answer {
        for number in 0..self.plan().get("stray").parse().unwrap_or(0) {
            let now = Ended::of(Ok(std::process::ExitStatus::default()));
            self.publish_exit(&(format!("nobody-{number}"), String::new()), 1, &now);
        }
        if request.terminal {
            return Err(get_status(Code::UNIMPLEMENTED, "terminal: this shim has none"));
        }
        let bundle = PathBuf::from(&request.bundle);
        let spec = container::spec_of(&bundle).map_err(failed)?;
        let key = (request.id.clone(), String::new());
        let pid =
            self.make(key, spec.get("process").unwrap_or(&Value::Null), Wanted::from(request), bundle)?;
        self.publisher.publish(&TaskCreate {
            container_id: request.id.clone(),
            bundle: request.bundle.clone(),
            pid,
            ..Default::default()
        });
        written(&CreateTaskResponse { pid, ..Default::default() })
    }

    fn exec(&self, request: &ExecProcessRequest) -> Answer {
        if request.terminal {
            return Err(get_status(Code::UNIMPLEMENTED, "terminal: this shim has none"));
        }
        let bundle = self.with(&(request.id.clone(), String::new()), |process| process.bundle.clone())?;
        let process: Value = serde_json::from_slice(&request.spec.value)
            .map_err(|error| get_status(Code::INVALID_ARGUMENT, format!("spec: {error}")))?;
        let key = (request.id.clone(), request.exec_id.clone());
        self.make(key, &process, Wanted::from(request), bundle)?;
        self.publisher.publish(&TaskExecAdded {
            container_id: request.id.clone(),
            exec_id: request.exec_id.clone(),
            ..Default::default()
        });
        written(&Empty::new())
    }

    fn make(&self, key: Key, process: &Value, wanted: Wanted, bundle: PathBuf) -> Result<u32, Status> {
        if self.processes().contains_key(&key) {
            return Err(get_status(Code::ALREADY_EXISTS, format!("{key:?}: it is there")));
        }
        let streams = output::open(&wanted, &self.namespace, &key.0).map_err(failed)?;
        let group = ControlGroup::of(&bundle);
        let (process, mut child, announce) =
            container::make(process, streams, group, wanted, bundle).map_err(failed)?;
        let pid = process.pid;
        self.processes().insert(key.clone(), process);
        let publisher = self.clone_for_exits(key, pid);
        tokio::spawn(async move {
            let ended = Ended::of(child.wait().await);
            announce.send_replace(Some(ended));
            publisher.exited(&ended);
        });
        Ok(pid)
    }

    fn clone_for_exits(&self, key: Key, pid: u32) -> Exits {
        Exits { publisher: self.publisher.clone(), folder: self.folder.clone(), key, pid }
    }

    async fn start(&self, request: &StartRequest) -> Answer {
        let key = (request.id.clone(), request.exec_id.clone());
        let (pid, gate, mut ended) =
            self.with(&key, |process| (process.pid, process.gate.take(), process.ended.clone()))?;
        let gate =
            gate.ok_or_else(|| get_status(Code::FAILED_PRECONDITION, format!("{key:?}: it was started")))?;
        if self.plan().get("exits") == "lies" {
            let lie = Ended { status: 3, at: std::time::SystemTime::now() };
            // Delivered while it waits to be let go.
            let _ = self.clone_for_exits(key.clone(), pid).publish(&lie).await;
        }
        rustix::io::write(&gate, b"g").map_err(|error| failed(error.into()))?;
        drop(gate);
        if self.plan().get("exits") == "early" {
            // An error means that it has ended and nobody is left to say so.
            let _ = ended.wait_for(Option::is_some).await;
            let last = *ended.borrow();
            if let Some(last) = last {
                // Delivered before the answer: that is the point.
                let _ = self.clone_for_exits(key.clone(), pid).publish(&last).await;
            }
        }
        if key.1.is_empty() {
            self.publisher.publish(&TaskStart { container_id: key.0, pid, ..Default::default() });
        } else {
            self.publisher.publish(&TaskExecStarted {
                container_id: key.0,
                exec_id: key.1,
                pid,
                ..Default::default()
            });
        }
        written(&StartResponse { pid, ..Default::default() })
    }

    fn delete(&self, request: &DeleteRequest) -> Answer {
        let key = (request.id.clone(), request.exec_id.clone());
        let (pid, waits, ended, group) = self.with(&key, |process| {
            (process.pid, process.gate.is_some(), process.ended(), process.group.clone())
        })?;
        if ended.is_none() && !waits {
            return Err(get_status(Code::FAILED_PRECONDITION, format!("{key:?}: it is running")));
        }
        if key.1.is_empty() {
            group.signal(Signal::KILL);
            self.processes().retain(|(container, _), _| *container != key.0);
            group.remove();
        } else {
            self.processes().remove(&key);
        }
        let status = ended.map_or(0, |ended| ended.status);
        let exited_at = ended.map(|ended| ended.stamp()).unwrap_or_default();
        self.publisher.publish(&TaskDelete {
            container_id: key.0,
            id: key.1,
            pid,
            exit_status: status,
            exited_at: exited_at.clone(),
            ..Default::default()
        });
        written(&DeleteResponse { pid, exit_status: status, exited_at, ..Default::default() })
    }

    fn kill(&self, request: &KillRequest) -> Answer {
        let key = (request.id.clone(), request.exec_id.clone());
        let outcome = self.with(&key, |process| {
            if request.all && request.signal == SIGKILL {
                process.group.signal(Signal::KILL);
            }
            match process.ended() {
                Some(_) if !request.all => {
                    Err(io::Error::new(io::ErrorKind::NotFound, "process already finished"))
                }
                Some(_) => Ok(()),
                None => process.signal(request.signal),
            }
        })?;
        outcome.map_err(failed)?;
        written(&Empty::new())
    }

    async fn wait(&self, request: &WaitRequest) -> Answer {
        let key = (request.id.clone(), request.exec_id.clone());
        let mut ended = self.with(&key, |process| process.ended.clone())?;
        let last = ended.wait_for(Option::is_some).await.ok().and_then(|last| *last);
        let last = last.ok_or_else(|| get_status(Code::INTERNAL, "nobody waits for it"))?;
        written(&WaitResponse { exit_status: last.status, exited_at: last.stamp(), ..Default::default() })
    }

    fn state(&self, request: &StateRequest) -> Answer {
        let key = (request.id.clone(), request.exec_id.clone());
        let response = self.with(&key, |process| {
            let ended = process.ended();
            let phase = match (&ended, &process.gate) {
                (Some(_), _) => Phase::STOPPED,
                (None, Some(_)) => Phase::CREATED,
                (None, None) => Phase::RUNNING,
            };
            StateResponse {
                id: key.0.clone(),
                exec_id: key.1.clone(),
                bundle: process.bundle.to_string_lossy().into_owned(),
                pid: process.pid,
                status: phase.into(),
                stdin: process.wanted.stdin.clone(),
                stdout: process.wanted.stdout.clone(),
                stderr: process.wanted.stderr.clone(),
                exit_status: ended.map_or(0, |ended| ended.status),
                exited_at: ended.map(|ended| ended.stamp()).unwrap_or_default(),
                ..Default::default()
            }
        })?;
        written(&response)
    }

    fn pids(&self, request: &PidsRequest) -> Answer {
        let pids = self.with(&(request.id.clone(), String::new()), |process| process.group.pids())?;
        let processes = pids.into_iter().map(|pid| ProcessInfo { pid, ..Default::default() }).collect();
        written(&PidsResponse { processes, ..Default::default() })
    }

    fn connect(&self, request: &ConnectRequest) -> Answer {
        let task_pid = self.with(&(request.id.clone(), String::new()), |process| process.pid).unwrap_or(0);
        let shim_pid = std::process::id();
        written(&ConnectResponse { shim_pid, task_pid, version: "fault 1".into(), ..Default::default() })
    }

    fn shutdown(&self, request: &ShutdownRequest) -> Answer {
        if request.now || self.processes().is_empty() {
            self.end();
        }
        written(&Empty::new())
    }

    fn publish_exit(&self, key: &Key, pid: u32, ended: &Ended) {
        // Nobody waits for it.
        drop(self.clone_for_exits(key.clone(), pid).publish(ended));
    }
}

/// Announces the exit of one process.
struct Exits {
    publisher: Publisher,
    folder: PathBuf,
    key: Key,
    pid: u32,
}

impl Exits {
    /// As the plan says it.
    fn exited(&self, ended: &Ended) {
        let times = match Plan::read(&self.folder).get("exits") {
            "never" | "early" | "late" => 0,
            "twice" => 2,
            _ => 1,
        };
        for _ in 0..times {
            drop(self.publish(ended));
        }
    }

    fn publish(&self, ended: &Ended) -> tokio::sync::oneshot::Receiver<()> {
        let (container, exec) = &self.key;
        self.publisher.publish(&TaskExit {
            container_id: container.clone(),
            id: if exec.is_empty() { container.clone() } else { exec.clone() },
            pid: self.pid,
            exit_status: ended.status,
            exited_at: ended.stamp(),
            ..Default::default()
        })
    }
}
