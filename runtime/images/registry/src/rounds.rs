//! Which host to ask next: decisions only.
//!
//! ```text
//!   host 0 ──fails──► host 1 ──fails──► … last one ──fails──► pause ──► host 0 again, in the next round
//!      ▲                                                                  │
//!      └──────── a transfer that brought bytes goes on at its host ◄──────┘
//! ```
//!
//! A host that will not serve is not asked again. One that asks for a pause is not asked before it is over, and holds
//! nobody up while another host may serve. What ends it: a problem that no host can help with, no host left, or too many rounds that brought nothing.

use std::time::Duration;

use crate::error::{Earlier, RegistryError, Remedy};
use crate::liveness::Moment;
use crate::retry::RetryPolicy;

pub(crate) struct Rounds {
    policy: RetryPolicy,
    hosts: Vec<State>,
    /// Rounds in a row that brought nothing.
    empty: u32,
    /// Retries that were announced.
    retries: u32,
}

#[derive(Default)]
struct State {
    out: bool,
    /// It asked not to be asked before.
    until: Moment,
    error: Option<RegistryError>,
}

/// Whether a try brought something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brought {
    Nothing,
    Bytes,
}

#[derive(Debug)]
pub(crate) enum Next {
    /// Ask this one at once.
    Host {
        index: usize,
        because: String,
    },
    /// Ask this one after a pause.
    Pause {
        index: usize,
        attempt: u32,
        after: Duration,
        because: String,
    },
    GiveUp(RegistryError),
}

impl Rounds {
    pub fn new(policy: RetryPolicy, hosts: usize) -> Self {
        Self { policy, hosts: (0..hosts).map(|_| State::default()).collect(), empty: 0, retries: 0 }
    }

    /// A try at a host failed. `jitter` is from 0 to 1.
    pub fn failed(
        &mut self,
        index: usize,
        error: RegistryError,
        brought: Brought,
        now: Moment,
        jitter: f64,
    ) -> Next {
        let because = error.to_string();
        let remedy = error.problem.remedy();
        let asked = error.problem.retry_after().unwrap_or_default();
        let host = &mut self.hosts[index];
        host.out |= remedy == Remedy::Elsewhere || asked > self.policy.retry_after_max;
        host.until = now.saturating_add(asked);
        host.error = Some(error);
        if remedy == Remedy::None {
            return Next::GiveUp(self.verdict(index));
        }
        if brought == Brought::Bytes {
            self.empty = 0;
            if !self.hosts[index].out {
                return self.pause_or_give_up(index, 1, now, jitter, because);
            }
        }
        let ready = |host: &State| !host.out && host.until <= now;
        if let Some(next) = (index + 1..self.hosts.len()).find(|next| ready(&self.hosts[*next])) {
            return Next::Host { index: next, because };
        }
        self.empty += 1;
        // Whoever is ready first; of equals the first.
        let left = self.hosts.iter().enumerate().filter(|(_, host)| !host.out);
        match left.min_by_key(|(_, host)| host.until.saturating_sub(now)).map(|(first, _)| first) {
            Some(first) => self.pause_or_give_up(first, self.empty, now, jitter, because),
            None => Next::GiveUp(self.verdict(index)),
        }
    }

    fn pause_or_give_up(
        &mut self,
        index: usize,
        failed: u32,
        now: Moment,
        jitter: f64,
        because: String,
    ) -> Next {
        let asked = self.hosts[index].until.saturating_sub(now);
        match self.policy.pause(failed, (!asked.is_zero()).then_some(asked), jitter) {
            Some(after) => {
                self.retries += 1;
                Next::Pause { index, attempt: self.retries, after, because }
            }
            None => Next::GiveUp(self.verdict(index)),
        }
    }

    /// The last error, with those of the other hosts.
    fn verdict(&mut self, last: usize) -> RegistryError {
        let earlier = |(index, state): (usize, &State)| {
            let error = state.error.as_ref().filter(|_| index != last)?;
            Some(Earlier { host: error.request.host.clone(), problem: error.problem.to_string() })
        };
        let earlier: Vec<_> = self.hosts.iter().enumerate().filter_map(earlier).collect();
        let error = self.hosts[last].error.take();
        // A host is given up only after it failed.
        let error = error.expect("it has failed");
        RegistryError { earlier, ..error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Problem, Request, Said};

    fn error(problem: Problem) -> RegistryError {
        let request = Request { method: "GET", host: "r.example".to_owned(), path: "/v2/".to_owned() };
        RegistryError::new(request, problem)
    }

    fn status(status: u16, asked: Option<u64>) -> RegistryError {
        error(Problem::Status { status, retry_after: asked.map(Duration::from_secs), said: Said::default() })
    }

    fn s(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    fn missing() -> RegistryError {
        error(Problem::NotFound { said: Said::default() })
    }

    fn shown(next: Next) -> String {
        match next {
            Next::Host { index, .. } => format!("host {index}"),
            Next::Pause { index, attempt, after, .. } => {
                format!("{attempt}: host {index} in {} ms", after.as_millis())
            }
            Next::GiveUp(error) => error.to_string(),
        }
    }

    fn rounds(hosts: usize) -> Rounds {
        Rounds::new(RetryPolicy { tries: 3, ..RetryPolicy::default() }, hosts)
    }

    #[test]
    fn hosts_are_asked_in_turn_and_those_that_will_not_serve_no_more() {
        let mut rounds = rounds(3);
        let mut fail = |index, error| shown(rounds.failed(index, error, Brought::Nothing, s(0), 1.0));
        assert_eq!(fail(0, missing()), "host 1");
        assert_eq!(fail(1, status(503, None)), "host 2");
        assert_eq!(fail(2, status(500, None)), "1: host 1 in 500 ms");
        assert_eq!(fail(1, missing()), "host 2");
        assert_eq!(fail(2, status(500, None)), "2: host 2 in 1000 ms");
        let end =
            "GET /v2/ of r.example: 500 (before that, r.example: 404, not found; r.example: 404, not found)";
        assert_eq!(fail(2, status(500, None)), end);
    }

    #[test]
    fn who_asks_for_a_pause_gets_it_and_holds_nobody_up() {
        let mut rounds = rounds(2);
        let mut fail = |index, error, now| shown(rounds.failed(index, error, Brought::Nothing, s(now), 1.0));
        assert_eq!(fail(0, status(503, Some(100)), 0), "host 1");
        assert_eq!(fail(1, status(503, None), 0), "1: host 1 in 500 ms", "the first one is not asked yet");
        assert_eq!(fail(1, status(503, Some(300)), 1), "2: host 0 in 99500 ms", "and now it is ready first");
        assert!(fail(0, status(503, None), 101).contains("503"), "three rounds are enough");
    }

    #[test]
    fn a_transfer_that_moves_on_is_not_given_up_and_stays_where_it_is() {
        let mut rounds = rounds(2);
        for attempt in 1..100 {
            let cut = error(Problem::Interrupted { got: 1, expected: None, reason: String::new() });
            let next = shown(rounds.failed(0, cut, Brought::Bytes, s(0), 1.0));
            assert_eq!(next, format!("{attempt}: host 0 in 500 ms"));
        }
    }

    #[test]
    fn what_nobody_can_help_with_ends_it() {
        let mut rounds = rounds(2);
        let full = error(Problem::Sink(std::io::Error::other("disk full")));
        assert!(matches!(rounds.failed(0, full, Brought::Bytes, s(0), 0.0), Next::GiveUp(_)));
        let mut alone = self::rounds(1);
        assert!(matches!(alone.failed(0, missing(), Brought::Nothing, s(0), 0.0), Next::GiveUp(_)));
        let mut patient = self::rounds(1);
        let too_long = status(429, Some(100_000));
        assert!(matches!(patient.failed(0, too_long, Brought::Nothing, s(0), 0.0), Next::GiveUp(_)));
    }
}
