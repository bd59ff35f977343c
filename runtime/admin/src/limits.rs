//! The limits of the server, as named constants and as the settings that they are the defaults of.

use serde::{Deserialize, Serialize};

/// Connections at the same time.
pub const CONNECTIONS_MAX: usize = 128;
/// How long a connection beyond [`CONNECTIONS_MAX`] waits for a place before it is refused, in milliseconds.
pub const CONNECTION_WAIT_MS: u64 = 250;
/// Requests of one connection, streams among them, that have no final answer yet.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 256;
/// Open streams of one connection.
pub const STREAMS_MAX: usize = 64;
/// Requests of one connection that are answered with a list at the same time; others wait their turn. Such
/// answers can be large, and wait in memory for a slow client.
pub const LISTS_AT_ONCE_MAX: usize = 4;
/// What all requests that the backend is working on may take together, also those whose client is gone, in
/// bytes of their frames plus [`REQUEST_COST`] each.
pub const REQUEST_BYTES_MAX: usize = 256 * 1024 * 1024;
/// What a request counts against [`REQUEST_BYTES_MAX`] beside its frame, in bytes.
pub const REQUEST_COST: usize = 16 * 1024;
/// Frames that wait for one client to read them, in bytes.
pub const OUTGOING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The time for the rest of a frame once its first byte has come, in milliseconds.
pub const FRAME_READ_TIMEOUT_MS: u64 = 30_000;
/// How long a client may take nothing of what waits for it before it is cut off, in milliseconds.
pub const WRITE_STALL_MS: u64 = 30_000;
/// How long a reading stream's backend may go on after its client has left before it is dropped, in milliseconds.
pub const STREAM_LEAVE_MS: u64 = 5_000;
/// How long operations may take to end and be answered when the server shuts down, in milliseconds.
pub const SHUTDOWN_DRAIN_MS: u64 = 2_000;
/// How long a client may take to read what is left when its connection is being closed, in milliseconds.
pub const CLOSE_FLUSH_MS: u64 = 1_000;
/// The pause after a failed accept, in milliseconds: descriptors may have run out.
pub const ACCEPT_RETRY_MS: u64 = 100;

/// The limits that an embedding program may want to choose itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// See [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// See [`REQUESTS_IN_FLIGHT_MAX`].
    pub requests_in_flight_max: usize,
    /// See [`STREAMS_MAX`].
    pub streams_max: usize,
    /// See [`REQUEST_BYTES_MAX`]. A frame and [`REQUEST_COST`] must fit.
    pub request_bytes_max: usize,
    /// See [`FRAME_READ_TIMEOUT_MS`].
    pub frame_read_timeout_ms: u64,
    /// See [`WRITE_STALL_MS`].
    pub write_stall_ms: u64,
    /// See [`STREAM_LEAVE_MS`].
    pub stream_leave_ms: u64,
    /// See [`SHUTDOWN_DRAIN_MS`].
    pub shutdown_drain_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            requests_in_flight_max: REQUESTS_IN_FLIGHT_MAX,
            streams_max: STREAMS_MAX,
            request_bytes_max: REQUEST_BYTES_MAX,
            frame_read_timeout_ms: FRAME_READ_TIMEOUT_MS,
            write_stall_ms: WRITE_STALL_MS,
            stream_leave_ms: STREAM_LEAVE_MS,
            shutdown_drain_ms: SHUTDOWN_DRAIN_MS,
        }
    }
}
