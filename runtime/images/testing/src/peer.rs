//! Programs that tests need and that may not be there.

use std::io::Write;
use std::path::PathBuf;

/// Set (to anything) where a missing program is a failure and not a reason to skip.
pub const REQUIRE_PEERS: &str = "MAINSTAY_TEST_REQUIRE_PEERS";

/// The path of a program, or none; then it was said that the test is skipped.
pub fn find(program: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file());
    if found.is_none() {
        let text = format!("{program} is not installed (Debian package {package})");
        assert!(std::env::var_os(REQUIRE_PEERS).is_none(), "{text}, and {REQUIRE_PEERS} is set");
        skipped(&text);
    }
    found
}

/// Says that the test on this thread is skipped. Written past the macros, whose output the test harness swallows
/// when a test passes.
pub fn skipped(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // A standard error that is gone needs no words.
    let _ = writeln!(std::io::stderr(), "skipped {test}: {reason}");
}

/// Whether this process is root; if not, it was said that the test is skipped.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped("this test needs root");
    }
    root
}
