//! Reading documents of strangers: a limit on length, `null` as absent, errors that say where.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use thiserror::Error;

/// The longest manifest, index or configuration that is read, in bytes; as most registries and clients have it.
/// (serde_json bounds the depth itself, at 128.)
pub const DOCUMENT_LENGTH_MAX: usize = 4 << 20;

/// Why a document cannot be used.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// Longer than [`DOCUMENT_LENGTH_MAX`].
    #[error("{what} has {length} bytes; at most {DOCUMENT_LENGTH_MAX} are read")]
    TooLong {
        /// Which document.
        what: &'static str,
        /// Its length.
        length: usize,
    },
    /// Not JSON, or not of the right shape.
    #[error("{what} is not as the specification has it")]
    Malformed {
        /// Which document.
        what: &'static str,
        /// Where, and what was expected.
        #[source]
        source: serde_json::Error,
    },
    /// Neither a manifest nor an index that can be used.
    #[error("media type {media_type:?} is neither an image manifest nor an index of OCI or Docker schema 2")]
    Unsupported {
        /// The type that it has.
        media_type: String,
    },
    /// A manifest that could be read as an index as well, or whose type contradicts itself.
    #[error("the manifest is ambiguous: {reason}")]
    Ambiguous {
        /// The contradiction.
        reason: String,
    },
    /// More of something than is taken.
    #[error("{what} has {count} {items}; at most {max} are taken")]
    TooMany {
        /// Which document.
        what: &'static str,
        /// Of what.
        items: &'static str,
        /// How many there are.
        count: usize,
        /// How many may be.
        max: usize,
    },
    /// The configuration and the manifest do not belong together.
    #[error(
        "the manifest has {layers} layers and its configuration {diff_ids} diff_ids; there should be one for each"
    )]
    LayersDiffer {
        /// Layers in the manifest.
        layers: usize,
        /// DiffIDs in the configuration.
        diff_ids: usize,
    },
}

/// Reads a document of any shape.
pub(crate) fn read<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, DocumentError> {
    if bytes.len() > DOCUMENT_LENGTH_MAX {
        return Err(DocumentError::TooLong { what, length: bytes.len() });
    }
    serde_json::from_slice(bytes).map_err(|source| DocumentError::Malformed { what, source })
}

/// `null` is what absence is: Go programs write it for lists and maps that are empty.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
