//! The port: what the daemon can do, as the admin server needs it.

use std::sync::Arc;

use async_trait::async_trait;
use mainstay_messages::admin::{End, Input, Item, Request, Response, ServerBody, ServerFrame, StreamRequest};
use mainstay_messages::{Error, Result};
use tokio::sync::oneshot;

use crate::flow::{Farewell, Intake, Lane};
use crate::outgoing::Outgoing;
use crate::wire::{Credit, ServerMessage};

/// What the daemon can do.
///
/// A panic in one of these is answered with [`Error::Internal`]. How long they may take is their own business.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Answers one request. When the client leaves, futures of requests that only ask (lists, inspect, wait,
    /// stats, explain, version) are dropped; those of requests that change something are run to their end.
    async fn call(&self, request: Request) -> Result<Response>;

    /// Serves one stream until it ends. `input` yields what the client sends; `items` takes what it gets, and
    /// awaits while the client is slow.
    ///
    /// When the client leaves, [`ItemSink::closed`] resolves, sending fails and `input` ends. A stream that
    /// only reads is then given a short time to return before it is dropped. An exec is an operation: it is
    /// never dropped, and must go on (reading the output and throwing it away) until its process has ended.
    async fn open(&self, request: StreamRequest, input: InputStream, items: ItemSink) -> Result<End>;
}

/// What the client of a stream sends. When a backend drops it before the stream has ended, what comes is
/// thrown away.
pub struct InputStream {
    source: Option<InputSource>,
    /// Where the source goes when the backend wants no more.
    unwanted: Option<oneshot::Sender<InputSource>>,
}

/// Input of one stream, and the credit for it.
pub(crate) struct InputSource {
    request: u64,
    intake: Intake<Input>,
    outgoing: Outgoing,
}

/// Where the items of a stream go. Clones share the stream.
#[derive(Clone)]
pub struct ItemSink {
    request: u64,
    lane: Arc<Lane>,
}

impl InputStream {
    /// The stream, and where its source turns up when the backend drops it.
    pub(crate) fn new(
        request: u64,
        intake: Intake<Input>,
        outgoing: Outgoing,
    ) -> (Self, oneshot::Receiver<InputSource>) {
        let (unwanted, dropped) = oneshot::channel();
        let source = InputSource { request, intake, outgoing };
        (Self { source: Some(source), unwanted: Some(unwanted) }, dropped)
    }

    /// The next input; none when the client has left or the stream has ended. Dropping this future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<Input> {
        self.source.as_mut()?.next().await
    }
}

impl Drop for InputStream {
    fn drop(&mut self) {
        if let (Some(source), Some(unwanted)) = (self.source.take(), self.unwanted.take()) {
            // Nobody waits for it when the stream is over.
            let _ = unwanted.send(source);
        }
    }
}

impl InputSource {
    /// Gives back the credit that is owed, then takes the next input.
    pub(crate) async fn next(&mut self) -> Option<Input> {
        if let Some(bytes) = self.intake.owed() {
            let frame = Credit { request: self.request, bytes }.to_client();
            if let Ok(room) = self.outgoing.room(frame.len()).await {
                self.intake.settle();
                room.push(frame);
            }
        }
        self.intake.take().await
    }
}

impl ItemSink {
    pub(crate) fn new(request: u64, lane: Arc<Lane>) -> Self {
        Self { request, lane }
    }

    /// Sends an item, waiting while the client is slow. Dropping this future sends nothing.
    ///
    /// Fails with [`Error::Unavailable`] when the client has left or the stream has ended, and with
    /// [`Error::ResourceExhausted`] when the item is larger than a frame; the stream then goes on.
    pub async fn send(&self, item: Item) -> Result<()> {
        let frame = ServerFrame { request: self.request, body: ServerBody::Item(item) };
        let frame = ServerMessage::Frame(frame).seal("an item of a stream")?;
        self.lane.send(frame).await.map_err(departed)
    }

    /// Waits until nobody takes items any more.
    pub async fn closed(&self) {
        self.lane.closed().await;
    }
}

/// The error for somebody who sends to a stream that is over.
pub(crate) fn departed(farewell: Farewell) -> Error {
    Error::unavailable(
        "the stream",
        match farewell {
            Farewell::Finished => "it has ended",
            Farewell::Cancelled => "the client cancelled it",
            Farewell::Left => "its connection is closed",
            Farewell::ShuttingDown => "the daemon is shutting down",
        },
    )
}
