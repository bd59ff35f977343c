//! Pulls of images: who asks, what runs, what is told to whom, and how long silence is borne (P8).
//!
//! ```text
//!  caller ── pull ─► ImagePulls ── resolve, with the caller's own credentials ─► registry (port)
//!                        │ what the name means: a digest
//!                        ├─ a pull of it runs ──► join ─┐
//!                        └─ none does ──────────► start ┴─► ImagePull ── fetch ─► registry, images (port)
//!  caller ◄─ progress, then the image or an error ─────────────┘
//! ```
//!
//! [`ImagePulls`](pulls) owns which pull runs for which digest, and the callers whose names are not resolved yet.
//! [`ImagePull`](pull) owns one pull and those who wait for it. [`liveness`] judges whether it is alive,
//! [`mod@progress`] is how its news reach everyone without anyone being waited for. None of them knows HTTP, a layer
//! or a file: that is behind [`ImageSource`](crate::ports::ImageSource). They keep no record: what lasts is
//! written behind the port before a pull ends, and a pull that a crash has ended is asked for again.

mod handle;
pub mod liveness;
pub mod progress;
pub mod pull;
pub mod pulls;
mod watch;

pub use handle::{Pull, Pulls};
pub use liveness::{Floor, Patience};
pub use progress::{ProgressFeed, ProgressSink, progress};

/// The most pulls that run at the same time. Those who ask for another one are told so.
pub const PULLS_MAX: usize = 256;
/// The most callers that have asked for a pull and hold its handle.
pub const PULL_CALLERS_MAX: usize = 4_096;
/// Time from the end of the last caller's interest in a pull to the end of its connections, in milliseconds.
pub const CANCEL_MAX_MS: u64 = 2_000;

/// The number of a caller, for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerId(pub u64);

/// What a pull is of. Callers who get the same one share a pull.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PullKey {
    /// The digest of the manifest.
    pub digest: String,
    /// The platform.
    pub platform: String,
}
