//! The places where tests strike.
//!
//! Compiled to nothing without the feature `faults`, which only tests turn on. A program that has them is killed with
//! SIGKILL at the place that the environment variable `KILL_AT` names; whoever comes first to a place with a `Hang` stays
//! there. Never: decides anything else.

#[cfg(feature = "faults")]
pub use self::hang::Hang;

/// Names the place.
#[cfg(feature = "faults")]
pub const KILL_AT: &str = "MAINSTAY_NETWORK_KILL_AT";

/// Every place, in the order in which an attach and a detach reach them.
pub const PLACES: [&str; 15] = [
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
    "lease-file-going",
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
    hang::at(place);
}

/// A place at which somebody hangs, as one does in a disk that does not answer.
#[cfg(feature = "faults")]
mod hang {
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum State {
        Set(&'static str),
        Somebody,
        Over,
    }

    static STATE: Mutex<State> = Mutex::new(State::Over);
    static CHANGED: Condvar = Condvar::new();

    /// One place of the whole process, until it is dropped.
    #[derive(Debug)]
    pub struct Hang(());

    impl Hang {
        /// The next one who comes to the place hangs there.
        pub fn at(place: &'static str) -> Self {
            assert!(super::PLACES.contains(&place), "{place} is not in the list");
            *state() = State::Set(place);
            Self(())
        }

        /// Whether somebody hangs there.
        pub fn has_somebody(&self) -> bool {
            *state() == State::Somebody
        }
    }

    impl Drop for Hang {
        fn drop(&mut self) {
            *state() = State::Over;
            CHANGED.notify_all();
        }
    }

    fn state() -> MutexGuard<'static, State> {
        STATE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn at(place: &'static str) {
        let mut state = state();
        if *state != State::Set(place) {
            return;
        }
        *state = State::Somebody;
        while *state == State::Somebody {
            state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
