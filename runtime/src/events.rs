//! The journal as a stream: from any number on, at the reader's own pace. A slow reader holds up nobody; what
//! was trimmed before it came is told as a gap.

use mainstay_actors::{Item, Subscription};
use mainstay_messages::admin::Follow;
use mainstay_messages::event::{Event, Seq};
use mainstay_messages::{ContainerId, Result, SandboxId, event};

use crate::closing::Closed;

/// Which part of the journal is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Only entries with a higher number.
    pub after: Seq,
    /// Whether to go on with what happens from now on.
    pub follow: Follow,
    /// Only entries about this pod or container, with what is in it.
    pub subject: Option<Subject>,
}

impl Default for EventOptions {
    /// All that is kept, to the end of it.
    fn default() -> Self {
        Self { after: Seq(0), follow: Follow::No, subject: None }
    }
}

/// A pod or container whose life is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A pod and all that is in it.
    Sandbox(SandboxId),
    /// A container and its execs.
    Container(ContainerId),
}

/// What a stream yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Journaled {
    /// An entry.
    Event(Event),
    /// Entries that are no longer kept.
    Lagged {
        /// The first of them.
        from: Seq,
        /// The last of them.
        to: Seq,
    },
}

/// Entries of the journal.
pub struct EventStream {
    subscription: Subscription,
    subject: Option<Subject>,
    /// The last number that is wanted.
    until: Option<Seq>,
    closed: Closed,
}

impl Subject {
    /// Whether an entry is about it.
    pub fn covers(&self, subject: &event::Subject) -> bool {
        match self {
            Self::Sandbox(id) => subject.sandbox.as_ref() == Some(id),
            Self::Container(id) => subject.container.as_ref() == Some(id),
        }
    }
}

impl EventStream {
    pub(crate) fn new(subscription: Subscription, options: EventOptions, last: Seq, closed: Closed) -> Self {
        let until = (options.follow == Follow::No).then_some(last);
        Self { subscription, subject: options.subject, until, closed }
    }

    /// The next entry or gap; none at the end. May be cancelled without loss.
    ///
    /// # Errors
    /// Those of the store, and [`mainstay_messages::Error::Unavailable`] when the runtime was closed.
    pub async fn next(&mut self) -> Result<Option<Journaled>> {
        loop {
            if self.until.is_some_and(|until| self.subscription.cursor() >= until) {
                return Ok(None);
            }
            match self.closed.or(self.subscription.next()).await?? {
                Item::Event(event) if self.until.is_some_and(|until| event.seq > until) => return Ok(None),
                Item::Event(event) => {
                    if self.subject.as_ref().is_none_or(|subject| subject.covers(&event.subject)) {
                        return Ok(Some(Journaled::Event(event)));
                    }
                }
                Item::Lagged { from, to } => return Ok(Some(Journaled::Lagged { from, to })),
            }
        }
    }

    /// The next entry, whatever is missing before it; none at the end.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn next_event(&mut self) -> Result<Option<Event>> {
        while let Some(item) = self.next().await? {
            if let Journaled::Event(event) = item {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}
