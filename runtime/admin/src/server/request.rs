//! One request from its admission to its final frame: asks the backend, survives its panics, sends what it
//! says. Each request is a task of its own, so that answers come in any order.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use mainstay_messages::admin::{End, Input, Request, Response, ServerBody, ServerFrame, StreamRequest};
use mainstay_messages::audit::Repair;
use mainstay_messages::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::Host;
use super::table::{Kind, Ticket, let_go};
use crate::answer::{More, Parts, describe};
use crate::backend::{InputSource, InputStream, ItemSink};
use crate::flow::{Farewell, Intake, Lane};
use crate::outgoing::{Disconnected, Outgoing};
use crate::wire::ServerMessage;

/// What the tasks of one connection share.
#[derive(Clone)]
pub(crate) struct Context {
    pub host: Arc<Host>,
    pub outgoing: Outgoing,
    /// Places for requests that are answered with a list.
    pub lists: Arc<Semaphore>,
}

/// What becomes of a call when its client leaves.
pub(crate) fn kind_of_call(request: &Request) -> Kind {
    match request {
        Request::Version
        | Request::ListSandboxes
        | Request::ListContainers
        | Request::Inspect { .. }
        | Request::Wait { .. }
        | Request::Stats { .. }
        | Request::DiskUsage { .. }
        | Request::Explain { .. }
        | Request::WhoHad { .. }
        | Request::ListImages
        | Request::InspectImage { .. }
        | Request::Metrics { .. }
        | Request::ListPlugins
        | Request::ListShims
        | Request::Audit { repair: Repair::No } => Kind::Question,
        Request::RunSandbox(_)
        | Request::StopSandbox { .. }
        | Request::RemoveSandbox { .. }
        | Request::CreateContainer { .. }
        | Request::StartContainer { .. }
        | Request::StopContainer { .. }
        | Request::KillContainer { .. }
        | Request::RemoveContainer { .. }
        | Request::ReopenLog { .. }
        | Request::Resize { .. }
        | Request::KillExec { .. }
        | Request::Audit { repair: Repair::Yes }
        | Request::PauseContainer { .. }
        | Request::ResumeContainer { .. }
        | Request::UpdateContainer { .. }
        | Request::UpdateSandbox { .. }
        | Request::RemoveImage { .. }
        | Request::CollectImages
        | Request::RestartPlugin { .. }
        | Request::VerifyImages { .. } => Kind::Operation,
    }
}

fn kind_of_stream(request: &StreamRequest) -> Kind {
    match request {
        StreamRequest::Exec { .. } => Kind::Operation,
        StreamRequest::Attach { .. }
        | StreamRequest::Logs { .. }
        | StreamRequest::Events { .. }
        | StreamRequest::PullImage(_)
        | StreamRequest::ImportImages { .. }
        | StreamRequest::ExportImages { .. } => Kind::Question,
    }
}

/// Those that are answered at once from what is known: places are never held by work that hangs.
fn is_answered_with_a_list(request: &Request) -> bool {
    matches!(
        request,
        Request::ListSandboxes
            | Request::ListContainers
            | Request::ListImages
            | Request::Inspect { .. }
            | Request::Explain { .. }
            | Request::WhoHad { .. }
    )
}

/// Serves a call. `cost` is what the request holds of the server's memory.
pub(crate) async fn call(context: Context, mut ticket: Ticket, request: Request, cost: OwnedSemaphorePermit) {
    let work = async {
        // Held until the answer is queued, which may take a slow client long.
        let place = match is_answered_with_a_list(&request) {
            // The semaphore is never closed.
            true => context.lists.clone().acquire_owned().await.ok(),
            false => None,
        };
        let outcome = guarded("a call of the admin RPC", context.host.backend.call(request)).await;
        (place, outcome)
    };
    let (_place, outcome) = tokio::select! {
        biased;
        outcome = work => outcome,
        farewell = ticket.let_go() => (None, Err(let_go(farewell))),
    };
    drop(cost);
    // When the client has left, nobody needs the answer.
    let _ = answer(&context.outgoing, ticket, outcome).await;
}

async fn answer(outgoing: &Outgoing, ticket: Ticket, outcome: Result<Response>) -> Result<(), Disconnected> {
    let request = ticket.request;
    let reply = |outcome| ServerFrame { request, body: ServerBody::Reply(outcome) };
    let failure = match outcome {
        Ok(response) => {
            let mut parts = Parts::of(response);
            loop {
                // The part without followers is the last one that is asked for.
                let Some((part, more)) = parts.next() else { return Ok(()) };
                let what = describe(&part);
                let message = match more {
                    More::Follows => ServerMessage::Part(reply(Ok(part))),
                    More::None => ServerMessage::Frame(reply(Ok(part))),
                };
                let frame = match message.seal(&what) {
                    Ok(frame) => frame,
                    Err(error) => break error,
                };
                let room = outgoing.room(frame.len()).await?;
                match more {
                    More::Follows => room.push(frame),
                    More::None => {
                        ticket.settle(|| room.push(frame));
                        return Ok(());
                    }
                }
            }
        }
        Err(error) => error,
    };
    settle(outgoing, ticket, ServerBody::Reply(Err(failure)), || ()).await
}

/// Sends a final frame that is no list. `before` happens right before it is queued.
async fn settle(
    outgoing: &Outgoing,
    ticket: Ticket,
    body: ServerBody,
    before: impl FnOnce(),
) -> Result<(), Disconnected> {
    let request = ticket.request;
    let frame = match ServerMessage::Frame(ServerFrame { request, body: body.clone() }).seal("the answer") {
        Ok(frame) => frame,
        Err(error) => {
            let body = match body {
                ServerBody::End(_) => ServerBody::End(Err(error)),
                _ => ServerBody::Reply(Err(error)),
            };
            // An error of this crate's own is a sentence and always fits.
            ServerMessage::Frame(ServerFrame { request, body }).seal("the error").map_err(|_| Disconnected)?
        }
    };
    let room = outgoing.room(frame.len()).await?;
    ticket.settle(|| {
        before();
        room.push(frame);
    });
    Ok(())
}

/// Refuses a request that was not admitted.
pub(crate) async fn refuse(outgoing: &Outgoing, request: u64, body: ServerBody) -> Result<(), Disconnected> {
    let frame = ServerMessage::Frame(ServerFrame { request, body });
    // As above.
    let frame = frame.seal("the refusal").map_err(|_| Disconnected)?;
    outgoing.send(frame).await
}

/// Serves a stream.
pub(crate) async fn stream(
    context: Context,
    ticket: Ticket,
    request: StreamRequest,
    lane: Arc<Lane>,
    intake: Intake<Input>,
    cost: OwnedSemaphorePermit,
) {
    let kind = kind_of_stream(&request);
    let (input, unwanted) = InputStream::new(ticket.request, intake, context.outgoing.clone());
    let items = ItemSink::new(ticket.request, lane.clone());
    let mut work =
        pin!(guarded("a stream of the admin RPC", context.host.backend.open(request, input, items)));
    let outcome = tokio::select! {
        biased;
        // First: a backend that returns because its client is gone does not say how the stream ended.
        farewell = lane.closed() => Err(farewell),
        outcome = &mut work => Ok(outcome),
        never = discard(unwanted) => match never {},
    };
    match outcome {
        Ok(outcome) => {
            let _ = say_end(&context.outgoing, ticket, &lane, outcome).await;
        }
        Err(farewell) => {
            let end = match farewell {
                Farewell::ShuttingDown => Err(let_go(farewell)),
                _ => Ok(End::Done),
            };
            let said = say_end(&context.outgoing, ticket, &lane, end);
            let left = leave(kind, work, context.host.limits.stream_leave_ms);
            let _ = tokio::join!(said, left);
        }
    }
    drop(cost);
}

async fn say_end(
    outgoing: &Outgoing,
    ticket: Ticket,
    lane: &Lane,
    end: Result<End>,
) -> Result<(), Disconnected> {
    // A backend may have given the sink to somebody: nothing must come after the end.
    settle(outgoing, ticket, ServerBody::End(end), || lane.close(Farewell::Finished)).await
}

/// Lets a backend whose client has left come to an end.
async fn leave(kind: Kind, work: Pin<&mut impl Future<Output = Result<End>>>, limit_ms: u64) {
    match kind {
        Kind::Operation => drop(work.await),
        Kind::Question => {
            if tokio::time::timeout(Duration::from_millis(limit_ms), work).await.is_err() {
                tracing::warn!(limit_ms, "a stream went on after its client had left and was dropped");
            }
        }
    }
}

/// Throws away the input of a backend that wants no more, so that its client is not held up.
async fn discard(unwanted: oneshot::Receiver<InputSource>) -> std::convert::Infallible {
    if let Ok(mut source) = unwanted.await {
        while source.next().await.is_some() {}
    }
    std::future::pending().await
}

/// Turns a panic into an error.
async fn guarded<T>(what: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => {
            let reason = panic_text(&*panic);
            tracing::error!(what, reason, "panic in the backend of the admin RPC");
            Err(Error::internal(what, format_args!("it panicked: {reason}")))
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no text",
    }
}
