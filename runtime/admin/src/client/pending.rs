//! What the client waits for: each open request, and who gets what comes for it.
//!
//! Invariants:
//! 1. every request that was sent is in the table until its final frame has come;
//! 2. a request whose caller has left stays in it as abandoned, so that its id is not used again too early;
//! 3. once the table is closed nothing is open, and the reason stays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_messages::admin::{End, Item, Response, ServerBody, ServerFrame};
use mainstay_messages::{Error, Result};
use tokio::sync::{mpsc, oneshot};

use super::ANSWER_LENGTH_MAX;
use crate::answer::{More, join};
use crate::flow::{Farewell, Feed, Intake, Lane, intake};
use crate::outgoing::Outgoing;
use crate::wire::Credit;

/// The open requests of a connection.
pub(crate) struct Pending {
    open: Mutex<Open>,
    /// Requests to cancel; each at most once.
    cancels: mpsc::UnboundedSender<u64>,
    /// The daemon, as errors name it.
    daemon: String,
}

struct Open {
    entries: HashMap<u64, Entry>,
    last: u64,
    closed: Option<Error>,
}

enum Entry {
    Call {
        answer: oneshot::Sender<Result<Response>>,
        so_far: Option<Response>,
        length: usize,
    },
    Stream {
        feed: Feed<Item>,
        lane: Arc<Lane>,
        end: oneshot::Sender<Result<End>>,
    },
    /// Nobody waits for it any more.
    Abandoned,
}

/// A caller's interest in a request; dropped before the final frame has come, it cancels.
pub(crate) struct Claim {
    request: u64,
    pending: Arc<Pending>,
    sent: Sent,
}

/// Whether the daemon knows of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    No,
    Yes,
}

/// What a stream's owner gets.
pub(crate) struct OpenStream {
    pub claim: Claim,
    pub items: Intake<Item>,
    pub lane: Arc<Lane>,
    pub end: oneshot::Receiver<Result<End>>,
}

/// What the daemon sent makes no sense; the connection is closed.
#[derive(Debug)]
pub(crate) struct Nonsense(pub(crate) &'static str);

impl Pending {
    pub(crate) fn new(daemon: String) -> (Arc<Self>, mpsc::UnboundedReceiver<u64>) {
        let (cancels, to_cancel) = mpsc::unbounded_channel();
        let open = Open { entries: HashMap::new(), last: 0, closed: None };
        (Arc::new(Self { open: Mutex::new(open), cancels, daemon }), to_cancel)
    }

    /// Opens a call.
    pub(crate) fn call(self: &Arc<Self>) -> Result<(Claim, oneshot::Receiver<Result<Response>>)> {
        let (answer, answered) = oneshot::channel();
        let claim = self.insert(Entry::Call { answer, so_far: None, length: 0 })?;
        Ok((claim, answered))
    }

    /// Opens a stream.
    pub(crate) fn stream(self: &Arc<Self>, outgoing: Outgoing) -> Result<OpenStream> {
        let (feed, items) = intake();
        let (end, ended) = oneshot::channel();
        let lane = Arc::new(Lane::new(outgoing));
        let claim = self.insert(Entry::Stream { feed, lane: lane.clone(), end })?;
        Ok(OpenStream { claim, items, lane, end: ended })
    }

    fn insert(self: &Arc<Self>, entry: Entry) -> Result<Claim> {
        let mut open = self.lock();
        if let Some(reason) = &open.closed {
            return Err(reason.clone());
        }
        // At a million requests a second, 64 bits last for half a million years.
        open.last += 1;
        let request = open.last;
        open.entries.insert(request, entry);
        Ok(Claim { request, pending: self.clone(), sent: Sent::No })
    }

    /// Hands an answer, item or end to whoever waits for it.
    pub(crate) fn take(&self, frame: ServerFrame, more: More, length: usize) -> Result<(), Nonsense> {
        let ServerFrame { request, body } = frame;
        let mut open = self.lock();
        match (body, more) {
            (ServerBody::Item(item), More::None) => match open.entries.get(&request) {
                Some(Entry::Stream { feed, .. }) => {
                    feed.push(item, length).map_err(|_| Nonsense("items beyond their credit"))
                }
                Some(Entry::Abandoned) => Ok(()),
                _ => Err(Nonsense("an item for no stream")),
            },
            (ServerBody::Reply(Ok(part)), More::Follows) => match open.entries.get_mut(&request) {
                Some(entry) => entry.put_together(part, length),
                None => Err(Nonsense("a part of an answer to nothing")),
            },
            (ServerBody::Reply(outcome), More::None) => match open.entries.remove(&request) {
                Some(entry) => entry.reply(outcome, length),
                None => Err(Nonsense("an answer to nothing")),
            },
            (ServerBody::End(end), More::None) => match open.entries.remove(&request) {
                Some(entry) => entry.end(end),
                None => Err(Nonsense("the end of nothing")),
            },
            (_, More::Follows) => Err(Nonsense("a part of something that has no parts")),
        }
    }

    /// Hands credit to its stream.
    pub(crate) fn credit(&self, credit: Credit) -> Result<(), Nonsense> {
        match self.lock().entries.get(&credit.request) {
            Some(Entry::Stream { lane, .. }) => {
                lane.grant(credit.bytes).map_err(|_| Nonsense("credit beyond the window"))
            }
            _ => Ok(()),
        }
    }

    /// Ends all that is open; the first reason stays.
    pub(crate) fn close(&self, reason: Error) {
        let mut open = self.lock();
        let reason = open.closed.get_or_insert(reason).clone();
        for (_, entry) in open.entries.drain() {
            entry.fail(reason.clone());
        }
    }

    /// An error about this daemon.
    pub(crate) fn unavailable(&self, reason: &str) -> Error {
        Error::unavailable(self.daemon.as_str(), reason)
    }

    /// Why the connection has ended.
    pub(crate) fn reason(&self) -> Error {
        self.lock().closed.clone().unwrap_or_else(|| self.unavailable("the connection is being closed"))
    }

    fn abandon(&self, request: u64, sent: Sent) {
        let mut open = self.lock();
        match (open.entries.get_mut(&request), sent) {
            (None, _) => {}
            (Some(_), Sent::No) => drop(open.entries.remove(&request)),
            (Some(entry), Sent::Yes) => {
                *entry = Entry::Abandoned;
                // Without a connection there is nothing to cancel.
                let _ = self.cancels.send(request);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Nothing under the lock panics halfway through a change.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// A part of an answer of which more follows.
    fn put_together(&mut self, part: Response, part_length: usize) -> Result<(), Nonsense> {
        let Self::Call { so_far, length, .. } = self else {
            return match self {
                Self::Abandoned => Ok(()),
                _ => Err(Nonsense("a part of an answer for a stream")),
            };
        };
        *length += part_length;
        if *length > ANSWER_LENGTH_MAX {
            let error = Error::ResourceExhausted {
                what: "bytes of one answer of the daemon".to_owned(),
                limit: ANSWER_LENGTH_MAX as u64,
            };
            // What follows is read and thrown away, and the connection stays.
            std::mem::replace(self, Self::Abandoned).fail(error);
            return Ok(());
        }
        match so_far {
            Some(so_far) => join(so_far, part).map_err(|_| Nonsense("parts that do not fit together")),
            None => {
                *so_far = Some(part);
                Ok(())
            }
        }
    }

    /// An answer or its last part.
    fn reply(mut self, outcome: Result<Response>, length: usize) -> Result<(), Nonsense> {
        match outcome {
            Err(error) => self.fail(error),
            Ok(part) => {
                self.put_together(part, length)?;
                if let Self::Call { answer, so_far: Some(whole), .. } = self {
                    // A caller that has left needs no answer.
                    drop(answer.send(Ok(whole)));
                }
            }
        }
        Ok(())
    }

    fn end(self, outcome: Result<End>) -> Result<(), Nonsense> {
        match self {
            Self::Stream { lane, end, .. } => {
                lane.close(Farewell::Finished);
                // As above.
                drop(end.send(outcome));
                Ok(())
            }
            Self::Abandoned => Ok(()),
            Self::Call { .. } => Err(Nonsense("the end of a stream for a call")),
        }
    }

    fn fail(self, error: Error) {
        match self {
            Self::Call { answer, .. } => drop(answer.send(Err(error))),
            Self::Stream { lane, end, .. } => {
                lane.close(Farewell::Left);
                drop(end.send(Err(error)));
            }
            Self::Abandoned => {}
        }
    }
}

impl Claim {
    /// Its id on the wire.
    pub(crate) fn request(&self) -> u64 {
        self.request
    }

    /// Notes that the daemon is told of it.
    pub(crate) fn sent(&mut self) {
        self.sent = Sent::Yes;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.pending.abandon(self.request, self.sent);
    }
}
