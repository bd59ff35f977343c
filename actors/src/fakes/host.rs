//! A pretended host: shims, tasks and execs that end as they are told to, and exits that are reported until they
//! are settled. It outlives the supervisor, as shims outlive the daemon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainstay_messages::process::{OomVerdict, UnknownReason};
use mainstay_messages::router::TaskKey;
use mainstay_messages::supervisor::{TaskState, TaskStatus};
use mainstay_messages::{
    ContainerId, Error, ExecId, Exit, ExitStatus, ProcessIdentity, Result, SandboxId, Signal,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::fence::Fence;
use crate::ports::Clock;

/// Time after which an exit that was not settled is reported again, in milliseconds.
pub const REANNOUNCE_MS: u64 = 2_000;

/// See the module. Cheap to clone; all clones are the same host.
#[derive(Clone)]
pub struct FakeHost {
    pub(super) inner: Arc<Mutex<Inner>>,
    pub(super) changed: Arc<Notify>,
    clock: Arc<dyn Clock>,
    fence: Fence,
}

pub(super) struct Inner {
    pub(super) shims: BTreeMap<SandboxId, Shim>,
    pub(super) reports: Vec<Report>,
    rules: Vec<Rule>,
    made: Vec<Made>,
    programs: BTreeMap<String, Program>,
    exec_program: Program,
    next_pid: u32,
    boots: u32,
}

pub(super) struct Shim {
    pid: u32,
    tasks: BTreeMap<ContainerId, Task>,
}

struct Task {
    process: ProcessIdentity,
    status: TaskStatus,
    program: Program,
    ends: Option<(Instant, Exit)>,
    execs: BTreeMap<ExecId, Exec>,
}

struct Exec {
    status: TaskStatus,
    ends: Option<(Instant, Exit)>,
}

/// An exit that has not been settled.
pub(super) struct Report {
    pub(super) task: TaskKey,
    pub(super) exit: Exit,
    pub(super) again_at: Option<Instant>,
}

struct Rule {
    call: Call,
    behaviour: Behaviour,
    times: u32,
}

/// What a process does by itself and when it gets signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// It exits by itself after so many milliseconds with this code.
    pub runs: Option<(u64, u8)>,
    /// What a signal other than KILL does.
    pub on_term: OnSignal,
    /// What KILL does.
    pub on_kill: OnSignal,
}

/// What a signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSignal {
    /// It kills, after so many milliseconds.
    Dies(u64),
    /// The program handles it and exits after so many milliseconds with this code.
    Exits(u64, u8),
    /// Nothing.
    Ignores,
}

/// A kind of call to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "they are named as the messages are")]
pub enum Call {
    LaunchShim,
    AdoptShim,
    StopShim,
    MeasureShim,
    CreateTask,
    StartTask,
    SignalTask,
    DeleteTask,
    StartExecTask,
    ResizeTask,
    ReopenTaskLog,
    MeasureTask,
    QueryTask,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It is answered after so many milliseconds.
    Delay(u64),
    /// It does nothing and fails.
    Fail(Error),
    /// It does nothing and is never answered.
    Hang,
    /// It does its work, and the answer comes so many milliseconds later.
    AnswerLate(u64),
    /// It does its work, and is never answered.
    AnswerNever,
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Which kind.
    pub call: Call,
    /// For which pod.
    pub sandbox: SandboxId,
    /// The signal, of a `SignalTask`.
    pub signal: Option<Signal>,
    /// When, in milliseconds of tokio's clock since the host was made.
    pub at: Instant,
}

impl Default for Program {
    /// Runs until it is told to end, and then ends soon.
    fn default() -> Self {
        Self { runs: None, on_term: OnSignal::Dies(10), on_kill: OnSignal::Dies(1) }
    }
}

impl Program {
    fn on(self, signal: Signal) -> Option<(u64, ExitStatus)> {
        let reaction = if signal == Signal::KILL { self.on_kill } else { self.on_term };
        match reaction {
            OnSignal::Dies(ms) => Some((ms, ExitStatus::Signaled { signal: signal.0 })),
            OnSignal::Exits(ms, code) => Some((ms, ExitStatus::Exited { code })),
            OnSignal::Ignores => None,
        }
    }
}

impl FakeHost {
    /// A host without shims.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let exec_program = Program { runs: Some((5, 0)), ..Program::default() };
        let inner = Inner {
            shims: BTreeMap::new(),
            reports: Vec::new(),
            rules: Vec::new(),
            made: Vec::new(),
            programs: BTreeMap::new(),
            exec_program,
            next_pid: 100,
            boots: 1,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            changed: Arc::new(Notify::new()),
            clock,
            fence: Fence::default(),
        }
    }

    /// Containers of this name run this program.
    pub fn set_program(&self, name: &str, program: Program) {
        self.lock().programs.insert(name.to_owned(), program);
    }

    /// Execs run this program.
    pub fn set_exec_program(&self, program: Program) {
        self.lock().exec_program = program;
    }

    /// The next `times` calls of this kind go wrong like this.
    pub fn misbehave(&self, call: Call, behaviour: Behaviour, times: u32) {
        self.lock().rules.push(Rule { call, behaviour, times });
    }

    /// Everything goes well again.
    pub fn behave(&self) {
        self.lock().rules.clear();
    }

    /// The calls of this kind that were made, in order.
    pub fn made(&self, call: Call) -> Vec<Made> {
        self.lock().made.iter().filter(|made| made.call == call).cloned().collect()
    }

    /// Shims that run.
    pub fn shims(&self) -> usize {
        self.lock().shims.len()
    }

    /// Tasks that are there.
    pub fn tasks(&self) -> usize {
        self.lock().shims.values().map(|shim| shim.tasks.len()).sum()
    }

    /// Exits that have not been settled.
    pub fn unsettled(&self) -> usize {
        self.lock().reports.len()
    }

    /// An exit of a process that nobody knows of.
    pub fn report(&self, task: TaskKey, exit: Exit) {
        self.lock().reports.push(Report { task, exit, again_at: None });
        self.changed.notify_waiters();
    }

    /// A process ends now, with this code.
    pub fn end_task(&self, container: &ContainerId, code: u8) {
        let exit = self.exit(ExitStatus::Exited { code });
        for shim in self.lock().shims.values_mut() {
            if let Some(task) = shim.tasks.get_mut(container) {
                task.ends = Some((Instant::now(), exit.clone()));
            }
        }
        self.changed.notify_waiters();
    }

    /// A shim dies, and its tasks with it. Their exits are reported; the death itself is told by the supervisor.
    pub fn kill_shim(&self, sandbox: &SandboxId) {
        let exit = self.exit(ExitStatus::Unknown { reason: UnknownReason::ShimDied });
        self.lock().end_shim(sandbox, &exit);
        self.changed.notify_waiters();
    }

    /// The machine is booted: nothing runs, nothing is reported.
    pub fn reboot(&self) {
        let mut inner = self.lock();
        inner.shims.clear();
        inner.reports.clear();
        inner.boots += 1;
    }

    pub(super) fn fence(&self) -> &Fence {
        &self.fence
    }

    pub(super) fn behind_a_new_fence(&self) -> Self {
        Self { fence: Fence::default(), ..self.clone() }
    }

    pub(super) fn exit(&self, status: ExitStatus) -> Exit {
        Exit { status, at: self.clock.now(), oom: OomVerdict::NotKilled }
    }

    pub(super) fn now(&self) -> mainstay_messages::Timestamp {
        self.clock.now()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call and says how it goes.
    pub(super) fn begin(&self, call: Call, sandbox: &SandboxId, signal: Option<Signal>) -> Option<Behaviour> {
        if self.fence.is_closed() {
            return Some(Behaviour::Hang);
        }
        let mut inner = self.lock();
        inner.made.push(Made { call, sandbox: sandbox.clone(), signal, at: Instant::now() });
        let rule = inner.rules.iter_mut().find(|rule| rule.call == call && rule.times > 0)?;
        rule.times -= 1;
        Some(rule.behaviour.clone())
    }

    /// Ends what is due; answers the exits that are to be reported now, and when to look again.
    pub(super) fn poll(&self) -> (Vec<(TaskKey, Exit)>, Option<Instant>) {
        let now = Instant::now();
        let stamp = self.clock.now();
        let mut inner = self.lock();
        let mut next = inner.end_what_is_due(now, stamp);
        let mut due = Vec::new();
        for report in &mut inner.reports {
            if report.again_at.is_none_or(|at| at <= now) {
                report.again_at = Some(now + Duration::from_millis(REANNOUNCE_MS));
                due.push((report.task.clone(), report.exit.clone()));
            }
            next = next.into_iter().chain(report.again_at).min();
        }
        (due, next)
    }

    pub(super) fn settle(&self, task: &TaskKey) {
        self.lock().reports.retain(|report| report.task != *task);
    }
}

impl Shim {
    pub(super) fn new(pid: u32) -> Self {
        Self { pid, tasks: BTreeMap::new() }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }
}

impl Inner {
    fn end_what_is_due(&mut self, now: Instant, stamp: mainstay_messages::Timestamp) -> Option<Instant> {
        let mut next = None;
        for (sandbox, shim) in &mut self.shims {
            for (container, task) in &mut shim.tasks {
                let mut key = TaskKey { sandbox: sandbox.clone(), container: container.clone(), exec: None };
                let mut ended = Vec::new();
                match task.ends.take() {
                    Some((at, mut exit)) if at <= now => {
                        exit.at = stamp;
                        task.status = TaskStatus::Exited(exit.clone());
                        ended.push((None, exit));
                        // The kernel ends the rest of the pid namespace.
                        for exec in task.execs.values_mut().filter(|exec| exec.ends.is_some()) {
                            let killed = ExitStatus::Signaled { signal: Signal::KILL.0 };
                            exec.ends =
                                Some((now, Exit { status: killed, at: stamp, oom: OomVerdict::NotKilled }));
                        }
                    }
                    other => {
                        next = next.into_iter().chain(other.as_ref().map(|(at, _)| *at)).min();
                        task.ends = other;
                    }
                }
                for (id, exec) in &mut task.execs {
                    match exec.ends.take() {
                        Some((at, mut exit)) if at <= now => {
                            exit.at = stamp;
                            exec.status = TaskStatus::Exited(exit.clone());
                            ended.push((Some(id.clone()), exit));
                        }
                        other => {
                            next = next.into_iter().chain(other.as_ref().map(|(at, _)| *at)).min();
                            exec.ends = other;
                        }
                    }
                }
                for (exec, exit) in ended {
                    key.exec = exec;
                    self.reports.push(Report { task: key.clone(), exit, again_at: None });
                }
            }
        }
        next
    }

    pub(super) fn end_shim(&mut self, sandbox: &SandboxId, exit: &Exit) {
        let Some(shim) = self.shims.remove(sandbox) else { return };
        for (container, task) in shim.tasks {
            let key = |exec| TaskKey { sandbox: sandbox.clone(), container: container.clone(), exec };
            for (id, exec) in &task.execs {
                if !matches!(exec.status, TaskStatus::Exited(_)) {
                    self.reports.push(Report {
                        task: key(Some(id.clone())),
                        exit: exit.clone(),
                        again_at: None,
                    });
                }
            }
            if !matches!(task.status, TaskStatus::Exited(_)) {
                self.reports.push(Report { task: key(None), exit: exit.clone(), again_at: None });
            }
        }
    }

    pub(super) fn identity(&mut self) -> ProcessIdentity {
        self.next_pid += 1;
        ProcessIdentity { pid: self.next_pid, start_ticks: u64::from(self.next_pid), boot_id: self.boot_id() }
    }

    pub(super) fn boot_id(&self) -> String {
        format!("boot-{}", self.boots)
    }

    pub(super) fn create_task(
        &mut self,
        sandbox: &SandboxId,
        id: &ContainerId,
        name: &str,
    ) -> Result<ProcessIdentity> {
        let process = self.identity();
        let program = self.programs.get(name).copied().unwrap_or_default();
        let shim = self.shims.get_mut(sandbox).ok_or_else(|| no_shim(sandbox))?;
        let (status, execs) = (TaskStatus::Created, BTreeMap::new());
        let task = Task { process: process.clone(), status, program, ends: None, execs };
        shim.tasks.insert(id.clone(), task);
        Ok(process)
    }

    pub(super) fn start_task(&mut self, sandbox: &SandboxId, id: &ContainerId) -> Result<()> {
        let task = self.task(sandbox, id)?;
        task.status = TaskStatus::Running;
        task.ends = task.program.runs.map(|(ms, code)| ends(ms, ExitStatus::Exited { code }));
        Ok(())
    }

    pub(super) fn start_exec(&mut self, sandbox: &SandboxId, id: &ContainerId, exec: &ExecId) -> Result<u32> {
        let pid = self.identity().pid;
        let program = self.exec_program;
        let task = self.task(sandbox, id)?;
        if task.status != TaskStatus::Running {
            return Err(Error::StartFailed { reason: "the container has exited".to_owned() });
        }
        let far = Duration::from_secs(10 * 365 * 86_400);
        let never =
            (Instant::now() + far, Exit::unknown(UnknownReason::ShimDied, mainstay_messages::Timestamp(0)));
        let end = program.runs.map_or(never, |(ms, code)| ends(ms, ExitStatus::Exited { code }));
        task.execs.insert(exec.clone(), Exec { status: TaskStatus::Running, ends: Some(end) });
        Ok(pid)
    }

    pub(super) fn signal(&mut self, key: &TaskKey, signal: Signal) {
        let exec_program = self.exec_program;
        let Ok(task) = self.task(&key.sandbox, &key.container) else { return };
        match &key.exec {
            None if matches!(task.status, TaskStatus::Exited(_)) => {}
            None => {
                if let Some((ms, status)) = task.program.on(signal) {
                    sooner(&mut task.ends, ends(ms, status));
                }
            }
            Some(id) => {
                let running = |exec: &&mut Exec| !matches!(exec.status, TaskStatus::Exited(_));
                if let Some(exec) = task.execs.get_mut(id).filter(running)
                    && let Some((ms, status)) = exec_program.on(signal)
                {
                    sooner(&mut exec.ends, ends(ms, status));
                }
            }
        }
    }

    pub(super) fn delete_task(&mut self, sandbox: &SandboxId, id: &ContainerId) -> Result<()> {
        let Some(shim) = self.shims.get_mut(sandbox) else { return Ok(()) };
        match shim.tasks.get(id).map(|task| &task.status) {
            Some(TaskStatus::Running) => Err(Error::internal("the shim", "the task runs")),
            _ => {
                shim.tasks.remove(id);
                Ok(())
            }
        }
    }

    pub(super) fn states(&self, sandbox: &SandboxId) -> Vec<TaskState> {
        let shim = self.shims.get(sandbox);
        shim.map(|shim| shim.tasks.iter().map(|(id, task)| state(id, task)).collect()).unwrap_or_default()
    }

    pub(super) fn state(&self, key: &TaskKey) -> Option<TaskState> {
        let task = self.shims.get(&key.sandbox)?.tasks.get(&key.container)?;
        let mut state = state(&key.container, task);
        if let Some(id) = &key.exec {
            state.status = task.execs.get(id)?.status.clone();
        }
        Some(state)
    }

    fn task(&mut self, sandbox: &SandboxId, id: &ContainerId) -> Result<&mut Task> {
        let shim = self.shims.get_mut(sandbox).ok_or_else(|| no_shim(sandbox))?;
        shim.tasks.get_mut(id).ok_or_else(|| Error::internal("the shim", "no such task"))
    }
}

fn state(id: &ContainerId, task: &Task) -> TaskState {
    TaskState { container: id.clone(), process: Some(task.process.clone()), status: task.status.clone() }
}

fn no_shim(sandbox: &SandboxId) -> Error {
    Error::unavailable(format!("the shim of pod {sandbox}"), "it does not run")
}

/// An end so many milliseconds from now; its time stamp is set when it comes.
fn ends(ms: u64, status: ExitStatus) -> (Instant, Exit) {
    let exit = Exit { status, at: mainstay_messages::Timestamp(0), oom: OomVerdict::NotKilled };
    (Instant::now() + Duration::from_millis(ms), exit)
}

fn sooner(ends: &mut Option<(Instant, Exit)>, other: (Instant, Exit)) {
    if ends.as_ref().is_none_or(|(at, _)| other.0 < *at) {
        *ends = Some(other);
    }
}
