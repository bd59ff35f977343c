//! `GetContainerEvents`: what happens to pods and containers, from the journal, in order and once each.
//!
//! ```text
//!  journal ─► relay (a task: what it means, with statuses) ─► queue ─► Feed ─► the client
//!                                                                      │ how far it has come
//!                                                                      ▼
//!                                                              Book, by client
//! ```
//!
//! The interface has no cursor, so it is kept here: a client that comes back within `events_resume_ms` goes on where its last stream
//! ended. A client is a program of a user: kubelet that was started again is the same one. One that is not known gets what happens from
//! now on, or, soon after the daemon has started, what has happened since: exits that were found then among it.
//!
//! A client that does not read for [`EVENT_STALL_MS`] is cut off, with an error that it reads when it reads again. Nobody waits for it:
//! what happens is written to the journal, and each relay reads there for itself.
//!
//! Owns: the streams. Which events there are is in `telling`, who has come how far in `book`.

mod book;
mod telling;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::{Stream, StreamExt};
use mainstay::{Error, EventOptions, EventStream, Follow, Journaled, Seq};
use mainstay_cri_api::{ContainerEventResponse, GetEventsRequest};
use tokio::sync::mpsc;

use crate::failure::{Failure, Result};
use crate::limits::{EVENT_STALL_MS, EVENTS_QUEUED_MAX};
use crate::node::Node;
use crate::service::Answers;
use book::Track;
pub(crate) use book::{Book, Client};
use telling::Telling;

/// A message, and how far the client has come once it has it.
type Queued = (Seq, ContainerEventResponse);

/// `GetContainerEvents`
pub(crate) async fn events(
    node: Arc<Node>,
    client: Client,
    _request: GetEventsRequest,
) -> Result<Answers<ContainerEventResponse>> {
    let resume = Duration::from_millis(node.settings().events_resume_ms);
    let (last, began) = (node.runtime.last_event(), node.runtime.began_after());
    let (after, track) = node.events.open(&client, resume, last, began);
    let stream = node.runtime.events(EventOptions { after, follow: Follow::Yes, subject: None });
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUED_MAX);
    let end = Arc::new(Mutex::new(None));
    let relay = Relay { telling: Telling::new(Arc::clone(&node), &track), sender, end: Arc::clone(&end) };
    tokio::spawn(relay.run(stream));
    Ok(Feed { receiver, end, track, client, node }.boxed())
}

/// Reads the journal for one client.
struct Relay {
    telling: Telling,
    sender: mpsc::Sender<Queued>,
    end: Arc<Mutex<Option<Failure>>>,
}

impl Relay {
    async fn run(mut self, mut journal: EventStream) {
        if let Err(failure) = self.relay(&mut journal).await {
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        }
    }

    /// Until the client has left, or something is to be said to it in place of an event.
    async fn relay(&mut self, journal: &mut EventStream) -> Result<()> {
        loop {
            let item = tokio::select! {
                item = journal.next() => item?,
                () = self.sender.closed() => return Ok(()),
            };
            match item {
                None => return Ok(()),
                Some(Journaled::Lagged { from, to }) => {
                    return Err(Error::unavailable(
                        "the stream of events",
                        format!("entries {from} to {to} of the journal are not kept any more; list again"),
                    )
                    .into());
                }
                Some(Journaled::Event(event)) => {
                    let messages = self.telling.messages(&event).await;
                    let mut left = messages.len();
                    for message in messages {
                        left -= 1;
                        let position = if left == 0 { event.seq } else { Seq(event.seq.0.saturating_sub(1)) };
                        if !offer(&self.sender, (position, message)).await? {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }
}

/// Waits for room, but not for ever. The answer is whether the client is still there.
async fn offer<T>(sender: &mpsc::Sender<T>, message: T) -> Result<bool> {
    match tokio::time::timeout(Duration::from_millis(EVENT_STALL_MS), sender.send(message)).await {
        Ok(sent) => Ok(sent.is_ok()),
        Err(_) => {
            tracing::warn!("a client that does not read its events is cut off");
            let what = "the reading of events by their client".to_owned();
            Err(Error::DeadlineExceeded { what, after_ms: EVENT_STALL_MS }.into())
        }
    }
}

/// What the client reads.
struct Feed {
    receiver: mpsc::Receiver<Queued>,
    end: Arc<Mutex<Option<Failure>>>,
    track: Arc<Track>,
    client: Client,
    node: Arc<Node>,
}

impl Stream for Feed {
    type Item = Result<ContainerEventResponse>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match ready!(self.receiver.poll_recv(context)) {
            Some((position, message)) => {
                self.track.has(position);
                Poll::Ready(Some(Ok(message)))
            }
            None => {
                let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
                Poll::Ready(end.map(Err))
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.node.events.left(&self.client, &self.track);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In containerd one who does not read holds up every operation once 100 events wait for it.
    #[tokio::test(start_paused = true)]
    async fn one_who_does_not_read_is_cut_off_and_one_who_has_left_is_not_waited_for() {
        let (sender, mut receiver) = mpsc::channel(1);
        assert!(offer(&sender, 1).await.expect("there is room"));
        let failure = offer(&sender, 2).await.expect_err("nobody reads");
        assert!(failure.to_string().contains("reading of events"), "{failure}");
        assert_eq!(receiver.recv().await, Some(1), "what was offered before is there to be read");
        drop(receiver);
        assert!(!offer(&sender, 3).await.expect("it has left"));
    }
}
