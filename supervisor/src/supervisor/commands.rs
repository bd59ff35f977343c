//! The commands about the tasks of a pod: each is handed to the pod's shim, or done directly where there is none.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Handler, ResponseFuture};
use mainstay_messages::shim::{DescribeShims, ShimDescription};
use mainstay_messages::spec::Resources;
use mainstay_messages::supervisor::{
    CreateTask, DeleteTask, ExecStarted, FreezeTask, MeasureShim, MeasureTask, QueryTask, ReopenTaskLog,
    ResizeTask, SandboxStats, SignalScope, SignalTask, StartExecTask, StartTask, Stats, TaskKnowledge,
    TaskMade, UpdatePod, UpdateTask,
};
use mainstay_messages::usage::{MeasureUsage, PodToMeasure, PodUsage};
use mainstay_messages::{Result, SandboxId, Signal, Timestamp};

use super::{Pod, ShimSupervisor, guarded};
use crate::machine::Machine;
use crate::pod_limits;
use crate::shims;
use crate::task;
use crate::usage;

impl Handler<CreateTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<TaskMade>>;

    fn handle(&mut self, message: CreateTask, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.sandbox.id.clone(), |shim| task::create(shim, message))
    }
}

impl Handler<StartTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<Timestamp>>;

    fn handle(&mut self, message: StartTask, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.sandbox, |shim| task::start(shim, message.container))
    }
}

impl Handler<SignalTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: SignalTask, _: &mut Self::Context) -> Self::Result {
        let SignalTask { task, signal, scope } = message;
        match self.pods.get(&task.sandbox) {
            Some(Pod::Known(_)) => {
                self.with_shim(&task.sandbox.clone(), |shim| task::signal(shim, task, signal, scope))
            }
            None if signal == Signal::KILL && scope == SignalScope::Cgroup => {
                let machine = Arc::clone(&self.machine);
                Box::pin(guarded(async move {
                    task::kill_directly(&machine, &task.sandbox, &task.container).await
                }))
            }
            // There is no shim, so nothing of the pod runs; or all of it is being killed.
            None | Some(Pod::Stopping { .. }) => Box::pin(std::future::ready(Ok(()))),
            Some(Pod::Beginning { begun, .. }) => {
                Box::pin(std::future::ready(Err(begun.in_progress(&task.sandbox))))
            }
        }
    }
}

impl Handler<DeleteTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: DeleteTask, _: &mut Self::Context) -> Self::Result {
        let DeleteTask { sandbox, container } = message;
        let machine = Arc::clone(&self.machine);
        let ending = match self.pods.get(&sandbox) {
            Some(Pod::Known(_) | Pod::Beginning { .. }) => {
                return self.with_shim(&sandbox, |shim| task::delete(shim, container));
            }
            Some(Pod::Stopping { job, .. }) => Some(job.clone()),
            None => None,
        };
        Box::pin(guarded(async move {
            if let Some(ending) = ending {
                ending.await?;
            }
            task::remove_directly(&machine, &sandbox, &container).await
        }))
    }
}

impl Handler<StartExecTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<ExecStarted>>;

    fn handle(&mut self, message: StartExecTask, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.sandbox.clone(), |shim| task::start_exec(shim, message))
    }
}

impl Handler<ResizeTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: ResizeTask, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.task.sandbox.clone(), |shim| task::resize(shim, message.task, message.size))
    }
}

impl Handler<ReopenTaskLog> for ShimSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: ReopenTaskLog, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.sandbox, |shim| task::reopen_log(shim, message.container))
    }
}

impl Handler<FreezeTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: FreezeTask, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.sandbox, |shim| task::freeze(shim, message.container, message.to))
    }
}

impl Handler<UpdateTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<Option<Box<Resources>>>>;

    fn handle(&mut self, message: UpdateTask, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.sandbox.clone(), |shim| task::update(shim, message))
    }
}

impl Handler<UpdatePod> for ShimSupervisor {
    type Result = ResponseFuture<Result<()>>;

    fn handle(&mut self, message: UpdatePod, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.record.id.clone(), |shim| pod_limits::update(shim, message))
    }
}

impl Handler<MeasureTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<Stats>>;

    fn handle(&mut self, message: MeasureTask, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.sandbox, |shim| task::measure(shim, message.container))
    }
}

impl Handler<MeasureShim> for ShimSupervisor {
    type Result = ResponseFuture<Result<SandboxStats>>;

    fn handle(&mut self, message: MeasureShim, _: &mut Self::Context) -> Self::Result {
        self.with_shim(&message.sandbox, task::measure_pod)
    }
}

impl Handler<DescribeShims> for ShimSupervisor {
    type Result = ResponseFuture<Result<BTreeMap<SandboxId, ShimDescription>>>;

    fn handle(&mut self, _: DescribeShims, _: &mut Self::Context) -> Self::Result {
        let known = self.pods.values().filter_map(|pod| match pod {
            Pod::Known(shim) if shim.is_alive() => Some(Rc::clone(shim)),
            _ => None,
        });
        Box::pin(guarded(shims::describe(known.collect())))
    }
}

impl Handler<MeasureUsage> for ShimSupervisor {
    type Result = ResponseFuture<Result<Vec<PodUsage>>>;

    fn handle(&mut self, MeasureUsage { pods, depth }: MeasureUsage, _: &mut Self::Context) -> Self::Result {
        let namespace = |pod: &PodToMeasure| match self.pods.get(&pod.id) {
            Some(Pod::Known(shim)) => shim.namespace(),
            _ => None,
        };
        let pods =
            pods.into_iter().map(|pod| (namespace(&pod), pod)).map(|(held, pod)| (pod, held)).collect();
        let machine = Arc::clone(&self.machine);
        Box::pin(guarded(async move {
            let work = move |machine: &Machine| usage::measure(machine, pods, depth);
            machine.blocking_within("the measuring of pods", usage::MEASURE_MS, work).await
        }))
    }
}

impl Handler<QueryTask> for ShimSupervisor {
    type Result = ResponseFuture<Result<TaskKnowledge>>;

    fn handle(&mut self, message: QueryTask, _: &mut Self::Context) -> Self::Result {
        let task = message.task;
        match self.pods.get(&task.sandbox) {
            // Its exit records are read before they are removed, and are offered to the router then.
            Some(Pod::Stopping { shim: Some(shim), .. }) => {
                let shim = Rc::clone(shim);
                return Box::pin(guarded(task::query(shim, task)));
            }
            Some(_) => return self.with_shim(&task.sandbox.clone(), |shim| task::query(shim, task)),
            None => {}
        }
        let (machine, facts) = (Arc::clone(&self.machine), self.facts.clone());
        Box::pin(guarded(async move { task::recorded(&machine, &facts, task).await }))
    }
}
