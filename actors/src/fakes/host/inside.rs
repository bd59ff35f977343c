//! What is on the host: shims with their tasks, the exits that are not settled, and the truth about every process.

mod tasks;

use std::collections::BTreeMap;
use std::time::Duration;

use mainstay_messages::process::{OomVerdict, UnknownReason};
use mainstay_messages::record::{Paused, ShimRecord};
use mainstay_messages::router::TaskKey;
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::TaskStatus;
use mainstay_messages::{
    ContainerId, ExecId, Exit, ExitStatus, ProcessIdentity, SandboxId, Signal, Timestamp,
};
use tokio::time::Instant;

use super::director::{Call, Director, Made, Messenger, Rule};
use super::life::Life;
use super::program::Program;
use super::{Behaviour, REANNOUNCE_MS};

/// See the module.
pub(in crate::fakes) struct Inner {
    pub(in crate::fakes) shims: BTreeMap<SandboxId, Shim>,
    pub(super) reports: Vec<Report>,
    /// Shims that died, whose death is told when their exits are settled.
    pub(super) deaths: Vec<SandboxId>,
    pub(super) lives: BTreeMap<TaskKey, Life>,
    pub(super) rules: Vec<Rule>,
    pub(super) director: Option<Box<dyn Director>>,
    pub(super) made: Vec<Made>,
    /// Calls that will do their work later.
    under_way: Vec<Made>,
    pub(super) programs: BTreeMap<String, Program>,
    pub(super) exec_program: Program,
    next_pid: u32,
    boots: u32,
}

/// A shim that runs.
pub(in crate::fakes) struct Shim {
    process: ProcessIdentity,
    pub(super) tasks: BTreeMap<ContainerId, Task>,
}

pub(super) struct Task {
    process: ProcessIdentity,
    pub(super) status: TaskStatus,
    paused: Paused,
    /// Those that were put in force last.
    pub(super) limits: Option<Resources>,
    program: Program,
    ends: Option<End>,
    execs: BTreeMap<ExecId, Exec>,
}

struct Exec {
    status: TaskStatus,
    program: Program,
    ends: Option<End>,
}

/// How a process will end if nothing ends it before.
#[derive(Clone)]
struct End {
    at: Instant,
    status: ExitStatus,
}

/// An exit that has not been settled.
pub(super) struct Report {
    pub(super) task: TaskKey,
    pub(super) exit: Exit,
    pub(super) again_at: Option<Instant>,
    pub(super) kept: Kept,
}

/// Where an exit is that has not been settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// With its shim, also when its container was deleted, or in the records that the shim left in its pod's directory.
    OnHost,
    /// With the supervisor alone: its shim is gone, and the directory of its pod or container was removed.
    InMemory,
}

/// What is to be told now, and when to look again.
#[derive(Default)]
pub(in crate::fakes) struct Due {
    pub(in crate::fakes) exits: Vec<(TaskKey, Exit, Messenger)>,
    /// Each with the milliseconds until it is told.
    pub(in crate::fakes) deaths: Vec<(SandboxId, u64)>,
    pub(in crate::fakes) next: Option<Instant>,
}

/// The wall clock at an instant.
#[derive(Clone, Copy)]
pub(in crate::fakes) struct Stamps {
    pub(super) now: Instant,
    pub(super) wall: Timestamp,
}

impl Stamps {
    fn at(self, instant: Instant) -> Timestamp {
        let ago = u64::try_from(self.now.saturating_duration_since(instant).as_nanos()).unwrap_or(u64::MAX);
        Timestamp(self.wall.0.saturating_sub(ago))
    }
}

impl End {
    fn after(ms: u64, status: ExitStatus) -> Self {
        Self { at: Instant::now() + Duration::from_millis(ms), status }
    }

    fn exit(self, stamps: Stamps) -> Exit {
        Exit { status: self.status, at: stamps.at(self.at), oom: OomVerdict::NotKilled }
    }
}

impl Inner {
    pub(super) fn new() -> Self {
        Self {
            shims: BTreeMap::new(),
            reports: Vec::new(),
            deaths: Vec::new(),
            lives: BTreeMap::new(),
            rules: Vec::new(),
            director: None,
            made: Vec::new(),
            under_way: Vec::new(),
            programs: BTreeMap::new(),
            exec_program: Program { runs: Some((5, 0)), ..Program::default() },
            next_pid: 100,
            boots: 1,
        }
    }

    /// Notes a call and says how it goes.
    pub(super) fn begin(&mut self, made: Made) -> Option<Behaviour> {
        let rule = self.rules.iter_mut().find(|rule| rule.call == made.call && rule.times > 0);
        let behaviour = match rule {
            Some(rule) => {
                rule.times -= 1;
                Some(rule.behaviour.clone())
            }
            None => self.director.as_mut().and_then(|director| director.call(&made)),
        };
        if matches!(behaviour, Some(Behaviour::Delay(_))) {
            self.under_way.push(made.clone());
        }
        self.made.push(made);
        behaviour
    }

    /// A call that was delayed does its work now.
    pub(in crate::fakes) fn arrived(&mut self, made: &Made) {
        if let Some(index) = self.under_way.iter().position(|other| other == made) {
            self.under_way.remove(index);
        }
    }

    /// Whether a call that makes or starts something has to come before this one: the supervisor does not undo what it
    /// is still at, nor take stock of it.
    pub(in crate::fakes) fn is_overtaking(&self, made: &Made) -> bool {
        let about = |other: &&Made| match made.call {
            Call::StopShim => other.call == Call::LaunchShim,
            Call::AdoptShim => other.call.makes(),
            Call::DeleteTask => other.call.makes() && other.container == made.container,
            _ => false,
        };
        self.under_way.iter().filter(|other| other.sandbox == made.sandbox).any(|other| about(&other))
    }

    /// Whether a process, or its container, is being made or started.
    pub(in crate::fakes) fn is_being_made(&self, task: &TaskKey) -> bool {
        let about = |made: &Made| made.container.as_ref() == Some(&task.container) && made.call.makes();
        self.under_way.iter().any(|made| about(made) && (made.exec.is_none() || made.exec == task.exec))
    }

    /// Whether a shim is being ended.
    pub(in crate::fakes) fn is_being_stopped(&self, sandbox: &SandboxId) -> bool {
        self.under_way.iter().any(|made| made.call == Call::StopShim && made.sandbox == *sandbox)
    }

    /// Ends what is due and answers what is to be told now.
    pub(super) fn poll(&mut self, stamps: Stamps) -> Due {
        let mut due = Due { next: self.end_what_is_due(stamps), ..Due::default() };
        for report in &mut self.reports {
            if report.again_at.is_none_or(|at| at <= stamps.now) {
                report.again_at = Some(stamps.now + Duration::from_millis(REANNOUNCE_MS));
                let messengers = match &mut self.director {
                    Some(director) => director.report(&report.task),
                    None => vec![Messenger::RELIABLE],
                };
                due.exits
                    .extend(messengers.into_iter().map(|by| (report.task.clone(), report.exit.clone(), by)));
            }
            due.next = due.next.into_iter().chain(report.again_at).min();
        }
        let told = |sandbox: &SandboxId| !self.reports.iter().any(|report| report.task.sandbox == *sandbox);
        let (dead, waiting) = std::mem::take(&mut self.deaths).into_iter().partition(told);
        self.deaths = waiting;
        let dead: Vec<SandboxId> = dead;
        for sandbox in dead {
            let times = self.director.as_mut().map(|director| director.death(&sandbox)).unwrap_or_default();
            let times = if times.is_empty() { vec![0] } else { times };
            due.deaths.extend(times.into_iter().map(|after_ms| (sandbox.clone(), after_ms)));
        }
        due
    }

    pub(in crate::fakes) fn end_what_is_due(&mut self, stamps: Stamps) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut ended = Vec::new();
        for (sandbox, shim) in &mut self.shims {
            // What stands still does not end.
            for (container, task) in shim.tasks.iter_mut().filter(|(_, task)| task.paused == Paused::No) {
                let key = |exec| TaskKey { sandbox: sandbox.clone(), container: container.clone(), exec };
                let of_task = ended.len();
                if let Some(end) = due(&mut task.ends, stamps, &mut next) {
                    // The kernel ends the rest of the pid namespace.
                    for exec in task.execs.values_mut().filter(|exec| exec.status == TaskStatus::Running) {
                        let killed = ExitStatus::Signaled { signal: Signal::KILL.0 };
                        sooner(&mut exec.ends, End { at: end.at, status: killed });
                    }
                    let exit = end.exit(stamps);
                    task.status = TaskStatus::Exited(exit.clone());
                    ended.push((key(None), exit));
                }
                for (id, exec) in &mut task.execs {
                    if let Some(end) = due(&mut exec.ends, stamps, &mut next) {
                        let exit = end.exit(stamps);
                        exec.status = TaskStatus::Exited(exit.clone());
                        ended.push((key(Some(id.clone())), exit));
                    }
                }
                ended[of_task..].sort_by_key(|(_, exit)| exit.at);
            }
        }
        ended.into_iter().for_each(|(task, exit)| self.keep(task, exit));
        next
    }

    /// A process ended, and its shim has written down how.
    fn keep(&mut self, task: TaskKey, exit: Exit) {
        self.lives.entry(task.clone()).or_default().exit = Some(exit.clone());
        self.reports.push(Report { task, exit, again_at: None, kept: Kept::OnHost });
    }

    /// A shim is killed; its tasks die with it, and nobody sees how.
    pub(super) fn kill_shim(&mut self, sandbox: &SandboxId, stamps: Stamps) {
        self.end_what_is_due(stamps);
        let reason = UnknownReason::ShimDied;
        for task in self.take_shim(sandbox) {
            let life = self.lives.entry(task.clone()).or_default();
            life.excuse(reason);
            life.excuse(UnknownReason::LostWhileDown);
            let exit = Exit::unknown(reason, stamps.wall);
            // The supervisor makes this up when it sees that the shim is dead.
            self.reports.push(Report { task, exit, again_at: None, kept: Kept::InMemory });
        }
        self.deaths.push(sandbox.clone());
    }

    /// A shim ends its tasks and then itself.
    pub(in crate::fakes) fn stop_shim(&mut self, sandbox: &SandboxId, stamps: Stamps) {
        self.end_what_is_due(stamps);
        let exit = Exit {
            status: ExitStatus::Signaled { signal: Signal::KILL.0 },
            at: stamps.wall,
            oom: OomVerdict::NotKilled,
        };
        self.take_shim(sandbox).into_iter().for_each(|task| self.keep(task, exit.clone()));
        self.deaths.retain(|dead| dead != sandbox);
    }

    /// Takes a shim away; answers its processes that had not ended.
    fn take_shim(&mut self, sandbox: &SandboxId) -> Vec<TaskKey> {
        let mut open = Vec::new();
        let Some(shim) = self.shims.remove(sandbox) else { return open };
        // The records of what was deleted went with it; that it has ended, the supervisor has heard.
        let deleted = |report: &&mut Report| {
            report.task.sandbox == *sandbox && !shim.tasks.contains_key(&report.task.container)
        };
        self.reports.iter_mut().filter(deleted).for_each(|report| report.kept = Kept::InMemory);
        for (container, task) in shim.tasks {
            let key = |exec| TaskKey { sandbox: sandbox.clone(), container: container.clone(), exec };
            let execs = task.execs.iter().filter(|(_, exec)| exec.status == TaskStatus::Running);
            open.extend(execs.map(|(id, _)| key(Some(id.clone()))));
            if !matches!(task.status, TaskStatus::Exited(_)) {
                open.push(key(None));
            }
        }
        open
    }

    /// The pod's directory is removed, and with it the records of exits that are not settled.
    pub(in crate::fakes) fn remove_directory(&mut self, sandbox: &SandboxId) {
        let of_it = |report: &&mut Report| report.task.sandbox == *sandbox;
        self.reports.iter_mut().filter(of_it).for_each(|report| report.kept = Kept::InMemory);
    }

    /// The supervisor is gone: only what is on the host is left.
    pub(super) fn forget_what_was_in_memory(&mut self) {
        self.deaths.clear();
        self.under_way.clear();
        let lost = self.reports.extract_if(.., |report| report.kept == Kept::InMemory);
        for report in lost {
            let life = self.lives.entry(report.task).or_default();
            life.excuse(UnknownReason::LostWhileDown);
            life.excuse(UnknownReason::ShimDied);
        }
    }

    pub(super) fn reboot(&mut self) {
        self.shims.clear();
        self.reports.clear();
        self.deaths.clear();
        self.boots += 1;
        for life in self.lives.values_mut() {
            life.excuse(UnknownReason::HostRebooted);
            life.excuse(UnknownReason::LostWhileDown);
            // Its shim died with the machine.
            life.excuse(UnknownReason::ShimDied);
        }
    }

    /// The end of a container whose shim is gone and has left no record of it.
    pub(in crate::fakes) fn report_lost(&mut self, task: TaskKey, reason: UnknownReason, at: Timestamp) {
        if !self.reports.iter().any(|report| report.task == task) {
            let exit = Exit::unknown(reason, at);
            self.reports.push(Report { task, exit, again_at: None, kept: Kept::InMemory });
        }
    }

    pub(in crate::fakes) fn report_again_at_once(&mut self, sandbox: &SandboxId) {
        let of_it = |report: &&mut Report| report.task.sandbox == *sandbox;
        self.reports.iter_mut().filter(of_it).for_each(|report| report.again_at = None);
    }

    fn identity(&mut self) -> ProcessIdentity {
        self.next_pid += 1;
        ProcessIdentity { pid: self.next_pid, start_ticks: u64::from(self.next_pid), boot_id: self.boot_id() }
    }

    pub(in crate::fakes) fn boot_id(&self) -> String {
        format!("boot-{}", self.boots)
    }

    /// The shim of a pod; started unless it runs.
    pub(in crate::fakes) fn launch_shim(&mut self, id: SandboxId) -> ShimRecord {
        let process = match self.shims.get(&id) {
            Some(shim) => shim.process.clone(),
            None => self.identity(),
        };
        let shim = || Shim { process: process.clone(), tasks: BTreeMap::new() };
        self.shims.entry(id).or_insert_with(shim);
        ShimRecord { process, socket: "/shim.sock".into(), protocol: 1, ids: None }
    }
}

/// Takes an end that is due; what is not counts for when to look again.
fn due(ends: &mut Option<End>, stamps: Stamps, next: &mut Option<Instant>) -> Option<End> {
    if let Some(end) = ends.take_if(|end| end.at <= stamps.now) {
        return Some(end);
    }
    *next = next.iter().copied().chain(ends.as_ref().map(|end| end.at)).min();
    None
}

fn sooner(ends: &mut Option<End>, other: End) {
    if ends.as_ref().is_none_or(|end| other.at < end.at) {
        *ends = Some(other);
    }
}
