//! The networks of pods, on real links: the built-in one, and CNI's. The host of each test is a network namespace of its own.

mod audit;
mod builtin;
mod cni;
mod restarts;
mod stage;
