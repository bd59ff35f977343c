//! What is spoken with NRI plugins, the same at both ends.
//!
//! Owns: the messages of the public API, version 0.12, and its two services ([`RuntimeClient`], [`PluginClient`] and the
//! traits to serve them), the events that a plugin can ask for ([`EventMask`]), the connection on which they are spoken ([`mux`]), and the names that are agreed on.
//!
//! Never: starts processes, decides anything. The comments of the messages are in `proto/`.

mod events;
pub mod mux;
mod serve;

// Written by build.rs from the files in `proto/`, whose comments are the documentation.
#[allow(missing_docs)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/modules.rs"));
}

pub use events::{EventMask, UnknownEvents};
pub use generated::adjustment::*;
pub use generated::container::*;
pub use generated::nri::*;
pub use generated::nri_ttrpc::{
    Plugin as PluginService, PluginClient, Runtime as RuntimeService, RuntimeClient, create_plugin,
    create_runtime,
};
pub use generated::value::*;
pub use protobuf::{Enum, EnumOrUnknown, Message, MessageField};
pub use serve::serve;
pub use ttrpc;

/// The version of the API that this crate speaks; both sides say theirs since 0.12.
pub const NRI_VERSION: &str = "v0.12.0";
/// Where plugins look for the socket of the runtime.
pub const SOCKET_DEFAULT: &str = "/var/run/nri/nri.sock";
/// The variable that names a plugin that the runtime started.
pub const PLUGIN_NAME_VARIABLE: &str = "NRI_PLUGIN_NAME";
/// The variable with its index.
pub const PLUGIN_INDEX_VARIABLE: &str = "NRI_PLUGIN_IDX";
/// The variable with the number of the file descriptor that is its connection.
pub const PLUGIN_SOCKET_VARIABLE: &str = "NRI_PLUGIN_SOCKET";
