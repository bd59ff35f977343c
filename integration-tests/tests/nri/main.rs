//! Plugins on real pods: what they are told, what a failure of theirs costs, and that nothing else is harmed.

mod adjusting;
mod arrivals;
mod cases;
mod containers;
mod evictions;
mod nonsense;
mod pods;
mod silence;
mod stage;
mod user_namespaces;
