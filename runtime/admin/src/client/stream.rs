//! A stream at the client: items to take, input to give, and the end.

use std::sync::Arc;

use mainstay_messages::Result;
use mainstay_messages::admin::{ClientBody, ClientFrame, End, Input, Item, OUTPUT_CHUNK_MAX, StreamRequest};
use tokio::sync::oneshot;

use super::Shared;
use super::pending::{Claim, OpenStream};
use crate::backend::departed;
use crate::flow::{Intake, Lane};
use crate::wire::{ClientMessage, Credit};

/// An open stream. Dropped before its end, it is cancelled: the daemon sends no more, an exec goes on.
pub struct StreamHandle {
    // Before `shared`, so that the cancellation is on its way when the connection is closed.
    claim: Claim,
    items: Intake<Item>,
    end: oneshot::Receiver<Result<End>>,
    input: InputSender,
    shared: Arc<Shared>,
}

/// Where the input of a stream goes. Clones share the stream; they do not keep it open.
#[derive(Clone)]
pub struct InputSender {
    request: u64,
    lane: Arc<Lane>,
}

impl StreamHandle {
    pub(super) async fn open(shared: Arc<Shared>, request: StreamRequest) -> Result<Self> {
        let OpenStream { mut claim, items, lane, end } = shared.pending.stream(shared.outgoing.clone())?;
        let id = claim.request();
        let frame =
            ClientMessage::Frame(ClientFrame { request: id, body: ClientBody::Open(request) }).seal()?;
        if let Ok(room) = shared.outgoing.room(frame.len()).await {
            room.push(frame);
            claim.sent();
        }
        // When there was no room, the connection has ended, and so does the stream.
        Ok(Self { claim, items, end, input: InputSender { request: id, lane }, shared })
    }

    /// The next item; none when the stream has ended, and then [`StreamHandle::end`] says how. Dropping this
    /// future loses nothing. A consumer that takes none for long holds up this stream alone.
    pub async fn next(&mut self) -> Option<Item> {
        if let Some(bytes) = self.items.owed() {
            let frame = Credit { request: self.claim.request(), bytes }.to_daemon();
            if let Ok(room) = self.shared.outgoing.room(frame.len()).await {
                self.items.settle();
                room.push(frame);
            }
        }
        self.items.take().await
    }

    /// Waits for the end; items that were not taken are thrown away.
    pub async fn end(mut self) -> Result<End> {
        while self.next().await.is_some() {}
        match (&mut self.end).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.shared.pending.reason()),
        }
    }

    /// Sends input; see [`InputSender::send`].
    pub async fn input(&self, input: Input) -> Result<()> {
        self.input.send(input).await
    }

    /// Where the input goes, for somebody else to send it.
    pub fn input_sender(&self) -> InputSender {
        self.input.clone()
    }
}

impl InputSender {
    /// Sends input, waiting while the daemon is slow to take it. Bytes are sent in chunks; when this future is
    /// dropped, some of them may have been sent.
    ///
    /// Fails with [`mainstay_messages::Error::Unavailable`] when the stream has ended.
    pub async fn send(&self, input: Input) -> Result<()> {
        match input {
            Input::Stdin(bytes) => {
                for chunk in bytes.chunks(OUTPUT_CHUNK_MAX) {
                    self.send_one(Input::Stdin(chunk.to_vec())).await?;
                }
                Ok(())
            }
            other => self.send_one(other).await,
        }
    }

    async fn send_one(&self, input: Input) -> Result<()> {
        let frame = ClientFrame { request: self.request, body: ClientBody::Input(input) };
        self.lane.send(ClientMessage::Frame(frame).seal()?).await.map_err(departed)
    }
}

impl std::fmt::Debug for StreamHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamHandle").field("request", &self.claim.request()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for InputSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InputSender").field("request", &self.request).finish_non_exhaustive()
    }
}
