//! The caller's side of a pull: ask, read its progress, wait for the image; or drop it, and be out of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix::Recipient;
use mainstay_messages::image::{ImageId, PullProgress, PullSpec};
use mainstay_messages::{Error, Result};
use tokio::sync::oneshot;

use super::pulls::{Ask, Leave};
use super::{CallerId, PULL_CALLERS_MAX, ProgressFeed, progress};
use crate::call::{Inbox, Reply, Seat};

/// Where pulls are asked for. Cheap to clone, and usable from any thread.
#[derive(Clone)]
pub struct Pulls {
    ask: Recipient<Ask>,
    leave: Recipient<Leave>,
    inbox: Inbox,
    last: Arc<AtomicU64>,
}

/// A caller's part in a pull. Dropping it ends that part; the pull itself ends with the last one.
pub struct Pull {
    feed: ProgressFeed,
    answer: oneshot::Receiver<Result<ImageId>>,
    _interest: Option<Interest>,
}

/// A caller's place, given back when it is dropped; then the pull hears of it.
struct Interest {
    caller: CallerId,
    leave: Recipient<Leave>,
    _seat: Seat,
}

impl Pulls {
    pub(crate) fn new(ask: Recipient<Ask>, leave: Recipient<Leave>) -> Self {
        Self { ask, leave, inbox: Inbox::default(), last: Arc::default() }
    }

    /// Begins to pull an image, or joins the pull of it that runs. Errors are in the answer: see [`Pull::image`].
    pub fn pull(&self, spec: PullSpec) -> Pull {
        let (sink, feed) = progress();
        let (to, answer) = oneshot::channel();
        let reply = Reply::new(Some(to), None);
        let caller = CallerId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let interest = match (spec.check(), self.inbox.admit(PULL_CALLERS_MAX)) {
            (Err(error), _) => {
                reply.send(Err(error));
                None
            }
            (Ok(()), None) => {
                let limit = u64::try_from(PULL_CALLERS_MAX).unwrap_or(u64::MAX);
                reply.send(Err(Error::ResourceExhausted { what: "callers who pull images".into(), limit }));
                None
            }
            (Ok(()), Some(seat)) => {
                // The mailbox is bounded by the seats.
                self.ask.do_send(Ask { caller, spec, progress: sink, reply });
                Some(Interest { caller, leave: self.leave.clone(), _seat: seat })
            }
        };
        Pull { feed, answer, _interest: interest }
    }
}

impl Pull {
    /// The next of its news; none when it has ended. A caller that is slow gets the newest state of each part, and
    /// holds up nobody. May be dropped while it waits: nothing is lost.
    pub async fn progress(&mut self) -> Option<PullProgress> {
        self.feed.next().await
    }

    /// The image, once it is here. May be dropped while it waits, and asked again.
    ///
    /// # Errors
    /// [`Error::PullFailed`]; [`Error::InvalidArgument`] for a name, platform or credentials that cannot be;
    /// [`Error::ResourceExhausted`] when too many pulls run; [`Error::Internal`] when it was asked before.
    pub async fn image(&mut self) -> Result<ImageId> {
        let lost = |_| Err(Error::internal("a pull", "its actor has ended, or its answer was taken before"));
        (&mut self.answer).await.unwrap_or_else(lost)
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.leave.do_send(Leave { caller: self.caller });
    }
}
