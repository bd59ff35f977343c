//! Questions about tasks: what there is, and what it uses.

use std::rc::Rc;

use mainstay_messages::router::TaskKey;
use mainstay_messages::supervisor::{SandboxStats, Stats, TaskKnowledge, TaskState, TaskStatus};
use mainstay_messages::{ContainerId, Exit, ProcessIdentity, Result};
use mainstay_task_api::convert::{ConvertError, ProcessKey};
use mainstay_task_api::extension::{Phase, ProcessState, StatsRequest, StatsResponse, TasksRequest};

use super::{call, process_key};
use crate::cgroup;
use crate::facts::Facts;
use crate::files;
use crate::link::{Call, CallError};
use crate::machine::Machine;
use crate::shim::{Shim, Stage};
use crate::witness::{self, Sight};

/// All processes that a shim has.
pub(crate) async fn tasks(shim: &Shim, limit_ms: u64) -> Result<Vec<(ProcessKey, TaskState)>, CallError> {
    let call = Call::new(format!("the list of tasks of the shim of pod {}", shim.sandbox), limit_ms);
    let request = TasksRequest::default();
    let list =
        shim.link.call(call, async |services, context| services.extension.tasks(context, &request).await);
    let list = list.await?;
    // What cannot be understood is left out, and so is not known to the shim.
    let understood = |process| {
        state(shim, process).inspect_err(|error| {
            tracing::error!(sandbox = %shim.sandbox, %error, "a task of the shim cannot be understood");
        })
    };
    Ok(list.processes.iter().filter_map(|process| understood(process).ok()).collect())
}

/// What is known of one process. While it is being made or started, nobody can say what becomes of it, and the answer is
/// that.
pub(crate) async fn query(shim: Rc<Shim>, task: TaskKey) -> Result<TaskKnowledge> {
    let process = process_key(&task.container, task.exec.as_ref());
    shim.makings.none_of(&process)?;
    if shim.is_alive() {
        match tasks(&shim, shim.machine.settings.timeouts.query_ms).await {
            Ok(tasks) => {
                let found = tasks.into_iter().find(|(key, _)| *key == process);
                return Ok(found.map_or(TaskKnowledge::NotKnown, |(_, state)| TaskKnowledge::Known(state)));
            }
            Err(error) if shim.survived(&error).await => return seen(&shim, task, error).await,
            Err(_) => {}
        }
    }
    shim.reached(Stage::Collected).await;
    recorded(&shim.machine, &shim.facts, task).await
}

/// What can be seen of a PID 1 whose shim does not answer. That it has not ended is no answer: only the shim knows more.
async fn seen(shim: &Rc<Shim>, task: TaskKey, error: CallError) -> Result<TaskKnowledge> {
    let (None, Some(process)) = (&task.exec, shim.process_of(&task.container)) else {
        return Err(error.into());
    };
    let (sandbox, container) = (shim.sandbox.clone(), task.container);
    let what = format!("a look at the process of container {container}");
    let work = move |machine: &Machine| {
        let key = process_key(&container, None);
        match witness::look(&machine.directories, &sandbox, &key, &process, None) {
            Ok(Sight::Ended(exit)) => Ok(TaskKnowledge::Known(TaskState {
                container,
                process: Some(process),
                status: TaskStatus::Exited(exit),
                adjustment: None,
            })),
            Ok(Sight::Runs | Sight::Lost) | Err(_) => Err(error.into()),
        }
    };
    shim.machine.blocking(what, work).await
}

/// What a dead shim has written down of a process. Where that was removed and the exit is not settled yet, it is still being
/// offered.
pub(crate) async fn recorded(
    machine: &std::sync::Arc<Machine>,
    facts: &Facts,
    task: TaskKey,
) -> Result<TaskKnowledge> {
    let what = format!("the exit record of container {}", task.container);
    let asked = task.clone();
    let work = move |machine: &Machine| {
        let process = process_key(&asked.container, asked.exec.as_ref());
        Ok(files::exit_record(&machine.directories, &asked.sandbox, &process))
    };
    let exit = machine.blocking(what, work).await?.or_else(|| facts.offered(&task));
    Ok(exit.map_or(TaskKnowledge::ShimGone, |exit| {
        TaskKnowledge::Known(TaskState {
            container: task.container,
            process: None,
            status: TaskStatus::Exited(exit),
            adjustment: None,
        })
    }))
}

/// What a container uses. When the shim does not answer, or does not know the question, what its cgroup says.
pub(crate) async fn measure(shim: Rc<Shim>, container: ContainerId) -> Result<Stats> {
    shim.alive()?;
    let answer = ask(&shim, call(&shim, "the measuring", &container, limit(&shim)), container.as_str()).await;
    match answer {
        Ok(answer) => Ok(Stats::from(&answer.stats.unwrap_or_default())),
        Err(CallError::Silent { .. } | CallError::OutOfReach { .. } | CallError::NoSuchCall { .. }) => {
            let sandbox = shim.sandbox.clone();
            let work =
                move |machine: &Machine| cgroup::measure(&machine.container_group(&sandbox, &container)?);
            shim.machine.blocking("the measuring of a container", work).await
        }
        Err(error) => Err(super::not_found_or(error, &container, None)),
    }
}

/// What a pod uses.
pub(crate) async fn measure_pod(shim: Rc<Shim>) -> Result<SandboxStats> {
    shim.alive()?;
    let question = Call::new(format!("the measuring of pod {} by its shim", shim.sandbox), limit(&shim));
    let (total, shim_private_bytes) = match ask(&shim, question, "").await {
        Ok(answer) => (Stats::from(answer.stats.get_or_default()), answer.shim_private_bytes),
        Err(CallError::Silent { .. } | CallError::OutOfReach { .. } | CallError::NoSuchCall { .. }) => {
            let sandbox = shim.sandbox.clone();
            let work = move |machine: &Machine| cgroup::measure(&machine.pod_group(&sandbox)?);
            (shim.machine.blocking("the measuring of a pod", work).await?, None)
        }
        Err(error) => return Err(error.into()),
    };
    Ok(SandboxStats {
        total,
        shim_private_bytes,
        shim_log: Some(shim.machine.directories.shim_log(&shim.sandbox)),
    })
}

async fn ask(shim: &Shim, call: Call, container: &str) -> Result<StatsResponse, CallError> {
    let request = StatsRequest { container: container.to_owned(), ..Default::default() };
    shim.link.call(call, async |services, context| services.extension.stats(context, &request).await).await
}

fn limit(shim: &Shim) -> u64 {
    shim.machine.settings.timeouts.query_ms
}

fn state(shim: &Shim, process: &ProcessState) -> Result<(ProcessKey, TaskState), ConvertError> {
    let key = ProcessKey::try_from(process.process.get_or_default())?;
    let status = match process.phase.enum_value_or_default() {
        Phase::CREATING | Phase::CREATED => TaskStatus::Created,
        Phase::RUNNING => TaskStatus::Running,
        Phase::PAUSED => TaskStatus::Paused,
        Phase::EXITED => TaskStatus::Exited(Exit::try_from(process.exit.get_or_default())?),
    };
    let identity = (process.pid != 0).then(|| ProcessIdentity {
        pid: process.pid,
        start_ticks: process.start_ticks,
        boot_id: shim.machine.boot_id.clone(),
    });
    let container = key.container.clone();
    Ok((key, TaskState { container, process: identity, status, adjustment: None }))
}
