//! System call filters: the OCI description of one, compiled to the kernel's BPF, and the default profile.

mod assembler;
mod compile;
mod default;

pub(crate) use compile::{Filter, compile};
pub use default::default_seccomp;

#[cfg(test)]
mod tests;
