//! What is spoken with a shim.
//!
//! Owns: containerd's Task API in both of its versions ([`task`], [`task_v2`], [`task_v3`]), what stands beside it
//! ([`sandbox`], [`events`], [`bootstrap`]), Mainstay's extension of it ([`extension`]) and its versions, the protocol of the stream socket ([`streams`]), and the conversions
//! between these and the types of `mainstay-messages` ([`convert`]). Both ends use it: the shim serves, the
//! supervisor calls.
//!
//! Never: starts processes, decides anything. What Mainstay's shim makes of the fields that the Task API leaves
//! open is in README.md; the bytes of the stream socket are in STREAMS.md.

pub mod convert;
mod protocol;
pub mod streams;

// Written by build.rs from the files in `proto/`, whose comments are the documentation.
#[allow(missing_docs)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/modules.rs"));
}

/// The messages and the service of `mainstay.shim.v1`.
pub mod extension {
    pub use crate::generated::extension::*;
    pub use crate::generated::extension_ttrpc::{Extension, ExtensionClient, create_extension};
}
/// What a shim of containerd 2.3 and newer gets and answers when it is started.
pub use generated::bootstrap;
/// What a shim tells whoever started it, and the service that takes it.
pub mod events {
    pub use crate::generated::events::*;
    pub use crate::generated::events_ttrpc::{Events, EventsClient, create_events};
}
/// The messages and the service of the sandbox API.
pub mod sandbox {
    pub use crate::generated::sandbox::*;
    pub use crate::generated::sandbox_ttrpc::{Sandbox, SandboxClient, create_sandbox};
}
/// What a shim says of itself.
pub use generated::introspection;
/// What a container uses, where control groups are those of v1.
pub use generated::metrics_v1;
/// The same, where they are those of v2.
pub use generated::metrics_v2;
/// What shims of containerd's are told beside a container.
pub use generated::shim_options;
/// The messages of the Task API, the same in both of its versions.
pub use generated::task;
/// The service `containerd.task.v2.Task`.
pub use generated::task_ttrpc as task_v2;
/// The service `containerd.task.v3.Task`.
pub use generated::task_v3_ttrpc as task_v3;
pub use protobuf::well_known_types;
pub use protobuf::{Enum, EnumOrUnknown, Error as MessageError, Message, MessageField};
pub use protocol::{EXTENSION_PROTOCOL, EXTENSION_PROTOCOL_OLDEST, NoCommonProtocol, Spoken};

/// The name on the wire of the Task service, version 2.
pub const TASK_V2_SERVICE: &str = "containerd.task.v2.Task";
/// The name on the wire of the Task service, version 3.
pub const TASK_V3_SERVICE: &str = "containerd.task.v3.Task";
/// The name on the wire of the sandbox service.
pub const SANDBOX_SERVICE: &str = "containerd.runtime.sandbox.v1.Sandbox";
/// The name on the wire of the service that takes events.
pub const EVENTS_SERVICE: &str = "containerd.services.events.ttrpc.v1.Events";
/// What the type of an event's `Any` begins with; the name of its message follows.
pub const EVENT_TYPE_PREFIX: &str = "containerd.events.";
/// The type of the `Any` that holds what a container uses, where control groups are those of v1.
pub const METRICS_V1_TYPE_URL: &str = "io.containerd.cgroups.v1.Metrics";
/// The same, where they are those of v2.
pub const METRICS_V2_TYPE_URL: &str = "io.containerd.cgroups.v2.Metrics";
/// How much later than ours the deadline of a call is that the wire carries, in milliseconds: so the one that is heard is ours,
/// and a status "deadline exceeded" can only be the shim's own, which says what it waited for.
pub const CALL_GRACE_MS: u64 = 1_000;
/// What `stdout` of an exec begins with that says how long its output waits for a client, in milliseconds.
pub const EXEC_OUTPUT_HOLD: &str = "stream://hold/";
/// The longest such time, in milliseconds: a day.
pub const EXEC_OUTPUT_HOLD_MAX_MS: u64 = 86_400_000;
/// The type of the `Any` that holds the OCI process of an exec, as JSON.
pub const PROCESS_TYPE_URL: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
/// The type of the `Any` that holds the OCI resources of an update, as JSON.
pub const RESOURCES_TYPE_URL: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";
/// The annotation of a bundle's `config.json` that holds the container's user as it was asked for, for the
/// launcher to look up inside the container. An exec has it in `process.user.username`.
pub const USER_ANNOTATION: &str = "dev.mainstay.user";
