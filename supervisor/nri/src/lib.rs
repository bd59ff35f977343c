//! NRI plugins on the side of the runtime.
//!
//! ```text
//!  supervisor's sagas ──► Nri ──► Round (turn of the pod) ──► each plugin in turn: Plugin (actor) ──► Line ──► link
//!                          │            │                          ▲
//!                          └──► Roster (actor): who is called, what is announced, what there is
//!                                                                  │
//!                         Gate: the socket, the plugins that are started ── registers them
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | what can be set |
//! | [`roster`], [`plugin`], [`policy`], [`hook`] | the decisions: who is told of what, and what a failure costs |
//! | [`mod@line`] | what plugins are asked, and what they may do by themselves |
//! | [`gate`] | how plugins come, and come again |
//! | [`adjust`] | what they change, merged |
//! | [`link`], [`preinstalled`] | their connections and processes |
//!
//! Never: knows the saga that a hook is part of, or what a container is made of.

pub mod adjust;
pub mod gate;
pub mod hook;
pub mod line;
pub mod link;
pub mod name;
mod nri;
mod others;
pub mod plugin;
pub mod policy;
pub mod preinstalled;
pub mod roster;
mod round;
pub mod settings;
mod turns;
mod wire;

pub use mainstay_nri_api as api;
pub use nri::{Nri, NriParts, Unrun};
pub use settings::NriSettings;
