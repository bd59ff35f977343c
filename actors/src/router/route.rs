//! Which message goes to which child, and what it comes to when that child is not there. Written once for
//! each message; the router itself is generic over them.

use actix::Message;
use mainstay_messages::container::{
    KillContainer, KillExec, MeasureContainer, RemoveContainer, ReopenLog, ResizeTerminal, StartContainer,
    StartExec, StopContainer,
};
use mainstay_messages::sandbox::{AdmitContainer, MeasureSandbox, RemoveSandbox, StopSandbox};
use mainstay_messages::supervisor::{SandboxStats, Stats};
use mainstay_messages::{ContainerId, ExecId, Result, SandboxId};

use crate::call::Reply;
use crate::container::state::Knowledge;
use crate::{container, sandbox};

/// A message for a sandbox or container, to be sent to the router, which finds it.
#[derive(Clone, Debug)]
pub struct Routed<M>(pub M);

impl<M: Routable> Message for Routed<M> {
    type Result = Result<M::Answer>;
}

/// A message that the router can pass on. Closed: what a child understands is decided in this crate.
pub trait Routable: private::Passed {}

/// The object that a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A sandbox.
    Sandbox(&'a SandboxId),
    /// A container.
    Container(&'a ContainerId),
}

/// What is known of an object that is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was here not long ago.
    Gone,
    /// Nothing.
    NeverSeen,
}

/// Who is served when the inbox is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
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

/// A call, ready for its child.
pub enum Delivery {
    /// For a sandbox.
    #[doc(hidden)]
    Sandbox(private::ToSandbox),
    /// For a container.
    #[doc(hidden)]
    Container(private::ToContainer),
}

pub(crate) mod private {
    use super::{Absence, Delivery, Rank, Target};
    use crate::call::Reply;
    use crate::{container, sandbox};
    use mainstay_messages::Result;

    /// The part of a routable message that is nobody's business outside.
    pub trait Passed: Send + 'static {
        /// What a good answer holds.
        type Answer: Send + 'static;
        /// Whom it is for.
        fn target(&self) -> Target<'_>;
        /// How important it is.
        fn rank(&self) -> Rank;
        /// The answer when its target is not there, if that is a good one.
        fn when_absent(&self, absence: Absence) -> Option<Self::Answer>;
        /// The call.
        #[allow(
            private_interfaces,
            reason = "the trait is closed; nobody outside can call or implement this"
        )]
        fn deliver(self, reply: Reply<Result<Self::Answer>>) -> Delivery;
    }

    /// A call for a sandbox.
    pub struct ToSandbox(pub(crate) sandbox::Deliver);
    /// A call for a container.
    pub struct ToContainer(pub(crate) container::Deliver);
}

impl<M: private::Passed> Routable for M {}

/// One message: its target, its rank, its answer, what it means when the target is absent, and the call.
macro_rules! routable {
    ($message:ty => $answer:ty, $target:ident($id:ident), $rank:ident, $absent:expr, |$this:ident, $reply:ident| $deliver:expr) => {
        impl private::Passed for $message {
            type Answer = $answer;

            fn target(&self) -> Target<'_> {
                Target::$target(&self.$id)
            }

            fn rank(&self) -> Rank {
                Rank::$rank
            }

            fn when_absent(&self, absence: Absence) -> Option<$answer> {
                let absent: fn(Absence) -> Option<$answer> = $absent;
                absent(absence)
            }

            #[allow(
                private_interfaces,
                reason = "the trait is closed; nobody outside can call or implement this"
            )]
            fn deliver(self, $reply: Reply<Result<$answer>>) -> Delivery {
                let $this = self;
                $deliver
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

fn to_container(request: container::Request, waiting: container::Waiting) -> Delivery {
    Delivery::Container(private::ToContainer(container::Deliver { request, waiting }))
}

fn to_sandbox(request: sandbox::Request, waiting: sandbox::Waiting) -> Delivery {
    Delivery::Sandbox(private::ToSandbox(sandbox::Deliver { request, waiting }))
}

routable!(StartContainer => (), Container(container), Ordinary, not_found, |_this, reply| {
    to_container(container::Request::Start, container::Waiting::Done(reply))
});
routable!(StopContainer => (), Container(container), Reserved, success, |this, reply| {
    let request = container::Request::Stop { signal: this.signal, grace_ms: this.grace_ms };
    to_container(request, container::Waiting::Done(reply))
});
routable!(KillContainer => (), Container(container), Reserved, success_if_it_was_here, |this, reply| {
    to_container(container::Request::Kill(this.signal), container::Waiting::Done(reply))
});
routable!(RemoveContainer => (), Container(container), Reserved, success, |this, reply| {
    to_container(container::Request::Remove(this.running), container::Waiting::Done(reply))
});
routable!(StartExec => ExecId, Container(container), Ordinary, not_found, |this, reply| {
    to_container(container::Request::Exec(Box::new(this.spec)), container::Waiting::Exec(reply))
});
routable!(KillExec => (), Container(container), Reserved, success_if_it_was_here, |this, reply| {
    to_container(container::Request::KillExec(this.exec, this.signal), container::Waiting::Done(reply))
});
routable!(ResizeTerminal => (), Container(container), Ordinary, not_found, |this, reply| {
    to_container(container::Request::Resize(this.exec, this.size), container::Waiting::Done(reply))
});
routable!(ReopenLog => (), Container(container), Ordinary, not_found, |_this, reply| {
    to_container(container::Request::ReopenLog, container::Waiting::Done(reply))
});
routable!(MeasureContainer => Stats, Container(container), Ordinary, not_found, |_this, reply| {
    to_container(container::Request::Measure, container::Waiting::Stats(reply))
});
routable!(AdoptContainer => (), Container(container), Always, success, |this, reply| {
    reply.send(Ok(()));
    to_container(container::Request::Adopt(this.knowledge), container::Waiting::Nobody)
});
routable!(StopSandbox => (), Sandbox(sandbox), Reserved, success, |this, reply| {
    to_sandbox(sandbox::Request::Stop { grace_ms: this.grace_ms }, sandbox::Waiting::Done(reply))
});
routable!(RemoveSandbox => (), Sandbox(sandbox), Reserved, success, |_this, reply| {
    to_sandbox(sandbox::Request::Remove, sandbox::Waiting::Done(reply))
});
routable!(AdmitContainer => (), Sandbox(sandbox), Always, not_found, |this, reply| {
    to_sandbox(sandbox::Request::Admit(this.container), sandbox::Waiting::Done(reply))
});
routable!(MeasureSandbox => SandboxStats, Sandbox(sandbox), Ordinary, not_found, |_this, reply| {
    to_sandbox(sandbox::Request::Measure, sandbox::Waiting::Stats(reply))
});

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
routable!(PoisonContainer => (), Container(container), Always, not_found, |_this, reply| {
    to_container(container::Request::Poison, container::Waiting::Done(reply))
});
#[cfg(feature = "faults")]
routable!(PoisonSandbox => (), Sandbox(sandbox), Always, not_found, |_this, reply| {
    to_sandbox(sandbox::Request::Poison, sandbox::Waiting::Done(reply))
});
