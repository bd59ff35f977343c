//! What an image is, as data: names, digests, manifests, indexes, configurations and platforms, of OCI image
//! specification 1.1 and of Docker's schema 2.
//!
//! Everything here comes from strangers (P12). Documents are read from bytes with a limit on their length, unknown
//! fields are passed over, what may be absent may also be `null`, and what a reader relies on (digests, sizes, number
//! of layers) is checked while reading. The bytes themselves stay the truth: a digest is of bytes, so whoever stores
//! a document stores what was read, never what these types would write.
//!
//! The types are ours and not those of `oci-spec`: it refuses images in the field (a configuration without an
//! architecture, `null` where a list may be empty), and takes digests of any text.
//!
//! This crate never does IO and never reads a clock.
//!
//! | module | owns |
//! |---|---|
//! | [`mod@reference`] | image names as people write them, completed as Docker does |
//! | [`digest`] | digests, and computing them over a stream |
//! | [`media`] | media types, and what they say of a layer's compression |
//! | [`descriptor`] | a pointer to a blob |
//! | [`manifest`] | manifests, indexes, and telling them apart |
//! | [`platform`] | platforms, and which of an index suits this machine |
//! | [`config`] | the configuration of an image |
//! | [`progress`] | what happens in a pull, as every part reports it |

pub mod config;
pub mod descriptor;
pub mod digest;
mod document;
pub mod manifest;
pub mod media;
pub mod platform;
pub mod progress;
pub mod reference;

pub use crate::config::ImageConfig;
pub use crate::descriptor::Descriptor;
pub use crate::digest::{Algorithm, Digest, DigestError, Hasher};
pub use crate::document::{DOCUMENT_LENGTH_MAX, DocumentError};
pub use crate::manifest::{Document, INDEX_ENTRIES_MAX, Index, LAYERS_MAX, Manifest};
pub use crate::media::{Compression, MediaType};
pub use crate::platform::{NoPlatform, Platform};
pub use crate::progress::{Event, Part, Step};
pub use crate::reference::{Reference, ReferenceError};
