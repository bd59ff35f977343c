//! What becomes of a request when a plugin did not answer it.
//!
//! | the plugin | event that decides | event that is noted |
//! |---|---|---|
//! | answered, or has nothing to do with it | goes on | goes on |
//! | said no | fails | goes on, noted |
//! | did not answer, fail-open | goes on, noted | goes on, noted |
//! | did not answer, fail-closed | fails | goes on, noted |
//!
//! A plugin that says no is heard under either policy: to ask it and not to listen would be no policy at all. A validator
//! that is not heard has not agreed: what it was to agree to fails under either policy.
//!
//! Owns: this table. Never: waits, or knows why a plugin did not answer.

use mainstay_nri_api::Event;
use serde::{Deserialize, Serialize};

use crate::hook::{Weight, weight};

/// What becomes of a request when a plugin does not answer in time, or is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailPolicy {
    /// It goes on without the plugin.
    #[default]
    Open,
    /// It fails.
    Closed,
}

/// What a plugin made of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It answered.
    Answered,
    /// It did not ask for this event.
    NotAsked,
    /// It does not know the object.
    Unknown,
    /// It said no, for this reason.
    Refused(String),
    /// It did not answer, for this reason.
    Missed(String),
}

/// How a request goes on after a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Course {
    /// To the next plugin.
    On,
    /// To the next plugin; the journal is told this.
    OnNoted(String),
    /// It has failed for this reason.
    Fails(String),
}

/// The table above.
pub fn course(policy: FailPolicy, event: Event, verdict: &Verdict) -> Course {
    match (verdict, weight(event), policy) {
        (Verdict::Answered | Verdict::NotAsked | Verdict::Unknown, _, _) => Course::On,
        (Verdict::Refused(reason), Weight::Decides, _) => Course::Fails(reason.clone()),
        (Verdict::Missed(reason), Weight::Decides, _)
            if policy == FailPolicy::Closed || event == Event::VALIDATE_CONTAINER_ADJUSTMENT =>
        {
            Course::Fails(reason.clone())
        }
        (Verdict::Refused(reason) | Verdict::Missed(reason), _, _) => Course::OnNoted(reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(FailPolicy::Open, Event::RUN_POD_SANDBOX, "refused", "fails")]
    #[case(FailPolicy::Open, Event::RUN_POD_SANDBOX, "missed", "noted")]
    #[case(FailPolicy::Closed, Event::CREATE_CONTAINER, "missed", "fails")]
    #[case(FailPolicy::Open, Event::VALIDATE_CONTAINER_ADJUSTMENT, "missed", "fails")]
    #[case(FailPolicy::Closed, Event::STOP_POD_SANDBOX, "missed", "noted")]
    #[case(FailPolicy::Closed, Event::REMOVE_CONTAINER, "refused", "noted")]
    #[case(FailPolicy::Closed, Event::POST_START_CONTAINER, "refused", "noted")]
    #[case(FailPolicy::Closed, Event::START_CONTAINER, "answered", "on")]
    fn a_verdict_has_its_course(
        #[case] policy: FailPolicy,
        #[case] event: Event,
        #[case] verdict: &str,
        #[case] expected: &str,
    ) {
        let verdict = match verdict {
            "refused" => Verdict::Refused("no".to_owned()),
            "missed" => Verdict::Missed("late".to_owned()),
            _ => Verdict::Answered,
        };
        let course = match course(policy, event, &verdict) {
            Course::On => "on",
            Course::OnNoted(_) => "noted",
            Course::Fails(_) => "fails",
        };
        assert_eq!(course, expected);
    }
}
