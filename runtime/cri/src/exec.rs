//! ExecSync: a command in a container, run to its end.
//!
//! Owns: that its time-out holds whatever the command does, that it is killed then, and that no output is kept beyond a limit. Never:
//! waits for whoever else holds the command's output open.

use std::sync::Arc;
use std::time::Duration;

use mainstay::{ContainerId, Error, ExecId, ExecSpec, OutputStream, Runtime, Session, SessionItem, Signal};
use mainstay_cri_api::{ExecSyncRequest, ExecSyncResponse};

use crate::failure::{Failure, Result};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::node::Node;
use crate::{filter, times};

/// The most output that is kept, both streams together, in bytes: what fits into one answer. The rest is thrown away by the shim, and
/// the command is not held up by it.
pub(crate) const OUTPUT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1_024;

/// `ExecSync`
pub(crate) async fn sync(node: Arc<Node>, request: ExecSyncRequest) -> Result<ExecSyncResponse> {
    let ExecSyncRequest { container_id, cmd, timeout } = request;
    if cmd.is_empty() {
        return Err(Failure::invalid("cmd", "[]", "a program, with its arguments"));
    }
    let container = filter::container(&node.runtime, &container_id)?.record.id.clone();
    let spec = ExecSpec::new(cmd);
    match times::seconds(timeout) {
        Duration::ZERO => Ok(run(node.runtime.exec(&container, spec).await?).await?),
        limit => within(&node.runtime, container, spec, limit).await,
    }
}

async fn within(
    runtime: &Runtime,
    container: ContainerId,
    spec: ExecSpec,
    limit: Duration,
) -> Result<ExecSyncResponse> {
    let late = || Error::DeadlineExceeded {
        what: format!("command {:?} in container {container}", spec.process.command.join(" ")),
        after_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    };
    let over = tokio::time::sleep(limit);
    tokio::pin!(over);
    let mut starting = tokio::spawn({
        let (runtime, container, spec) = (runtime.clone(), container.clone(), spec.clone());
        async move { runtime.exec(&container, spec).await }
    });
    let session = tokio::select! {
        started = &mut starting => started.map_err(|error| Error::internal("ExecSync", error))??,
        () = &mut over => {
            let (runtime, container) = (runtime.clone(), container.clone());
            tokio::spawn(async move {
                if let Ok(Ok(session)) = starting.await {
                    kill(&runtime, &container, session.exec()).await;
                }
            });
            return Err(late().into());
        }
    };
    let exec = session.exec().cloned();
    tokio::select! {
        outcome = run(session) => Ok(outcome?),
        () = over => {
            kill(runtime, &container, exec.as_ref()).await;
            Err(late().into())
        }
    }
}

async fn kill(runtime: &Runtime, container: &ContainerId, exec: Option<&ExecId>) {
    let Some(exec) = exec else { return };
    if let Err(error) = runtime.kill_exec(container, exec, Signal::KILL).await {
        tracing::warn!(%container, %exec, %error, "a command that is over its time cannot be killed");
    }
}

/// Reads until the command has ended.
async fn run(session: Session) -> Result<ExecSyncResponse, Error> {
    let (mut reader, writer) = session.split();
    let mut writer = Some(writer);
    let mut response = ExecSyncResponse::default();
    loop {
        match reader.next().await? {
            Some(SessionItem::Output { stream, bytes }) => {
                let room = OUTPUT_BYTES_MAX - response.stdout.len() - response.stderr.len();
                let kept = match stream {
                    OutputStream::Stdout => &mut response.stdout,
                    OutputStream::Stderr => &mut response.stderr,
                };
                kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
                if bytes.len() > room {
                    // The rest of it would come here for nothing.
                    writer = None;
                    reader.listen_no_more();
                }
            }
            Some(SessionItem::CutOff { .. }) => {}
            Some(SessionItem::Exited(exit)) => {
                drop(writer);
                response.exit_code = i32::try_from(exit.code()).unwrap_or(i32::MAX);
                return Ok(response);
            }
            None => return Err(Error::internal("ExecSync", "the session ended without an exit")),
        }
    }
}
