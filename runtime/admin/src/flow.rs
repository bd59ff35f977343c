//! Flow control of one direction of one stream, so that a slow stream never holds up its connection.
//!
//! The sender has a balance, at first [`STREAM_WINDOW`]. It may send while the balance is above zero; a
//! frame takes its body's length off it. The receiver gives back what its consumer has taken, in steps.
//!
//! Invariants:
//! 1. the balance is never above the window;
//! 2. what the receiver holds is at most the window and one frame;
//! 3. after [`Lane::close`] has returned nothing more is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mainstay_messages::codec::HEADER_LENGTH;
use tokio::sync::{Mutex, mpsc, watch};

use crate::outgoing::Outgoing;
use crate::wire::STREAM_WINDOW;

/// Credit is given in steps of at least so many bytes: a frame for each item would cost more than the item.
const CREDIT_STEP: usize = STREAM_WINDOW / 4;

/// Why nothing more is sent on a stream, or why a request was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// It has ended.
    Finished,
    /// The client cancelled it.
    Cancelled,
    /// The connection is gone.
    Left,
    /// The server shuts down.
    ShuttingDown,
}

/// The other side broke the rules of flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// The sending side.
pub(crate) struct Lane {
    state: watch::Sender<LaneState>,
    /// Held by whoever sends, so that frames keep their order and each sees the balance after the last.
    turn: Mutex<()>,
    outgoing: Outgoing,
}

#[derive(Clone, Copy, Debug)]
enum LaneState {
    Open { balance: i64 },
    Closed(Farewell),
}

/// The receiving side, where the connection puts in what came.
pub(crate) struct Feed<T> {
    queue: mpsc::UnboundedSender<(T, usize)>,
    held: Arc<AtomicUsize>,
}

/// The receiving side, where the consumer takes out.
pub(crate) struct Intake<T> {
    queue: mpsc::UnboundedReceiver<(T, usize)>,
    /// Bytes that came and were not given back as credit.
    held: Arc<AtomicUsize>,
    /// Those of them that the consumer has taken.
    taken: usize,
}

/// The receiving side of a stream.
pub(crate) fn intake<T>() -> (Feed<T>, Intake<T>) {
    // The channel itself has no bound: `held` is checked before anything goes in.
    let (sender, receiver) = mpsc::unbounded_channel();
    let held = Arc::new(AtomicUsize::new(0));
    (Feed { queue: sender, held: held.clone() }, Intake { queue: receiver, held, taken: 0 })
}

impl Lane {
    pub(crate) fn new(outgoing: Outgoing) -> Self {
        let (state, _) = watch::channel(LaneState::Open { balance: STREAM_WINDOW as i64 });
        Self { state, turn: Mutex::new(()), outgoing }
    }

    /// Sends a sealed frame when there is credit and room for it. A caller that drops this future has sent
    /// nothing.
    pub(crate) async fn send(&self, frame: Vec<u8>) -> Result<(), Farewell> {
        let _turn = self.turn.lock().await;
        self.credited().await?;
        let room = self.outgoing.room(frame.len()).await.map_err(|_| Farewell::Left)?;
        let length = (frame.len() - HEADER_LENGTH) as i64;
        let mut outcome = Ok(());
        // Pushing while the state is locked is what makes `close` final.
        self.state.send_if_modified(|state| match state {
            LaneState::Open { balance } => {
                *balance -= length;
                room.push(frame);
                true
            }
            LaneState::Closed(farewell) => {
                outcome = Err(*farewell);
                false
            }
        });
        outcome
    }

    async fn credited(&self) -> Result<(), Farewell> {
        let mut state = self.state.subscribe();
        let waited = state.wait_for(|s| !matches!(s, LaneState::Open { balance } if *balance <= 0)).await;
        match waited.as_deref() {
            Ok(LaneState::Open { .. }) => Ok(()),
            Ok(LaneState::Closed(farewell)) => Err(*farewell),
            // The sender is part of `self`; it outlives this borrow.
            Err(_) => Err(Farewell::Finished),
        }
    }

    /// Takes credit from the other side.
    pub(crate) fn grant(&self, bytes: u32) -> Result<(), Overrun> {
        let mut outcome = Ok(());
        self.state.send_if_modified(|state| match state {
            LaneState::Open { balance } if *balance + i64::from(bytes) > STREAM_WINDOW as i64 => {
                outcome = Err(Overrun);
                false
            }
            LaneState::Open { balance } => {
                *balance += i64::from(bytes);
                true
            }
            LaneState::Closed(_) => false,
        });
        outcome
    }

    /// Ends the lane; the first reason stays.
    pub(crate) fn close(&self, farewell: Farewell) {
        self.state.send_if_modified(|state| match state {
            LaneState::Open { .. } => {
                *state = LaneState::Closed(farewell);
                true
            }
            LaneState::Closed(_) => false,
        });
    }

    /// Waits until the lane is closed.
    pub(crate) async fn closed(&self) -> Farewell {
        let mut state = self.state.subscribe();
        match state.wait_for(|s| matches!(s, LaneState::Closed(_))).await.as_deref() {
            Ok(LaneState::Closed(farewell)) => *farewell,
            _ => Farewell::Finished,
        }
    }
}

impl<T> Feed<T> {
    /// Puts in what came in a body of `length` bytes.
    pub(crate) fn push(&self, item: T, length: usize) -> Result<(), Overrun> {
        if self.held.load(Ordering::Acquire) >= STREAM_WINDOW {
            return Err(Overrun);
        }
        self.held.fetch_add(length, Ordering::AcqRel);
        // When the consumer is gone, the stream is over and its end is on the way.
        let _ = self.queue.send((item, length));
        Ok(())
    }
}

impl<T> Intake<T> {
    /// What is to be given back before the next item is taken; [`Intake::settle`] it first, then send it.
    pub(crate) fn owed(&self) -> Option<u32> {
        // At most the window and one frame: it fits.
        (self.taken >= CREDIT_STEP).then_some(self.taken as u32)
    }

    /// Notes that what was owed is being given back.
    pub(crate) fn settle(&mut self) {
        self.held.fetch_sub(self.taken, Ordering::AcqRel);
        self.taken = 0;
    }

    /// The next item; none when the stream has ended. A caller may drop this future and ask again.
    pub(crate) async fn take(&mut self) -> Option<T> {
        let (item, length) = self.queue.recv().await?;
        self.taken += length;
        Some(item)
    }
}

#[cfg(test)]
mod tests;
