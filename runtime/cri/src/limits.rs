//! The limits of the endpoint.

/// The largest message, either way, in bytes: what kubelet and crictl take.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Connections at once; further ones wait. kubelet has two, and each crictl one or two.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Calls at once on one connection; further ones wait at the client. kubelet has one for each container that it is stopping.
pub const CALLS_PER_CONNECTION_MAX: u32 = 1_024;
/// The largest head of a call, in bytes.
pub const HEADERS_BYTES_MAX: u32 = 64 * 1024;
/// How long a connection is silent before the client is asked whether it is there, in milliseconds.
pub const KEEPALIVE_INTERVAL_MS: u64 = 60_000;
/// How long it may take to answer that, in milliseconds.
pub const KEEPALIVE_TIMEOUT_MS: u64 = 20_000;
/// How long calls may go on to be answered once the daemon ends, in milliseconds. What they do goes on beyond that.
pub const SHUTDOWN_DRAIN_MS: u64 = 2_000;
/// The most items in one answer of a list that is streamed.
pub const STREAM_ITEMS_MAX: usize = 250;
/// About how large such an answer gets, in bytes. One item alone may be larger.
pub const STREAM_PIECE_BYTES: usize = 1024 * 1024;
/// The pause after a connection could not be taken, in milliseconds.
pub const ACCEPT_RETRY_MS: u64 = 100;
/// Events that wait for one client to read them. What comes after them waits in the journal.
pub const EVENTS_QUEUED_MAX: usize = 64;
/// How long a client may leave events unread when no more can wait, in milliseconds; then its stream ends.
pub const EVENT_STALL_MS: u64 = 30_000;
/// Clients whose place in the stream of events is kept.
pub const EVENT_CLIENTS_MAX: usize = 64;
/// How long after a client has come further that is written down, in milliseconds.
pub const EVENTS_KEPT_MS: u64 = 100;
/// The largest file of how far clients have come that is read, in bytes.
pub const EVENTS_KEPT_BYTES_MAX: u64 = 1024 * 1024;
/// Pods whose last status is kept for one stream of events, for when they are gone.
pub const EVENT_PODS_MAX: usize = 4_096;
/// How long an event waits for the status that shows it, in milliseconds.
pub const EVENT_SETTLE_MS: u64 = 1_000;
