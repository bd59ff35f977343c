//! The network on a real kernel, in namespaces that the tests make.

#[path = "../world/mod.rs"]
mod world;

mod cni;
mod figures;
mod ports;
mod refusals;
mod repetition;
mod traffic;
