//! The connection to one plugin, from the moment when it connects.
//!
//! Owns: the handshake, a typed call for everything that a plugin is told, each with a deadline that its caller gives,
//! what the plugin is known not to understand, and what it asks for by itself. Never: calls again, waits longer, or decides
//! what a failure means: its callers do.
//!
//! ```text
//!   Listener ──accept──► Accepted ──register──► Registered ──configure──► Link + Updates
//!   preinstalled ───────────┘                      (name)                (events)
//! ```
//!
//! At each arrow the connection may end, with an error that says why. A link lives until one side closes it; calls that
//! run then fail with the reason, as do all later ones. It does not end by itself because a call fails or is late.

mod answer;
mod calls;
mod handshake;
mod listen;
mod parts;
mod requests;
mod synchronize;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_nri_api::mux::{Closed, Closing, Mux};
use mainstay_nri_api::{Event, EventMask, PluginClient};

use crate::name::PluginName;

pub use answer::CallError;
pub use calls::{ContainerNotice, PodNotice};
pub use handshake::{Accepted, Configuration, HandshakeError, Peer, REGISTRATION_TIMEOUT_MS, Registered};
pub use listen::{AcceptError, HANDSHAKES_MAX, ListenError, Listener};
pub use parts::{Oversized, SYNC_PART_MAX_BYTES};
pub use requests::{UPDATES_IN_FLIGHT_MAX, UPDATES_REFUSED_MAX, UpdateRequest, Updates};
pub use synchronize::SynchronizeError;

/// The connection to one plugin, which is registered and configured. Clones are the same connection; it ends when
/// the last of them is dropped.
#[derive(Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    name: PluginName,
    peer: Peer,
    nri_version: Option<String>,
    events: EventMask,
    client: PluginClient,
    closing: Closing,
    unknown: Unknown,
    _mux: Mux,
}

/// Calls that the plugin has said it does not know.
#[derive(Debug, Default)]
struct Unknown {
    /// Those of the events that older plugins know as `StateChange`.
    notices: AtomicBool,
    update_pod_sandbox: AtomicBool,
    validate_container_adjustment: AtomicBool,
}

impl Link {
    /// Its name.
    pub fn name(&self) -> &PluginName {
        &self.0.name
    }

    /// The process at the other end.
    pub fn peer(&self) -> Peer {
        self.0.peer
    }

    /// The version of NRI that it speaks, where it says so (since 0.12).
    pub fn nri_version(&self) -> Option<&str> {
        self.0.nri_version.as_deref()
    }

    /// The events that it asked for.
    pub fn events(&self) -> EventMask {
        self.0.events
    }

    /// Whether it asked for an event, and is not known not to understand it after all. A call for any other event is
    /// not made, and answered as by a plugin that changes nothing.
    pub fn wants(&self, event: Event) -> bool {
        let unknown = match event {
            Event::UPDATE_POD_SANDBOX => &self.0.unknown.update_pod_sandbox,
            Event::VALIDATE_CONTAINER_ADJUSTMENT => &self.0.unknown.validate_container_adjustment,
            _ => return self.0.events.contains(event),
        };
        self.0.events.contains(event) && !unknown.load(Ordering::Relaxed)
    }

    /// Whether it is an older plugin, which hears of most events as changes of state.
    pub fn hears_state_changes(&self) -> bool {
        self.0.unknown.notices.load(Ordering::Relaxed)
    }

    /// Closes the connection. The plugin sees no reason; it is for whoever looks at the link.
    pub fn close(&self, reason: impl Into<String>) {
        self.0.closing.close(Closed::here(reason));
    }

    /// Why it is closed, if it is.
    pub fn reason(&self) -> Option<Closed> {
        self.0.closing.reason()
    }

    /// Waits for its end.
    pub async fn closed(&self) -> Closed {
        self.0.closing.closed().await
    }

    /// The end alone, for those who must not keep the connection.
    pub fn closing(&self) -> Closing {
        self.0.closing.clone()
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("name", &self.0.name).field("peer", &self.0.peer).finish_non_exhaustive()
    }
}

/// A time in whole milliseconds, for messages.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Links are shared between threads.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Link>();
};
