//! Messages to the router: the commands that make objects, the facts that come up from the supervisor, and
//! what its children tell it.

use actix::Message;

use crate::error::Result;
use crate::event::{Subject, What};
use crate::id::{ContainerId, ExecId, SandboxId};
use crate::process::Exit;
use crate::spec::{ContainerSpec, SandboxSpec};

/// Make a pod sandbox and answer when it is Ready. The same spec again, while the first is being made or
/// after it, joins it and gets the same id.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<SandboxId>")]
pub struct RunSandbox {
    /// What is asked for, already checked.
    pub spec: SandboxSpec,
}

/// Make a container in a Ready sandbox and answer when its PID 1 waits to be started. The same spec again
/// joins the first, as with [`RunSandbox`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<ContainerId>")]
pub struct CreateContainer {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// What is asked for, already checked.
    pub spec: ContainerSpec,
}

/// A process of a pod: its container's PID 1, or an exec.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// The pod.
    pub sandbox: SandboxId,
    /// The container.
    pub container: ContainerId,
    /// The exec; none for PID 1.
    pub exec: Option<ExecId>,
}

/// A process ended. Sent until the answer says that it need not be sent again.
#[derive(Clone, Debug, Message)]
#[rtype(result = "ExitReceipt")]
pub struct TaskExited {
    /// Which process.
    pub task: TaskKey,
    /// How it ended.
    pub exit: Exit,
}

/// What became of a [`TaskExited`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReceipt {
    /// It is in the journal, or changes nothing: the shim may forget it.
    Settled,
    /// It waits for its container to be registered, or could not be written yet: send it again.
    Pending,
}

/// A shim died, and all its tasks have been reported as [`TaskExited`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct ShimDied {
    /// Its pod.
    pub sandbox: SandboxId,
    /// How, as far as it is known.
    pub reason: String,
}

/// A fact on which no state depends, for the journal.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Noted {
    /// Whom it is about.
    pub subject: Subject,
    /// What happened.
    pub what: What,
}

/// Answered as soon as all that came before is dealt with: whoever hears nothing knows that the actors hang.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Pulse;

/// A child was taken down on purpose: whatever still arrives for it is absorbed.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Deregister {
    /// Which child.
    pub child: Child,
}

/// A child's ticket was dropped without [`Deregister`]: it panicked.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct ChildLost {
    /// Which child.
    pub child: Child,
    /// Which start of it, so that a late report cannot hit its successor.
    pub generation: u32,
}

/// An actor that the router keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Child {
    /// A sandbox.
    Sandbox(SandboxId),
    /// A container.
    Container(ContainerId),
}
