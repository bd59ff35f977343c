//! What can happen to a sandbox, and what it wants to have done.

use mainstay_messages::event::What;
use mainstay_messages::sandbox::SandboxChange;
use mainstay_messages::spec::{PodPlan, Resources, SandboxSpec};
use mainstay_messages::supervisor::{Adopted, Consult, Launched};
use mainstay_messages::{ContainerId, Error, Result, SandboxId};

use crate::call::CallId;
use crate::container::state::Knowledge;

/// Whatever can happen to a sandbox.
#[derive(Clone, Debug)]
pub enum Input {
    /// Make it, or join the making of it.
    Run {
        /// Who asks.
        call: CallId,
        /// What for.
        spec: Box<SandboxSpec>,
    },
    /// May this container come into being?
    Admit {
        /// Who asks.
        call: CallId,
        /// Which.
        container: ContainerId,
    },
    /// Stop it.
    Stop {
        /// Who asks.
        call: CallId,
        /// With this grace.
        grace_ms: Option<u64>,
    },
    /// Remove it.
    Remove {
        /// Who asks.
        call: CallId,
    },
    /// Measure it.
    Measure {
        /// Who asks.
        call: CallId,
    },
    /// Change what it may take.
    Update {
        /// Who asks.
        call: CallId,
        /// How.
        change: Box<SandboxChange>,
    },
    /// The supervisor's answer to a change.
    Updated(Result<()>),
    /// Time to put limits back whose change was not answered so many times.
    LimitsAgain(u32),
    /// A container of it is gone.
    ContainerGone(ContainerId),
    /// Its shim died.
    ShimDied(String),
    /// It was found in the store.
    Recover,
    /// The supervisor's answer to the launch.
    Launched(Result<Launched>),
    /// All containers have answered.
    ContainersStopped,
    /// All containers have answered.
    ContainersRemoved(Result<()>),
    /// The supervisor's answer.
    ShimStopped(Result<()>),
    /// The supervisor's answer.
    Adopted(Result<Adopted>),
    /// Time for the next attempt of work that failed so many times.
    WorkAgain(u32),
    /// Time for the next attempt to find the shim.
    AdoptAgain,
    /// Do what comes next.
    Proceed,
    /// A write that had failed is durable.
    Written,
}

/// Whatever a sandbox wants to have done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Answer calls.
    Answer {
        /// Which.
        calls: Vec<CallId>,
        /// With what.
        answer: Result<Answer>,
    },
    /// Ask another actor; the answer comes back as an input.
    Ask(Ask),
    /// Measure the shim; the answer goes to the caller.
    Measure {
        /// The caller.
        call: CallId,
    },
    /// Tell containers what is known of their tasks.
    Tell(Vec<(ContainerId, Knowledge)>),
    /// Feed an input back after a time.
    Wake {
        /// When.
        after_ms: u64,
        /// What.
        input: Input,
    },
    /// Write a fact on which no state depends.
    Note(What),
    /// Feed an input back, after everything else.
    Again(Input),
    /// The shim runs and that could not be written: the launch comes to the store's error.
    LaunchUnwritten,
    /// It is gone: readers and the router are told, then calls are answered. Only if the write worked; else
    /// they are answered with the store's error.
    Retire {
        /// Who made it and hears of the failure.
        runners: Vec<CallId>,
        /// Why it could not be made.
        failure: Option<Error>,
        /// Who wanted it to be gone.
        content: Vec<CallId>,
    },
    /// Its record could not be written: the router is told, then the calls are answered with the store's error.
    Abandon {
        /// Whom to answer then.
        calls: Vec<CallId>,
    },
}

/// What is asked of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The supervisor: start a shim.
    Launch,
    /// The supervisor: find the shim.
    Adopt,
    /// The supervisor: end the shim.
    StopShim,
    /// All containers: stop.
    StopContainers {
        /// With this grace.
        grace_ms: Option<u64>,
    },
    /// All containers: go.
    RemoveContainers,
    /// The supervisor: these limits, and this is what it is expected to take.
    Update(Box<(Resources, PodPlan)>, Consult),
}

/// A good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// The sandbox is ready.
    Ready(SandboxId),
}
