//! What the tests of images share.
//!
//! | module | owns |
//! |---|---|
//! | [`stub`], [`content`] | a registry that misbehaves on demand, and what it serves |
//! | [`docker_registry`] | Debian's docker-registry, filled by skopeo: parts that we did not write |
//! | [`image`], [`layout`] | an image in memory, and as a directory |
//! | [`peer`] | programs that may not be there |
//! | [`wait`] | conditions with a deadline |
//!
//! Never: part of any product, or a user of the crates that it helps to test.

pub mod content;
pub mod docker_registry;
pub mod image;
pub mod layout;
pub mod peer;
pub mod stub;
pub mod wait;
