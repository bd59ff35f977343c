//! Real containers, made by the launcher on this machine. Needs root and a statically linked busybox; says so and skips
//! otherwise.
//!
//! The launcher forks, so its caller must have one thread: the cases run one after the other in this thread, without the
//! test harness. Like the shim, this process lives in a mount name space of its own.
//! `cargo test -p mainstay-launch --test launch -- WORD` runs the cases that have the word in their name.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitCode};

mod commands;
mod confinement;
mod execs;
mod files;
mod hooks;
mod net_devices;
mod pods;
mod scheduling;
mod user_namespaces;
mod users;
mod world;

/// A named test.
pub type Case = (&'static str, fn());

/// Lists functions as cases, by their names.
#[macro_export]
macro_rules! cases {
    ($($name:ident),* $(,)?) => { pub const CASES: &[$crate::Case] = &[$((stringify!($name), $name)),*]; };
}

fn main() -> ExitCode {
    if let Some(reason) = reason_to_skip() {
        let required = std::env::var_os("MAINSTAY_TEST_REQUIRE_PEERS").is_some();
        let failed = required && rustix::process::geteuid().is_root();
        println!("{} launch: {reason}", if failed { "failed" } else { "skipped" });
        return if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    world::live_like_the_shim();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let all = [
        commands::CASES,
        files::CASES,
        users::CASES,
        confinement::CASES,
        execs::CASES,
        hooks::CASES,
        net_devices::CASES,
        scheduling::CASES,
        pods::CASES,
        user_namespaces::CASES,
    ];
    let mut failed = Vec::new();
    let mut count = 0;
    for (name, case) in all.into_iter().flatten() {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        count += 1;
        let passed = catch_unwind(AssertUnwindSafe(case)).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed {
            failed.push(name);
        }
    }
    println!("\ntest result: {count} run, {} failed {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn reason_to_skip() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("containers are made by root".to_owned());
    }
    if !Path::new(world::BUSYBOX).exists() {
        return Some(format!("{} is not there", world::BUSYBOX));
    }
    let kind = Command::new("ldd").arg(world::BUSYBOX).output().ok()?;
    let is_dynamic = kind.status.success() && String::from_utf8_lossy(&kind.stdout).contains("=>");
    is_dynamic.then(|| format!("{} is not statically linked", world::BUSYBOX))
}
