//! Port-forward.
//!
//! | module | holds |
//! |---|---|
//! | `pairs` | which streams belong together, as a decision |
//! | `forward` | one connection to a port |
//! | `spdy` | any number of ports, two streams for each connection; also inside of WebSocket |
//! | `websocket` | the ports of the request, two channels for each |
//!
//! Owns: how connections to ports are told apart on one connection of a client. Never: connects to a port itself.

mod forward;
pub(crate) mod pairs;
pub(crate) mod spdy;
pub(crate) mod websocket;

/// How long a connection to a port may take nothing while others of its client wait behind it, in milliseconds. It is cut off then.
pub const STALL_MS: u64 = 30_000;
