//! The router: who exists, under which name and at which address; where every command and every exit goes.
//!
//! ```text
//!  RunSandbox, CreateContainer ─► name taken? ── yes ─► join its holder
//!                                      └─ no ──► register, then start the actor, then hand the call over
//!  Routed<M> ───────────────────► registered? ── yes ─► hand the call over: the child answers the caller
//!                                      └─ no ──► success where the message says so, else NotFound
//!  TaskExited ──────────────────► deliver │ park │ absorb │ ask, then unclaimed        (state/exits.rs)
//!  ChildLost ───────────────────► load its record, start it again        (limited in time, state.rs)
//! ```
//!
//! It owns names, addresses, parked exits and tombstones. It never waits for a child, keeps no state of an
//! object, and never decides what an object does. Registration comes before anything runs, so an exit always
//! finds its container, a tombstone or a parking place.

mod exits;
mod recover;
mod restart;
mod route;
pub mod state;

use std::collections::HashMap;

use actix::{Actor, Addr, AsyncContext, Context, Handler};
use mainstay_messages::error::Kind;
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::router::{Child, CreateContainer, Deregister, Noted, Pulse, RunSandbox, ShimDied};
use mainstay_messages::{ContainerId, Error, Result, SandboxId};

pub use recover::Recover;
pub(crate) use route::AdoptContainer;
#[cfg(feature = "faults")]
pub use route::{PoisonContainer, PoisonSandbox};
pub use route::{Routable, Routed};

use crate::call::{Handover, Inbox, Reply};
use crate::container::{self, Container};
use crate::sandbox::{self, Sandbox};
use crate::ticket::Ticket;
use crate::world::World;
use route::{Absence, Called, Passed, Places, Rank};
use state::{Exits, Life, NameKey, Registry};

/// The most sandboxes.
pub const SANDBOXES_MAX: usize = 16_384;
/// Time for the supervisor to say what it knows of a process, in milliseconds.
pub(crate) const QUERY_TIMEOUT_MS: u64 = 10_000;
/// Messages that wait for the router without their senders having to wait as well.
const MAILBOX_LENGTH: usize = 4_096;

/// See the module.
pub struct Router {
    registry: Registry,
    exits: Exits,
    sandboxes: HashMap<SandboxId, Link<Sandbox>>,
    containers: HashMap<ContainerId, Link<Container>>,
    watch: Watch,
    world: World,
}

/// Where a child is reached.
pub(crate) struct Link<A: Actor> {
    addr: Addr<A>,
    inbox: Inbox,
}

/// Whether a timer looks after the parked exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Off,
    Set,
}

impl<A: Actor> Clone for Link<A> {
    fn clone(&self) -> Self {
        Self { addr: self.addr.clone(), inbox: self.inbox.clone() }
    }
}

impl Router {
    /// A router without children.
    pub(crate) fn new(world: World) -> Self {
        Self {
            registry: Registry::default(),
            exits: Exits::default(),
            sandboxes: HashMap::new(),
            containers: HashMap::new(),
            watch: Watch::Off,
            world,
        }
    }

    /// Starts the actor of a sandbox that is registered.
    fn start_sandbox(
        &mut self,
        machine: sandbox::state::State,
        generation: u32,
        ctx: &mut Context<Self>,
    ) -> Link<Sandbox> {
        let id = machine.record().id.clone();
        let router = ctx.address();
        let links = sandbox::Links {
            stop_container: router.clone().recipient(),
            remove_container: router.clone().recipient(),
            adopt_container: router.clone().recipient(),
            deregister: router.clone().recipient(),
        };
        let ticket = Ticket::new(Child::Sandbox(id.clone()), generation, router.recipient());
        let inbox = Inbox::default();
        let sandbox = Sandbox::new(machine, inbox.clone(), ticket, links, self.world.clone());
        sandbox.show();
        let link = Link { addr: sandbox.start(), inbox };
        self.sandboxes.insert(id, link.clone());
        link
    }

    /// Starts the actor of a container that is registered, and gives it the exits that waited for it.
    fn start_container(
        &mut self,
        machine: container::state::State,
        generation: u32,
        ctx: &mut Context<Self>,
    ) -> Link<Container> {
        let id = machine.record().id.clone();
        let router = ctx.address();
        let links =
            container::Links { admit: router.clone().recipient(), deregister: router.clone().recipient() };
        let ticket = Ticket::new(Child::Container(id.clone()), generation, router.recipient());
        let inbox = Inbox::default();
        let container = Container::new(machine, inbox.clone(), ticket, links, self.world.clone());
        container.show();
        let link = Link { addr: container.start(), inbox };
        self.containers.insert(id, link.clone());
        link
    }

    fn make_sandbox(&mut self, record: SandboxRecord, ctx: &mut Context<Self>) -> Link<Sandbox> {
        let name = NameKey::Sandbox(record.name().clone());
        self.registry.register(Child::Sandbox(record.id.clone()), Some(name), None);
        self.start_sandbox(sandbox::state::State::proposed(record), 0, ctx)
    }

    fn make_container(&mut self, record: ContainerRecord, ctx: &mut Context<Self>) -> Link<Container> {
        let (id, sandbox) = (record.id.clone(), record.sandbox.clone());
        let name = NameKey::Container(sandbox.clone(), record.name().clone());
        self.registry.register(Child::Container(id), Some(name), Some(sandbox));
        self.start_container(container::state::State::proposed(record), 0, ctx)
    }

    fn new_sandbox_id(&self) -> SandboxId {
        loop {
            let id = SandboxId::from_random(self.world.ports.ids.random());
            if self.registry.life(&Child::Sandbox(id.clone())).is_none() {
                return id;
            }
        }
    }

    fn new_container_id(&self) -> ContainerId {
        loop {
            let id = ContainerId::from_random(self.world.ports.ids.random());
            if self.registry.life(&Child::Container(id.clone())).is_none() && !self.exits.is_buried(&id) {
                return id;
            }
        }
    }

    /// What a call comes to whose target has no actor.
    fn absent<M: Passed>(&self, message: &M) -> Result<M::Answer> {
        let child = M::Call::child(message.target());
        if let Some(life) = self.registry.life(&child) {
            return Err(failing(&child, life));
        }
        let absence = match &child {
            Child::Container(id) if self.exits.is_buried(id) => Absence::Gone,
            Child::Container(_) | Child::Sandbox(_) => Absence::NeverSeen,
        };
        let directory = self.world.publisher.directory();
        message.when_absent(absence).ok_or_else(|| match &child {
            Child::Sandbox(id) => directory.not_found(Kind::Sandbox, id.as_str()),
            Child::Container(id) => directory.not_found(Kind::Container, id.as_str()),
        })
    }

    /// Hands a call over to a child, if there is room in its inbox.
    fn pass<C: Called, T: 'static>(
        &self,
        link: &Link<C::Child>,
        rank: Rank,
        call: impl FnOnce(Reply<Result<T>>) -> C + 'static,
    ) -> Handover<Result<T>> {
        let Places { whose, ordinary, reserved } = C::PLACES;
        let limit = match rank {
            Rank::Ordinary => ordinary,
            Rank::Reserved => ordinary + reserved,
            Rank::Always => usize::MAX,
        };
        let Some(seat) = link.inbox.admit(limit) else {
            self.world.counters.refused.add();
            let what = format!("requests that wait for {whose}");
            return Handover::answer(Err(Error::ResourceExhausted { what, limit: limit as u64 }));
        };
        self.world.counters.routed.add();
        let addr = link.addr.clone();
        Handover::pass(move |to| addr.do_send(call(Reply::new(to, Some(seat)))))
    }
}

impl Actor for Router {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(MAILBOX_LENGTH);
    }
}

impl Handler<RunSandbox> for Router {
    type Result = Handover<Result<SandboxId>>;

    fn handle(&mut self, RunSandbox { spec }: RunSandbox, ctx: &mut Context<Self>) -> Self::Result {
        let link = match self.registry.holder(&NameKey::Sandbox(spec.name.clone())).cloned() {
            Some(Child::Sandbox(id)) => match self.sandboxes.get(&id) {
                Some(link) => link.clone(),
                None => return Handover::answer(Err(failing(&Child::Sandbox(id), Life::Restarting))),
            },
            _ if self.registry.sandboxes() >= SANDBOXES_MAX => {
                let limit = SANDBOXES_MAX as u64;
                return Handover::answer(Err(Error::ResourceExhausted { what: "pods".to_owned(), limit }));
            }
            _ => {
                let record =
                    SandboxRecord::intent(self.new_sandbox_id(), spec.clone(), self.world.ports.clock.now());
                self.make_sandbox(record, ctx)
            }
        };
        self.pass(&link, Rank::Ordinary, move |reply| sandbox::Deliver {
            request: sandbox::Request::Run(Box::new(spec)),
            waiting: sandbox::Waiting::Ready(reply),
        })
    }
}

impl Handler<CreateContainer> for Router {
    type Result = Handover<Result<ContainerId>>;

    fn handle(&mut self, message: CreateContainer, ctx: &mut Context<Self>) -> Self::Result {
        let CreateContainer { sandbox, spec } = message;
        let parent = Child::Sandbox(sandbox.clone());
        match self.registry.life(&parent) {
            Some(Life::Running) => {}
            Some(life) => return Handover::answer(Err(failing(&parent, life))),
            None => {
                let directory = self.world.publisher.directory();
                return Handover::answer(Err(directory.not_found(Kind::Sandbox, sandbox.as_str())));
            }
        }
        let name = NameKey::Container(sandbox.clone(), spec.name.clone());
        let link = match self.registry.holder(&name).cloned() {
            Some(Child::Container(id)) => match self.containers.get(&id) {
                Some(link) => link.clone(),
                None => return Handover::answer(Err(failing(&Child::Container(id), Life::Restarting))),
            },
            _ => {
                let id = self.new_container_id();
                let own_log = || self.world.log_dir.join(sandbox.as_str()).join(format!("{id}.log"));
                let log_path = spec.log_path.clone().unwrap_or_else(own_log);
                let now = self.world.ports.clock.now();
                let record = ContainerRecord::intent(id.clone(), sandbox, spec.clone(), log_path, now);
                let link = self.make_container(record, ctx);
                self.deliver_parked(&id);
                link
            }
        };
        self.pass(&link, Rank::Ordinary, move |reply| container::Deliver {
            request: container::Request::Create(Box::new(spec)),
            waiting: container::Waiting::Created(reply),
        })
    }
}

impl<M: Passed> Handler<Routed<M>> for Router {
    type Result = Handover<Result<M::Answer>>;

    fn handle(&mut self, Routed(message): Routed<M>, _ctx: &mut Context<Self>) -> Self::Result {
        match M::Call::link(self, message.target()) {
            Some(link) => self.pass(link, message.rank(), move |reply| message.call(reply)),
            None => Handover::answer(self.absent(&message)),
        }
    }
}

impl Handler<ShimDied> for Router {
    type Result = ();

    fn handle(&mut self, ShimDied { sandbox, reason }: ShimDied, _ctx: &mut Context<Self>) {
        if let Some(link) = self.sandboxes.get(&sandbox) {
            let request = sandbox::Request::ShimDied(reason);
            link.addr.do_send(sandbox::Deliver { request, waiting: sandbox::Waiting::Nobody });
        }
    }
}

impl Handler<Noted> for Router {
    type Result = ();

    fn handle(&mut self, Noted { subject, what }: Noted, _ctx: &mut Context<Self>) {
        self.world.note_now(subject, what);
    }
}

impl Handler<Pulse> for Router {
    type Result = ();

    fn handle(&mut self, Pulse: Pulse, _ctx: &mut Context<Self>) {}
}

impl Handler<Deregister> for Router {
    type Result = ();

    fn handle(&mut self, Deregister { child }: Deregister, _ctx: &mut Context<Self>) {
        self.strike(&child);
    }
}

impl Router {
    /// A child is gone: its name is free, late exits are absorbed, its sandbox hears of it.
    fn strike(&mut self, child: &Child) {
        let sandbox = self.registry.strike(child);
        match child {
            Child::Sandbox(id) => drop(self.sandboxes.remove(id)),
            Child::Container(id) => {
                self.containers.remove(id);
                self.exits.bury(id.clone(), self.world.now().mono_ms);
                if let Some(parent) = sandbox.and_then(|sandbox| self.sandboxes.get(&sandbox)) {
                    let request = sandbox::Request::ContainerGone(id.clone());
                    parent.addr.do_send(sandbox::Deliver { request, waiting: sandbox::Waiting::Nobody });
                }
            }
        }
    }
}

/// What a call comes to whose child is registered but does not run.
fn failing(child: &Child, life: Life) -> Error {
    let what = match child {
        Child::Sandbox(id) => format!("the actor of pod {id}"),
        Child::Container(id) => format!("the actor of container {id}"),
    };
    let reason = match life {
        Life::Running | Life::Restarting => "it failed and is being started again; ask again",
        Life::Resting => "it failed too often; it is started again in about a minute",
    };
    Error::internal(what, reason)
}
