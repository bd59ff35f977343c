//! Starting another process in a running container.

use std::rc::Rc;

use mainstay_messages::error::Kind;
use mainstay_messages::spec::Terminal;
use mainstay_messages::supervisor::{ExecStarted, StartExecTask};
use mainstay_messages::{Error, Result};
use mainstay_task_api::task::{DeleteRequest, ExecProcessRequest, StartRequest};
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::{EXEC_OUTPUT_HOLD, MessageField, PROCESS_TYPE_URL};

use super::{STREAM, call, known, process_key, start_failed, stdin_value};
use crate::oci;
use crate::shim::Shim;
use crate::state::Begun;

/// Sets up and runs an exec. Its output is on the stream socket, for whoever opens it. From this call on it is under way.
pub(crate) fn start_exec(
    shim: Rc<Shim>,
    message: StartExecTask,
) -> impl Future<Output = Result<ExecStarted>> + 'static {
    let process = process_key(&message.container.id, Some(&message.exec));
    let making = shim.alive().and_then(|()| shim.makings.begin(process, "exec", "start the process"));
    async move {
        let _under_way = making?;
        make(shim, message).await
    }
}

async fn make(shim: Rc<Shim>, message: StartExecTask) -> Result<ExecStarted> {
    let request = request(&shim, &message)?;
    let process = process_key(&message.container.id, Some(&message.exec));
    if shim.ledger.borrow_mut().begun(process.clone()) == Begun::Known {
        return Err(known(Kind::Exec, &message.exec, "exec"));
    }
    let started = start(&shim, &message, request).await;
    if started.is_err() {
        shim.ledger.borrow_mut().withdrawn(&process);
    }
    started
}

async fn start(shim: &Shim, message: &StartExecTask, request: ExecProcessRequest) -> Result<ExecStarted> {
    let limit_ms = shim.machine.settings.timeouts.start_ms;
    let what = format!("the start of exec {}", message.exec);
    let call = || call(shim, &what, &message.container.id, limit_ms);
    let made = shim.link.call(call(), async |services, context| services.task.exec(context, &request).await);
    made.await.map_err(start_failed)?;
    let (id, exec_id) = (request.id.clone(), request.exec_id.clone());
    let begin = StartRequest { id: id.clone(), exec_id: exec_id.clone(), ..Default::default() };
    let started =
        shim.link.call(call(), async |services, context| services.task.start(context, &begin).await).await;
    match started {
        Ok(started) => Ok(ExecStarted { pid: started.pid }),
        Err(error) => {
            let remove = DeleteRequest { id, exec_id, ..Default::default() };
            let removed = shim
                .link
                .call(call(), async |services, context| services.task.delete(context, &remove).await)
                .await;
            if let Err(left) = removed.map(drop).or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) }) {
                tracing::debug!(exec = %message.exec, ?left, "a failed exec is left to its container's removal");
            }
            Err(start_failed(error))
        }
    }
}

fn request(shim: &Shim, message: &StartExecTask) -> Result<ExecProcessRequest> {
    let machine = &shim.machine;
    let policy = machine.settings.oom_score;
    let process = oci::exec_process(&message.container, &message.spec, &machine.host, policy)?;
    let text = serde_json::to_vec(&process).map_err(|error| Error::internal("the spec of an exec", error))?;
    Ok(ExecProcessRequest {
        id: message.container.id.as_str().to_owned(),
        exec_id: message.exec.as_str().to_owned(),
        terminal: message.spec.process.terminal != Terminal::None,
        stdin: stdin_value(message.spec.stdin),
        stdout: format!("{EXEC_OUTPUT_HOLD}{}", machine.settings.timeouts.exec_output_hold_ms),
        stderr: STREAM.to_owned(),
        spec: MessageField::some(Any {
            type_url: PROCESS_TYPE_URL.to_owned(),
            value: text,
            ..Default::default()
        }),
        ..Default::default()
    })
}
