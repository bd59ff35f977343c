//! The actors of Mainstay: router, sandbox, container, image pull, journal.
//!
//! Each is a pure `state.rs` (input to outcome, no IO, no clock) under a thin actix actor; [`machine`] is the
//! discipline that all of them share. What they need from outside is in [`ports`]. They know no database, no
//! wire protocol and no process: those are behind the ports.
//!
//! ```text
//!  commands ─► Router ─► Sandbox, Container ─► Supervisor (port) ─► shims
//!  exits ────► Router ─► Container ─► Journal ─► Store (port), subscribers
//!  pulls ────► ImagePulls ─► ImagePull ─► ImageSource (port) ─► registries, images
//!  readers ──► Directory (snapshots; no actor is asked)
//! ```

mod call;
pub mod container;
mod core;
mod counters;
pub mod directory;
#[cfg(feature = "fakes")]
pub mod fakes;
pub mod image;
pub mod journal;
pub mod machine;
pub mod ports;
pub mod router;
pub mod sandbox;
mod ticket;
mod world;

pub use call::{CallId, Handover};
pub use core::{Core, Facts, Parts};
pub use counters::{Counter, Counters};
pub use directory::Directory;
pub use journal::{EventLog, Item, Readers, Subscription};
pub use router::{Recover, Routable, Routed, Router};
pub use sandbox::state::HowDown;
