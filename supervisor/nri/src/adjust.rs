//! What plugins change of containers: merged, checked, and translated for the rest of the runtime.
//!
//! ```text
//!  records ──describe──▶ Container ──▶ Creation ◀──apply── each plugin's answer, in the order of the plugins
//!                                         │
//!                                         ├─ validation() ──▶ what validators are asked
//!                                         └─ finish() ──▶ Merged { adjustment, others, evictions }
//!                                                             │
//!                        ContainerRecord::adjusted(adjustment) ┘ ──▶ the supervisor applies it to the OCI spec
//! ```
//!
//! How a hook of creation is served: make a [`Creation`] of the container as [`container`] describes it; for each plugin
//! send [`Creation::container`] and give its answer to [`Creation::apply`]; ask validators with [`Creation::validation`]; take
//! [`Creation::finish`], write `record.adjusted(adjustment)` down, and make the container of that record. An answer that is
//! refused changes nothing, so that a caller whose policy allows it goes on without it. [`Change`] serves the other hooks.
//!
//! Owns: who changed what, and whether that is allowed. All of it is pure. Never: talks to plugins, or changes anything itself.
//!
//! Rules (those of NRI 0.12; where its own implementation drops a removal silently, it is done here):
//! 1. Each plugin sees the container as those before it have changed it.
//! 2. A field, or an entry of one, has one owner; who claims it second is refused, and both are named.
//! 3. A `-` before the key takes an entry away; whoever takes away what another plugin has set may set it anew, and nobody else.
//! 4. Hooks and device rules add up. CDI devices are only ever added.
//! 5. The container that is being created cannot be updated or evicted by its own creation.

mod convert;
mod creation;
mod describe;
mod error;
mod keyed;
mod limits;
mod other;
mod owners;
mod resources;
#[cfg(test)]
mod tests;

pub use creation::{Creation, Merged};
pub use describe::{PodFacts, container, pod, pod_update};
pub use error::AdjustError;
pub use limits::described_limits;
pub use other::{Change, ChangeMerged, Changed, Eviction, Failure, OtherUpdate};
pub use owners::Owners;

/// The most entries of one list or map of an answer.
pub const ENTRIES_MAX: usize = 4_096;
