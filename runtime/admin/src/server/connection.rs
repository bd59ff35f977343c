//! One connection: reads frames, admits requests, hands input, credit and cancellations to their streams.
//!
//! It owns the socket and the table of its open requests. It never waits for a backend, and never for a slow
//! stream; only for room in the queue of answers, which a client that does not read fills up.
//!
//! ```text
//!              ┌─ client left, stalled, IO error ───────────────────────────► gone
//!   conversing ┼─ violation: one error frame ─────────────► flushing ───────► gone
//!              └─ shutdown ──► draining (operations end) ─► flushing ───────► gone
//! ```
//! On the way out of `conversing` every question and stream is let go; operations go on.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mainstay_messages::Error;
use mainstay_messages::admin::{ClientBody, ClientFrame, Request, ServerBody, StreamRequest};
use mainstay_messages::codec::CodecError;
use mainstay_messages::error::chain;
use tokio::io::AsyncRead;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::request::{self, Context, kind_of_call};
use super::table::{Denial, Table, Violation};
use super::{Host, Phase};
use crate::flow::{Farewell, Lane, intake};
use crate::frame::{FrameReader, Patience, ReadError, Received};
use crate::limits::{CLOSE_FLUSH_MS, LISTS_AT_ONCE_MAX, REQUEST_COST};
use crate::outgoing::{self, Disconnected, WriteError};
use crate::wire::{ClientMessage, INPUT_BODY_MAX, PROTOCOL_VERSION, TO_DAEMON};

/// Why a conversation is over.
enum Ending {
    /// The client is gone.
    Left,
    /// The client did something wrong, and was told.
    Violated,
    /// The server shuts down.
    ShuttingDown,
}

struct Connection {
    context: Context,
    table: Arc<Table>,
}

/// Serves a connection to its end.
pub(crate) async fn run(stream: UnixStream, host: Arc<Host>, mut phase: watch::Receiver<Phase>) {
    let limits = host.limits;
    let (reading, writing) = stream.into_split();
    let (outgoing, writer) = outgoing::queue();
    let (finish, finished) = oneshot::channel();
    let mut writer = pin!(writer.run(writing, finished, Patience::Milliseconds(limits.write_stall_ms)));
    let reader = FrameReader::new(reading, TO_DAEMON, Patience::Milliseconds(limits.frame_read_timeout_ms));
    let table = Table::new(limits);
    // Also when this task is dropped at once: tasks of questions and streams must not stay behind.
    let _dismissal = Dismissal(table.clone());
    let lists = Arc::new(Semaphore::new(LISTS_AT_ONCE_MAX));
    let connection = Connection { context: Context { host, outgoing, lists }, table: table.clone() };

    let ending = tokio::select! {
        biased;
        written = &mut writer => return report(written),
        ending = connection.converse(reader) => ending,
        _ = phase.wait_for(|phase| *phase == Phase::ShuttingDown) => Ending::ShuttingDown,
    };
    match ending {
        Ending::Left => return,
        Ending::Violated => table.dismiss(Farewell::Cancelled),
        Ending::ShuttingDown => {
            table.dismiss(Farewell::ShuttingDown);
            let drained =
                tokio::time::timeout(Duration::from_millis(limits.shutdown_drain_ms), table.drained());
            tokio::select! {
                written = &mut writer => return report(written),
                // Operations that take longer go on without an answer.
                _ = drained => {}
            }
        }
    }
    // The writer is there to receive it: it ends after this, or has been dropped with this task.
    let _ = finish.send(());
    match tokio::time::timeout(Duration::from_millis(CLOSE_FLUSH_MS), writer).await {
        Ok(written) => report(written),
        Err(_) => tracing::warn!("an admin client did not read its last answers"),
    }
}

/// Lets go what is left when the connection ends, in whichever way.
struct Dismissal(Arc<Table>);

impl Drop for Dismissal {
    fn drop(&mut self) {
        self.0.dismiss(Farewell::Left);
    }
}

fn report(written: Result<(), WriteError>) {
    match written {
        Err(error @ WriteError::Stalled { .. }) => {
            tracing::warn!(%error, "an admin client was cut off because it does not read");
        }
        Err(WriteError::Io(error)) => tracing::debug!(%error, "an admin client has left"),
        Ok(()) => {}
    }
}

impl Connection {
    async fn converse(&self, mut reader: FrameReader<impl AsyncRead + Unpin>) -> Ending {
        loop {
            let (request, error) = match reader.next::<ClientMessage>().await {
                Ok(Some(received)) => match self.take(received).await {
                    Ok(()) => continue,
                    Err(Stop::Disconnected) => return Ending::Left,
                    Err(Stop::Violation(violation)) => (0, complaint(violation.to_string())),
                },
                Ok(None) | Err(ReadError::Io(_)) => return Ending::Left,
                Err(ReadError::Malformed { request, source }) => (request, malformed(&source)),
                Err(error @ ReadError::TooSlow { .. }) => (0, complaint(error.to_string())),
            };
            tracing::warn!(%error, "an admin client does not keep to the protocol; closing its connection");
            return match request::refuse(&self.context.outgoing, request, ServerBody::Reply(Err(error))).await
            {
                Ok(()) => Ending::Violated,
                Err(Disconnected) => Ending::Left,
            };
        }
    }

    async fn take(&self, received: Received<ClientMessage>) -> Result<(), Stop> {
        let Received { message, length } = received;
        let ClientFrame { request, body } = match message {
            ClientMessage::Credit(credit) => return Ok(self.table.credit(credit)?),
            ClientMessage::Frame(frame) => frame,
        };
        match body {
            ClientBody::Call(call) => match self.call(request, call, length) {
                Err(Denial::Refused(error)) => self.refuse(request, ServerBody::Reply(Err(error))).await,
                Err(Denial::Violation(violation)) => Err(violation.into()),
                Ok(()) => Ok(()),
            },
            ClientBody::Open(open) => match self.open(request, open, length) {
                Err(Denial::Refused(error)) => self.refuse(request, ServerBody::End(Err(error))).await,
                Err(Denial::Violation(violation)) => Err(violation.into()),
                Ok(()) => Ok(()),
            },
            ClientBody::Input(_) if length > INPUT_BODY_MAX => {
                Err(Violation::InputTooLarge { request, length }.into())
            }
            ClientBody::Input(input) => Ok(self.table.input(request, input, length)?),
            ClientBody::Cancel => {
                self.table.cancel(request);
                Ok(())
            }
        }
    }

    fn call(&self, id: u64, request: Request, length: usize) -> Result<(), Denial> {
        let ticket = self.table.admit_call(id, kind_of_call(&request))?;
        let cost = self.cost(length)?;
        tokio::spawn(request::call(self.context.clone(), ticket, request, cost));
        Ok(())
    }

    fn open(&self, id: u64, request: StreamRequest, length: usize) -> Result<(), Denial> {
        let lane = Arc::new(Lane::new(self.context.outgoing.clone()));
        let (feed, intake) = intake();
        let ticket = self.table.admit_stream(id, lane.clone(), feed)?;
        let cost = self.cost(length)?;
        tokio::spawn(request::stream(self.context.clone(), ticket, request, lane, intake, cost));
        Ok(())
    }

    /// What a request holds of the server's memory until the backend is done with it.
    fn cost(&self, length: usize) -> Result<OwnedSemaphorePermit, Denial> {
        // A body is at most REQUEST_BODY_MAX: it fits.
        let cost = (length + REQUEST_COST) as u32;
        self.context.host.requests.clone().try_acquire_many_owned(cost).map_err(|_| {
            Denial::Refused(Error::ResourceExhausted {
                what: "bytes of unfinished requests of all admin connections".to_owned(),
                limit: self.context.host.limits.request_bytes_max as u64,
            })
        })
    }

    async fn refuse(&self, request: u64, body: ServerBody) -> Result<(), Stop> {
        request::refuse(&self.context.outgoing, request, body)
            .await
            .map_err(|Disconnected| Stop::Disconnected)
    }
}

/// Why no further frame is read.
enum Stop {
    Disconnected,
    Violation(Violation),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

fn complaint(value: String) -> Error {
    Error::invalid("frame", value, "what the admin protocol allows (PROTOCOL.md)")
}

fn malformed(error: &CodecError) -> Error {
    match error {
        CodecError::Version { found, .. } => Error::invalid(
            "protocol version",
            found.to_string(),
            format!("{PROTOCOL_VERSION}, which this daemon speaks; use the client of the same release"),
        ),
        error => complaint(chain(error)),
    }
}
