//! The exits that the supervisor has not acknowledged.
//!
//! Owns: which exits are announced, when, and again when. It is pure: the caller brings the clock and does the
//! waiting. Never: loses one on a timer, on a full queue or because its container was deleted; one leaves only by an
//! acknowledgement.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mainstay_messages::Exit;
use mainstay_task_api::convert::ProcessKey;

use crate::failure::Failure;

/// The most exits in one answer, so that it fits a frame of ttrpc however long their reasons are.
pub(crate) const EXITS_PER_ANSWER_MAX: usize = 128;
/// How long after an exit was returned without being acknowledged it is returned again, in milliseconds.
pub(crate) const EXIT_REANNOUNCE_MS: u64 = 2_000;
/// How long a call for exits waits before it answers that there are none, in milliseconds.
pub(crate) const EXIT_POLL_MS: u64 = 30_000;

/// The most exits that wait to be acknowledged. With more, nothing new is taken: an exit is never dropped.
pub(crate) const EXITS_WAITING_MAX: usize = 8_192;

/// Where an answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// With everything that is not acknowledged: the caller has just connected.
    FromTheStart,
    /// With what was not returned in the last [`EXIT_REANNOUNCE_MS`].
    WithWhatIsDue,
}

#[derive(Debug)]
struct Unacknowledged {
    exit: Exit,
    returned_at: Option<Instant>,
}

/// The exits that the supervisor has not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Exits {
    waiting: BTreeMap<ProcessKey, Unacknowledged>,
}

impl Exits {
    /// Whether another process may come into being, whose exit will have to be kept.
    pub(crate) fn admit(&self) -> Result<(), Failure> {
        if self.waiting.len() < EXITS_WAITING_MAX {
            return Ok(());
        }
        Err(Failure::Exhausted { what: "exits that are not acknowledged", limit: EXITS_WAITING_MAX })
    }

    /// Adds the exit of a process; the first one stands.
    pub(crate) fn insert(&mut self, key: ProcessKey, exit: Exit) {
        self.waiting.entry(key).or_insert(Unacknowledged { exit, returned_at: None });
    }

    /// Forgets one that was acknowledged. One that is not there was acknowledged before.
    pub(crate) fn acknowledge(&mut self, key: &ProcessKey) {
        self.waiting.remove(key);
    }

    /// All of them.
    pub(crate) fn owed(&self) -> impl Iterator<Item = (&ProcessKey, &Exit)> {
        self.waiting.iter().map(|(key, entry)| (key, &entry.exit))
    }

    /// The exits that are due, the never returned ones first, and notes that they are returned now.
    pub(crate) fn take_due(&mut self, begin: Begin, now: Instant) -> Vec<(ProcessKey, Exit)> {
        let again = Duration::from_millis(EXIT_REANNOUNCE_MS);
        let due = |entry: &Unacknowledged| match (begin, entry.returned_at) {
            (Begin::FromTheStart, _) | (_, None) => true,
            (Begin::WithWhatIsDue, Some(at)) => now.saturating_duration_since(at) >= again,
        };
        let mut found: Vec<_> = self.waiting.iter_mut().filter(|(_, entry)| due(entry)).collect();
        found.sort_by_key(|(_, entry)| entry.returned_at);
        found.truncate(EXITS_PER_ANSWER_MAX);
        found
            .into_iter()
            .map(|(key, entry)| {
                entry.returned_at = Some(now);
                (key.clone(), entry.exit.clone())
            })
            .collect()
    }

    /// When the next exit is due again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let oldest = self.waiting.values().filter_map(|entry| entry.returned_at).min()?;
        Some(oldest + Duration::from_millis(EXIT_REANNOUNCE_MS))
    }
}

#[cfg(test)]
mod tests {
    use mainstay_messages::Timestamp;
    use mainstay_messages::process::{ExitStatus, OomVerdict};

    use super::*;

    fn key(number: usize) -> ProcessKey {
        ProcessKey::parse("web", &format!("e{number:04}")).expect("good ids")
    }

    fn exit() -> Exit {
        let status = ExitStatus::Exited { code: 0 };
        Exit { status, at: Timestamp(1), oom: OomVerdict::NotKilled }
    }

    #[test]
    fn an_exit_comes_again_until_it_is_acknowledged() {
        let mut exits = Exits::default();
        let start = Instant::now();
        let later = start + Duration::from_millis(EXIT_REANNOUNCE_MS);
        exits.insert(key(1), exit());
        assert_eq!(exits.take_due(Begin::WithWhatIsDue, start).len(), 1);
        assert!(exits.take_due(Begin::WithWhatIsDue, start).is_empty());
        assert_eq!(exits.next_due(), Some(later));
        assert_eq!(exits.take_due(Begin::WithWhatIsDue, later).len(), 1);
        exits.acknowledge(&key(1));
        assert!(exits.take_due(Begin::FromTheStart, later).is_empty());
        assert_eq!(exits.next_due(), None);
    }

    /// A daemon that was killed with an answer in its hands connects again: it must not wait for its exits.
    #[test]
    fn a_new_connection_gets_everything_at_once() {
        let mut exits = Exits::default();
        let now = Instant::now();
        exits.insert(key(1), exit());
        assert_eq!(exits.take_due(Begin::WithWhatIsDue, now).len(), 1);
        assert_eq!(exits.take_due(Begin::FromTheStart, now).len(), 1);
    }

    #[test]
    fn more_exits_than_an_answer_holds_all_come() {
        let mut exits = Exits::default();
        let now = Instant::now();
        let count = 2 * EXITS_PER_ANSWER_MAX + 1;
        (0..count).for_each(|number| exits.insert(key(number), exit()));
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 {
            let answer = exits.take_due(Begin::FromTheStart, now);
            assert!(answer.len() <= EXITS_PER_ANSWER_MAX);
            seen.extend(answer.into_iter().map(|(key, _)| key));
        }
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn the_first_exit_of_a_process_stands() {
        let mut exits = Exits::default();
        exits.insert(key(1), exit());
        exits.insert(key(1), Exit::start_error("late", Timestamp(2)));
        assert_eq!(exits.take_due(Begin::FromTheStart, Instant::now())[0].1, exit());
    }
}
