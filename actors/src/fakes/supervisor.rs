//! A supervisor over a [`FakeHost`]. Every message of the port is implemented; calls go wrong as the host was
//! told that they should.

use std::future::pending;
use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use mainstay_messages::process::UnknownReason;
use mainstay_messages::record::ShimRecord;
use mainstay_messages::router::{ExitReceipt, ShimDied, TaskExited, TaskKey};
use mainstay_messages::supervisor::{
    AdoptShim, Adopted, CreateTask, DeleteTask, ExecStarted, LaunchShim, MeasureShim, MeasureTask, QueryTask,
    ReopenTaskLog, ResizeTask, SandboxStats, SignalTask, StartExecTask, StartTask, Stats, StopShim,
    TaskKnowledge,
};
use mainstay_messages::{ExitStatus, ProcessIdentity, Result, SandboxId, Signal, Timestamp};

use super::host::{Behaviour, Call, FakeHost, Report, Shim};
use crate::core::Facts;

/// See the module.
pub struct FakeSupervisor {
    host: FakeHost,
    facts: Facts,
}

impl FakeSupervisor {
    /// A supervisor of this host that reports there.
    pub fn new(host: FakeHost, facts: Facts) -> Self {
        Self { host, facts }
    }

    /// Makes a call go as it is told to; `work` is done in one step.
    fn call<T: 'static>(
        &self,
        call: Call,
        sandbox: &SandboxId,
        signal: Option<Signal>,
        work: impl FnOnce(&FakeHost) -> Result<T> + 'static,
    ) -> ResponseFuture<Result<T>> {
        let behaviour = self.host.begin(call, sandbox, signal);
        let host = self.host.clone();
        Box::pin(async move {
            let sleep = |ms| tokio::time::sleep(Duration::from_millis(ms));
            match &behaviour {
                None | Some(Behaviour::AnswerLate(_) | Behaviour::AnswerNever) => {}
                Some(Behaviour::Delay(ms)) => sleep(*ms).await,
                Some(Behaviour::Fail(error)) => return Err(error.clone()),
                Some(Behaviour::Hang) => pending().await,
            }
            if host.fence().is_closed() {
                return pending().await;
            }
            let answer = work(&host);
            host.changed.notify_waiters();
            match behaviour {
                Some(Behaviour::AnswerLate(ms)) => sleep(ms).await,
                Some(Behaviour::AnswerNever) => pending().await,
                _ => {}
            }
            answer
        })
    }
}

impl Actor for FakeSupervisor {
    type Context = Context<Self>;

    fn started(&mut self, _ctx: &mut Context<Self>) {
        actix::spawn(report_exits(self.host.clone(), self.facts.clone()));
    }
}

/// Reports exits until they are settled, as long as there is somebody to report to.
async fn report_exits(host: FakeHost, facts: Facts) {
    while facts.exited.connected() && !host.fence().is_closed() {
        let changed = host.changed.notified();
        let (due, next) = host.poll();
        for (task, exit) in due {
            let (host, facts) = (host.clone(), facts.clone());
            actix::spawn(async move {
                let receipt = facts.exited.send(TaskExited { task: task.clone(), exit }).await;
                if matches!(receipt, Ok(ExitReceipt::Settled)) && !host.fence().is_closed() {
                    host.settle(&task);
                }
            });
        }
        match next {
            None => changed.await,
            Some(at) => tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(at) => {}
            },
        }
    }
}

impl Handler<LaunchShim> for FakeSupervisor {
    type Result = ResponseFuture<Result<ShimRecord>>;

    fn handle(&mut self, LaunchShim { record }: LaunchShim, _ctx: &mut Context<Self>) -> Self::Result {
        let id = record.id;
        self.call(Call::LaunchShim, &id.clone(), None, move |host| {
            let mut inner = host.lock();
            let process = inner.identity();
            inner.shims.insert(id, Shim::new(process.pid));
            Ok(ShimRecord { process, socket: "/shim.sock".into(), protocol: 1 })
        })
    }
}

impl Handler<AdoptShim> for FakeSupervisor {
    type Result = ResponseFuture<Result<Adopted>>;

    fn handle(
        &mut self,
        AdoptShim { record, containers }: AdoptShim,
        _ctx: &mut Context<Self>,
    ) -> Self::Result {
        let id = record.id;
        self.call(Call::AdoptShim, &id.clone(), None, move |host| {
            let mut inner = host.lock();
            let known = record.shim.map(|shim| shim.process);
            let runs = |shim: &Shim| known.as_ref().is_some_and(|process| process.pid == shim.pid());
            if inner.shims.get(&id).is_some_and(runs) {
                inner.reports.iter_mut().filter(|report| report.task.sandbox == id).for_each(Report::at_once);
                return Ok(Adopted::Running(inner.states(&id)));
            }
            let reason = match known.is_some_and(|process| process.boot_id != inner.boot_id()) {
                true => UnknownReason::HostRebooted,
                false => UnknownReason::LostWhileDown,
            };
            let exit = host.exit(ExitStatus::Unknown { reason });
            for container in containers {
                let task = TaskKey { sandbox: id.clone(), container, exec: None };
                if !inner.reports.iter().any(|report| report.task == task) {
                    inner.reports.push(Report { task, exit: exit.clone(), again_at: None });
                }
            }
            Ok(Adopted::Gone)
        })
    }
}

impl Report {
    fn at_once(&mut self) {
        self.again_at = None;
    }
}

impl Handler<StopShim> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, StopShim { sandbox }: StopShim, _ctx: &mut Context<Self>) -> Self::Result {
        self.call(Call::StopShim, &sandbox.clone(), None, move |host| {
            let exit = host.exit(ExitStatus::Signaled { signal: Signal::KILL.0 });
            host.lock().end_shim(&sandbox, &exit);
            Ok(())
        })
    }
}

impl Handler<MeasureShim> for FakeSupervisor {
    type Result = ResponseFuture<Result<SandboxStats>>;

    fn handle(&mut self, MeasureShim { sandbox }: MeasureShim, _ctx: &mut Context<Self>) -> Self::Result {
        self.call(Call::MeasureShim, &sandbox, None, |_host| Ok(SandboxStats::default()))
    }
}

impl Handler<CreateTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<ProcessIdentity>>;

    fn handle(
        &mut self,
        CreateTask { record, sandbox }: CreateTask,
        _ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.call(Call::CreateTask, &sandbox.id.clone(), None, move |host| {
            host.lock().create_task(&sandbox.id, &record.id, record.spec.name.as_str())
        })
    }
}

impl Handler<StartTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<Timestamp>>;

    fn handle(
        &mut self,
        StartTask { sandbox, container }: StartTask,
        _ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.call(Call::StartTask, &sandbox.clone(), None, move |host| {
            host.lock().start_task(&sandbox, &container)?;
            Ok(host.now())
        })
    }
}

impl Handler<SignalTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(
        &mut self,
        SignalTask { task, signal, .. }: SignalTask,
        _ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.call(Call::SignalTask, &task.sandbox.clone(), Some(signal), move |host| {
            host.lock().signal(&task, signal);
            Ok(())
        })
    }
}

impl Handler<DeleteTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(
        &mut self,
        DeleteTask { sandbox, container }: DeleteTask,
        _ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.call(Call::DeleteTask, &sandbox.clone(), None, move |host| {
            host.lock().delete_task(&sandbox, &container)
        })
    }
}

impl Handler<StartExecTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<ExecStarted>>;

    fn handle(&mut self, message: StartExecTask, _ctx: &mut Context<Self>) -> Self::Result {
        let StartExecTask { sandbox, container, exec, .. } = message;
        self.call(Call::StartExecTask, &sandbox.clone(), None, move |host| {
            host.lock().start_exec(&sandbox, &container.id, &exec).map(|pid| ExecStarted { pid })
        })
    }
}

impl Handler<ResizeTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, ResizeTask { task, .. }: ResizeTask, _ctx: &mut Context<Self>) -> Self::Result {
        self.call(Call::ResizeTask, &task.sandbox, None, |_host| Ok(()))
    }
}

impl Handler<ReopenTaskLog> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(
        &mut self,
        ReopenTaskLog { sandbox, .. }: ReopenTaskLog,
        _ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.call(Call::ReopenTaskLog, &sandbox, None, |_host| Ok(()))
    }
}

impl Handler<MeasureTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<Stats>>;

    fn handle(&mut self, MeasureTask { sandbox, .. }: MeasureTask, _ctx: &mut Context<Self>) -> Self::Result {
        self.call(Call::MeasureTask, &sandbox, None, |_host| Ok(Stats::default()))
    }
}

impl Handler<QueryTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<TaskKnowledge>>;

    fn handle(&mut self, QueryTask { task }: QueryTask, _ctx: &mut Context<Self>) -> Self::Result {
        self.call(Call::QueryTask, &task.sandbox.clone(), None, move |host| {
            let inner = host.lock();
            Ok(match (inner.shims.contains_key(&task.sandbox), inner.state(&task)) {
                (false, _) => TaskKnowledge::ShimGone,
                (true, Some(state)) => TaskKnowledge::Known(state),
                (true, None) => TaskKnowledge::NotKnown,
            })
        })
    }
}

/// The death of a shim, told as the real supervisor tells it: after the exits of its tasks.
impl FakeSupervisor {
    /// Kills a shim and reports it.
    pub async fn shim_dies(host: &FakeHost, core: &crate::Core, sandbox: &SandboxId) {
        host.kill_shim(sandbox);
        let died = ShimDied { sandbox: sandbox.clone(), reason: "killed by SIGKILL".to_owned() };
        // An actor system that has ended needs no report.
        let _ = core.router.send(died).await;
    }
}
