//! The client's end of a connection: a task that reads, writes and cancels until the daemon is gone or the
//! client is dropped.

use std::sync::Arc;

use mainstay_messages::Error;
use mainstay_messages::admin::{ClientBody, ClientFrame, ServerBody, ServerFrame};
use mainstay_messages::codec::CodecError;
use mainstay_messages::error::chain;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::pending::{Nonsense, Pending};
use crate::answer::More;
use crate::frame::{FrameReader, Patience, ReadError};
use crate::outgoing::{Outgoing, Writer};
use crate::wire::{ClientMessage, PROTOCOL_VERSION, ServerMessage, TO_CLIENT};

/// The connection's task; it ends with this.
pub(crate) struct Connection {
    task: AbortHandle,
    pending: Arc<Pending>,
    /// Kept so that the writer never believes that it is to finish.
    _finish: oneshot::Sender<()>,
}

impl Connection {
    pub(crate) fn start(
        reading: OwnedReadHalf,
        writing: OwnedWriteHalf,
        writer: Writer,
        outgoing: Outgoing,
        pending: Arc<Pending>,
        cancels: mpsc::UnboundedReceiver<u64>,
    ) -> Self {
        let (finish, finished) = oneshot::channel();
        let task = {
            let pending = pending.clone();
            tokio::spawn(async move {
                let reader = FrameReader::new(reading, TO_CLIENT, Patience::Endless);
                let sending = async {
                    tokio::join!(writer.run(writing, finished, Patience::Endless), cancel(outgoing, cancels))
                };
                let reason = tokio::select! {
                    reason = read(reader, &pending) => reason,
                    // Writing fails before reading does. What the daemon said last is still to be read.
                    never = endless(sending) => match never {},
                };
                pending.close(reason);
            })
        };
        Self { task: task.abort_handle(), pending, _finish: finish }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
        self.pending.close(self.pending.unavailable("the client has closed the connection"));
    }
}

async fn endless<T>(work: impl Future<Output = T>) -> std::convert::Infallible {
    work.await;
    std::future::pending().await
}

async fn cancel(outgoing: Outgoing, mut cancels: mpsc::UnboundedReceiver<u64>) {
    while let Some(request) = cancels.recv().await {
        let frame = ClientMessage::Frame(ClientFrame { request, body: ClientBody::Cancel });
        let Ok(frame) = frame.seal() else { continue };
        if outgoing.send(frame).await.is_err() {
            return;
        }
    }
}

/// Reads until the connection ends; the result is the reason.
async fn read(mut reader: FrameReader<OwnedReadHalf>, pending: &Pending) -> Error {
    loop {
        let received = match reader.next::<ServerMessage>().await {
            Ok(Some(received)) => received,
            Ok(None) => {
                return pending
                    .unavailable("it closed the connection; what was asked for may have been done");
            }
            Err(error) => return pending.unavailable(&unreadable(&error)),
        };
        let taken = match received.message {
            // The daemon's word about the connection itself.
            ServerMessage::Frame(ServerFrame { request: 0, body: ServerBody::Reply(Err(error)) }) => {
                return error;
            }
            ServerMessage::Frame(frame) => pending.take(frame, More::None, received.length),
            ServerMessage::Part(frame) => pending.take(frame, More::Follows, received.length),
            ServerMessage::Credit(credit) => pending.credit(credit),
        };
        if let Err(Nonsense(what)) = taken {
            return pending.unavailable(&format!("it sent {what}; the connection was closed"));
        }
    }
}

fn unreadable(error: &ReadError) -> String {
    match error {
        ReadError::Malformed { source: CodecError::Version { found, .. }, .. } => format!(
            "it speaks version {found} of the admin protocol and this client version {PROTOCOL_VERSION}; use \
             the client of the daemon's release"
        ),
        error => chain(error),
    }
}
