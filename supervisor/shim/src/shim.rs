//! The shim: what it knows, and its main loop.
//!
//! Owns: the table of containers, the table of processes by id, the exits to be announced. Everything runs on one
//! thread, so a part that does not wait is never interrupted: a process is in the table before its exit can be reaped.
//!
//! Never: waits for a container, a disk or a client in the main loop; blocks the reaper.
//!
//! ```text
//!  SIGCHLD ──▶ reaper ──▶ process_ended: kill the rest, drain, OOM count, record ──▶ announce
//!  ttrpc ────▶ service, extension ──▶ create, run, delete        streams socket ──▶ attach
//! ```

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::{Cgroup, CgroupPath, Layout};
use mainstay_messages::ContainerId;
use mainstay_task_api::convert::ProcessKey;
use rustix::process::Pid;
use tokio::sync::{Mutex, Notify, watch};

use crate::arguments::Arguments;
use crate::backend::Backend;
use crate::container::Container;
use crate::containerd::Face;
use crate::exit_record::{ExitRecord, bundle_path, write_exit_record};
use crate::exits::Exits;
use crate::failure::Failure;
use crate::logger::{self, Chain};
use crate::offspring::Offspring;
use crate::output::Scratch;
use crate::pod::Pod;
use crate::process::Process;
use crate::task::{Ending, Input, OomKills, Phase};

/// The most containers of a shim.
pub(crate) const CONTAINERS_MAX: usize = 512;
/// How long after a failed attempt an exit record is written again, in milliseconds.
const EXIT_RECORD_RETRY_MS: u64 = 1_000;

/// What the shim knows.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(crate) arguments: Arguments,
    pub(crate) layout: Layout,
    /// The host's mount namespace.
    pub(crate) host_mounts: OwnedFd,
    pub(crate) scratch: Rc<RefCell<Scratch>>,
    pub(crate) pod: RefCell<Option<Pod>>,
    /// The containerd that it works for, where it is not our supervisor.
    pub(crate) containerd: Option<Rc<Face>>,
    /// Held while the pod is made.
    pub(crate) making_pod: Mutex<()>,
    pub(crate) exits: RefCell<Exits>,
    /// Told when there is a new exit.
    pub(crate) exits_changed: Notify,
    /// Children that are no processes of a container, or not known to be.
    pub(crate) offspring: RefCell<Offspring>,
    containers: RefCell<BTreeMap<ContainerId, Rc<Container>>>,
    processes: RefCell<HashMap<Pid, Rc<Process>>>,
    closing: watch::Sender<Closing>,
}

/// Whether the shim is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// Everything is being ended; nothing new is taken.
    Ending,
    Yes,
}

impl Shim {
    pub(crate) fn new(arguments: Arguments, layout: Layout, host_mounts: OwnedFd) -> Rc<Self> {
        Self::working_for(None, arguments, layout, host_mounts)
    }

    /// A shim that has no pod.
    pub(crate) fn under_containerd(face: Face, layout: Layout, host_mounts: OwnedFd) -> Rc<Self> {
        let arguments = Arguments::under_containerd(&face.bundle);
        Self::working_for(Some(Rc::new(face)), arguments, layout, host_mounts)
    }

    fn working_for(
        containerd: Option<Rc<Face>>,
        arguments: Arguments,
        layout: Layout,
        host_mounts: OwnedFd,
    ) -> Rc<Self> {
        Rc::new(Self {
            containerd,
            arguments,
            layout,
            host_mounts,
            scratch: Scratch::shared(),
            pod: RefCell::default(),
            making_pod: Mutex::default(),
            exits: RefCell::default(),
            exits_changed: Notify::new(),
            offspring: RefCell::default(),
            containers: RefCell::default(),
            processes: RefCell::default(),
            closing: watch::Sender::new(Closing::No),
        })
    }

    /// The pod's cgroup.
    pub(crate) fn pod_cgroup(&self) -> CgroupPath {
        let elsewhere = self.pod.borrow().as_ref().map(|pod| pod.cgroup.clone());
        elsewhere.unwrap_or_else(|| self.arguments.cgroup.clone())
    }

    /// Who makes the containers.
    pub(crate) fn backend(&self) -> Backend {
        self.pod.borrow().as_ref().map(|pod| pod.backend.clone()).unwrap_or_default()
    }

    /// A container.
    pub(crate) fn container(&self, id: &ContainerId) -> Result<Rc<Container>, Failure> {
        let found = self.containers.borrow().get(id).cloned();
        found.ok_or_else(|| Failure::NotFound { process: ProcessKey { container: id.clone(), exec: None } })
    }

    /// All containers.
    pub(crate) fn containers(&self) -> Vec<Rc<Container>> {
        self.containers.borrow().values().cloned().collect()
    }

    /// A process.
    pub(crate) fn process(&self, key: &ProcessKey) -> Result<Rc<Process>, Failure> {
        self.container(&key.container)?.process(key)
    }

    /// Adds a container.
    pub(crate) fn add_container(&self, container: Rc<Container>) -> Result<(), Failure> {
        let mut containers = self.containers.borrow_mut();
        if *self.closing.borrow() != Closing::No {
            return Err(Failure::Closing);
        }
        self.exits.borrow().admit()?;
        if containers.contains_key(&container.id) {
            return Err(Failure::Exists { process: container.init.key.clone() });
        }
        if containers.len() >= CONTAINERS_MAX {
            return Err(Failure::Exhausted { what: "containers of a pod", limit: CONTAINERS_MAX });
        }
        containers.insert(container.id.clone(), container);
        Ok(())
    }

    /// Forgets a container.
    pub(crate) fn remove_container(&self, container: &Container) {
        let mut containers = self.containers.borrow_mut();
        if containers.get(&container.id).is_some_and(|known| std::ptr::eq(&**known, container)) {
            containers.remove(&container.id);
        }
    }

    /// Adds a process that was made just now; nothing may wait between its birth and this.
    pub(crate) fn add_process(&self, process: &Rc<Process>) {
        if let Some(identity) = process.identity() {
            self.processes.borrow_mut().insert(identity.pid, process.clone());
        }
    }

    /// Whether a process of a container has this number.
    pub(crate) fn has_process(&self, pid: Pid) -> bool {
        self.processes.borrow().contains_key(&pid)
    }

    /// Forgets a process that has ended without being reaped here.
    pub(crate) fn forget_process(&self, process: &Rc<Process>) {
        if let Some(identity) = process.identity() {
            let mut processes = self.processes.borrow_mut();
            if processes.get(&identity.pid).is_some_and(|known| Rc::ptr_eq(known, process)) {
                processes.remove(&identity.pid);
            }
        }
    }

    /// A child was reaped. An orphan that the kernel gave us is in no table.
    pub(crate) fn reaped(self: &Rc<Self>, pid: Pid, how: Ending) {
        let process = self.processes.borrow_mut().remove(&pid);
        if let Some(process) = process {
            self.process_ended(&process, how);
        } else if self.pod.borrow().as_ref().is_some_and(|pod| pod.init == Some(pid)) {
            logger::error!("the pod's init has ended ({how:?}), and with it every process of the pod");
        } else {
            self.offspring.borrow_mut().reaped(pid, how);
        }
    }

    /// A process has ended. Nothing here waits: the exit of PID 1 is never held back by anything.
    pub(crate) fn process_ended(self: &Rc<Self>, process: &Rc<Process>, how: Ending) {
        let at = logger::now();
        process.hear_launcher();
        let container = self.container(&process.key.container).ok();
        let is_init = process.key.exec.is_none();
        let mut oom_kills = OomKills::Same;
        if is_init {
            if let Some(container) = &container {
                if let Err(failure) = container.kill_all() {
                    logger::error!("{}: killing what is left: {}", process.key, failure.sentence());
                }
                oom_kills = container.oom_kills_since();
                container.drop_unstarted_execs();
            }
            process.output.finish_now();
        } else {
            process.output.finish_in_turn();
        }
        let was_announced = process.phase() != Phase::Preparing;
        // An end is never refused.
        let _ = process.apply(Input::Ended { how, at, oom_kills });
        if was_announced {
            self.record(process);
        }
        process.announce_ended();
    }

    /// Writes the exit record, then announces the exit. A record that cannot be written keeps nobody waiting.
    fn record(self: &Rc<Self>, process: &Rc<Process>) {
        let Some(exit) = process.exit() else { return };
        let record = ExitRecord {
            container: process.key.container.clone(),
            exec: process.key.exec.clone(),
            pid: process.pid_or_zero(),
            exit: exit.clone(),
        };
        let bundle = match self.container(&process.key.container) {
            Ok(container) => container.bundle.clone(),
            Err(_) => bundle_path(&self.arguments.directory, &process.key.container),
        };
        if let Err(error) = write_exit_record(&bundle, &record) {
            logger::error!("{}", Chain(&error));
            tokio::task::spawn_local(self.clone().record_again(process.clone(), bundle, record));
        }
        logger::note!("{} {exit}", process.key);
        if let Some(face) = &self.containerd {
            let container = self.container(&process.key.container).ok();
            return face.exited(process, container.as_deref(), &exit);
        }
        self.exits.borrow_mut().insert(process.key.clone(), exit);
        self.exits_changed.notify_waiters();
    }

    /// Writes a record until it is written or its process has been deleted.
    async fn record_again(self: Rc<Self>, process: Rc<Process>, bundle: PathBuf, record: ExitRecord) {
        loop {
            tokio::time::sleep(Duration::from_millis(EXIT_RECORD_RETRY_MS)).await;
            let known = self.process(&process.key).is_ok_and(|known| Rc::ptr_eq(&known, &process));
            if !known || write_exit_record(&bundle, &record).is_ok() {
                return;
            }
        }
    }

    /// Takes no new container any more.
    pub(crate) fn refuse_new(&self) {
        self.closing.send_replace(Closing::Ending);
    }

    /// Ends the main loop.
    pub(crate) fn close(&self) {
        self.closing.send_replace(Closing::Yes);
    }

    /// Waits until the shim is to end.
    pub(crate) async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        // It fails only when the sender is gone, which `self` holds.
        let _ = closing.wait_for(|closing| *closing == Closing::Yes).await;
    }

    /// Kills everything in the pod.
    pub(crate) fn kill_pod(&self) {
        if self.containerd.is_some() {
            // There is no cgroup that all of them are in.
            for container in self.containers() {
                if let Err(failure) = container.kill_all() {
                    logger::error!("killing container {}: {}", container.id, failure.sentence());
                }
            }
            return;
        }
        if let Err(error) = Cgroup::open(&self.layout, &self.pod_cgroup()).kill() {
            logger::error!("killing the pod: {}", Chain(&error));
        }
    }
}
