//! The places where tests strike.
//!
//! Compiled to nothing without the feature `faults`, which only tests turn on. A program that has them is killed with
//! SIGKILL at the place that the environment variable `KILL_AT` names. Never: decides anything else.

/// Names the place.
#[cfg(feature = "faults")]
pub const KILL_AT: &str = "MAINSTAY_NETWORK_KILL_AT";

/// Every place, in the order in which an attach and a detach reach them.
pub const PLACES: [&str; 14] = [
    "attach-begun",
    "lease-file-written",
    "lease-kept",
    "bridge-there",
    "pair-made",
    "port-set",
    "pod-configured",
    "rules-made",
    "detach-begun",
    "rules-gone",
    "link-gone",
    "lease-file-gone",
    "bridge-made",
    "bridge-named",
];

/// A place is reached.
#[cfg(not(feature = "faults"))]
pub(crate) fn reach(_place: &'static str) {}

/// A place is reached.
#[cfg(feature = "faults")]
pub(crate) fn reach(place: &'static str) {
    debug_assert!(PLACES.contains(&place), "{place} is not in the list");
    if std::env::var_os(KILL_AT).is_some_and(|wanted| wanted == place) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
