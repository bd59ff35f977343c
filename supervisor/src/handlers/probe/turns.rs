//! Turns at asking something that may hang, and what is known of it.
//!
//! Owns: that each program is asked by one at a time, and for how long the others wait: counted from the beginning of the turn
//! before theirs, so that behind a file system that hangs no threads pile up. Never: asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::PROBES_MS;

/// What is known of each program, by its name.
#[derive(Debug)]
pub(super) struct Places<T>(Mutex<BTreeMap<String, Arc<Place<T>>>>);

/// What is known of one program.
#[derive(Debug)]
pub(super) struct Place<T> {
    state: Mutex<State<T>>,
    over: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Since when somebody has the turn.
    since: Option<Instant>,
    known: Option<T>,
}

/// The turn of one who asks; over when it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a, T>(&'a Place<T>);

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { since: None, known: None }), over: Condvar::new() }
    }
}

impl<T> Places<T> {
    /// That of a program.
    pub(super) fn of(&self, program: &str) -> Arc<Place<T>> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(program.to_owned()).or_default())
    }
}

impl<T> Place<T> {
    /// Waits for a turn.
    ///
    /// # Errors
    /// When somebody has had it for longer than it may last: how long.
    pub(super) fn turn(&self) -> Result<Turn<'_, T>, Duration> {
        let mut state = self.state();
        while let Some(since) = state.since {
            let taken = since.elapsed();
            let left = Duration::from_millis(PROBES_MS).saturating_sub(taken);
            if left.is_zero() {
                return Err(taken);
            }
            state = self.over.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.since = Some(Instant::now());
        Ok(Turn(self))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Turn<'_, T> {
    /// What is known.
    pub(super) fn known(&self) -> Option<T> {
        self.0.state().known.clone()
    }

    /// Takes note of an answer.
    pub(super) fn learn(&self, known: T) {
        self.0.state().known = Some(known);
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.0.state().since = None;
        self.0.over.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever wanted a pod of a runtime on a file system that hung waited for the one before for ever, with a thread each.
    #[test]
    fn nobody_waits_behind_a_turn_that_lasts_too_long() {
        let place = Place::<u8>::default();
        let turn = place.turn().expect("free");
        let long = Duration::from_millis(PROBES_MS);
        place.state().since = Instant::now().checked_sub(long);
        assert!(place.turn().is_err_and(|taken| taken >= long));
        turn.learn(7);
        drop(turn);
        assert_eq!(place.turn().expect("free again").known(), Some(7));
    }

    #[test]
    fn turns_come_one_after_the_other() {
        let (places, count) = (Places::<u32>::default(), 8);
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    let place = places.of("runc");
                    let turn = place.turn().expect("soon");
                    turn.learn(turn.known().unwrap_or(0) + 1);
                });
            }
        });
        assert_eq!(places.of("runc").turn().expect("free").known(), Some(count));
        assert_eq!(places.of("crun").turn().expect("free").known(), None);
    }
}
