//! A sandbox: one actor, which alone changes it.
//!
//! ```text
//!              recorded            shim runs              stop
//!  (proposed) ──────────► Starting ─────────► Ready ───────────────► Stopping ─► Stopped
//!       │ refused             │ failed          │ shim died              ▲          │
//!       ▼                     ▼                 ▼           stop         │          │ remove (from any)
//!   (nothing)   undone ◄── NotReady          NotReady ───────────────────┘          ▼
//!                  ▼                                                            Removing ─► (nothing)
//!              (nothing)
//!
//!  Unknown: found in the store, and nobody answers yet, or its row cannot be read.
//! ```
//!
//! It owns the pod's record, the ids of its containers, and the callers who wait. All decisions are in
//! [`state`]. It knows its containers by id alone and reaches them through the router, so that one that is
//! started again is still reached. It never touches a process, a namespace or a file.

mod effects;
pub mod state;

use std::collections::BTreeMap;

use actix::{Actor, Context, Handler, Message, Recipient};
use mainstay_messages::container::{RemoveContainer, StopContainer};
use mainstay_messages::router::Deregister;
use mainstay_messages::sandbox::SandboxChange;
use mainstay_messages::spec::SandboxSpec;
use mainstay_messages::supervisor::SandboxStats;
use mainstay_messages::{ContainerId, Error, Result, SandboxId};

use crate::call::{CallId, Inbox, Reply};
use crate::machine::{Driver, Shell, Wrote, feed};
use crate::router::{AdoptContainer, Routed};
use crate::ticket::Ticket;
use crate::world::World;
use state::{Effect, Input, Standing, State};

/// The most calls that wait for their answers in one sandbox.
pub const SANDBOX_INBOX_MAX: usize = 256;
/// Places beside those, for stops and removes: they get through when the rest is full.
pub const SANDBOX_INBOX_RESERVED: usize = 64;

/// See the module.
pub(crate) struct Sandbox {
    driver: Driver<State>,
    world: World,
    links: Links,
    inbox: Inbox,
    calls: BTreeMap<CallId, Waiting>,
    last_call: u64,
    ticket: Ticket,
}

/// Whom a sandbox talks to beside the shared ones.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) stop_container: Recipient<Routed<StopContainer>>,
    pub(crate) remove_container: Recipient<Routed<RemoveContainer>>,
    pub(crate) adopt_container: Recipient<Routed<AdoptContainer>>,
    pub(crate) deregister: Recipient<Deregister>,
}

/// A call for a sandbox.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Deliver {
    pub(crate) request: Request,
    pub(crate) waiting: Waiting,
}

/// What is asked of a sandbox, or reported to it.
pub(crate) enum Request {
    Run(Box<SandboxSpec>),
    Admit(ContainerId),
    Stop {
        grace_ms: Option<u64>,
    },
    Remove,
    Measure,
    Update(Box<SandboxChange>),
    ContainerGone(ContainerId),
    ShimDied(String),
    Recover,
    #[cfg(feature = "faults")]
    Poison,
}

/// Who waits for the answer, by the kind of answer.
pub(crate) enum Waiting {
    Done(Reply<Result<()>>),
    Ready(Reply<Result<SandboxId>>),
    Stats(Reply<Result<SandboxStats>>),
    /// Nobody.
    Nobody,
}

impl Waiting {
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Done(reply) => reply.is_abandoned(),
            Self::Ready(reply) => reply.is_abandoned(),
            Self::Stats(reply) => reply.is_abandoned(),
            Self::Nobody => true,
        }
    }

    /// It could not be done.
    pub(crate) fn fail(self, error: Error) {
        match self {
            Self::Done(reply) => reply.send(Err(error)),
            Self::Ready(reply) => reply.send(Err(error)),
            Self::Stats(reply) => reply.send(Err(error)),
            Self::Nobody => {}
        }
    }

    fn answer(self, answer: Result<state::Answer>) {
        match (self, answer) {
            (waiting, Err(error)) => waiting.fail(error),
            (Self::Done(reply), Ok(state::Answer::Done)) => reply.send(Ok(())),
            (Self::Ready(reply), Ok(state::Answer::Ready(id))) => reply.send(Ok(id)),
            (waiting, Ok(_)) => {
                waiting.fail(Error::internal("a sandbox actor", "the answer does not fit the call"));
            }
        }
    }
}

impl Sandbox {
    /// A sandbox that its caller asks for, or that was found in the store.
    pub(crate) fn new(machine: State, inbox: Inbox, ticket: Ticket, links: Links, world: World) -> Self {
        let name = format!("pod {}", machine.record().id);
        Self {
            driver: Driver::new(machine, name, world.clone()),
            world,
            links,
            inbox,
            calls: BTreeMap::new(),
            last_call: 0,
            ticket,
        }
    }

    fn id(&self) -> &SandboxId {
        &self.driver.machine().record().id
    }

    /// Lets readers see it as it is. Before it starts: an actor that was started runs some time later, and until then what
    /// is recorded would seem not to be there.
    pub(crate) fn show(&self) {
        if self.driver.machine().standing() == Standing::Recorded {
            self.world.publisher.sandbox(self.driver.machine().snapshot());
        }
    }

    /// Answers calls. Those whose callers were dropped for want of room are not there any more.
    fn answer(&mut self, calls: Vec<CallId>, answer: &Result<state::Answer>) {
        for call in calls {
            if let Some(waiting) = self.calls.remove(&call) {
                waiting.answer(answer.clone());
            }
        }
    }
}

impl Actor for Sandbox {
    type Context = Context<Self>;
}

impl Handler<Deliver> for Sandbox {
    type Result = ();

    fn handle(&mut self, deliver: Deliver, ctx: &mut Context<Self>) {
        if self.inbox.unanswered() > SANDBOX_INBOX_MAX / 2 {
            // Callers who have left hold no place. What they asked for goes on.
            self.calls.retain(|_, waiting| !waiting.is_abandoned());
        }
        self.last_call += 1;
        let call = CallId(self.last_call);
        if !matches!(deliver.waiting, Waiting::Nobody) {
            self.calls.insert(call, deliver.waiting);
        }
        let input = match deliver.request {
            Request::Run(spec) => Input::Run { call, spec },
            Request::Admit(container) => Input::Admit { call, container },
            Request::Stop { grace_ms } => Input::Stop { call, grace_ms },
            Request::Remove => Input::Remove { call },
            Request::Measure => Input::Measure { call },
            Request::Update(change) => Input::Update { call, change },
            Request::ContainerGone(container) => Input::ContainerGone(container),
            Request::ShimDied(reason) => Input::ShimDied(reason),
            Request::Recover => Input::Recover,
            #[cfg(feature = "faults")]
            Request::Poison => panic!("a fault was asked for"),
        };
        feed(self, input, ctx);
    }
}

impl Shell for Sandbox {
    type Machine = State;

    fn driver(&mut self) -> &mut Driver<State> {
        &mut self.driver
    }

    fn publish(&mut self, before: &State) {
        let machine = self.driver.machine();
        let first = before.standing() == Standing::Proposed;
        let hidden = match machine.standing() {
            Standing::Proposed => true,
            Standing::Recorded => !first && machine.looks_like(before),
            Standing::Deleted => first || machine.looks_like(before),
        };
        if !hidden {
            self.world.publisher.sandbox(machine.snapshot());
        }
    }

    fn perform(&mut self, effect: Effect, wrote: &Wrote, ctx: &mut Context<Self>) {
        self.perform_effect(effect, wrote, ctx);
    }

    fn ignored(&mut self, call: Option<CallId>, why: &'static str) {
        tracing::debug!(sandbox = %self.id(), why, "ignored");
        self.answer(call.into_iter().collect(), &Ok(state::Answer::Done));
    }

    fn denied(&mut self, call: CallId, error: Error) {
        self.answer(vec![call], &Err(error));
    }
}
