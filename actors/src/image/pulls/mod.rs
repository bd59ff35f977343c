//! All pulls: one actor, which asks the registry in the name of each caller, and knows which pull runs for what.
//!
//! ```text
//!             the name is resolved            handle dropped
//!   Asking ─────────────────────────► Passed ────────────────► (forgotten; the pull is told)
//!     │ │ may not, or silence
//!     │ └──────────► (answered with its own error)
//!     └ handle dropped ► (the question is dropped)
//! ```
//!
//! It owns which pull runs for which digest and platform, and the callers who are still asking. All decisions are in
//! [`state`]. It never passes a caller on whose own credentials have not got the answer, and knows nothing of what a
//! pull does.

pub mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, MessageResult, SpawnHandle,
};
use mainstay_messages::Result;
use mainstay_messages::image::{ImageId, PullSpec};

use super::pull::state::Farewell;
use super::pull::{self, ImagePull, Left, Links, is_stalled};
use super::watch::watch;
use super::{CallerId, PULLS_MAX, Patience, ProgressSink, PullKey, Pulls};
use crate::call::Reply;
use crate::ports::ImageSource;
use crate::world::World;
use state::{Effect, Input, Join, State};

/// See the module.
pub(crate) struct ImagePulls {
    state: State,
    source: Arc<dyn ImageSource>,
    patience: Patience,
    world: World,
    asking: BTreeMap<CallerId, Asking>,
    running: BTreeMap<PullKey, Addr<ImagePull>>,
}

/// A caller whose name is not resolved yet.
struct Asking {
    spec: PullSpec,
    progress: ProgressSink,
    reply: Reply<Result<ImageId>>,
    question: Option<SpawnHandle>,
}

/// A caller asks for an image.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Ask {
    pub(crate) caller: CallerId,
    pub(crate) spec: PullSpec,
    pub(crate) progress: ProgressSink,
    pub(crate) reply: Reply<Result<ImageId>>,
}

/// A caller has dropped its handle.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Leave {
    pub(crate) caller: CallerId,
}

/// A pull wants to end, and has seen so many callers join it.
#[derive(Message)]
#[rtype(result = "Farewell")]
pub(crate) struct Bye {
    pub(crate) key: PullKey,
    pub(crate) generation: u64,
    pub(crate) joins: u64,
}

/// The actor of a pull is gone.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Lost {
    pub(crate) key: PullKey,
    pub(crate) generation: u64,
}

impl ImagePulls {
    /// Starts it on the current arbiter.
    pub(crate) fn start(source: Arc<dyn ImageSource>, patience: Patience, world: World) -> Pulls {
        let addr = Actor::start(Self {
            state: State::new(PULLS_MAX),
            source,
            patience,
            world,
            asking: BTreeMap::new(),
            running: BTreeMap::new(),
        });
        Pulls::new(addr.clone().recipient(), addr.recipient())
    }

    fn feed(&mut self, input: Input, ctx: &mut Context<Self>) {
        for effect in self.state.apply(input) {
            self.perform(effect, ctx);
        }
    }

    fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::Resolve(caller) => self.resolve(caller, ctx),
            Effect::DropResolve(caller) => {
                if let Some(question) = self.asking.remove(&caller).and_then(|asking| asking.question) {
                    ctx.cancel_future(question);
                }
            }
            Effect::Start(key, generation) => {
                let links = Links {
                    key: key.clone(),
                    generation,
                    source: Arc::clone(&self.source),
                    patience: self.patience,
                    bye: ctx.address().recipient(),
                    lost: ctx.address().recipient(),
                    world: self.world.clone(),
                };
                self.running.insert(key, ImagePull::new(links).start());
            }
            Effect::Pass(key, caller, wanted, join) => {
                if join == Join::Running {
                    self.world.counters.pulls_joined.add();
                }
                let (Some(asking), Some(pull)) = (self.asking.remove(&caller), self.running.get(&key)) else {
                    return;
                };
                let Asking { progress, reply, .. } = asking;
                pull.do_send(pull::Join { caller, wanted, progress, reply });
            }
            Effect::Tell(key, caller) => {
                if let Some(pull) = self.running.get(&key) {
                    pull.do_send(Left(caller));
                }
            }
            Effect::Refuse(caller, error) => {
                if is_stalled(&error) {
                    self.world.counters.pulls_timed_out.add();
                }
                if let Some(asking) = self.asking.remove(&caller) {
                    asking.reply.send(Err(error));
                }
            }
            Effect::Forget(key) => drop(self.running.remove(&key)),
        }
    }

    fn resolve(&mut self, caller: CallerId, ctx: &mut Context<Self>) {
        let Some(asking) = self.asking.get_mut(&caller) else { return };
        let (source, spec) = (Arc::clone(&self.source), asking.spec.clone());
        let progress = asking.progress.clone();
        let resolved = watch(
            asking.spec.image.to_string(),
            self.patience,
            move |events| source.resolve(spec, events),
            move |news| progress.tell(news),
        );
        let resolved = wrap_future::<_, Self>(resolved)
            .map(move |result, act, ctx| act.feed(Input::Resolved(caller, result.map(Arc::new)), ctx));
        asking.question = Some(ctx.spawn(resolved));
    }
}

impl Actor for ImagePulls {
    type Context = Context<Self>;
}

impl Handler<Ask> for ImagePulls {
    type Result = ();

    fn handle(&mut self, ask: Ask, ctx: &mut Context<Self>) {
        let Ask { caller, spec, progress, reply } = ask;
        self.asking.insert(caller, Asking { spec, progress, reply, question: None });
        self.feed(Input::Ask(caller), ctx);
    }
}

impl Handler<Leave> for ImagePulls {
    type Result = ();

    fn handle(&mut self, leave: Leave, ctx: &mut Context<Self>) {
        self.feed(Input::Leave(leave.caller), ctx);
    }
}

impl Handler<Bye> for ImagePulls {
    type Result = MessageResult<Bye>;

    fn handle(&mut self, bye: Bye, _ctx: &mut Context<Self>) -> Self::Result {
        let farewell = self.state.farewell(&bye.key, bye.generation, bye.joins);
        if !self.state.runs(&bye.key) {
            self.running.remove(&bye.key);
        }
        MessageResult(farewell)
    }
}

impl Handler<Lost> for ImagePulls {
    type Result = ();

    fn handle(&mut self, lost: Lost, ctx: &mut Context<Self>) {
        self.feed(Input::Lost(lost.key, lost.generation), ctx);
    }
}
