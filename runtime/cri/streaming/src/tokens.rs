//! One-time tokens: what a URL leads to, and for how long.
//!
//! ```text
//!   issued ─► used, once ─► forgotten
//!      └────► expired ────► forgotten
//! ```
//!
//! Owns: which tokens are good. Never: gives the same thing out twice, or says more of a wrong token than that it is wrong.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes of a token: more than can be guessed.
const TOKEN_BYTES: usize = 32;

/// Tokens are used up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// Too many that nobody has come for.
    #[error(
        "{limit} streams are waiting for their clients, which is the limit; each waits at most {lifetime_ms} ms"
    )]
    TooMany {
        /// The limit.
        limit: usize,
        /// How long each waits, in milliseconds.
        lifetime_ms: u64,
    },
}

/// The tokens of one server, and what each leads to.
#[derive(Debug)]
pub(crate) struct Tokens<T> {
    waiting: Mutex<Waiting<T>>,
    lifetime: Duration,
    limit: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    things: HashMap<String, (Instant, T)>,
    /// In the order in which they expire.
    order: VecDeque<(Instant, String)>,
}

impl<T> Tokens<T> {
    pub(crate) fn new(lifetime: Duration, limit: usize) -> Self {
        let waiting = Waiting { things: HashMap::new(), order: VecDeque::new() };
        Self { waiting: Mutex::new(waiting), lifetime, limit }
    }

    /// A token that leads to `thing`.
    pub(crate) fn issue(&self, thing: T, now: Instant) -> Result<String, IssueError> {
        let mut waiting = self.waiting();
        waiting.forget_expired(now);
        if waiting.things.len() >= self.limit {
            let lifetime_ms = self.lifetime.as_millis() as u64;
            return Err(IssueError::TooMany { limit: self.limit, lifetime_ms });
        }
        let token = random_token();
        let until = now + self.lifetime;
        waiting.things.insert(token.clone(), (until, thing));
        waiting.order.push_back((until, token.clone()));
        Ok(token)
    }

    /// What a token leads to, if `wanted` agrees; the token is used up then. What `wanted` refuses stays, so that a client can do
    /// better at its next try. None for a token that is wrong, used or expired.
    pub(crate) fn take<R, E>(
        &self,
        token: &str,
        now: Instant,
        wanted: impl FnOnce(&T) -> Result<R, E>,
    ) -> Option<Result<(T, R), E>> {
        let mut waiting = self.waiting();
        waiting.forget_expired(now);
        let (_, thing) = waiting.things.get(token)?;
        let agreed = match wanted(thing) {
            Ok(agreed) => agreed,
            Err(refusal) => return Some(Err(refusal)),
        };
        let (_, thing) = waiting.things.remove(token)?;
        Some(Ok((thing, agreed)))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        // `wanted` only looks, and nothing else of what is done under the lock can panic half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Waiting<T> {
    fn forget_expired(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, token)) = self.order.pop_front() {
                self.things.remove(&token);
            }
        }
        // Those that were used leave their place in the order: it never grows beyond twice of what waits.
        if self.order.len() > 2 * self.things.len() + 16 {
            let things = &self.things;
            self.order.retain(|(_, token)| things.contains_key(token));
        }
    }
}

fn random_token() -> String {
    let mut bytes = [0; TOKEN_BYTES];
    // getrandom(2) fills up to 256 bytes at once, and fails only for bad arguments.
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    assert_eq!(filled, Ok(TOKEN_BYTES), "the kernel has no randomness");
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);

    fn take(tokens: &Tokens<u8>, token: &str, now: Instant) -> Option<u8> {
        tokens.take(token, now, |_| Ok::<_, ()>(())).map(|taken| taken.expect("agreed").0)
    }

    #[test]
    fn a_token_is_good_once_and_for_its_time() {
        let (tokens, start) = (Tokens::new(LIFETIME, 10), Instant::now());
        let (one, two) = (tokens.issue(1, start).expect("issued"), tokens.issue(2, start).expect("issued"));
        assert_ne!(one, two);
        assert!(one.len() >= 43, "{one}");
        assert_eq!(take(&tokens, "nonsense", start), None);
        assert_eq!(take(&tokens, &one, start), Some(1));
        assert_eq!(take(&tokens, &one, start), None);
        assert_eq!(take(&tokens, &two, start + LIFETIME), None);
    }

    #[test]
    fn a_refusal_does_not_use_it_up() {
        let (tokens, now) = (Tokens::new(LIFETIME, 10), Instant::now());
        let token = tokens.issue(1, now).expect("issued");
        assert_eq!(tokens.take(&token, now, |_| Err::<(), _>("no")), Some(Err("no")));
        assert_eq!(take(&tokens, &token, now), Some(1));
    }

    #[test]
    fn there_are_never_more_than_the_limit() {
        let (tokens, start) = (Tokens::new(LIFETIME, 2), Instant::now());
        let one = tokens.issue(1, start).expect("issued");
        tokens.issue(2, start).expect("issued");
        assert_eq!(tokens.issue(3, start), Err(IssueError::TooMany { limit: 2, lifetime_ms: 60_000 }));
        assert_eq!(take(&tokens, &one, start), Some(1));
        tokens.issue(3, start).expect("there is room again");
        tokens.issue(4, start + LIFETIME).expect("those before have expired");
        for _ in 0..1_000 {
            let token = tokens.issue(5, start + LIFETIME).expect("issued");
            take(&tokens, &token, start + LIFETIME);
        }
        assert!(tokens.waiting().order.len() < 32);
    }
}
