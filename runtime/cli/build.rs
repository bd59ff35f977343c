//! Has the program's relocations packed, where the machine's loader can read them so.
//!
//! A relocation takes 24 bytes of the program, all of which are read at its start and count as memory of the daemon from then on;
//! packed, most take a bit. Loaders of glibc read that since 2.36, and refuse such a program before.

use std::env;
use std::ffi::CStr;

/// The first glibc that reads them, major and minor.
const FIRST_GLIBC: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // What a program for another machine meets there is not known here.
    let is_native = env::var_os("HOST") == env::var_os("TARGET");
    if is_native && glibc().is_some_and(|version| version >= FIRST_GLIBC) {
        println!("cargo::rustc-link-arg-bin=mainstay=-Wl,-z,pack-relative-relocs");
    }
}

#[cfg(target_env = "gnu")]
fn glibc() -> Option<(u32, u32)> {
    // SAFETY: it answers a string that is never freed.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let mut parts = version.to_str().ok()?.split('.').map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?))
}

#[cfg(not(target_env = "gnu"))]
fn glibc() -> Option<(u32, u32)> {
    None
}
