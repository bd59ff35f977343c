//! What plugins are asked about, and how much their answer counts.
//!
//! Owns: which object an event is about, and which events can be refused. Never: knows a plugin.

use std::fmt;

use mainstay_messages::{ContainerId, SandboxId};
use mainstay_nri_api::Event;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// A pod.
    Pod(SandboxId),
    /// A container, and its pod.
    Container(SandboxId, ContainerId),
}

/// What an event does to what plugins know of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearing {
    /// They hear of it for the first time.
    Announces,
    /// They know it.
    Concerns,
    /// They hear of it for the last time.
    Withdraws,
}

/// What becomes of a request when a plugin says no to it, or should have been heard and was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It fails.
    Decides,
    /// It goes on: what is over cannot be refused, and what is to end must be able to. The journal has it.
    IsNoted,
}

impl Object {
    /// The pod that it is, or is in.
    pub fn pod(&self) -> &SandboxId {
        match self {
            Self::Pod(pod) | Self::Container(pod, _) => pod,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => write!(f, "pod {pod}"),
            Self::Container(_, container) => write!(f, "container {container}"),
        }
    }
}

/// What an event does to what plugins know.
pub fn bearing(event: Event) -> Bearing {
    match event {
        Event::RUN_POD_SANDBOX | Event::CREATE_CONTAINER => Bearing::Announces,
        Event::REMOVE_POD_SANDBOX | Event::REMOVE_CONTAINER => Bearing::Withdraws,
        _ => Bearing::Concerns,
    }
}

/// How much the answer to an event counts.
pub fn weight(event: Event) -> Weight {
    match event {
        Event::RUN_POD_SANDBOX
        | Event::UPDATE_POD_SANDBOX
        | Event::CREATE_CONTAINER
        | Event::START_CONTAINER
        | Event::UPDATE_CONTAINER
        | Event::VALIDATE_CONTAINER_ADJUSTMENT => Weight::Decides,
        _ => Weight::IsNoted,
    }
}
