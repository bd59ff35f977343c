//! Exec and attach.
//!
//! | module | holds |
//! |---|---|
//! | `spdy` | one stream for each of error, stdin, stdout, stderr and resize |
//! | `websocket` | one channel for each of them |
//!
//! Owns: how the streams of a process are told apart on a connection. Never: runs the session, which is the same for both.

pub(crate) mod spdy;
pub(crate) mod websocket;

/// Pieces of input that wait for a process, each of at most 32 KiB.
pub const STDIN_QUEUE_PIECES: usize = 8;
