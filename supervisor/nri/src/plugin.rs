//! One plugin: one actor, which alone calls it.
//!
//! ```text
//!                     nothing is under way           told of all there is
//!   (registered) ─► Settling ─► Gathering ─► Synchronising ─► Live ──► calls, one after the other
//!                      ▲                          │            │
//!                      │        not in time       │            │ an answer missed, or a call
//!                      └──────────────────────────┴────────────┘
//!                      │ failed too often in a row, gone
//!                      ▼
//!                    Closed
//! ```
//!
//! A missed answer costs the request that it was for, and nothing else: the plugin stays, and is told of all there is once
//! more, since nobody knows what it has heard. It owns the connection, the calls that wait for their turn, and the
//! failures in a row. All decisions are in [`state`]. It never knows what a failure costs the request, nor other plugins.

pub mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::fut::wrap_future;
use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message};
use mainstay_nri_api::ContainerUpdate;
use tokio::sync::oneshot;

use crate::hook::Object;
use crate::line::{Line, Node, Reply, Request, Trouble};
use crate::name::PluginName;
use crate::others;
use crate::policy::Verdict;
use crate::roster::{Gather, Left, Parting, PluginId, Roster, Standing, Ticket};
use crate::settings::Deadlines;
use state::{Call, CallId, Effect, Ending, Input, Phase, State};

/// See the module.
pub(crate) struct Plugin {
    id: PluginId,
    name: PluginName,
    state: State,
    line: Arc<dyn Line>,
    node: Arc<dyn Node>,
    roster: Addr<Roster>,
    deadlines: Deadlines,
    asked: BTreeMap<CallId, Asked>,
    last_call: u64,
}

/// What an actor of a plugin is made of.
pub(crate) struct Parts {
    pub(crate) id: PluginId,
    pub(crate) name: PluginName,
    pub(crate) state: State,
    pub(crate) line: Arc<dyn Line>,
    pub(crate) node: Arc<dyn Node>,
    pub(crate) roster: Addr<Roster>,
    pub(crate) deadlines: Deadlines,
}

struct Asked {
    request: Request,
    began: Instant,
    reply: Option<Reply>,
    answer: oneshot::Sender<Heard>,
}

/// Ask the plugin.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Ask {
    pub(crate) object: Object,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) request: Request,
    pub(crate) answer: oneshot::Sender<Heard>,
}

/// What it made of that.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) verdict: Verdict,
    pub(crate) reply: Option<Reply>,
    pub(crate) took: Duration,
}

/// Something that concerns its state alone.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Feed(pub(crate) Input);

impl Plugin {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { id, name, state, line, node, roster, deadlines } = parts;
        Self { id, name, state, line, node, roster, deadlines, asked: BTreeMap::new(), last_call: 0 }
    }

    fn feed(&mut self, input: Input, ctx: &mut Context<Self>) {
        let effects = self.state.apply(input);
        for effect in effects {
            self.perform(effect, ctx);
        }
        let standing = Standing {
            phase: self.state.phase().clone(),
            strikes: self.state.strikes(),
            waiting: self.state.waiting(),
            objects: self.state.known().len(),
        };
        self.roster.do_send(crate::roster::Shown { id: self.id, standing });
    }

    fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::Gather(passed) => self.roster.do_send(Gather { plugin: self.id, passed }),
            Effect::Synchronise(objects) => self.synchronise(objects, ctx),
            Effect::Send(call) => self.send(call, ctx),
            Effect::Answer(call, verdict) => {
                if let Some(Asked { began, reply, answer, .. }) = self.asked.remove(&call) {
                    // Whoever asked may have left.
                    let _ = answer.send(Heard { verdict, reply, took: began.elapsed() });
                }
            }
            Effect::Struck(strikes, reason) => {
                tracing::warn!(plugin = %self.name, strikes, reason, "the plugin has failed");
            }
            Effect::Live => tracing::info!(plugin = %self.name, "the plugin knows of all there is"),
            Effect::Close(reason) => {
                tracing::warn!(plugin = %self.name, reason, "the plugin is gone");
                self.line.close(&reason);
                let parting = match self.state.is_given_up() {
                    true => Parting::GivenUp,
                    false => Parting::Gone,
                };
                self.roster.do_send(Left { plugin: self.id, reason, parting });
                ctx.stop();
            }
        }
    }

    fn synchronise(&mut self, objects: std::collections::BTreeSet<Object>, ctx: &mut Context<Self>) {
        let mut pods = Vec::new();
        let mut containers = Vec::new();
        for object in &objects {
            match object {
                Object::Pod(pod) => pods.extend(self.node.pod(pod)),
                Object::Container(_, container) => containers.extend(self.node.container(container)),
            }
        }
        let synchronised = self.line.synchronize(pods, containers);
        ctx.spawn(wrap_future::<_, Self>(synchronised).map(|result, act, ctx| {
            let ending = match result {
                Ok(updates) => {
                    act.update(updates);
                    Ending::Answered
                }
                Err(trouble) => trouble.into(),
            };
            act.feed(Input::Synchronised(ending), ctx);
        }));
    }

    /// What it wants changed of what was there before it.
    fn update(&self, updates: Vec<ContainerUpdate>) {
        if !updates.is_empty() {
            let (node, name) = (Arc::clone(&self.node), self.name.clone());
            actix::spawn(async move { others::carry_out(&node, &name, &updates, &[]).await });
        }
    }

    fn send(&mut self, call: CallId, ctx: &mut Context<Self>) {
        let Some(asked) = self.asked.get_mut(&call) else { return };
        asked.began = Instant::now();
        let sent = self.line.call(asked.request.clone(), self.deadlines.request_ms);
        ctx.spawn(wrap_future::<_, Self>(sent).map(move |result, act, ctx| act.ended(call, result, ctx)));
    }

    fn ended(&mut self, call: CallId, result: Result<Reply, Trouble>, ctx: &mut Context<Self>) {
        let ending = match result {
            Ok(reply) => {
                if let Some(asked) = self.asked.get_mut(&call) {
                    asked.reply = Some(reply);
                }
                Ending::Answered
            }
            Err(trouble) => trouble.into(),
        };
        self.feed(Input::Ended(call, ending), ctx);
    }
}

impl Actor for Plugin {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let ended = self.line.ended();
        let closed = |reason, act: &mut Self, ctx: &mut Context<Self>| act.feed(Input::Close(reason), ctx);
        ctx.spawn(wrap_future::<_, Self>(ended).map(closed));
        self.feed(Input::Joined, ctx);
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        if !matches!(self.state.phase(), Phase::Closed { .. }) {
            // The runtime ends, and takes those along that it has started.
            self.line.close("the runtime ends");
        }
    }
}

impl Handler<Ask> for Plugin {
    type Result = ();

    fn handle(&mut self, ask: Ask, ctx: &mut Context<Self>) {
        let Ask { object, ticket, request, answer } = ask;
        self.last_call += 1;
        let (id, event) = (CallId(self.last_call), request.event());
        self.asked.insert(id, Asked { request, began: Instant::now(), reply: None, answer });
        self.feed(Input::Call(id, Call { event, object, ticket }), ctx);
        if self.asked.contains_key(&id) {
            let wait = Duration::from_millis(self.deadlines.turn_ms);
            ctx.run_later(wait, move |act, ctx| act.feed(Input::WaitedLong(id), ctx));
        }
    }
}

impl Handler<Feed> for Plugin {
    type Result = ();

    fn handle(&mut self, Feed(input): Feed, ctx: &mut Context<Self>) {
        self.feed(input, ctx);
    }
}
