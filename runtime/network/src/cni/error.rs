//! Why plugins did not do something.

use std::io;
use std::path::PathBuf;

use mainstay_messages::codec::CodecError;
use mainstay_messages::error::chain;
use mainstay_messages::{Error, SandboxId, Timestamp};
use thiserror::Error as ThisError;

/// Why something was not done.
#[derive(Debug, ThisError)]
pub enum CniError {
    /// There is no list.
    #[error("{}: no file there ends in .conflist, .conf or .json; put the configuration of a network there", .directory.display())]
    NoNetwork {
        /// The directory.
        directory: PathBuf,
    },
    /// A list is not acceptable.
    #[error("{}: {field}: expected {expected}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What would be right.
        expected: String,
    },
    /// A plugin is not installed.
    #[error("the CNI plugin {name:?} is in none of {directories}; install it there")]
    NoPlugin {
        /// Its name.
        name: String,
        /// Where it was looked for.
        directories: String,
    },
    /// A plugin said no.
    #[error("{command} of the CNI plugin {plugin} failed: {reason}")]
    Plugin {
        /// The plugin.
        plugin: String,
        /// What it was to do.
        command: &'static str,
        /// What it said.
        reason: String,
    },
    /// A plugin did not end, and was killed.
    #[error("{command} of the CNI plugin {plugin} did not end within {after_ms} ms and was killed")]
    Timeout {
        /// The plugin.
        plugin: String,
        /// What it was to do.
        command: &'static str,
        /// The limit.
        after_ms: u128,
    },
    /// A result is not one.
    #[error("the result of the CNI network {network} is not valid: {reason}")]
    Result {
        /// The network.
        network: String,
        /// What is wrong.
        reason: String,
    },
    /// An earlier ADD did not come to its end.
    #[error("the CNI network of pod {pod} has been unfinished since {since}; detach the pod first")]
    Unfinished {
        /// The pod.
        pod: SandboxId,
        /// When it began.
        since: Timestamp,
    },
    /// What the pod has is not known.
    #[error("the record of the CNI network of pod {pod} cannot be read; detach the pod first")]
    Damaged {
        /// The pod.
        pod: SandboxId,
    },
    /// The pod has no record.
    #[error("pod {pod} has no CNI network; attach it first")]
    Unknown {
        /// The pod.
        pod: SandboxId,
    },
    /// Another call for the same pod has not ended.
    #[error("pod {pod} is being attached or detached by another call; ask again when that has ended")]
    Busy {
        /// The pod.
        pod: SandboxId,
    },
    /// Another process works with the same records.
    #[error("{}: another process has the records open; stop that one first or choose another directory", .directory.display())]
    Locked {
        /// The directory.
        directory: PathBuf,
    },
    /// A file cannot be used.
    #[error("{}: it cannot be {operation}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A record cannot be written or read.
    #[error("{}: it is not a record of a CNI network", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: CodecError,
    },
}

impl From<CniError> for Error {
    fn from(error: CniError) -> Self {
        match error {
            CniError::Timeout { plugin, command, after_ms } => Self::DeadlineExceeded {
                what: format!("{command} of the CNI plugin {plugin}"),
                after_ms: u64::try_from(after_ms).unwrap_or(u64::MAX),
            },
            other => Self::unavailable("the CNI network", chain(&other)),
        }
    }
}
