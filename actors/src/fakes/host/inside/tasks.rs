//! What is done with tasks and execs, and what is known of them.

use std::collections::BTreeMap;

use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::Paused;
use mainstay_messages::router::TaskKey;
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{TaskKnowledge, TaskState, TaskStatus};
use mainstay_messages::{
    ContainerId, Error, ExitStatus, ProcessIdentity, Result, SandboxId, Signal, Timestamp,
};

use super::{End, Exec, Inner, Report, Stamps, Task, sooner};

impl Inner {
    pub(in crate::fakes) fn create_task(
        &mut self,
        sandbox: &SandboxId,
        id: &ContainerId,
        name: &str,
    ) -> Result<ProcessIdentity> {
        let process = self.identity();
        let program = self.programs.get(name).copied().unwrap_or_default();
        let shim = self.shims.get_mut(sandbox).ok_or_else(|| no_shim(sandbox))?;
        if shim.tasks.contains_key(id) {
            return Err(Error::StartFailed { reason: "the task exists".to_owned() });
        }
        let (status, execs) = (TaskStatus::Created, BTreeMap::new());
        let paused = Paused::No;
        let limits = None;
        let task = Task { process: process.clone(), status, paused, limits, program, ends: None, execs };
        shim.tasks.insert(id.clone(), task);
        self.lives
            .entry(TaskKey { sandbox: sandbox.clone(), container: id.clone(), exec: None })
            .or_default();
        Ok(process)
    }

    pub(in crate::fakes) fn start_task(
        &mut self,
        sandbox: &SandboxId,
        id: &ContainerId,
        now: Timestamp,
    ) -> Result<()> {
        let task = self.task(sandbox, id)?;
        if task.status != TaskStatus::Created {
            return Err(Error::StartFailed { reason: "the task was started before".to_owned() });
        }
        task.status = TaskStatus::Running;
        task.ends = task.program.runs.map(|(ms, code)| End::after(ms, ExitStatus::Exited { code }));
        self.begins(TaskKey { sandbox: sandbox.clone(), container: id.clone(), exec: None }, now);
        Ok(())
    }

    pub(in crate::fakes) fn start_exec(&mut self, key: TaskKey, now: Timestamp) -> Result<u32> {
        let pid = self.identity().pid;
        let program = self.exec_program;
        let task = self.task(&key.sandbox, &key.container)?;
        if task.status != TaskStatus::Running {
            return Err(Error::StartFailed { reason: "the container has exited".to_owned() });
        }
        let ends = program.runs.map(|(ms, code)| End::after(ms, ExitStatus::Exited { code }));
        if let Some(id) = &key.exec {
            task.execs.insert(id.clone(), Exec { status: TaskStatus::Running, program, ends });
        }
        self.begins(key, now);
        Ok(pid)
    }

    pub(in crate::fakes) fn update_task(
        &mut self,
        sandbox: &SandboxId,
        id: &ContainerId,
        limits: Resources,
    ) -> Result<()> {
        let task = self.task(sandbox, id)?;
        task.limits = Some(task.limits.take().unwrap_or_default().changed_by(&limits).in_force());
        Ok(())
    }

    pub(in crate::fakes) fn freeze_task(
        &mut self,
        sandbox: &SandboxId,
        id: &ContainerId,
        to: Paused,
    ) -> Result<()> {
        self.task(sandbox, id)?.paused = to;
        Ok(())
    }

    fn begins(&mut self, key: TaskKey, now: Timestamp) {
        self.lives.entry(key).or_default().started = Some(now);
    }

    pub(in crate::fakes) fn signal(&mut self, key: &TaskKey, signal: Signal) {
        let Ok(task) = self.task(&key.sandbox, &key.container) else { return };
        if signal == Signal::KILL {
            task.paused = Paused::No;
        }
        let (status, program, ends) = match &key.exec {
            None => (&task.status, task.program, &mut task.ends),
            Some(id) => match task.execs.get_mut(id) {
                Some(exec) => (&exec.status, exec.program, &mut exec.ends),
                None => return,
            },
        };
        if !matches!(status, TaskStatus::Exited(_))
            && let Some((ms, status)) = program.on(signal)
        {
            sooner(ends, End::after(ms, status));
        }
    }

    /// A process ends now, with this code, as if by itself.
    pub(in crate::fakes) fn end_task(&mut self, container: &ContainerId, code: u8) {
        for task in self.shims.values_mut().filter_map(|shim| shim.tasks.get_mut(container)) {
            if !matches!(task.status, TaskStatus::Exited(_)) {
                sooner(&mut task.ends, End::after(0, ExitStatus::Exited { code }));
            }
        }
    }

    pub(in crate::fakes) fn delete_task(
        &mut self,
        sandbox: &SandboxId,
        id: &ContainerId,
        stamps: Stamps,
    ) -> Result<()> {
        self.end_what_is_due(stamps);
        let Some(shim) = self.shims.get_mut(sandbox) else { return Ok(()) };
        if shim.tasks.get(id).is_some_and(|task| task.status == TaskStatus::Running) {
            return Err(Error::internal("the shim", "the task runs"));
        }
        let unstarted = shim.tasks.remove(id).is_some_and(|task| task.status == TaskStatus::Created);
        if unstarted {
            let task = TaskKey { sandbox: sandbox.clone(), container: id.clone(), exec: None };
            let life = self.lives.entry(task).or_default();
            life.excuse(UnknownReason::NotKnownToShim);
            life.excuse(UnknownReason::LostWhileDown);
            life.excuse(UnknownReason::ShimDied);
        }
        Ok(())
    }

    pub(in crate::fakes) fn is_running(&self, sandbox: &SandboxId, known: Option<&ProcessIdentity>) -> bool {
        // A shim that no record knows yet is found by its pod's directory.
        self.shims.get(sandbox).is_some_and(|shim| known.is_none_or(|process| *process == shim.process))
    }

    pub(in crate::fakes) fn states(&self, sandbox: &SandboxId) -> Vec<TaskState> {
        let Some(shim) = self.shims.get(sandbox) else { return Vec::new() };
        let deleted = self.reports.iter().filter(|report| {
            let TaskKey { sandbox: pod, container, exec } = &report.task;
            pod == sandbox && exec.is_none() && !shim.tasks.contains_key(container)
        });
        let present = shim.tasks.iter().map(|(id, task)| task.state(id));
        present.chain(deleted.map(Report::state)).collect()
    }

    /// What the shim says of a process, or without a shim its records; of what is in neither any more, what is being offered.
    pub(in crate::fakes) fn knowledge(&self, key: &TaskKey) -> TaskKnowledge {
        let shim = self.shims.get(&key.sandbox);
        let present = shim.and_then(|shim| shim.tasks.get(&key.container)).and_then(|task| {
            let mut state = task.state(&key.container);
            if let Some(id) = &key.exec {
                state.status = task.execs.get(id)?.status.clone();
            }
            Some(state)
        });
        let offered = || self.reports.iter().find(|report| report.task == *key).map(Report::state);
        match (present.or_else(offered), shim) {
            (Some(state), _) => TaskKnowledge::Known(state),
            (None, Some(_)) => TaskKnowledge::NotKnown,
            (None, None) => TaskKnowledge::ShimGone,
        }
    }

    fn task(&mut self, sandbox: &SandboxId, id: &ContainerId) -> Result<&mut Task> {
        let shim = self.shims.get_mut(sandbox).ok_or_else(|| no_shim(sandbox))?;
        shim.tasks.get_mut(id).ok_or_else(|| Error::internal("the shim", "no such task"))
    }
}

impl Report {
    fn state(&self) -> TaskState {
        TaskState {
            container: self.task.container.clone(),
            process: None,
            status: TaskStatus::Exited(self.exit.clone()),
            adjustment: None,
        }
    }
}

impl Task {
    fn state(&self, id: &ContainerId) -> TaskState {
        TaskState {
            container: id.clone(),
            process: Some(self.process.clone()),
            status: self.shown_status(),
            adjustment: None,
        }
    }

    /// Where it is, as its shim tells it.
    pub(in crate::fakes) fn shown_status(&self) -> TaskStatus {
        match (&self.status, self.paused) {
            (TaskStatus::Running, Paused::Yes) => TaskStatus::Paused,
            (status, _) => status.clone(),
        }
    }
}

fn no_shim(sandbox: &SandboxId) -> Error {
    Error::unavailable(format!("the shim of pod {sandbox}"), "it does not run")
}
