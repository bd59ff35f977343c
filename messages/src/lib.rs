//! The vocabulary of Mainstay: what the parts say to one another and what is written down.
//!
//! Commands are imperative (`StopContainer`), facts are past tense (`TaskExited`); there is one file of
//! messages per receiver. This crate holds data and pure rules about data. It never does IO, never reads
//! a clock and knows no protobuf.
//!
//! | module | holds |
//! |---|---|
//! | [`id`] | typed ids and names |
//! | [`time`] | the time stamp of records and facts |
//! | [`spec`] | what a caller asks for: pods, containers, execs |
//! | [`process`] | process identity, signals, exits |
//! | [`plugin`] | plugins as operators see them |
//! | [`adjustment`] | what plugins have changed of a container before it was made |
//! | [`record`] | durable records and the snapshots that readers see |
//! | [`event`] | entries of the journal |
//! | [`error`] | the one error type that a caller sees |
//! | [`router`], [`sandbox`], [`container`], [`journal`], [`supervisor`] | messages, by receiver |
//! | [`network`] | what a pod has of a network |
//! | [`usage`] | what pods and containers use, as monitoring asks for it |
//! | [`image`] | images: what is asked for, how a pull gets on, what is here |
//! | [`codec`] | the one place that knows bincode |
//! | [`audit`] | what a machine holds of a runtime, and where that differs from the records |
//! | [`admin`] | requests and responses of the admin RPC |

pub mod adjustment;
pub mod admin;
pub mod audit;
pub mod codec;
pub mod container;
pub mod error;
pub mod event;
pub mod id;
pub mod image;
pub mod journal;
pub mod network;
pub mod plugin;
pub mod process;
pub mod record;
pub mod router;
pub mod sandbox;
pub mod shim;
pub mod shortage;
pub mod spec;
pub mod supervisor;
pub mod time;
pub mod usage;

pub use error::{Error, Result};
pub use id::{ContainerId, ExecId, Handler, Name, SandboxId};
pub use process::{Exit, ExitStatus, ProcessIdentity, ProcessUser, Signal, UnknownReason};
pub use spec::{ContainerSpec, ExecSpec, SandboxSpec};
pub use time::Timestamp;
