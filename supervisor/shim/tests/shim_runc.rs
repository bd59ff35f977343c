//! Containers that containerd's shim for runc makes, behind the pod's own: the same tests as those of the shim's own.

#![allow(
    clippy::duplicate_mod,
    reason = "each file of tests has its rig, also when it is a program of its own"
)]

#[path = "life_cycle.rs"]
mod life_cycle;
#[path = "streams.rs"]
mod streams;
