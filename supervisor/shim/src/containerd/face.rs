//! What a shim knows of the containerd that it works for.
//!
//! Owns: the order in which the events of a process are told: an exit that overtakes the answer to a start is told after it
//! (P2). Never: sends (`events`), or keeps an exit from those who wait for it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::rc::Rc;

use mainstay_messages::ContainerId;
use mainstay_messages::process::{Exit, ExitStatus, OomVerdict};
use mainstay_task_api::MessageField;
use mainstay_task_api::convert::{ProcessKey, wire_timestamp};
use mainstay_task_api::events as wire;
use mainstay_task_api::task::CreateTaskRequest;

use super::events::{Events, Topic};
use crate::container::Container;
use crate::process::Process;

/// What a shim knows of its containerd.
#[derive(Debug)]
pub(crate) struct Face {
    /// containerd's namespace.
    pub(super) namespace: String,
    /// The bundle of the first container.
    pub(crate) bundle: PathBuf,
    events: Rc<Events>,
    /// Processes whose start is not answered yet, and their exits.
    starting: RefCell<BTreeMap<ProcessKey, Option<Ended>>>,
    /// How many processes of a container were ended for want of memory, as far as that was told.
    oom_kills_told: RefCell<BTreeMap<ContainerId, u64>>,
}

/// Whether a look has found something that was not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Yes,
    No,
}

/// A start that is not answered yet, in the hands of the request that it is of.
#[derive(Debug)]
pub(super) struct Starting {
    face: Rc<Face>,
    key: ProcessKey,
}

impl Drop for Starting {
    /// It is answered, whatever came of it.
    fn drop(&mut self) {
        let ended = self.face.starting.borrow_mut().remove(&self.key).flatten();
        if let Some(ended) = ended {
            self.face.tell_exit(&self.key, &ended);
        }
    }
}

/// An exit that is to be told.
#[derive(Debug)]
struct Ended {
    pid: u32,
    exit: Exit,
}

impl Face {
    pub(super) fn new(namespace: String, bundle: PathBuf, events: Rc<Events>) -> Self {
        Self { namespace, bundle, events, starting: RefCell::default(), oom_kills_told: RefCell::default() }
    }

    /// A container was created.
    pub(super) fn created(&self, request: &CreateTaskRequest, pid: u32) {
        let io = wire::TaskIO {
            stdin: request.stdin.clone(),
            stdout: request.stdout.clone(),
            stderr: request.stderr.clone(),
            terminal: request.terminal,
            ..Default::default()
        };
        self.events.tell(
            Topic::Create,
            &wire::TaskCreate {
                container_id: request.id.clone(),
                bundle: request.bundle.clone(),
                rootfs: request.rootfs.clone(),
                io: MessageField::some(io),
                pid,
                ..Default::default()
            },
        );
    }

    /// An exec was registered.
    pub(super) fn exec_added(&self, key: &ProcessKey) {
        let container_id = key.container.as_str().to_owned();
        let exec_id = key.exec_text().to_owned();
        self.events
            .tell(Topic::ExecAdded, &wire::TaskExecAdded { container_id, exec_id, ..Default::default() });
    }

    /// A process is being started: its exit waits until what is answered goes. None while another request is at it.
    pub(super) fn starting(self: &Rc<Self>, key: &ProcessKey) -> Option<Starting> {
        match self.starting.borrow_mut().entry(key.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                place.insert(None);
                Some(Starting { face: self.clone(), key: key.clone() })
            }
        }
    }

    /// A process has been started.
    pub(super) fn started(&self, key: &ProcessKey, pid: u32) {
        let container_id = key.container.as_str().to_owned();
        match &key.exec {
            None => {
                self.events.tell(Topic::Start, &wire::TaskStart { container_id, pid, ..Default::default() })
            }
            Some(exec) => {
                let exec_id = exec.as_str().to_owned();
                let event = wire::TaskExecStarted { container_id, exec_id, pid, ..Default::default() };
                self.events.tell(Topic::ExecStarted, &event);
            }
        }
    }

    /// A process has ended.
    pub(crate) fn exited(&self, process: &Process, container: Option<&Container>, exit: &Exit) {
        let ended = Ended { pid: process.pid_or_zero(), exit: exit.clone() };
        if let Some(place) = self.starting.borrow_mut().get_mut(&process.key) {
            *place = Some(ended);
            return;
        }
        if let Some(container) = container {
            self.look_for_oom(container);
        }
        self.tell_exit(&process.key, &ended);
    }

    /// Tells of processes that were ended for want of memory, unless that was told.
    pub(super) fn look_for_oom(&self, container: &Container) -> News {
        let kills = container.oom_kills_so_far();
        let told = self.oom_kills_told.borrow().get(&container.id).copied().unwrap_or(0);
        if kills <= told {
            return News::No;
        }
        self.tell_oom(&container.id, kills);
        News::Yes
    }

    fn tell_oom(&self, id: &ContainerId, kills: u64) {
        self.oom_kills_told.borrow_mut().insert(id.clone(), kills);
        let container_id = id.as_str().to_owned();
        self.events.tell(Topic::Oom, &wire::TaskOOM { container_id, ..Default::default() });
    }

    fn tell_exit(&self, key: &ProcessKey, ended: &Ended) {
        // Whoever asked for the start has been told, and nothing has run.
        if matches!(ended.exit.status, ExitStatus::StartError { .. }) {
            return;
        }
        let container_id = key.container.as_str().to_owned();
        let told = self.oom_kills_told.borrow().contains_key(&key.container);
        if ended.exit.oom == OomVerdict::Killed && !told {
            self.tell_oom(&key.container, 1);
        }
        let id = key.exec.as_ref().map_or(key.container.as_str(), |exec| exec.as_str()).to_owned();
        let event = wire::TaskExit {
            container_id,
            id,
            pid: ended.pid,
            exit_status: ended.exit.code(),
            exited_at: MessageField::some(wire_timestamp(ended.exit.at)),
            ..Default::default()
        };
        self.events.tell(Topic::Exit, &event);
    }

    /// A container was deleted.
    pub(super) fn deleted(&self, key: &ProcessKey, pid: u32, exit: &Exit) {
        self.oom_kills_told.borrow_mut().remove(&key.container);
        let event = wire::TaskDelete {
            container_id: key.container.as_str().to_owned(),
            id: key.exec_text().to_owned(),
            pid,
            exit_status: exit.code(),
            exited_at: MessageField::some(wire_timestamp(exit.at)),
            ..Default::default()
        };
        self.events.tell(Topic::Delete, &event);
    }

    /// A container was frozen.
    pub(super) fn paused(&self, id: &str) {
        let container_id = id.to_owned();
        self.events.tell(Topic::Paused, &wire::TaskPaused { container_id, ..Default::default() });
    }

    /// A container runs again.
    pub(super) fn resumed(&self, id: &str) {
        let container_id = id.to_owned();
        self.events.tell(Topic::Resumed, &wire::TaskResumed { container_id, ..Default::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that asked for a start twice was refused the second time, and with that the exit of what the first one had
    /// started could be told before its start.
    #[test]
    fn a_second_request_does_not_end_the_first_ones_start() {
        let events = Events::new("default".to_owned());
        let face = Rc::new(Face::new("default".to_owned(), "/bundle".into(), events));
        let key = ProcessKey::parse("web", "").expect("good");
        let first = face.starting(&key).expect("it is the first");
        assert!(face.starting(&key).is_none());
        assert!(face.starting(&key).is_none(), "the first one is at it still");
        drop(first);
        assert!(face.starting(&key).is_some());
    }
}
