//! Messages to the journal.

use actix::Message;

use crate::error::Result;
use crate::event::{Fact, Seq};
use crate::id::{ContainerId, SandboxId};
use crate::record::{ContainerRecord, SandboxRecord};

/// Write changes and facts, all or none; answered when they are durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Message)]
#[rtype(result = "Result<Committed>")]
pub struct Commit {
    /// Changes of records.
    pub changes: Vec<Change>,
    /// Facts for the journal, in this order.
    pub facts: Vec<Fact>,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write it, whether it was there or not.
    PutSandbox(Box<SandboxRecord>),
    /// Remove it, if it is there.
    DeleteSandbox(SandboxId),
    /// Write it, whether it was there or not.
    PutContainer(Box<ContainerRecord>),
    /// Remove it, if it is there.
    DeleteContainer(ContainerId),
}

/// A durable commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The number of the last fact in the journal after it.
    pub last: Seq,
}
