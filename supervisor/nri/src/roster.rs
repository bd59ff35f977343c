//! Which plugins there are, which objects they know of, and what is being announced: one actor.
//!
//! ```text
//!             enter                 leave: it stands               withdrawn
//!  (nothing) ───────► announced ──────────────────────► present ───────────────► (nothing)
//!                         │ leave: it failed                ▲
//!                         ▼                                 │ found at the start
//!                     (nothing)
//! ```
//!
//! A plugin that joins is told of all that is present, at a moment at which nothing is being announced that does not come
//! to it: so it hears of every object once, either then or by its announcement. Announcements that began before it
//! joined are waited for, and have deadlines of their own; those that begin later come to it, and wait for it no longer
//! than for any answer of its. One that has missed something is told of all again at once, also of what has come by it
//! and is still being announced: when that fails, it is told of its end.
//!
//! All decisions are in [`state`]. It never calls a plugin, and never reads a record.

pub mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, MessageResult};
use mainstay_nri_api::{Event, EventMask};

use crate::hook::{Object, Weight, weight};
use crate::line::{Line, Node};
use crate::name::PluginName;
use crate::plugin::state::{self as plugin, Input};
use crate::plugin::{Feed, Parts, Plugin};
use crate::policy::FailPolicy;
use crate::settings::NriSettings;
use state::{Effect, Outcome, State};

/// The number of an announcement that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The number of a plugin's connection: a plugin that comes again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginId(pub u64);

/// See the module.
pub(crate) struct Roster {
    state: State,
    settings: Arc<NriSettings>,
    node: Arc<dyn Node>,
    members: BTreeMap<PluginId, Member>,
    last: u64,
    arrivals: Box<dyn Fn(PluginName)>,
    departures: Box<dyn Fn(Departure)>,
}

struct Member {
    name: PluginName,
    addr: Addr<Plugin>,
    line: Arc<dyn Line>,
    standing: Standing,
}

/// How a plugin stands, as it was last said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) phase: plugin::Phase,
    pub(crate) strikes: u32,
    pub(crate) waiting: usize,
    pub(crate) objects: usize,
}

/// A plugin as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginView {
    /// Its name.
    pub name: PluginName,
    /// Its process, where it is known.
    pub pid: Option<u32>,
    /// The events that it asked for.
    pub events: EventMask,
    /// What becomes of a request that it does not answer.
    pub policy: FailPolicy,
    /// Where it is.
    pub phase: plugin::Phase,
    /// Failures in a row.
    pub strikes: u32,
    /// Requests that wait for it.
    pub waiting: usize,
    /// Pods and containers that it knows.
    pub objects: usize,
}

/// What a roster is made of.
pub(crate) struct RosterParts {
    pub(crate) settings: Arc<NriSettings>,
    pub(crate) node: Arc<dyn Node>,
    /// Told of each plugin that has come to be live, every time.
    pub(crate) arrivals: Box<dyn Fn(PluginName)>,
    /// Told of each plugin that is gone, and why.
    pub(crate) departures: Box<dyn Fn(Departure)>,
}

/// A plugin has registered. The error is a sentence for it.
#[derive(Message)]
#[rtype(result = "Result<PluginId, String>")]
pub(crate) struct Join {
    pub(crate) name: PluginName,
    pub(crate) line: Arc<dyn Line>,
}

/// An event is about to be told.
#[derive(Message)]
#[rtype(result = "Result<Entry, PluginName>")]
pub(crate) struct Enter {
    pub(crate) event: Event,
    pub(crate) object: Object,
}

/// Whom to tell it. The other answer is a required plugin that is not here.
pub(crate) struct Entry {
    pub(crate) ticket: Option<Ticket>,
    pub(crate) seats: Vec<Seat>,
}

/// A plugin that is to be asked.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) name: PluginName,
    pub(crate) policy: FailPolicy,
    pub(crate) events: EventMask,
    pub(crate) addr: Addr<Plugin>,
}

/// An announcement is over.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Leave {
    pub(crate) ticket: Ticket,
    pub(crate) outcome: Outcome,
}

/// Put together what a plugin is to be told of.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Gather {
    pub(crate) plugin: PluginId,
    pub(crate) passed: BTreeSet<Ticket>,
}

/// A plugin stands so.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Shown {
    pub(crate) id: PluginId,
    pub(crate) standing: Standing,
}

/// A plugin is gone.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Left {
    pub(crate) plugin: PluginId,
    pub(crate) reason: String,
    pub(crate) parting: Parting,
}

/// A plugin that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which.
    pub plugin: PluginName,
    /// Why.
    pub reason: String,
    /// Who wanted it.
    pub parting: Parting,
}

/// Who wanted a plugin to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// It failed too often.
    GivenUp,
    /// It went, or was sent away by an operator.
    Gone,
}

/// Objects that were found when the runtime started.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Found(pub(crate) BTreeSet<Object>);

/// Show all plugins, and the names of those that are required and not here.
#[derive(Message)]
#[rtype(result = "(Vec<PluginView>, Vec<PluginName>)")]
pub(crate) struct Show;

/// The plugin of this name, if it is live.
#[derive(Message)]
#[rtype(result = "Option<Seat>")]
pub(crate) struct Find(pub(crate) PluginName);

/// End the connection of a plugin, for this reason. The answer is whether there is one of this name.
#[derive(Message)]
#[rtype(result = "bool")]
pub(crate) struct Dismiss {
    pub(crate) name: PluginName,
    pub(crate) reason: String,
}

impl Roster {
    pub(crate) fn new(parts: RosterParts) -> Self {
        let RosterParts { settings, node, arrivals, departures } = parts;
        Self {
            state: State::new(settings.required.iter().cloned().collect(), BTreeSet::new()),
            settings,
            node,
            members: BTreeMap::new(),
            last: 0,
            arrivals,
            departures,
        }
    }

    fn perform(&self, effects: Vec<Effect>) {
        for effect in effects {
            let (plugin, input) = match effect {
                Effect::Gathered(plugin, objects) => (plugin, Input::Gathered(objects)),
                Effect::Over(plugin, ticket) => (plugin, Input::Over(ticket)),
            };
            if let Some(member) = self.members.get(&plugin) {
                member.addr.do_send(Feed(input));
            }
        }
    }

    fn seat(&self, plugin: PluginId) -> Option<Seat> {
        let member = self.members.get(&plugin)?;
        Some(Seat {
            name: member.name.clone(),
            policy: self.settings.policy(&member.name),
            events: member.line.events(),
            addr: member.addr.clone(),
        })
    }
}

impl Actor for Roster {
    type Context = Context<Self>;
}

impl Handler<Join> for Roster {
    type Result = MessageResult<Join>;

    fn handle(&mut self, Join { name, line }: Join, ctx: &mut Context<Self>) -> Self::Result {
        let id = PluginId(self.last + 1);
        if self.state.join(id, name.clone()).is_err() {
            return MessageResult(Err(format!(
                "there is a plugin {name} already; choose another name or index"
            )));
        }
        self.last += 1;
        let parts = Parts {
            id,
            name: name.clone(),
            state: plugin::State::new(line.events(), self.settings.allowance(&name)),
            line: Arc::clone(&line),
            node: Arc::clone(&self.node),
            roster: ctx.address(),
            deadlines: self.settings.deadlines(&name),
        };
        let standing = Standing { phase: plugin::Phase::Settling, strikes: 0, waiting: 0, objects: 0 };
        let addr = Plugin::new(parts).start();
        self.members.insert(id, Member { name, addr, line, standing });
        MessageResult(Ok(id))
    }
}

impl Handler<Enter> for Roster {
    type Result = MessageResult<Enter>;

    fn handle(&mut self, Enter { event, object }: Enter, _: &mut Context<Self>) -> Self::Result {
        if weight(event) == Weight::Decides
            && let Some(missing) = self.state.missing().into_iter().next()
        {
            return MessageResult(Err(missing));
        }
        let entered = self.state.enter(event, &object);
        let seats = entered.roster.into_iter().filter_map(|plugin| self.seat(plugin)).collect();
        MessageResult(Ok(Entry { ticket: entered.ticket, seats }))
    }
}

impl Handler<Leave> for Roster {
    type Result = ();

    fn handle(&mut self, Leave { ticket, outcome }: Leave, _: &mut Context<Self>) {
        let effects = self.state.leave(ticket, outcome);
        self.perform(effects);
    }
}

impl Handler<Gather> for Roster {
    type Result = ();

    fn handle(&mut self, Gather { plugin, passed }: Gather, _: &mut Context<Self>) {
        let effects = self.state.gather(plugin, &passed);
        self.perform(effects);
    }
}

impl Handler<Shown> for Roster {
    type Result = ();

    fn handle(&mut self, Shown { id, standing }: Shown, _: &mut Context<Self>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let was = std::mem::replace(&mut member.standing, standing);
        if was.phase != plugin::Phase::Live && member.standing.phase == plugin::Phase::Live {
            (self.arrivals)(member.name.clone());
        }
    }
}

impl Handler<Left> for Roster {
    type Result = ();

    fn handle(&mut self, Left { plugin, reason, parting }: Left, _: &mut Context<Self>) {
        self.state.left(plugin);
        if let Some(member) = self.members.remove(&plugin) {
            (self.departures)(Departure { plugin: member.name, reason, parting });
        }
    }
}

impl Handler<Found> for Roster {
    type Result = ();

    fn handle(&mut self, Found(objects): Found, _: &mut Context<Self>) {
        self.state.found(objects);
    }
}

impl Handler<Show> for Roster {
    type Result = MessageResult<Show>;

    fn handle(&mut self, Show: Show, _: &mut Context<Self>) -> Self::Result {
        let view = |member: &Member| PluginView {
            name: member.name.clone(),
            pid: member.line.pid(),
            events: member.line.events(),
            policy: self.settings.policy(&member.name),
            phase: member.standing.phase.clone(),
            strikes: member.standing.strikes,
            waiting: member.standing.waiting,
            objects: member.standing.objects,
        };
        let mut views: Vec<_> = self.members.values().map(view).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        MessageResult((views, self.state.missing()))
    }
}

impl Handler<Find> for Roster {
    type Result = MessageResult<Find>;

    fn handle(&mut self, Find(name): Find, _: &mut Context<Self>) -> Self::Result {
        let live = |member: &Member| member.name == name && member.standing.phase == plugin::Phase::Live;
        let found = self.members.iter().find(|(_, member)| live(member));
        MessageResult(found.and_then(|(id, _)| self.seat(*id)))
    }
}

impl Handler<Dismiss> for Roster {
    type Result = MessageResult<Dismiss>;

    fn handle(&mut self, Dismiss { name, reason }: Dismiss, _: &mut Context<Self>) -> Self::Result {
        let Some(member) = self.members.values().find(|member| member.name == name) else {
            return MessageResult(false);
        };
        member.addr.do_send(Feed(Input::Close(reason)));
        MessageResult(true)
    }
}
