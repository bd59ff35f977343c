//! A container: one actor, which alone changes it.
//!
//! ```text
//!              admitted, recorded                  started                        stop
//!  (proposed) ───────────────────► Creating ─► Created ─► Starting ─► Running ─────────► Stopping
//!       │ refused                     │           │          │           │                  │
//!       ▼                             ▼           ▼          ▼           ▼                  ▼
//!   (nothing)                       Exited ◄──── an exit, in whatever phase, exactly once ──┘
//!                                     │ remove (also from Created and Unknown)
//!                                     ▼
//!                                  Removing ─► task deleted ─► record deleted ─► (nothing)
//!
//!  Unknown: found in the store, and nobody answers yet. A later answer puts it where it belongs.
//! ```
//!
//! It owns the container's record, its exit, its execs, and the callers who wait. All decisions are in
//! [`state`]; here messages become inputs and effects become calls. It never touches a process, a file or the
//! network, and never waits for anything in a handler: calls to the supervisor run beside it, have a time-out
//! each, and their answers come back as inputs.

mod calls;
mod effects;
pub mod state;

use std::collections::{BTreeMap, HashMap, HashSet};

use actix::{Actor, Context, Handler, Message, Recipient};
use mainstay_messages::container::IfRunning;
use mainstay_messages::event::{Subject, What};
use mainstay_messages::record::{ContainerRecord, Paused};
use mainstay_messages::router::{Deregister, ExitReceipt};
use mainstay_messages::sandbox::AdmitContainer;
use mainstay_messages::spec::{ContainerSpec, ExecSpec, Resources, WindowSize};
use mainstay_messages::supervisor::{Consult, Stats};
use mainstay_messages::{ContainerId, Error, ExecId, Exit, Result, Signal};

use crate::call::{CallId, Inbox, Reply};
use crate::machine::{Driver, Shell, Wrote, feed};
use crate::router::Routed;
use crate::ticket::Ticket;
use crate::world::World;
use state::{Effect, Input, Knowledge, State};

/// The most calls that wait for their answers in one container.
pub const CONTAINER_INBOX_MAX: usize = 256;
/// Places beside those, for stops, kills and removes: they get through when the rest is full.
pub const CONTAINER_INBOX_RESERVED: usize = 64;
/// Repeated reports of exits of which the journal holds one note each.
const ABSORBED_NOTES_MAX: usize = 1_024;

/// See the module.
pub(crate) struct Container {
    driver: Driver<State>,
    world: World,
    links: Links,
    inbox: Inbox,
    calls: BTreeMap<CallId, Waiting>,
    last_call: u64,
    ticket: Ticket,
    absorbed: HashSet<Option<ExecId>>,
}

/// Whom a container talks to beside the shared ones.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) admit: Recipient<Routed<AdmitContainer>>,
    pub(crate) deregister: Recipient<Deregister>,
}

/// A call for a container.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Deliver {
    pub(crate) request: Request,
    pub(crate) waiting: Waiting,
}

/// What is asked of a container, or reported to it.
pub(crate) enum Request {
    Create(Box<ContainerSpec>),
    Start,
    Stop {
        signal: Option<Signal>,
        grace_ms: Option<u64>,
    },
    Evict {
        plugin: String,
        reason: String,
    },
    Kill(Signal),
    Remove(IfRunning),
    Exec(Box<ExecSpec>),
    KillExec(ExecId, Signal),
    Resize(Option<ExecId>, WindowSize),
    ReopenLog,
    Measure,
    Freeze(Paused),
    Update(Box<Resources>, Consult),
    Exit(Option<ExecId>, Exit),
    Adopt(Knowledge),
    #[cfg(feature = "faults")]
    Poison,
}

/// Who waits for the answer, by the kind of answer.
pub(crate) enum Waiting {
    Done(Reply<Result<()>>),
    Created(Reply<Result<ContainerId>>),
    Exec(Reply<Result<ExecId>>),
    Stats(Reply<Result<Stats>>),
    Receipt(Reply<ExitReceipt>, Option<ExecId>),
    /// They are answered at once: it is told, not asked.
    Told(Reply<Result<()>>),
    /// Nobody.
    Nobody,
}

impl Container {
    /// A container that its caller asks for, or that was found in the store.
    pub(crate) fn new(machine: State, inbox: Inbox, ticket: Ticket, links: Links, world: World) -> Self {
        let name = format!("container {}", machine.record().id);
        Self {
            driver: Driver::new(machine, name, world.clone()),
            world,
            links,
            inbox,
            calls: BTreeMap::new(),
            last_call: 0,
            ticket,
            absorbed: HashSet::new(),
        }
    }

    fn record(&self) -> &ContainerRecord {
        self.driver.machine().record()
    }

    fn subject(&self, exec: Option<&ExecId>) -> Subject {
        let record = self.record();
        match exec {
            Some(exec) => Subject::exec(&record.sandbox, &record.id, exec),
            None => Subject::container(&record.sandbox, &record.id),
        }
    }

    /// Lets readers see it as it is. Before it starts: an actor that was started runs some time later, and until then what
    /// is recorded would seem not to be there.
    pub(crate) fn show(&self) {
        let machine = self.driver.machine();
        let shown = self.world.publisher.directory().container(&machine.record().id);
        // An exit that readers have seen stays to be seen; it is on its way to this actor.
        let seen = shown.is_some_and(|shown| shown.record.exit.is_some());
        let hidden = seen && machine.record().exit.is_none();
        if machine.standing() == state::Standing::Recorded && !hidden {
            self.world.publisher.container(machine.snapshot());
        }
    }
}

impl Actor for Container {
    type Context = Context<Self>;
}

impl Handler<Deliver> for Container {
    type Result = ();

    fn handle(&mut self, deliver: Deliver, ctx: &mut Context<Self>) {
        if self.inbox.unanswered() > CONTAINER_INBOX_MAX / 2 {
            // Callers who have left hold no place. What they asked for goes on.
            self.calls.retain(|_, waiting| !waiting.is_abandoned());
        }
        self.last_call += 1;
        let call = CallId(self.last_call);
        match deliver.waiting {
            Waiting::Nobody => {}
            Waiting::Told(reply) => reply.send(Ok(())),
            waiting => drop(self.calls.insert(call, waiting)),
        }
        let input = match deliver.request {
            Request::Create(spec) => Input::Create { call, spec },
            Request::Start => Input::Start { call },
            Request::Stop { signal, grace_ms } => Input::Stop { call, signal, grace_ms },
            Request::Evict { plugin, reason } => Input::Evict { call, plugin, reason },
            Request::Kill(signal) => Input::Kill { call, signal },
            Request::Remove(running) => Input::Remove { call, running },
            Request::Exec(spec) => {
                Input::Exec { call, id: ExecId::from_random(self.world.ports.ids.random()), spec }
            }
            Request::KillExec(id, signal) => Input::KillExec { call, id, signal },
            Request::Resize(exec, size) => Input::Resize { call, exec, size },
            Request::ReopenLog => Input::ReopenLog { call },
            Request::Measure => Input::Measure { call },
            Request::Freeze(to) => Input::Freeze { call, to },
            Request::Update(change, consult) => Input::Update { call, change, consult },
            Request::Exit(exec, exit) => Input::Exit { call, exec, exit },
            Request::Adopt(knowledge) => Input::Adopt(knowledge),
            #[cfg(feature = "faults")]
            Request::Poison => panic!("a fault was asked for"),
        };
        feed(self, input, ctx);
    }
}

impl Shell for Container {
    type Machine = State;

    fn driver(&mut self) -> &mut Driver<State> {
        &mut self.driver
    }

    fn publish(&mut self, before: &State) {
        let machine = self.driver.machine();
        if machine.standing() == state::Standing::Proposed {
            return;
        }
        let first = before.standing() == state::Standing::Proposed;
        if machine.standing() != state::Standing::Recorded && first {
            return;
        }
        if first || !machine.looks_like(before) {
            self.world.publisher.container(machine.snapshot());
        }
        self.publish_execs(before);
    }

    fn perform(&mut self, effect: Effect, wrote: &Wrote, ctx: &mut Context<Self>) {
        self.perform_effect(effect, wrote, ctx);
    }

    fn ignored(&mut self, call: Option<CallId>, why: &'static str) {
        tracing::debug!(container = %self.record().id, why, "ignored");
        let Some(waiting) = call.and_then(|call| self.calls.remove(&call)) else { return };
        if let Waiting::Receipt(_, exec) = &waiting {
            self.note_absorbed(exec.clone(), why);
        }
        waiting.done();
    }

    fn denied(&mut self, call: CallId, error: Error) {
        self.answer(vec![call], &Err(error));
    }
}

impl Container {
    /// One note in the journal for each exit, however often it is repeated.
    fn note_absorbed(&mut self, exec: Option<ExecId>, why: &'static str) {
        self.world.counters.absorbed.add();
        if self.absorbed.len() >= ABSORBED_NOTES_MAX {
            self.absorbed.clear();
        }
        let subject = self.subject(exec.as_ref());
        if self.absorbed.insert(exec) {
            self.world.note_now(subject, What::ExitAbsorbed { reason: why.to_owned() });
        }
    }

    fn publish_execs(&self, before: &State) {
        let (old, new) = (before.execs(), self.driver.machine().execs());
        if std::sync::Arc::ptr_eq(old, new) {
            return;
        }
        let mut seen: HashMap<&ExecId, _> = old.shown().map(|exec| (&exec.id, exec)).collect();
        for exec in new.shown() {
            let unchanged = seen.remove(&exec.id).is_some_and(|old| std::sync::Arc::ptr_eq(old, exec));
            if !unchanged {
                self.world.publisher.exec(std::sync::Arc::clone(exec));
            }
        }
        seen.into_keys().for_each(|id| self.world.publisher.exec_gone(id));
    }
}
