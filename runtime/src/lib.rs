//! Mainstay: an actor-based container runtime core to embed.
//!
//! [`Runtime::start`] gives a handle; pods and containers are made, watched and removed through it. The program
//! that embeds it calls [`init`] first thing in `main`, because the shim of each pod is that very program, started
//! again. The README of the project has a whole example; `runtime/examples` has more.
//!
//! | to | call |
//! |---|---|
//! | start and end a runtime | [`Runtime::start`], [`Runtime::close`] |
//! | run a pod and a container in it | [`Runtime::run_sandbox`], [`Runtime::create_container`], [`Runtime::start_container`] |
//! | learn how a container ended | [`Runtime::wait`] |
//! | run another command in it | [`Runtime::exec_output`] for its output, [`Runtime::exec`] for its streams |
//! | talk to its PID 1 | [`Runtime::attach`] |
//! | reach a port of a pod | [`Runtime::connect`] |
//! | read what it wrote | [`Runtime::logs`] |
//! | follow what happens | [`Runtime::events`], [`Runtime::events_from_now`], [`Runtime::explain`] |
//! | end it | [`Runtime::stop_container`], [`Runtime::kill_container`], [`Runtime::remove_container`] |
//! | end a pod with all that is in it | [`Runtime::stop_sandbox`], [`Runtime::remove_sandbox`] |
//! | hold it, and change its limits | [`Runtime::pause_container`], [`Runtime::resume_container`], [`Runtime::update_container`], [`Runtime::update_sandbox`] |
//! | bring an image here, and look at those that are | [`Runtime::pull_image`], [`Runtime::images`], [`Runtime::image`], [`Runtime::image_documents`] |
//! | take images from an archive, or write one | [`Runtime::import_images`], [`Runtime::export_images`] |
//! | remove, check and tidy up images | [`Runtime::remove_image`], [`Runtime::verify_images`], [`Runtime::collect_images`] |
//! | find what was left behind | [`Runtime::audit`] |
//! | measure | [`Runtime::metrics`], [`Runtime::disk_usage`], [`Runtime::image_footprint`], [`Runtime::sandboxes_usage`], [`Runtime::containers_usage`] |
//! | know whether it can do its work | [`Runtime::condition`], [`Runtime::network_status`], [`Runtime::pulse`] |
//! | look at shims | [`Runtime::shims`] |
//! | look at plugins and networks | [`Runtime::plugins`], [`Runtime::restart_plugin`], [`Runtime::network_status`], [`Runtime::check_network`] |
//! | look | [`Runtime::sandboxes`], [`Runtime::containers`], [`Runtime::container`], [`Runtime::stats`] |
//! | serve the `mainstay` command, and more | [`daemon::run`], [`daemon::Endpoint`] |
//!
//! Every call returns an [`Error`], whose text is one sentence for people and whose variants are for programs. Stopping
//! and removing what is gone already is a success. A call whose future is dropped goes on: nothing is left half done
//! because a caller went away. Looking never waits for work.
//!
//! The machine must be Linux 5.14 or newer with cgroups, and the program must run as root.
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the configuration |
//! | [`runtime`] | the handle |
//! | [`images`] | images |
//! | [`session`] | streams of a process, for exec and attach |
//! | [`events`] | the journal as a stream |
//! | [`logs`] | logs as a stream |
//! | `audit` | the machine beside the records |
//! | `metrics` | what is counted, and where it is served |
//! | `connect` | connections to the ports of pods |
//! | `networks` | the networks of pods, behind the supervisor's port |
//! | `lost` | records that the store has lost |
//! | [`daemon`], [`backend`] | the admin RPC in front of a runtime |
//! | `shims` | the shims of pods |
//! | `usage` | what pods and containers use, for monitoring |
//! | `system` | the wiring |

mod audit;
pub mod backend;
mod closing;
pub mod config;
mod connect;
pub mod daemon;
mod disk_usage;
pub mod events;
#[cfg(feature = "faults")]
pub mod faults;
pub mod images;
pub mod logs;
pub mod runtime;
pub mod session;

mod lost;
mod metrics;
mod networks;
mod plugins;
mod shims;
mod system;
mod usage;

pub use audit::{AUDIT_INTERVAL_DEFAULT_MS, AUDIT_SETTLE_MS, REMEDY_MS};
#[doc(inline)]
pub use config::{
    AuditSettings, CgroupDriver, Config, ConfigError, CriSettings, HandlerSettings, HandlerTable,
    ImageSettings, Masquerading, NetworkSettings, OomScorePolicy, OptionValue, ShimLifetime, ShimOutput,
    StoreLimits, StreamTls, StreamingSettings, UsageSettings,
};
#[doc(inline)]
pub use connect::CONNECT_MS;
#[doc(inline)]
pub use disk_usage::DISK_USAGE_MS;
pub use events::{EventOptions, EventStream, Journaled, Subject};
#[doc(inline)]
pub use images::{Export, ImageDocuments, ImagePull, Import};
#[doc(inline)]
pub use logs::{LogOptions, LogStream};
pub use mainstay_admin::Limits;
pub use mainstay_messages::admin::{Attached, Follow, LineEnd, LogRecord, OnLag, OutputStream};
pub use mainstay_messages::audit::{Deviation, Finding, Leak, Owner, Remedy, Repair, ThingKind};
pub use mainstay_messages::container::IfRunning;
pub use mainstay_messages::error::Kind;
pub use mainstay_messages::event::{Event, HookCall, HookOutcome, Seq, Subject as EventSubject, What};
pub use mainstay_messages::image::{
    Collected, Credentials, Damage, Image, ImageId, ImageName, ImageRun, LayerSize, PullActivity, PullPolicy,
    PullProgress, PullSpec, Removed,
};
pub use mainstay_messages::network::{NetworkDns, PodAddress, PodNetwork};
pub use mainstay_messages::plugin::{PluginFail, PluginNeed, PluginState, PluginStatus};
pub use mainstay_messages::process::OomVerdict;
pub use mainstay_messages::record::{
    Activity, ContainerPhase, ContainerRecord, ContainerSnapshot, ExecPhase, ExecSnapshot, Paused,
    SandboxPhase, SandboxRecord, SandboxSnapshot, ShimRecord,
};
pub use mainstay_messages::sandbox::SandboxChange;
pub use mainstay_messages::shim::{ShimBackend, ShimDescription, ShimProcess, ShimSaid, ShimStatus};
pub use mainstay_messages::spec::{
    Access, AppArmor, BlockDeviceLimit, BlockIo, CgroupParent, ContainerIdentity, ContainerPid, CpuTime,
    Device, DeviceKind, DeviceRule, HostEntry, HugepageLimit, IdMapping, IdMappings, ImageMount, ImageRoot,
    IpcMode, LayeredMount, LayeredRoot, Mac, MissingSource, Mount, MountSource, NameLookup, NameServer,
    Network, NewPrivileges, Owners, PidMode, PodIdentity, PodPlan, PortMapping, Privilege, ProcessSpec,
    Propagation, Protocol, Relabel, Resources, Restriction, Rlimit, Rootfs, Seccomp, Security, SelinuxLabel,
    Stdin, Submounts, SupplementaryGroups, Terminal, UNLIMITED, UserNamespace, WindowSize,
};
pub use mainstay_messages::supervisor::{DiskUsage, SandboxStats, Stats};
pub use mainstay_messages::usage::{
    ContainerUsage, CpuUsage, Depth, DiskIo, DiskSample, GroupUsage, Holdings, HugepageUse, InterfaceUsage,
    MemoryUsage, PodUsage, Pressure, ProcessCounts, Stall, Traffic,
};
pub use mainstay_messages::{
    ContainerId, ContainerSpec, Error, ExecId, ExecSpec, Exit, ExitStatus, Handler, Name, ProcessIdentity,
    ProcessUser, Result, SandboxId, SandboxSpec, Signal, Timestamp, UnknownReason,
};
pub use mainstay_metrics::{Format as MetricsFormat, MetricsSettings, exposition};
pub use mainstay_oci_image::Reference as ImageReference;
pub use mainstay_supervisor::nri::NriSettings;
pub use mainstay_supervisor::nri::policy::FailPolicy;
pub use mainstay_supervisor::nri::settings::PluginSettings;
pub use mainstay_supervisor::{Timeouts, UserNamespaces};
#[doc(inline)]
pub use runtime::{Runtime, Shutdown, StopOptions};
#[doc(inline)]
pub use session::{
    AttachOptions, EXEC_OUTPUT_BYTES_MAX, ExecOutput, Session, SessionItem, SessionReader, SessionWriter,
};
#[doc(inline)]
pub use usage::{DISK_INTERVAL_DEFAULT_MS, FileSystem, RATE_WINDOW_MIN_MS, WANTED_MS};

/// Unix sockets that a daemon serves on: made safely, taken over from a dead one, and closed to others.
pub mod socket {
    pub use mainstay_admin::{BindError, Socket, check_peer};
}

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
