//! What is done with the tasks of a shim: one function for each command.
//!
//! Owns: the order of steps of each command. Never: keeps state; what is known is in the shim's ledger.

mod change;
mod create;
mod delete;
mod exec;
mod making;
mod query;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::error::Kind;
use mainstay_messages::router::TaskKey;
use mainstay_messages::spec::{Stdin, WindowSize};
use mainstay_messages::supervisor::SignalScope;
use mainstay_messages::{ContainerId, Error, ExecId, Result, SandboxId, Signal, Timestamp};
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::extension::ReopenLogRequest;
use mainstay_task_api::task::{KillRequest, ResizePtyRequest, StartRequest};
use ttrpc::Code;

use crate::cgroup;
use crate::hooks;
use crate::identity;
use crate::link::{Call, CallError};
use crate::machine::{Machine, now};
use crate::shim::Shim;

pub(crate) use change::{freeze, update};
pub(crate) use create::{CREATE_CONTAINER, Creation, create};
pub(crate) use delete::{Remains, delete, remove_directly};
pub(crate) use exec::start_exec;
pub(crate) use making::{Making, Makings};
pub(crate) use query::{measure, measure_pod, query, recorded, tasks};

/// Output goes to a CRI log file at this place.
const CRI_LOG_SCHEME: &str = "cri-log://";
/// Input or output goes over the stream socket.
const STREAM: &str = "stream://";
/// The same, and input is closed when the first client leaves.
const STREAM_ONCE: &str = "stream://once";
/// Time for plugins to be told of a start, their turn included, in milliseconds: with [`crate::settings::START_DEFAULT_MS`] less
/// than who asks for a start waits for it.
const START_HOOK_MS: u64 = 25_000;

/// Lets PID 1 run. From this call on it is under way.
pub(crate) fn start(
    shim: Rc<Shim>,
    container: ContainerId,
) -> impl Future<Output = Result<Timestamp>> + 'static {
    let process = process_key(&container, None);
    let making = shim.alive().and_then(|()| shim.makings.begin(process, "start", "let the process run"));
    async move {
        let _under_way = making?;
        let_run(shim, container).await
    }
}

async fn let_run(shim: Rc<Shim>, container: ContainerId) -> Result<Timestamp> {
    let told = hooks::container_starts(&shim.machine, &shim.sandbox, &container);
    // Nothing was done by then, so that the start can be asked for again.
    let late = |_| Error::HookFailed {
        hook: "StartContainer".to_owned(),
        plugin: "-".to_owned(),
        reason: format!("the pod had no turn with its plugins within {START_HOOK_MS} ms"),
    };
    tokio::time::timeout(Duration::from_millis(START_HOOK_MS), told).await.map_err(late)??;
    let request = StartRequest { id: container.as_str().to_owned(), ..Default::default() };
    // Taken before, so that no exit can seem to be earlier than the start.
    let at = now();
    let call = call(&shim, "the start", &container, shim.machine.settings.timeouts.start_ms);
    let started =
        shim.link.call(call, async |services, context| services.task.start(context, &request).await).await;
    started.map_err(start_failed)?;
    hooks::container_started(&shim.machine, &shim.sandbox, &container);
    Ok(at)
}

/// Sends a signal. What is gone has got it.
pub(crate) async fn signal(shim: Rc<Shim>, task: TaskKey, signal: Signal, scope: SignalScope) -> Result<()> {
    if !shim.is_alive() {
        // Everything of the pod is being killed as it is.
        return Ok(());
    }
    let timeouts = &shim.machine.settings.timeouts;
    let request = KillRequest {
        id: task.container.as_str().to_owned(),
        exec_id: exec_text(task.exec.as_ref()),
        signal: u32::from(signal.0),
        all: scope == SignalScope::Cgroup,
        ..Default::default()
    };
    let kill = signal == Signal::KILL && scope == SignalScope::Cgroup;
    let limit_ms = if kill { timeouts.kill_by_shim_ms } else { timeouts.signal_ms };
    let call = call(&shim, &format!("the sending of {signal}"), &task.container, limit_ms);
    match shim.link.call(call, async |services, context| services.task.kill(context, &request).await).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) if kill => {
            tracing::warn!(sandbox = %shim.sandbox, container = %task.container, ?error, "killed without the shim");
            kill_directly(&shim.machine, &task.sandbox, &task.container).await
        }
        Err(CallError::OutOfReach { .. }) if scope == SignalScope::Process && task.exec.is_none() => {
            signal_directly(&shim, &task.container, signal).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Sends a signal to a PID 1 without the help of a shim.
async fn signal_directly(shim: &Shim, container: &ContainerId, signal: Signal) -> Result<()> {
    let what = format!("{signal} to the process of container {container}");
    let Some(process) = shim.process_of(container) else {
        return Err(Error::unavailable(what, "nobody knows which process it is"));
    };
    let failed = what.clone();
    let work = move |_: &Machine| match identity::open(&process) {
        Ok(Some(pidfd)) => {
            identity::signal(&pidfd, signal).map_err(|error| Error::unavailable(failed, error))
        }
        Ok(None) => Ok(()),
        Err(error) => Err(Error::unavailable("/proc", error)),
    };
    shim.machine.blocking(what, work).await
}

/// Kills everything in a container's cgroup without the help of a shim.
pub(crate) async fn kill_directly(
    machine: &Arc<Machine>,
    sandbox: &SandboxId,
    container: &ContainerId,
) -> Result<()> {
    let (sandbox, container) = (sandbox.clone(), container.clone());
    let what = format!("the killing of container {container}");
    let work = move |machine: &Machine| cgroup::kill(&machine.container_group(&sandbox, &container)?);
    machine.blocking(what, work).await
}

/// Changes the size of a terminal.
pub(crate) async fn resize(shim: Rc<Shim>, task: TaskKey, size: WindowSize) -> Result<()> {
    shim.alive()?;
    let request = ResizePtyRequest {
        id: task.container.as_str().to_owned(),
        exec_id: exec_text(task.exec.as_ref()),
        width: u32::from(size.columns),
        height: u32::from(size.rows),
        ..Default::default()
    };
    let call =
        call(&shim, "the resizing of the terminal", &task.container, shim.machine.settings.timeouts.query_ms);
    let resized =
        shim.link.call(call, async |services, context| services.task.resize_pty(context, &request).await);
    resized.await.map(drop).map_err(|error| not_found_or(error, &task.container, task.exec.as_ref()))
}

/// Closes and opens a log file.
pub(crate) async fn reopen_log(shim: Rc<Shim>, container: ContainerId) -> Result<()> {
    shim.alive()?;
    let request = ReopenLogRequest { container: container.as_str().to_owned(), ..Default::default() };
    let call = call(&shim, "the reopening of the log", &container, shim.machine.settings.timeouts.query_ms);
    let reopened = shim
        .link
        .call(call, async |services, context| services.extension.reopen_log(context, &request).await);
    reopened.await.map(drop).map_err(|error| not_found_or(error, &container, None))
}

/// A call about a container, with words for its messages.
fn call(shim: &Shim, what: &str, container: &ContainerId, limit_ms: u64) -> Call {
    Call::new(format!("{what} of container {container} by the shim of pod {}", shim.sandbox), limit_ms)
}

fn exec_text(exec: Option<&ExecId>) -> String {
    exec.map_or_else(String::new, |exec| exec.as_str().to_owned())
}

pub(crate) fn process_key(container: &ContainerId, exec: Option<&ExecId>) -> ProcessKey {
    ProcessKey { container: container.clone(), exec: exec.cloned() }
}

/// What a shim refuses to start has failed for the reason that it gives.
fn start_failed(error: CallError) -> Error {
    match error {
        // Not the fault of what is to be started; it may work another time.
        error @ CallError::Refused {
            code: Code::UNAVAILABLE | Code::RESOURCE_EXHAUSTED | Code::DEADLINE_EXCEEDED,
            ..
        } => error.into(),
        CallError::Refused { code: Code::UNIMPLEMENTED, reason, what } => {
            // It says what the machine cannot do, and of what that is a part.
            match reason.split_once(": ") {
                Some((setting, missing)) => {
                    Error::Unsupported { setting: setting.to_owned(), reason: missing.to_owned() }
                }
                None => Error::Unsupported { setting: what, reason },
            }
        }
        CallError::Refused { reason, .. } => Error::StartFailed { reason },
        other => other.into(),
    }
}

fn not_found_or(error: CallError, container: &ContainerId, exec: Option<&ExecId>) -> Error {
    match (error.is_not_found(), exec) {
        (true, Some(exec)) => Error::not_found(Kind::Exec, exec),
        (true, None) => Error::not_found(Kind::Container, container),
        (false, _) => error.into(),
    }
}

/// The same creation twice.
fn known(kind: Kind, id: &impl std::fmt::Display, operation: &str) -> Error {
    Error::WrongPhase {
        kind,
        id: id.to_string(),
        phase: "known to its shim already".to_owned(),
        operation: operation.to_owned(),
        needed: "new".to_owned(),
    }
}

fn stdin_value(stdin: Stdin) -> String {
    let value = match stdin {
        Stdin::Null => "",
        Stdin::Open => STREAM,
        Stdin::Once => STREAM_ONCE,
    };
    value.to_owned()
}

fn log_value(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(path) => Ok(format!("{CRI_LOG_SCHEME}{path}")),
        None => Err(Error::invalid("log_path", format!("{path:?}"), "a path in UTF-8")),
    }
}
