//! One container: its cgroup, its PID 1, its execs.
//!
//! Owns: what belongs together, and the requests about a container as a whole: freezing, limits, numbers. Never:
//! starts or reaps processes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::{Cgroup, CgroupError, FreezerState, KillOutcome};
use mainstay_messages::supervisor::Stats;
use mainstay_messages::{ContainerId, ExecId, Signal};
use mainstay_task_api::convert::ProcessKey;
use oci_spec::runtime::{LinuxResources, Spec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::backend::Backend;
use crate::failure::Failure;
use crate::hooks::LaterHooks;
use crate::identity::send_signal;
use crate::logger::{self, Chain};
use crate::process::Process;
use crate::task::OomKills;

/// The most execs of a container at a time, those counted that have ended and are not acknowledged.
pub(crate) const EXECS_PER_CONTAINER_MAX: usize = 1_024;
/// How long all processes of a container may take to freeze, in milliseconds.
const FREEZE_MS: u64 = 10_000;
/// How often the freezing is looked at, in milliseconds.
const FREEZE_POLL_MS: u64 = 5;

/// One container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: ContainerId,
    pub(crate) bundle: PathBuf,
    pub(crate) cgroup: Cgroup,
    pub(crate) init: Rc<Process>,
    /// Who makes its processes.
    pub(crate) backend: Backend,
    execs: RefCell<BTreeMap<ExecId, Rc<Process>>>,
    paused: Cell<Paused>,
    oom_kills_before: Cell<u64>,
    /// What another shim says of the out-of-memory killer, whose count may be out of sight.
    oom_told: Cell<OomKills>,
    later_hooks: Cell<LaterHooks>,
    /// Its network namespace, while devices of the host are in it.
    device_namespace: RefCell<Option<OwnedFd>>,
}

/// Whether a container is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    Yes,
    No,
}

impl Container {
    pub(crate) fn new(
        id: ContainerId,
        bundle: PathBuf,
        cgroup: Cgroup,
        init: Rc<Process>,
        backend: Backend,
    ) -> Rc<Self> {
        Rc::new(Self {
            id,
            bundle,
            cgroup,
            init,
            backend,
            execs: RefCell::default(),
            paused: Cell::new(Paused::No),
            oom_kills_before: Cell::new(0),
            oom_told: Cell::new(OomKills::Same),
            later_hooks: Cell::default(),
            device_namespace: RefCell::default(),
        })
    }

    /// One of its processes.
    pub(crate) fn process(&self, key: &ProcessKey) -> Result<Rc<Process>, Failure> {
        match &key.exec {
            None => Ok(self.init.clone()),
            Some(exec) => {
                let found = self.execs.borrow().get(exec).cloned();
                found.ok_or_else(|| Failure::NotFound { process: key.clone() })
            }
        }
    }

    /// Its PID 1 and its execs.
    pub(crate) fn processes(&self) -> Vec<Rc<Process>> {
        [self.init.clone()].into_iter().chain(self.execs.borrow().values().cloned()).collect()
    }

    /// Adds an exec.
    pub(crate) fn add_exec(&self, exec: &ExecId, process: Rc<Process>) -> Result<(), Failure> {
        let mut execs = self.execs.borrow_mut();
        if execs.contains_key(exec) {
            return Err(Failure::Exists { process: process.key.clone() });
        }
        if execs.len() >= EXECS_PER_CONTAINER_MAX {
            return Err(Failure::Exhausted { what: "execs of a container", limit: EXECS_PER_CONTAINER_MAX });
        }
        execs.insert(exec.clone(), process);
        Ok(())
    }

    /// Forgets an exec.
    pub(crate) fn remove_exec(&self, exec: &ExecId) {
        self.execs.borrow_mut().remove(exec);
    }

    /// Ends the execs that were registered and never started: nothing can start them any more.
    pub(crate) fn drop_unstarted_execs(&self) {
        for process in self.execs.borrow().values() {
            process.drop_unstarted();
        }
    }

    /// Reads the bundle's spec. It is not kept: it may be large, and is needed only when a process is started.
    pub(crate) fn spec(&self) -> Result<Spec, Failure> {
        read_spec(&self.bundle)
    }

    /// Notes that devices of the host are in its network namespace.
    pub(crate) fn holds_devices_in(&self, namespace: OwnedFd) {
        *self.device_namespace.borrow_mut() = Some(namespace);
    }

    /// The network namespace that devices of the host are to be taken from, once.
    pub(crate) fn take_device_namespace(&self) -> Option<OwnedFd> {
        self.device_namespace.borrow_mut().take()
    }

    /// Notes which hooks are due later.
    pub(crate) fn note_hooks(&self, later: LaterHooks) {
        self.later_hooks.set(later);
    }

    /// Which hooks are due later. Those of the end are due once.
    pub(crate) fn later_hooks(&self) -> LaterHooks {
        self.later_hooks.get()
    }

    /// Notes the kill count from which the next one is a rise.
    pub(crate) fn begin_counting_oom_kills(&self) {
        self.oom_kills_before.set(self.oom_kills());
    }

    /// What the out-of-memory killer has done since. To be asked before the cgroup is removed.
    pub(crate) fn oom_kills_since(&self) -> OomKills {
        if self.oom_kills() > self.oom_kills_before.get() { OomKills::Risen } else { self.oom_told.get() }
    }

    /// Notes that the out-of-memory killer was there, as another shim says.
    pub(crate) fn note_oom_kill(&self) {
        self.oom_told.set(OomKills::Risen);
    }

    /// How many of its processes the out-of-memory killer has ended since it began.
    pub(crate) fn oom_kills_so_far(&self) -> u64 {
        self.oom_kills().saturating_sub(self.oom_kills_before.get())
    }

    fn oom_kills(&self) -> u64 {
        self.cgroup.oom_kills().ok().flatten().unwrap_or(0)
    }

    /// Sends SIGKILL to everything in it.
    pub(crate) fn kill_all(&self) -> Result<(), Failure> {
        let report = self.cgroup.kill()?;
        if report.outcome != KillOutcome::AllSignalled {
            logger::warning!("container {}: {:?} after a kill", self.id, report.outcome);
        }
        self.paused.set(Paused::No);
        Ok(())
    }

    /// Sends a signal to every process in it. Processes that end meanwhile are no failure.
    pub(crate) fn signal_all(&self, signal: Signal) -> Result<(), Failure> {
        if signal == Signal::KILL {
            return self.kill_all();
        }
        for pid in self.pids()? {
            if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
                let _ = send_signal(std::os::fd::AsFd::as_fd(&pidfd), signal);
            }
        }
        Ok(())
    }

    /// The processes in it, as this process sees them.
    pub(crate) fn pids(&self) -> Result<HashSet<Pid>, Failure> {
        Ok(self.cgroup.pids()?)
    }

    /// Whether it was frozen.
    pub(crate) fn paused(&self) -> Paused {
        self.paused.get()
    }

    /// Notes that it is frozen, or that it runs.
    pub(crate) fn note_paused(&self, paused: Paused) {
        self.paused.set(paused);
    }

    /// Freezes its cgroup, and waits until all of it has stopped.
    pub(crate) async fn freeze(&self) -> Result<(), Failure> {
        self.cgroup.freeze()?;
        for _ in 0..FREEZE_MS / FREEZE_POLL_MS {
            if self.cgroup.freezer_state()? == FreezerState::Frozen {
                self.note_paused(Paused::Yes);
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(FREEZE_POLL_MS)).await;
        }
        self.cgroup.thaw()?;
        let what = format!("freezing container {}", self.id);
        Err(Failure::Deadline { what, after_ms: FREEZE_MS, place: String::new() })
    }

    /// Lets its cgroup run again.
    pub(crate) fn thaw(&self) -> Result<(), Failure> {
        self.cgroup.thaw()?;
        self.note_paused(Paused::No);
        Ok(())
    }

    /// The same, where it is frozen.
    pub(crate) fn thaw_if_paused(&self) -> Result<(), Failure> {
        match self.paused() {
            Paused::Yes => self.thaw(),
            Paused::No => Ok(()),
        }
    }

    /// Changes the limits of its cgroup.
    pub(crate) fn limit(&self, resources: &LinuxResources) -> Result<(), Failure> {
        for warning in self.cgroup.apply(resources)? {
            logger::warning!("container {}: {warning}", self.id);
        }
        Ok(())
    }

    /// What its cgroup uses now.
    pub(crate) fn measure(&self) -> Result<Stats, Failure> {
        let lost = self.init.output.log_bytes_lost();
        Ok(Stats { log_bytes_lost: lost, ..measure(&self.cgroup)? })
    }
}

/// What a cgroup uses now.
pub(crate) fn measure(cgroup: &Cgroup) -> Result<Stats, CgroupError> {
    let found = cgroup.stats()?;
    Ok(Stats {
        at: logger::now(),
        cpu_usage_ns: found.cpu_usage_ns,
        cpu_user_ns: found.cpu_user_ns,
        cpu_system_ns: found.cpu_system_ns,
        memory_usage_bytes: found.memory_usage,
        memory_working_set_bytes: found.memory_working_set,
        memory_rss_bytes: found.memory_rss,
        memory_limit_bytes: found.memory_limit,
        pids: found.pids_current,
        pids_limit: found.pids_limit,
        oom_kills: found.oom_kills,
        log_bytes_lost: 0,
    })
}

/// Reads the spec of a bundle.
pub(crate) fn read_spec(bundle: &std::path::Path) -> Result<Spec, Failure> {
    let path = bundle.join("config.json");
    let text =
        std::fs::read(&path).map_err(|source| Failure::File { path: path.clone(), doing: "read", source })?;
    serde_json::from_slice(&text).map_err(|source| Failure::Spec { path, source })
}

/// Removes a cgroup, killing what still appears in it, for a bounded time.
pub(crate) async fn remove_cgroup(cgroup: &Cgroup) -> Result<(), CgroupError> {
    /// How often a busy group is tried.
    const CGROUP_REMOVE_TRIES: u32 = 60;
    /// The longest pause between two tries, in milliseconds. The first ones are shorter.
    const CGROUP_REMOVE_PAUSE_MS: u64 = 50;
    let mut tries = 0;
    loop {
        tries += 1;
        match cgroup.remove() {
            Err(CgroupError::Busy { .. }) if tries < CGROUP_REMOVE_TRIES => {
                if let Err(error) = cgroup.kill() {
                    logger::warning!("killing what is left in {}: {}", cgroup.path(), Chain(&error));
                }
                let pause = CGROUP_REMOVE_PAUSE_MS.min(1 << tries.min(10));
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            other => return other,
        }
    }
}
