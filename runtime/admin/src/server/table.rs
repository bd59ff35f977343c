//! The open requests of one connection: who may open another one, whom input, credit and cancellation are
//! for, and when all are done.
//!
//! Invariants:
//! 1. an id is in the table from the moment its frame was read until its final frame is queued;
//! 2. every entry has a [`Ticket`], whose `Drop` takes it out, panics included;
//! 3. once the table is dismissed nothing is admitted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_messages::Error;
use mainstay_messages::admin::Input;
use thiserror::Error as ThisError;
use tokio::sync::{oneshot, watch};

use crate::flow::{Farewell, Feed, Lane};
use crate::limits::Limits;
use crate::wire::Credit;

/// What becomes of a request when its client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It changes something: it goes on.
    Operation,
    /// It only asks: it is dropped.
    Question,
}

/// A client that does not keep to the protocol; its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
pub(crate) enum Violation {
    #[error("request 0, which is the daemon's own")]
    RequestZero,
    #[error("request {request}, which is still open")]
    RequestInUse { request: u64 },
    #[error("input for stream {request} beyond its credit")]
    InputOverrun { request: u64 },
    #[error("credit for stream {request} beyond the window")]
    CreditOverrun { request: u64 },
    #[error("input of {length} bytes in one frame for stream {request}")]
    InputTooLarge { request: u64, length: usize },
}

/// Why a request is not admitted.
#[derive(Debug)]
pub(crate) enum Denial {
    /// The connection is to be closed.
    Violation(Violation),
    /// The request is to be answered with this.
    Refused(Error),
}

/// The open requests of one connection.
pub(crate) struct Table {
    open: Mutex<Open>,
    limits: Limits,
    /// How many entries there are.
    count: watch::Sender<usize>,
}

struct Open {
    entries: HashMap<u64, Entry>,
    streams: usize,
    dismissed: Option<Farewell>,
}

enum Entry {
    Call {
        /// Present until it is let go; operations have none.
        stop: Option<oneshot::Sender<Farewell>>,
    },
    Stream {
        lane: Arc<Lane>,
        /// Present until the client has left.
        feed: Option<Feed<Input>>,
    },
}

/// The right to answer a request, and the duty to take it out of the table.
pub(crate) struct Ticket {
    pub(crate) request: u64,
    /// Until it is settled.
    table: Option<Arc<Table>>,
    stop: Option<oneshot::Receiver<Farewell>>,
}

impl Table {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let open = Open { entries: HashMap::new(), streams: 0, dismissed: None };
        Arc::new(Self { open: Mutex::new(open), limits, count: watch::channel(0).0 })
    }

    pub(crate) fn admit_call(self: &Arc<Self>, request: u64, kind: Kind) -> Result<Ticket, Denial> {
        let (stop, stopped) = match kind {
            Kind::Operation => (None, None),
            Kind::Question => {
                let (stop, stopped) = oneshot::channel();
                (Some(stop), Some(stopped))
            }
        };
        self.insert(request, Entry::Call { stop })?;
        Ok(Ticket { request, table: Some(self.clone()), stop: stopped })
    }

    pub(crate) fn admit_stream(
        self: &Arc<Self>,
        request: u64,
        lane: Arc<Lane>,
        feed: Feed<Input>,
    ) -> Result<Ticket, Denial> {
        self.insert(request, Entry::Stream { lane, feed: Some(feed) })?;
        Ok(Ticket { request, table: Some(self.clone()), stop: None })
    }

    fn insert(&self, request: u64, entry: Entry) -> Result<(), Denial> {
        let mut open = self.lock();
        if request == 0 {
            return Err(Denial::Violation(Violation::RequestZero));
        }
        if open.entries.contains_key(&request) {
            return Err(Denial::Violation(Violation::RequestInUse { request }));
        }
        if let Some(farewell) = open.dismissed {
            return Err(Denial::Refused(let_go(farewell)));
        }
        if open.entries.len() >= self.limits.requests_in_flight_max {
            return Err(full(
                "requests in flight on one admin connection",
                self.limits.requests_in_flight_max,
            ));
        }
        if let Entry::Stream { .. } = entry {
            if open.streams >= self.limits.streams_max {
                return Err(full("open streams of one admin connection", self.limits.streams_max));
            }
            open.streams += 1;
        }
        open.entries.insert(request, entry);
        self.count.send_replace(open.entries.len());
        Ok(())
    }

    /// Hands input to its stream. A stream that is not open has just ended: its input is of no use.
    pub(crate) fn input(&self, request: u64, input: Input, length: usize) -> Result<(), Violation> {
        match self.lock().entries.get(&request) {
            Some(Entry::Stream { feed: Some(feed), .. }) => {
                feed.push(input, length).map_err(|_| Violation::InputOverrun { request })
            }
            _ => Ok(()),
        }
    }

    /// Hands credit to its stream.
    pub(crate) fn credit(&self, credit: Credit) -> Result<(), Violation> {
        match self.lock().entries.get(&credit.request) {
            Some(Entry::Stream { lane, .. }) => {
                let request = credit.request;
                lane.grant(credit.bytes).map_err(|_| Violation::CreditOverrun { request })
            }
            _ => Ok(()),
        }
    }

    /// The client no longer wants a request.
    pub(crate) fn cancel(&self, request: u64) {
        if let Some(entry) = self.lock().entries.get_mut(&request) {
            entry.let_go(Farewell::Cancelled);
        }
    }

    /// Lets everything go, and admits nothing more.
    pub(crate) fn dismiss(&self, farewell: Farewell) {
        let mut open = self.lock();
        open.dismissed.get_or_insert(farewell);
        for entry in open.entries.values_mut() {
            entry.let_go(farewell);
        }
    }

    /// Waits until every request has its final frame in the queue.
    pub(crate) async fn drained(&self) {
        // The sender is part of `self`: waiting cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    fn remove(&self, request: u64, before: impl FnOnce()) {
        let mut open = self.lock();
        before();
        if let Some(Entry::Stream { .. }) = open.entries.remove(&request) {
            open.streams -= 1;
        }
        self.count.send_replace(open.entries.len());
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Nothing under the lock panics halfway through a change.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn let_go(&mut self, farewell: Farewell) {
        match self {
            Self::Call { stop } => {
                if let Some(stop) = stop.take() {
                    // Its task may have just got its answer.
                    let _ = stop.send(farewell);
                }
            }
            Self::Stream { lane, feed } => {
                lane.close(farewell);
                *feed = None;
            }
        }
    }
}

impl Ticket {
    /// Waits until a question is let go; for ever for an operation.
    pub(crate) async fn let_go(&mut self) -> Farewell {
        match &mut self.stop {
            Some(stop) => stop.await.unwrap_or(Farewell::Left),
            None => std::future::pending().await,
        }
    }

    /// Queues the final frame and takes the request out of the table, in one step: neither a client that uses
    /// the id again at once nor somebody who waits for the table to drain sees anything between.
    pub(crate) fn settle(mut self, push: impl FnOnce()) {
        if let Some(table) = self.table.take() {
            table.remove(self.request, push);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(table) = self.table.take() {
            table.remove(self.request, || ());
        }
    }
}

/// The error for a request that is let go.
pub(crate) fn let_go(farewell: Farewell) -> Error {
    Error::unavailable(
        "the answer",
        match farewell {
            Farewell::ShuttingDown => "the daemon is shutting down",
            Farewell::Cancelled | Farewell::Finished => "the client cancelled the request",
            Farewell::Left => "the connection is closed",
        },
    )
}

fn full(what: &str, limit: usize) -> Denial {
    Denial::Refused(Error::ResourceExhausted { what: what.to_owned(), limit: limit as u64 })
}
