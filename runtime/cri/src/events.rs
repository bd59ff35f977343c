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
//! ended. A client is a program of a user: kubelet that was started again is the same one. What waits in the queue it does not have
//! yet: with each message that it takes, its place in the book moves. One that is not known gets what happens from now on, or, soon
//! after the daemon has started, what has happened since: exits that were found then among it.
//!
//! A client that does not read for [`EVENT_STALL_MS`] is cut off, with an error that it reads when it reads again. Nobody waits for it:
//! what happens is written to the journal, and each relay reads there for itself.
//!
//! Owns: the streams. Which events there are is in `telling`, who has come how far in `book`, and what of that outlives the daemon in
//! `keeping`.

mod book;
mod keeping;
mod telling;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::{Stream, StreamExt};
use mainstay::{Error, EventOptions, EventStream, Follow, Journaled, Runtime, Seq};
use mainstay_cri_api::{ContainerEventResponse, GetEventsRequest};
use tokio::sync::mpsc;

use crate::failure::{Failure, Result};
use crate::limits::{EVENT_STALL_MS, EVENTS_QUEUED_MAX};
use crate::node::Node;
use crate::service::Answers;
pub(crate) use book::{Book, Client};
use book::{Change, Track};
pub(crate) use keeping::{keep, keep_now};
use telling::{Telling, Told};

/// A message, how far the client has come once it has it, and what it knows then.
type Queued = (Seq, Option<Change>, ContainerEventResponse);

/// Why a stream ends, and how far the client has come once it knows.
struct End {
    failure: Failure,
    position: Option<Seq>,
}

/// Where the relay leaves the end for the client to find behind what waits for it.
type EndSlot = Arc<Mutex<Option<End>>>;

/// The book of those who read events of a runtime, with what the daemon before has left of it.
pub(crate) fn book(runtime: &Runtime) -> Book {
    Book::of(keeping::read(&runtime.config().state_dir, runtime.last_event()))
}

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
    Ok(Feed { delivery: Delivery { receiver, end, track }, client, node }.boxed())
}

/// Reads the journal for one client.
struct Relay {
    telling: Telling,
    sender: mpsc::Sender<Queued>,
    end: EndSlot,
}

impl Relay {
    async fn run(mut self, mut journal: EventStream) {
        if let Err(end) = self.relay(&mut journal).await {
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        }
    }

    /// Until the client has left, or something is to be said to it in place of an event.
    async fn relay(&mut self, journal: &mut EventStream) -> std::result::Result<(), End> {
        loop {
            let item = tokio::select! {
                item = journal.next() => item.map_err(Failure::from)?,
                () = self.sender.closed() => return Ok(()),
            };
            match item {
                None => return Ok(()),
                Some(Journaled::Lagged { from, to }) => {
                    return Err(End::behind(from, to));
                }
                Some(Journaled::Event(event)) => {
                    let messages = self.telling.messages(&event).await;
                    let mut left = messages.len();
                    for Told { message, change } in messages {
                        left -= 1;
                        let position = if left == 0 { event.seq } else { Seq(event.seq.0.saturating_sub(1)) };
                        if !offer(&self.sender, (position, change, message)).await? {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }
}

impl End {
    /// After a gap. Once the client knows of it, it goes on behind it: before it, each stream would meet it again.
    fn behind(from: Seq, to: Seq) -> Self {
        let why = format!("entries {from} to {to} of the journal are not kept any more; list again");
        Self { failure: Error::unavailable("the stream of events", why).into(), position: Some(to) }
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self { failure, position: None }
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
    delivery: Delivery,
    client: Client,
    node: Arc<Node>,
}

/// What waits to be read, and what has been.
struct Delivery {
    receiver: mpsc::Receiver<Queued>,
    end: EndSlot,
    track: Arc<Track>,
}

impl Delivery {
    /// The next message. Only here the client comes further: what still waits, it does not have.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ContainerEventResponse>>> {
        if let Some((position, change, message)) = ready!(self.receiver.poll_recv(context)) {
            self.track.has(position, change);
            return Poll::Ready(Some(Ok(message)));
        }
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
        Poll::Ready(end.map(|end| {
            if let Some(position) = end.position {
                self.track.has(position, None);
            }
            Err(end.failure)
        }))
    }
}

impl Stream for Feed {
    type Item = Result<ContainerEventResponse>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.delivery.poll(context)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.node.events.left(&self.client, &self.delivery.track);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::future::poll_fn;

    use mainstay::SandboxId;

    use super::*;

    const RESUME: Duration = Duration::from_secs(60);

    /// A stream of a client whose page is in the book.
    fn delivery(book: &Book, client: &Client) -> (mpsc::Sender<Queued>, Delivery) {
        let (sender, receiver) = mpsc::channel(EVENTS_QUEUED_MAX);
        let (_, track) = book.open(client, RESUME, Seq(10), Seq(10));
        (sender, Delivery { receiver, end: EndSlot::default(), track })
    }

    async fn read(delivery: &mut Delivery) -> Result<ContainerEventResponse> {
        poll_fn(|context| delivery.poll(context)).await.expect("the stream has more")
    }

    /// What a client finds that comes back.
    fn found(book: &Book, client: &Client) -> (Seq, HashSet<SandboxId>) {
        let (after, track) = book.open(client, RESUME, Seq(90), Seq(90));
        (after, track.ended())
    }

    /// A message counted as said once it was composed, but its position only once it was read. A client that left in between never got
    /// the end of its pod, or got it twice when the deletion was waiting too.
    #[tokio::test]
    async fn what_waits_unread_when_a_client_leaves_is_told_when_it_comes_back() {
        let (book, client, pod) =
            (Book::default(), Client::of(&tonic::Request::new(())), SandboxId::from_random([7; 16]));
        let (sender, mut delivery) = delivery(&book, &client);
        let message = ContainerEventResponse::default;
        for queued in [
            (Seq(11), None, message()),
            (Seq(12), Some(Change::Ended(pod.clone())), message()),
            (Seq(13), Some(Change::Gone(pod.clone())), message()),
        ] {
            assert!(offer(&sender, queued).await.expect("there is room"));
        }
        let track = Arc::clone(&delivery.track);
        read(&mut delivery).await.expect("what happened before");
        assert_eq!(found(&book, &client), (Seq(11), HashSet::new()), "its end is still to be told");
        read(&mut delivery).await.expect("its end");
        assert_eq!((track.position(), track.ended()), (Seq(12), HashSet::from([pod])));
        read(&mut delivery).await.expect("its deletion");
        assert_eq!((track.position(), track.ended()), (Seq(13), HashSet::new()));
    }

    /// Its place stayed before the gap, so that each stream that it opened met the same gap and ended.
    #[tokio::test]
    async fn a_client_that_was_told_of_a_gap_goes_on_behind_it() {
        let (book, client) = (Book::default(), Client::of(&tonic::Request::new(())));
        let (sender, mut delivery) = delivery(&book, &client);
        assert!(
            offer(&sender, (Seq(11), None, ContainerEventResponse::default())).await.expect("there is room")
        );
        *delivery.end.lock().expect("nobody panics") = Some(End::behind(Seq(12), Seq(40)));
        drop(sender);
        read(&mut delivery).await.expect("what waited before the gap");
        assert_eq!(delivery.track.position(), Seq(11), "it does not know of the gap");
        let failure = read(&mut delivery).await.expect_err("the gap");
        assert!(failure.to_string().contains("list again"), "{failure}");
        assert_eq!(found(&book, &client).0, Seq(40));
    }

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
