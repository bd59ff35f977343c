//! The networks of pods, as the supervisor needs them: the port that the runtime connects.
//!
//! Owns: what is asked of a network, and when that has to bear a repetition. Never: knows how a network is made.

use std::fmt;
use std::fs::File;
use std::path::Path;

use mainstay_messages::audit::Thing;
use mainstay_messages::network::PodNetwork;
use mainstay_messages::spec::Network;
use mainstay_messages::{Error, Result, SandboxId, SandboxSpec};

/// Whoever gives pods their networks. All of it blocks, and has deadlines of its own; it may be called from any thread.
pub trait PodNetworks: fmt::Debug + Send + Sync {
    /// Gives a pod what its spec asks for. What a pod may have of it is durable before it is made (P3). A repetition
    /// completes what an earlier one began, or says that it has to be taken back first.
    ///
    /// # Errors
    /// What is in the way. Then [`Self::detach`] takes back what there is.
    fn attach(&self, pod: &PodToAttach<'_>) -> Result<PodNetwork>;

    /// Whether there may be something to take back. It costs next to nothing where there is not.
    fn holds(&self, sandbox: &SandboxId) -> bool;

    /// Takes back all that a pod may have; `namespace` is a path of its network namespace where that is still there. Fine
    /// for a pod that has nothing.
    ///
    /// # Errors
    /// What could not be taken back. The next call tries it again.
    fn detach(&self, sandbox: &SandboxId, namespace: Option<&Path>) -> Result<()>;

    /// The same for a pod that an audit has found something of: also what no file tells of any more.
    ///
    /// # Errors
    /// What could not be taken back. The next call tries it again.
    fn remove_leak(&self, sandbox: &SandboxId, namespace: Option<&Path>) -> Result<()>;

    /// What the machine has of all networks of this runtime, for audits. One that cannot be looked at keeps none of the others
    /// from it; why it could not is in the log.
    fn things(&self) -> NetworkThings;
}

/// What a look at the networks has shown.
#[derive(Debug, Default)]
pub struct NetworkThings {
    /// What there is.
    pub things: Vec<Thing>,
    /// The networks that could not be looked at, or not at all of them.
    pub unseen: Vec<Network>,
}

/// A pod that is to get its network.
#[derive(Debug)]
pub struct PodToAttach<'a> {
    /// The pod.
    pub sandbox: &'a SandboxId,
    /// What it asks for.
    pub spec: &'a SandboxSpec,
    /// The path by which its network namespace is found, for as long as its shim lives.
    pub name: &'a Path,
    /// The namespace.
    pub namespace: &'a File,
}

/// For a supervisor whose pods have the host's network or a loopback alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNetworks;

impl PodNetworks for NoNetworks {
    fn attach(&self, pod: &PodToAttach<'_>) -> Result<PodNetwork> {
        Err(Error::invalid("network", pod.spec.network.to_string(), "host or none: there are no others here"))
    }

    fn holds(&self, _: &SandboxId) -> bool {
        false
    }

    fn detach(&self, _: &SandboxId, _: Option<&Path>) -> Result<()> {
        Ok(())
    }

    fn remove_leak(&self, _: &SandboxId, _: Option<&Path>) -> Result<()> {
        Ok(())
    }

    fn things(&self) -> NetworkThings {
        NetworkThings::default()
    }
}
