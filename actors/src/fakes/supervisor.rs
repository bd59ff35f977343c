//! A supervisor over a [`FakeHost`]. Every message of the port is implemented; calls go wrong as the host was
//! told that they should.

use std::future::pending;
use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use mainstay_messages::error::Kind;
use mainstay_messages::process::UnknownReason;
use mainstay_messages::router::{ExitReceipt, ShimDied, TaskExited, TaskKey};
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{
    AdoptShim, Adopted, CreateTask, DeleteTask, ExecStarted, FreezeTask, LaunchShim, Launched, MeasureShim,
    MeasureTask, QueryTask, ReopenTaskLog, ResizeTask, SandboxStats, SignalTask, StartExecTask, StartTask,
    Stats, StopShim, TaskKnowledge, TaskMade, UpdatePod, UpdateTask,
};
use mainstay_messages::{Error, Exit, Result, SandboxId, Timestamp};

use super::host::{Behaviour, Call, Due, FakeHost, Made, Messenger, ReceiptWay};
use crate::core::Facts;

/// Time for the exits of a stopped shim to be settled before its exit records are removed, in milliseconds: as
/// the real supervisor has it.
const STOP_REPORTS_MS: u64 = 5_000;

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
        made: Made,
        work: impl FnOnce(&FakeHost) -> Result<T> + 'static,
    ) -> ResponseFuture<Result<T>> {
        self.call_and_then(made, work, |_host| async {})
    }

    /// The same, with something to wait for before the answer.
    fn call_and_then<T: 'static, F: Future<Output = ()>>(
        &self,
        made: Made,
        work: impl FnOnce(&FakeHost) -> Result<T> + 'static,
        then: impl FnOnce(FakeHost) -> F + 'static,
    ) -> ResponseFuture<Result<T>> {
        let behaviour = self.host.begin(made.clone());
        let host = self.host.clone();
        Box::pin(async move {
            let sleep = |ms| tokio::time::sleep(Duration::from_millis(ms));
            match &behaviour {
                None | Some(Behaviour::AnswerLate(_) | Behaviour::AnswerNever | Behaviour::FailAfter(_)) => {}
                Some(Behaviour::Delay(ms)) => sleep(*ms).await,
                Some(Behaviour::Fail(error)) => return Err(error.clone()),
                Some(Behaviour::Hang) => pending().await,
            }
            if host.fence().is_closed() {
                return pending().await;
            }
            while host.lock().is_overtaking(&made) {
                host.changed.notified().await;
            }
            host.lock().arrived(&made);
            let answer = work(&host);
            host.changed.notify_waiters();
            then(host).await;
            match behaviour {
                Some(Behaviour::AnswerLate(ms)) => sleep(ms).await,
                Some(Behaviour::AnswerNever) => pending().await,
                Some(Behaviour::FailAfter(error)) => return answer.and(Err(error)),
                _ => {}
            }
            answer
        })
    }
}

impl Actor for FakeSupervisor {
    type Context = Context<Self>;

    fn started(&mut self, _ctx: &mut Context<Self>) {
        actix::spawn(report(self.host.clone(), self.facts.clone()));
    }
}

/// Reports exits until they are settled, and deaths after them, as long as there is somebody to report to.
async fn report(host: FakeHost, facts: Facts) {
    while facts.exited.connected() && !host.fence().is_closed() {
        let changed = host.changed.notified();
        let Due { exits, deaths, next } = host.poll();
        for (task, exit, by) in exits {
            actix::spawn(carry(host.clone(), facts.clone(), task, exit, by));
        }
        for (sandbox, after_ms) in deaths {
            actix::spawn(tell_death(host.clone(), facts.clone(), sandbox, after_ms));
        }
        match next {
            None => changed.await,
            // Always in the same order, so that what happens does not depend on chance.
            Some(at) => tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(at) => {}
            },
        }
    }
}

/// Brings one report to where it belongs, and its receipt back.
async fn carry(host: FakeHost, facts: Facts, task: TaskKey, exit: Exit, by: Messenger) {
    if by.after_ms > 0 {
        tokio::time::sleep(Duration::from_millis(by.after_ms)).await;
    }
    if host.fence().is_closed() {
        return;
    }
    let receipt = facts.exited.send(TaskExited { task: task.clone(), exit }).await;
    let settled = matches!(receipt, Ok(ExitReceipt::Settled)) && by.receipt == ReceiptWay::Comes;
    if settled && !host.fence().is_closed() {
        host.settle(&task);
    }
}

/// Says that a shim died.
async fn tell_death(host: FakeHost, facts: Facts, sandbox: SandboxId, after_ms: u64) {
    if after_ms > 0 {
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
    }
    if !host.fence().is_closed() {
        facts.died.do_send(ShimDied { sandbox, reason: "killed by SIGKILL".to_owned() });
    }
}

/// Waits until the exits of a pod are settled, as long as a supervisor does before it removes their records.
async fn settled_or_late(host: FakeHost, sandbox: SandboxId) {
    let settled = async {
        loop {
            let changed = host.changed.notified();
            if host.is_settled(&sandbox) {
                break;
            }
            changed.await;
        }
    };
    // What is late is offered on from memory.
    let _ = tokio::time::timeout(Duration::from_millis(STOP_REPORTS_MS), settled).await;
    if !host.fence().is_closed() {
        host.lock().remove_directory(&sandbox);
    }
}

impl Handler<LaunchShim> for FakeSupervisor {
    type Result = ResponseFuture<Result<Launched>>;

    fn handle(&mut self, LaunchShim { record }: LaunchShim, _ctx: &mut Context<Self>) -> Self::Result {
        let made = Made::of_pod(Call::LaunchShim, &record.id);
        self.call(made, move |host| Ok(Launched { shim: host.lock().launch_shim(record.id), network: None }))
    }
}

impl Handler<AdoptShim> for FakeSupervisor {
    type Result = ResponseFuture<Result<Adopted>>;

    fn handle(
        &mut self,
        AdoptShim { record, containers, .. }: AdoptShim,
        _ctx: &mut Context<Self>,
    ) -> Self::Result {
        let sandbox = record.id;
        self.call(Made::of_pod(Call::AdoptShim, &sandbox), move |host| {
            let (stamps, now) = (host.stamps(), host.now());
            let mut inner = host.lock();
            if inner.is_being_stopped(&sandbox) {
                return Err(Error::Terminating { kind: Kind::Sandbox, id: sandbox.to_string() });
            }
            inner.end_what_is_due(stamps);
            inner.report_again_at_once(&sandbox);
            let known = record.shim.map(|shim| shim.process);
            if inner.is_running(&sandbox, known.as_ref()) {
                return Ok(Adopted::Running(inner.states(&sandbox)));
            }
            let reason = match known.is_some_and(|process| process.boot_id != inner.boot_id()) {
                true => UnknownReason::HostRebooted,
                false => UnknownReason::LostWhileDown,
            };
            for container in containers {
                let task = TaskKey { sandbox: sandbox.clone(), container, exec: None };
                inner.report_lost(task, reason, now);
            }
            Ok(Adopted::Gone)
        })
    }
}

impl Handler<StopShim> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, StopShim { sandbox, .. }: StopShim, _ctx: &mut Context<Self>) -> Self::Result {
        let (pod, made) = (sandbox.clone(), Made::of_pod(Call::StopShim, &sandbox));
        let stop = move |host: &FakeHost| {
            host.lock().stop_shim(&sandbox, host.stamps());
            Ok(())
        };
        self.call_and_then(made, stop, move |host| settled_or_late(host, pod))
    }
}

impl Handler<MeasureShim> for FakeSupervisor {
    type Result = ResponseFuture<Result<SandboxStats>>;

    fn handle(&mut self, MeasureShim { sandbox }: MeasureShim, _ctx: &mut Context<Self>) -> Self::Result {
        self.call(Made::of_pod(Call::MeasureShim, &sandbox), |_host| Ok(SandboxStats::default()))
    }
}

impl Handler<CreateTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<TaskMade>>;

    fn handle(
        &mut self,
        CreateTask { record, sandbox }: CreateTask,
        _ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.call(Made::of_container(Call::CreateTask, &sandbox.id, &record.id), move |host| {
            let process = host.lock().create_task(&sandbox.id, &record.id, record.spec.name.as_str())?;
            Ok(TaskMade { process, adjustment: None, user: None })
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
        self.call(Made::of_container(Call::StartTask, &sandbox, &container), move |host| {
            let now = host.now();
            host.lock().start_task(&sandbox, &container, now)?;
            Ok(now)
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
        let made = Made { signal: Some(signal), ..Made::of_task(Call::SignalTask, &task) };
        self.call(made, move |host| {
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
        self.call(Made::of_container(Call::DeleteTask, &sandbox, &container), move |host| {
            host.lock().delete_task(&sandbox, &container, host.stamps())
        })
    }
}

impl Handler<StartExecTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<ExecStarted>>;

    fn handle(&mut self, message: StartExecTask, _ctx: &mut Context<Self>) -> Self::Result {
        let StartExecTask { sandbox, container, exec, .. } = message;
        let task = TaskKey { sandbox, container: container.id, exec: Some(exec) };
        self.call(Made::of_task(Call::StartExecTask, &task), move |host| {
            host.lock().start_exec(task, host.now()).map(|pid| ExecStarted { pid })
        })
    }
}

impl Handler<ResizeTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, ResizeTask { task, .. }: ResizeTask, _ctx: &mut Context<Self>) -> Self::Result {
        self.call(Made::of_task(Call::ResizeTask, &task), |_host| Ok(()))
    }
}

impl Handler<ReopenTaskLog> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: ReopenTaskLog, _ctx: &mut Context<Self>) -> Self::Result {
        let made = Made::of_container(Call::ReopenTaskLog, &message.sandbox, &message.container);
        self.call(made, |_host| Ok(()))
    }
}

impl Handler<MeasureTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<Stats>>;

    fn handle(&mut self, message: MeasureTask, _ctx: &mut Context<Self>) -> Self::Result {
        let made = Made::of_container(Call::MeasureTask, &message.sandbox, &message.container);
        self.call(made, |_host| Ok(Stats::default()))
    }
}

impl Handler<FreezeTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: FreezeTask, _ctx: &mut Context<Self>) -> Self::Result {
        let FreezeTask { sandbox, container, to } = message;
        self.call(Made::of_container(Call::FreezeTask, &sandbox, &container), move |host| {
            host.lock().freeze_task(&sandbox, &container, to)
        })
    }
}

impl Handler<UpdateTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<Option<Box<Resources>>>>;

    fn handle(&mut self, message: UpdateTask, _ctx: &mut Context<Self>) -> Self::Result {
        let UpdateTask { sandbox, container, limits, .. } = message;
        self.call(Made::of_container(Call::UpdateTask, &sandbox, &container), move |host| {
            host.lock().update_task(&sandbox, &container, limits).map(|()| None)
        })
    }
}

impl Handler<UpdatePod> for FakeSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: UpdatePod, _ctx: &mut Context<Self>) -> Self::Result {
        self.call(Made::of_pod(Call::UpdatePod, &message.record.id), |_host| Ok(()))
    }
}

impl Handler<QueryTask> for FakeSupervisor {
    type Result = ResponseFuture<Result<TaskKnowledge>>;

    fn handle(&mut self, QueryTask { task }: QueryTask, _ctx: &mut Context<Self>) -> Self::Result {
        self.call(Made::of_task(Call::QueryTask, &task), move |host| {
            let (stamps, since) = (host.stamps(), host.now());
            let mut inner = host.lock();
            if inner.is_being_made(&task) {
                let (operation, step) = ("create or start".to_owned(), "simulated".to_owned());
                return Err(Error::InProgress { id: task.container.to_string(), operation, step, since });
            }
            inner.end_what_is_due(stamps);
            Ok(inner.knowledge(&task))
        })
    }
}
