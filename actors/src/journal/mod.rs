//! The journal: the one door to the store, and the numbered events that come out of it.
//!
//! ```text
//!  commits ─► Journal ─► Store ─► answer ─► ring (in order of the numbers) ─► subscribers pull
//! ```
//!
//! It passes commits on in the order in which they arrive and waits for none of them, so a slow store delays
//! only those who asked. It keeps no records, decides nothing, and never waits for a subscriber. A store that
//! panics becomes an error of that commit.

mod log;
mod state;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use actix::{Actor, Context, Handler, ResponseFuture};
use futures::FutureExt;
use mainstay_messages::Error;
use mainstay_messages::journal::Commit;

pub use log::{EventLog, Item, PAGE_EVENTS, RING_EVENTS, Readers, Subscription};

use crate::ports::Store;

/// Messages that wait for the journal without their senders having to wait as well.
const MAILBOX_LENGTH: usize = 1_024;

/// See the module.
pub struct Journal {
    store: Arc<dyn Store>,
    log: EventLog,
}

impl Journal {
    /// A journal that writes to `store` and shows its events in `log`.
    pub fn new(store: Arc<dyn Store>, log: EventLog) -> Self {
        Self { store, log }
    }
}

impl Actor for Journal {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(MAILBOX_LENGTH);
    }
}

impl Handler<Commit> for Journal {
    type Result = ResponseFuture<<Commit as actix::Message>::Result>;

    fn handle(&mut self, commit: Commit, _ctx: &mut Context<Self>) -> Self::Result {
        let facts = commit.facts.clone();
        let log = self.log.clone();
        let turn = log.begin();
        // The call itself is made here, so that the store gets commits in the order in which they came.
        let called = std::panic::catch_unwind(AssertUnwindSafe(|| self.store.commit(commit)));
        Box::pin(async move {
            let result = match called {
                Ok(answer) => AssertUnwindSafe(answer).catch_unwind().await,
                Err(panic) => Err(panic),
            };
            let result = result.unwrap_or_else(|_panic| Err(Error::internal("the store", "it panicked")));
            log.end(turn, result.as_ref().ok().map(|committed| (committed.last, facts)));
            result
        })
    }
}
