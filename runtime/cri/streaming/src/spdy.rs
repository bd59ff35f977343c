//! SPDY/3.1, as much of it as clients of Kubernetes speak after an upgrade of HTTP/1.1.
//!
//! | module | holds |
//! |---|---|
//! | `dictionary`, `headers` | header blocks |
//! | `frame` | frames as bytes |
//! | `table` | which streams there are |
//! | `connection` | one connection |
//!
//! It is our own because no kept library in Rust speaks it: it was given up by the web ten years ago, and lives on here.

pub(crate) mod connection;
mod dictionary;
pub mod frame;
pub mod headers;
pub(crate) mod table;
