//! NRI plugins on the side of the runtime.
//!
//! Owns: the socket on which plugins connect, the [`link`] to each of them, and the processes of those that are
//! [`preinstalled`]. Never: decides whether a request fails when a plugin does.

pub mod adjust;
pub mod link;
pub mod name;
pub mod preinstalled;
