//! One pull: one actor, joined by all who may have the image.
//!
//! ```text
//!                 fetched                  nobody waits            nobody is on the way
//!   Fetching ──────────────────► Here ─────────────────► Leaving ──────────────────────► Gone
//!    ▲ │ │                        │ ▲ names of others        ▲ │
//!    │ │ │                        └─┘ are written down       │ │ somebody comes
//!    │ │ └─ nobody waits any more: the fetch is dropped ─────┘ │
//!    │ └─── failed; others wait who ask elsewhere ──┐          │
//!    └──────────────────────────────────────────────┴──────────┘
//! ```
//!
//! It owns those who wait for the pull, and the news that they are told. All decisions are in [`state`]. It never
//! opens a connection or a file, and never waits for a caller.

pub mod state;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle,
};
use futures::FutureExt;
use mainstay_messages::error::PullFault;
use mainstay_messages::event::{PullEnding, Subject, What};
use mainstay_messages::image::{ImageId, PullProgress};
use mainstay_messages::{Error, Result};
use tokio::time::Instant;

use super::progress::{Newest, ProgressSink};
use super::pulls::{Bye, Lost};
use super::watch::{guarded, watch};
use super::{CallerId, Patience, PullKey};
use crate::call::Reply;
use crate::ports::{ImageSource, ResolvedImage};
use crate::world::World;
use state::{Effect, Ending, Farewell, Input, State};

/// Time for a name of an image that is here to be written down, in milliseconds.
pub const NAME_TIMEOUT_MS: u64 = 30_000;

/// See the module.
pub(crate) struct ImagePull {
    state: State,
    links: Links,
    audience: Rc<RefCell<Audience>>,
    replies: BTreeMap<CallerId, Reply<Result<ImageId>>>,
    fetch: Option<SpawnHandle>,
    began: Instant,
    _ticket: Ticket,
}

/// Whom a pull talks to, and how long it bears silence.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) key: PullKey,
    pub(crate) generation: u64,
    pub(crate) source: Arc<dyn ImageSource>,
    pub(crate) patience: Patience,
    pub(crate) bye: Recipient<Bye>,
    pub(crate) lost: Recipient<Lost>,
    pub(crate) world: World,
}

/// A caller who may have the image joins.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Join {
    pub(crate) caller: CallerId,
    pub(crate) wanted: Arc<ResolvedImage>,
    pub(crate) progress: ProgressSink,
    pub(crate) reply: Reply<Result<ImageId>>,
}

/// A caller has left.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Left(pub(crate) CallerId);

/// Those who are told the news, and the present state for those who come later.
#[derive(Default)]
struct Audience {
    present: Newest,
    sinks: BTreeMap<CallerId, ProgressSink>,
}

/// Its drop, panics included, tells that the actor is gone.
struct Ticket {
    key: PullKey,
    generation: u64,
    lost: Recipient<Lost>,
}

impl ImagePull {
    pub(crate) fn new(links: Links) -> Self {
        let Links { key, generation, lost, .. } = links.clone();
        Self {
            state: State::default(),
            links,
            audience: Rc::default(),
            replies: BTreeMap::new(),
            fetch: None,
            began: Instant::now(),
            _ticket: Ticket { key, generation, lost },
        }
    }

    fn feed(&mut self, input: Input, ctx: &mut Context<Self>) {
        for effect in self.state.apply(input) {
            self.perform(effect, ctx);
        }
    }

    fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::Fetch(attempt, wanted) => self.begin(attempt, wanted, ctx),
            Effect::DropFetch => {
                if let Some(fetch) = self.fetch.take() {
                    ctx.cancel_future(fetch);
                }
            }
            Effect::Name(wanted, image) => self.name(wanted, image, ctx),
            Effect::Answer(callers, answer) => {
                for caller in callers {
                    if let Some(reply) = self.replies.remove(&caller) {
                        reply.send(answer.clone());
                    }
                    // After the answer: whoever hears that there are no more news finds it there.
                    self.audience.borrow_mut().sinks.remove(&caller);
                }
            }
            Effect::Record(wanted, ending) => self.record(&wanted, ending),
            Effect::Leave(joins) => self.leave(joins, ctx),
            Effect::Stop => ctx.stop(),
        }
    }

    fn begin(&mut self, attempt: u32, wanted: Arc<ResolvedImage>, ctx: &mut Context<Self>) {
        self.links.world.counters.pulls_started.add();
        self.began = Instant::now();
        let audience = Rc::clone(&self.audience);
        audience.borrow_mut().present = Newest::default();
        let source = Arc::clone(&self.links.source);
        let image = wanted.spec.image.to_string();
        let fetched = watch(
            image,
            self.links.patience,
            move |events| source.fetch(wanted, events),
            move |progress| audience.borrow_mut().tell(progress),
        );
        let fetched = wrap_future::<_, Self>(fetched).map(move |result, act, ctx| {
            act.fetch = None;
            act.feed(Input::Fetched(attempt, result), ctx);
        });
        self.fetch = Some(ctx.spawn(fetched));
    }

    fn name(&mut self, wanted: Arc<ResolvedImage>, image: ImageId, ctx: &mut Context<Self>) {
        let source = Arc::clone(&self.links.source);
        let what = format!("writing down the name {}", wanted.name);
        let named = guarded(move || source.name(wanted, image));
        let named = tokio::time::timeout(Duration::from_millis(NAME_TIMEOUT_MS), named);
        let late = move |_elapsed| Err(Error::DeadlineExceeded { what, after_ms: NAME_TIMEOUT_MS });
        let named = named.map(|result| result.unwrap_or_else(late));
        ctx.spawn(wrap_future::<_, Self>(named).map(|result, act, ctx| act.feed(Input::Named(result), ctx)));
    }

    fn record(&self, wanted: &ResolvedImage, ending: Ending) {
        let world = &self.links.world;
        let image = wanted.name.clone();
        let took_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let what = match ending {
            Ending::Pulled => {
                world.counters.pulls_succeeded.add();
                What::ImagePulled { image, digest: wanted.manifest.digest.clone(), took_ms }
            }
            Ending::Failed(error) => {
                world.counters.pulls_failed.add();
                let ending = if is_stalled(&error) {
                    world.counters.pulls_timed_out.add();
                    PullEnding::TimedOut
                } else {
                    PullEnding::Failed
                };
                What::ImagePullFailed { image, reason: error.to_string(), ending, took_ms }
            }
            Ending::Cancelled => {
                world.counters.pulls_cancelled.add();
                let reason = "nobody waited for it any more".into();
                What::ImagePullFailed { image, reason, ending: PullEnding::Cancelled, took_ms }
            }
        };
        world.note_now(Subject { sandbox: None, container: None, exec: None }, what);
    }

    fn leave(&mut self, joins: u64, ctx: &mut Context<Self>) {
        let Links { key, generation, bye, .. } = &self.links;
        let asked = bye.send(Bye { key: key.clone(), generation: *generation, joins });
        // Without anyone to answer there is nobody who could pass a caller on.
        let answer = asked.map(|answer| answer.unwrap_or(Farewell::Struck));
        let answer = wrap_future::<_, Self>(answer)
            .map(|answer, act, ctx: &mut Context<Self>| act.feed(Input::Farewell(answer), ctx));
        ctx.spawn(answer);
    }
}

/// Whether it was given up because nothing moved.
pub(crate) fn is_stalled(error: &Error) -> bool {
    matches!(error, Error::PullFailed { fault: PullFault::Stalled, .. })
}

impl Audience {
    fn tell(&mut self, progress: PullProgress) {
        self.sinks.values().for_each(|sink| sink.tell(progress.clone()));
        self.present.put(progress);
    }

    fn join(&mut self, caller: CallerId, sink: ProgressSink) {
        self.present.present().for_each(|progress| sink.tell(progress.clone()));
        self.sinks.insert(caller, sink);
    }
}

impl Actor for ImagePull {
    type Context = Context<Self>;
}

impl Handler<Join> for ImagePull {
    type Result = ();

    fn handle(&mut self, join: Join, ctx: &mut Context<Self>) {
        let Join { caller, wanted, progress, reply } = join;
        self.audience.borrow_mut().join(caller, progress);
        self.replies.insert(caller, reply);
        self.feed(Input::Join(caller, wanted), ctx);
    }
}

impl Handler<Left> for ImagePull {
    type Result = ();

    fn handle(&mut self, Left(caller): Left, ctx: &mut Context<Self>) {
        self.replies.remove(&caller);
        self.audience.borrow_mut().sinks.remove(&caller);
        self.feed(Input::Leave(caller), ctx);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lost.do_send(Lost { key: self.key.clone(), generation: self.generation });
    }
}
