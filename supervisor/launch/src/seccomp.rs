//! System call filters: the OCI description of one, compiled to the kernel's BPF, and the default profile.

mod assembler;
mod compile;
mod default;

use oci_spec::runtime::LinuxSeccomp;

use crate::error::Result;

pub(crate) use compile::{Filter, compile};
pub use default::default_seccomp;

/// Whether a profile can be compiled.
///
/// # Errors
/// The part of it that is wrong, or that is not implemented.
pub fn check_seccomp(profile: &LinuxSeccomp) -> Result<()> {
    compile(profile).map(drop)
}

#[cfg(test)]
mod tests;
