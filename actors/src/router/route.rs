//! Which message goes to which child, and what it comes to when that child is not there. Written once for
//! each message; the router itself is generic over them.

use actix::{Actor, Context, Handler, Message};
use mainstay_messages::container::{
    KillContainer, KillExec, MeasureContainer, PauseContainer, RemoveContainer, ReopenLog, ResizeTerminal,
    ResumeContainer, StartContainer, StartExec, StopContainer, UpdateContainer,
};
use mainstay_messages::record::Paused;
use mainstay_messages::router::Child;
use mainstay_messages::sandbox::{AdmitContainer, MeasureSandbox, RemoveSandbox, StopSandbox, UpdateSandbox};
use mainstay_messages::supervisor::{SandboxStats, Stats};
use mainstay_messages::{ContainerId, ExecId, Result, SandboxId};

use super::{Link, Router};
use crate::call::Reply;
use crate::container::state::Knowledge;
use crate::container::{self, CONTAINER_INBOX_MAX, CONTAINER_INBOX_RESERVED, Container};
use crate::sandbox::{self, SANDBOX_INBOX_MAX, SANDBOX_INBOX_RESERVED, Sandbox};

/// A message for a sandbox or container, to be sent to the router, which finds it.
#[derive(Clone, Debug)]
pub struct Routed<M>(pub M);

impl<M: Routable> Message for Routed<M> {
    type Result = Result<M::Answer>;
}

/// A message that the router can pass on. Which ones can is decided in this crate.
pub trait Routable: Send + 'static {
    /// What a good answer holds.
    type Answer: Send + 'static;
}

/// What is known of an object that is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// It was here not long ago.
    Gone,
    /// Nothing.
    NeverSeen,
}

/// The places of an inbox.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Whose, for an error.
    pub(crate) whose: &'static str,
    /// For all.
    pub(crate) ordinary: usize,
    /// Beside those, for [`Rank::Reserved`].
    pub(crate) reserved: usize,
}

/// Who is served when the inbox is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Whoever finds room.
    Ordinary,
    /// Stops, kills and removes have places of their own.
    Reserved,
    /// Facts, and what the actors say to one another.
    Always,
}

/// What the system tells a container about its task after the container was found in the store.
#[derive(Clone, Debug)]
pub(crate) struct AdoptContainer {
    pub(crate) container: ContainerId,
    pub(crate) knowledge: Knowledge,
}

/// How a message is passed on.
pub(crate) trait Passed: Routable {
    /// The call that it becomes, which says what kind of child it is for.
    type Call: Called;
    /// Which child it is for.
    fn target(&self) -> &<Self::Call as Called>::Id;
    /// How important it is.
    fn rank(&self) -> Rank;
    /// The answer when its target is not there, if that is a good one.
    fn when_absent(&self, absence: Absence) -> Option<Self::Answer>;
    /// The call.
    fn call(self, reply: Reply<Result<Self::Answer>>) -> Self::Call;
}

/// A call for one kind of child.
pub(crate) trait Called: Message<Result = ()> + Send + Sized + 'static {
    /// The child.
    type Child: Actor<Context = Context<Self::Child>> + Handler<Self>;
    /// Its id.
    type Id: Clone;
    /// The places of its inbox.
    const PLACES: Places;
    /// Where it is reached.
    fn link<'a>(router: &'a Router, id: &Self::Id) -> Option<&'a Link<Self::Child>>;
    /// The child, for the registry.
    fn child(id: &Self::Id) -> Child;
}

impl Called for sandbox::Deliver {
    type Child = Sandbox;
    type Id = SandboxId;
    const PLACES: Places =
        Places { whose: "a pod", ordinary: SANDBOX_INBOX_MAX, reserved: SANDBOX_INBOX_RESERVED };

    fn link<'a>(router: &'a Router, id: &SandboxId) -> Option<&'a Link<Sandbox>> {
        router.sandboxes.get(id)
    }

    fn child(id: &SandboxId) -> Child {
        Child::Sandbox(id.clone())
    }
}

impl Called for container::Deliver {
    type Child = Container;
    type Id = ContainerId;
    const PLACES: Places =
        Places { whose: "a container", ordinary: CONTAINER_INBOX_MAX, reserved: CONTAINER_INBOX_RESERVED };

    fn link<'a>(router: &'a Router, id: &ContainerId) -> Option<&'a Link<Container>> {
        router.containers.get(id)
    }

    fn child(id: &ContainerId) -> Child {
        Child::Container(id.clone())
    }
}

/// One message: its answer, its target, its rank, what it means when the target is absent, and the call.
macro_rules! routable {
    ($message:ty => $answer:ty, $kind:ident . $id:ident, $rank:ident, $absent:expr, |$this:ident| $request:expr, $waiting:ident) => {
        impl Routable for $message {
            type Answer = $answer;
        }

        impl Passed for $message {
            type Call = $kind::Deliver;

            fn target(&self) -> &<Self::Call as Called>::Id {
                &self.$id
            }

            fn rank(&self) -> Rank {
                Rank::$rank
            }

            fn when_absent(&self, absence: Absence) -> Option<$answer> {
                let absent: fn(Absence) -> Option<$answer> = $absent;
                absent(absence)
            }

            fn call(self, reply: Reply<Result<$answer>>) -> $kind::Deliver {
                let $this = self;
                $kind::Deliver { request: $request, waiting: $kind::Waiting::$waiting(reply) }
            }
        }
    };
}

fn success(_absence: Absence) -> Option<()> {
    Some(())
}

fn success_if_it_was_here(absence: Absence) -> Option<()> {
    (absence == Absence::Gone).then_some(())
}

fn not_found<T>(_absence: Absence) -> Option<T> {
    None
}

routable!(StartContainer => (), container.container, Ordinary, not_found,
    |_this| container::Request::Start, Done);
routable!(StopContainer => (), container.container, Reserved, success,
    |this| container::Request::Stop { signal: this.signal, grace_ms: this.grace_ms }, Done);
routable!(KillContainer => (), container.container, Reserved, success_if_it_was_here,
    |this| container::Request::Kill(this.signal), Done);
routable!(RemoveContainer => (), container.container, Reserved, success,
    |this| container::Request::Remove(this.running), Done);
routable!(StartExec => ExecId, container.container, Ordinary, not_found,
    |this| container::Request::Exec(Box::new(this.spec)), Exec);
routable!(KillExec => (), container.container, Reserved, success_if_it_was_here,
    |this| container::Request::KillExec(this.exec, this.signal), Done);
routable!(ResizeTerminal => (), container.container, Ordinary, not_found,
    |this| container::Request::Resize(this.exec, this.size), Done);
routable!(ReopenLog => (), container.container, Ordinary, not_found,
    |_this| container::Request::ReopenLog, Done);
routable!(MeasureContainer => Stats, container.container, Ordinary, not_found,
    |_this| container::Request::Measure, Stats);
routable!(PauseContainer => (), container.container, Ordinary, not_found,
    |_this| container::Request::Freeze(Paused::Yes), Done);
routable!(ResumeContainer => (), container.container, Ordinary, not_found,
    |_this| container::Request::Freeze(Paused::No), Done);
routable!(UpdateContainer => (), container.container, Ordinary, not_found,
    |this| container::Request::Update(Box::new(this.change), this.consult), Done);
routable!(AdoptContainer => (), container.container, Always, success,
    |this| container::Request::Adopt(this.knowledge), Told);
routable!(StopSandbox => (), sandbox.sandbox, Reserved, success,
    |this| sandbox::Request::Stop { grace_ms: this.grace_ms }, Done);
routable!(RemoveSandbox => (), sandbox.sandbox, Reserved, success,
    |_this| sandbox::Request::Remove, Done);
routable!(AdmitContainer => (), sandbox.sandbox, Always, not_found,
    |this| sandbox::Request::Admit(this.container), Done);
routable!(UpdateSandbox => (), sandbox.sandbox, Ordinary, not_found,
    |this| sandbox::Request::Update(Box::new(this.change)), Done);
routable!(MeasureSandbox => SandboxStats, sandbox.sandbox, Ordinary, not_found,
    |_this| sandbox::Request::Measure, Stats);

/// Makes the actor of a container panic, for tests.
#[cfg(feature = "faults")]
#[derive(Clone, Debug)]
pub struct PoisonContainer {
    /// Which.
    pub container: ContainerId,
}

/// Makes the actor of a sandbox panic, for tests.
#[cfg(feature = "faults")]
#[derive(Clone, Debug)]
pub struct PoisonSandbox {
    /// Which.
    pub sandbox: SandboxId,
}

#[cfg(feature = "faults")]
routable!(PoisonContainer => (), container.container, Always, not_found,
    |_this| container::Request::Poison, Done);
#[cfg(feature = "faults")]
routable!(PoisonSandbox => (), sandbox.sandbox, Always, not_found,
    |_this| sandbox::Request::Poison, Done);
