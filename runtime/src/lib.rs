//! Mainstay: an actor-based container runtime core to embed.
//!
//! [`Runtime::start`] gives a handle; pods and containers are made, watched and removed through it. The program
//! that embeds it calls [`init`] first thing in `main`, because the shim of each pod is that very program, started
//! again. The README of the project has a whole example.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the configuration |
//! | [`runtime`] | the handle |
//! | [`session`] | streams of a process, for exec and attach |
//! | [`events`] | the journal as a stream |
//! | [`logs`] | logs as a stream |
//! | `audit` | the machine beside the records |
//! | `lost` | records that the store has lost |
//! | [`daemon`], [`backend`] | the admin RPC in front of a runtime |
//! | `system` | the wiring |

mod audit;
pub mod backend;
pub mod config;
pub mod daemon;
pub mod events;
#[cfg(feature = "faults")]
pub mod faults;
pub mod logs;
pub mod runtime;
pub mod session;

mod failure;
mod lost;
mod system;

pub use audit::{AUDIT_SETTLE_MS, REMEDY_MS};
pub use config::{Config, ConfigError, OomScorePolicy, ShimLifetime, StoreLimits};
pub use events::{EventOptions, EventStream, Journaled, Subject};
pub use logs::{LogOptions, LogStream};
pub use mainstay_admin::Limits;
pub use mainstay_messages::admin::{Attached, Follow, LineEnd, LogRecord, OnLag, OutputStream};
pub use mainstay_messages::audit::{Deviation, Finding, Leak, Owner, Remedy, Repair, ThingKind};
pub use mainstay_messages::container::IfRunning;
pub use mainstay_messages::event::{Event, Seq, What};
pub use mainstay_messages::process::OomVerdict;
pub use mainstay_messages::record::{
    ContainerPhase, ContainerRecord, ContainerSnapshot, ExecPhase, ExecSnapshot, Paused, SandboxPhase,
    SandboxRecord, SandboxSnapshot,
};
pub use mainstay_messages::spec::{
    Access, BlockDeviceLimit, BlockIo, ContainerPid, Device, DeviceKind, DeviceRule, HostEntry,
    HugepageLimit, Mount, MountSource, NameLookup, Network, NewPrivileges, PidMode, Privilege, ProcessSpec,
    Propagation, Resources, Rlimit, Rootfs, Seccomp, Security, Stdin, SupplementaryGroups, Terminal,
    UNLIMITED, WindowSize,
};
pub use mainstay_messages::supervisor::{SandboxStats, Stats};
pub use mainstay_messages::{
    ContainerId, ContainerSpec, Error, ExecId, ExecSpec, Exit, ExitStatus, Name, ProcessIdentity, Result,
    SandboxId, SandboxSpec, Signal, Timestamp, UnknownReason,
};
pub use mainstay_supervisor::Timeouts;
pub use runtime::{Runtime, Shutdown, StopOptions};
pub use session::{
    AttachOptions, EXEC_OUTPUT_BYTES_MAX, ExecOutput, Session, SessionItem, SessionReader, SessionWriter,
};

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Becomes the shim of a pod when this process was started as one, and never returns then; returns at once
/// otherwise. To be called first thing in `main`, before any thread is started.
pub fn init() {
    mainstay_shim::run_if_shim();
}

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
