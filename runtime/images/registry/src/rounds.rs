//! Which host to ask next: decisions only.
//!
//! ```text
//!   host 0 ──fails──► host 1 ──fails──► … last one ──fails──► pause ──► host 0 again, in the next round
//!      ▲                                                                  │
//!      └──────── a transfer that brought bytes goes on at its host ◄──────┘
//! ```
//!
//! A host that will not serve is not asked again. A registry that asks for a pause holds nobody up while another host
//! may serve. What ends it: a problem that no host can help with, no host left, or too many rounds that brought nothing.

use std::time::Duration;

use crate::error::{Earlier, RegistryError, Remedy};
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
    pub fn failed(&mut self, index: usize, error: RegistryError, brought: Brought, jitter: f64) -> Next {
        let because = error.to_string();
        let remedy = error.problem.remedy();
        self.hosts[index].out |= remedy == Remedy::Elsewhere;
        self.hosts[index].error = Some(error);
        if remedy == Remedy::None {
            return Next::GiveUp(self.verdict(index));
        }
        if brought == Brought::Bytes {
            self.empty = 0;
            if remedy == Remedy::Again {
                let asked = self.hosts[index].asked();
                return match self.policy.pause(1, asked, jitter) {
                    Some(after) => self.pause(index, after, because),
                    None => Next::GiveUp(self.verdict(index)),
                };
            }
        }
        if let Some(next) = (index + 1..self.hosts.len()).find(|next| !self.hosts[*next].out) {
            return Next::Host { index: next, because };
        }
        let Some(first) = self.hosts.iter().position(|host| !host.out) else {
            return Next::GiveUp(self.verdict(index));
        };
        self.empty += 1;
        let left = || self.hosts.iter().filter(|host| !host.out);
        // Who asks for no pause may be asked after one of our own.
        let asked = if left().all(|host| host.asked().is_some()) {
            left().filter_map(State::asked).min()
        } else {
            None
        };
        match self.policy.pause(self.empty, asked, jitter) {
            Some(after) => self.pause(first, after, because),
            None => Next::GiveUp(self.verdict(index)),
        }
    }

    fn pause(&mut self, index: usize, after: Duration, because: String) -> Next {
        self.retries += 1;
        Next::Pause { index, attempt: self.retries, after, because }
    }

    /// The last error, with those of the other hosts.
    fn verdict(&mut self, last: usize) -> RegistryError {
        let earlier = |(index, state): (usize, &State)| {
            let error = state.error.as_ref().filter(|_| index != last)?;
            Some(Earlier { host: error.request.host.clone(), problem: error.problem.to_string() })
        };
        let earlier: Vec<_> = self.hosts.iter().enumerate().filter_map(earlier).collect();
        let error = self.hosts[last].error.take().expect("the last one has failed");
        RegistryError { earlier, ..error }
    }
}

impl State {
    fn asked(&self) -> Option<Duration> {
        self.error.as_ref()?.problem.retry_after()
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
        let mut fail = |index, error| shown(rounds.failed(index, error, Brought::Nothing, 1.0));
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
    fn a_pause_that_one_host_asks_for_holds_nobody_up() {
        let mut rounds = rounds(2);
        let mut fail = |index, error| shown(rounds.failed(index, error, Brought::Nothing, 1.0));
        assert_eq!(fail(0, status(429, Some(100))), "host 1");
        assert_eq!(fail(1, status(503, None)), "1: host 0 in 500 ms", "the second one asks for none");
        assert_eq!(fail(0, status(503, Some(7))), "host 1");
        assert_eq!(fail(1, status(503, Some(9))), "2: host 0 in 7500 ms");
    }

    #[test]
    fn a_transfer_that_moves_on_is_not_given_up_and_stays_where_it_is() {
        let mut rounds = rounds(2);
        for attempt in 1..100 {
            let cut = error(Problem::Interrupted { got: 1, expected: None, reason: String::new() });
            let next = shown(rounds.failed(0, cut, Brought::Bytes, 1.0));
            assert_eq!(next, format!("{attempt}: host 0 in 500 ms"));
        }
    }

    #[test]
    fn what_nobody_can_help_with_ends_it() {
        let mut rounds = rounds(2);
        let full = error(Problem::Sink(std::io::Error::other("disk full")));
        assert!(matches!(rounds.failed(0, full, Brought::Bytes, 0.0), Next::GiveUp(_)));
        let mut alone = self::rounds(1);
        assert!(matches!(alone.failed(0, missing(), Brought::Nothing, 0.0), Next::GiveUp(_)));
        let mut patient = self::rounds(1);
        let too_long = status(429, Some(100_000));
        assert!(matches!(patient.failed(0, too_long, Brought::Nothing, 0.0), Next::GiveUp(_)));
    }
}
