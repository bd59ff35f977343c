//! Why an answer of a plugin is refused: one sentence that names the plugin, the field and what would be right.

use thiserror::Error;

/// Why an answer of a plugin is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AdjustError {
    /// Another plugin has set it.
    #[error("plugins {plugin} and {other} both change {field} of container {container}; one of them may")]
    Conflict {
        /// The plugin that came second.
        plugin: String,
        /// The one before.
        other: String,
        /// The field, with the key of the entry where it has any: `mounts["/data"]`.
        field: String,
        /// The container.
        container: String,
    },
    /// A value is not acceptable.
    #[error("plugin {plugin}: {field}: {value} is not valid; expected {expected}")]
    Invalid {
        /// The plugin.
        plugin: String,
        /// The field.
        field: String,
        /// Its value, quoted.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// A change that this runtime cannot make.
    #[error("plugin {plugin}: {field} cannot be changed: {reason}")]
    Unsupported {
        /// The plugin.
        plugin: String,
        /// The field.
        field: String,
        /// Why not.
        reason: String,
    },
    /// The container that is being created is not there to be changed.
    #[error(
        "plugin {plugin} asks to {what} container {container} while that is being created; adjust it in the answer to its creation"
    )]
    BeingCreated {
        /// The plugin.
        plugin: String,
        /// `update` or `evict`.
        what: &'static str,
        /// The container.
        container: String,
    },
}

/// What is wrong with a field, without who sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Invalid { field: String, value: String, expected: String },
    Unsupported { field: String, reason: String },
}

impl Fault {
    pub(super) fn invalid(
        field: impl Into<String>,
        value: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Invalid { field: field.into(), value: value.into(), expected: expected.into() }
    }

    pub(super) fn unsupported(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unsupported { field: field.into(), reason: reason.into() }
    }

    pub(super) fn of(self, plugin: &str) -> AdjustError {
        let plugin = plugin.to_owned();
        match self {
            Self::Invalid { field, value, expected } => {
                AdjustError::Invalid { plugin, field, value, expected }
            }
            Self::Unsupported { field, reason } => AdjustError::Unsupported { plugin, field, reason },
        }
    }
}

/// A value as an error shows it: quoted, and never longer than a line.
pub(super) fn quoted(value: &str) -> String {
    let shown: String = value.chars().take(128).collect();
    format!("{shown:?}")
}
