//! The streams of a port-forward, in pairs, as a decision.
//!
//! ```text
//!   error, data ──same request──► a pair ──► a connection to the port
//!        └── the other does not come in time ──► refused
//! ```
//!
//! Owns: which streams belong together. Never: touches one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::spdy::frame::StreamId;
use crate::spdy::headers::Headers;

/// The most streams of one client that wait for the other one of their pair.
pub const WAITING_MAX: usize = 512;

/// What a stream of a pair is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Error,
    Data,
}

/// What a stream says that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) request: String,
    pub(crate) role: Role,
    pub(crate) port: u16,
}

/// Headers that no stream of a port-forward can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unclear {
    #[error("header port is {value:?}; it must be a number from 1 to 65535")]
    Port { value: String },
    #[error("header streamType is {value:?}; it must be data or error")]
    Role { value: String },
}

/// Streams that wait for the other one of their pair.
#[derive(Debug)]
pub(crate) struct Pairs<S> {
    waiting: HashMap<String, (Instant, Announced, S)>,
    patience: Duration,
}

/// What becomes of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived<S> {
    /// It waits for the other.
    Waits,
    /// Both are there.
    Pair { port: u16, data: S, error: S },
    /// It is refused: its request has such a stream already.
    Twice(S),
    /// It is refused: too many wait, which their client may have given up long ago.
    TooMany(S),
}

impl Announced {
    /// Reads the headers of a stream.
    pub(crate) fn read(id: StreamId, headers: &Headers) -> Result<Self, Unclear> {
        let port = headers.get("port").unwrap_or_default();
        let port =
            port.parse().ok().filter(|port| *port > 0).ok_or_else(|| Unclear::Port { value: port.into() })?;
        let role = match headers.get("streamtype").unwrap_or_default() {
            "data" => Role::Data,
            "error" => Role::Error,
            other => return Err(Unclear::Role { value: other.into() }),
        };
        // Clients of old name no request. They open the error stream and then the one with data, so that its number is two less.
        let first = if role == Role::Error { id.0 } else { id.0.saturating_sub(2) };
        let named = headers.get("requestid").filter(|request| !request.is_empty());
        let request = named.map_or_else(|| format!("stream {first}"), str::to_owned);
        Ok(Self { request, role, port })
    }
}

impl<S> Pairs<S> {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { waiting: HashMap::new(), patience }
    }

    pub(crate) fn arrived(&mut self, announced: Announced, stream: S, now: Instant) -> Arrived<S> {
        let Some((since, first, other)) = self.waiting.remove(&announced.request) else {
            if self.waiting.len() >= WAITING_MAX {
                return Arrived::TooMany(stream);
            }
            self.waiting.insert(announced.request.clone(), (now, announced, stream));
            return Arrived::Waits;
        };
        match (first.role, announced.role) {
            (Role::Error, Role::Data) => Arrived::Pair { port: announced.port, data: stream, error: other },
            (Role::Data, Role::Error) => Arrived::Pair { port: first.port, data: other, error: stream },
            _ => {
                self.waiting.insert(announced.request, (since, first, other));
                Arrived::Twice(stream)
            }
        }
    }

    /// When the first of those that wait has waited too long.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|(since, ..)| *since + self.patience).min()
    }

    /// Those that have waited too long.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<(Announced, S)> {
        let patience = self.patience;
        let late = self.waiting.extract_if(|_, (since, ..)| *since + patience <= now);
        late.map(|(_, (_, announced, stream))| (announced, stream)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(id: u32, fields: &[(&str, &str)]) -> Result<Announced, Unclear> {
        Announced::read(StreamId(id), &Headers::new(fields.iter().copied()))
    }

    #[test]
    fn streams_of_one_request_make_a_pair() {
        let (mut pairs, now) = (Pairs::new(Duration::from_secs(30)), Instant::now());
        let error =
            announced(1, &[("streamType", "error"), ("port", "80"), ("requestID", "0")]).expect("clear");
        let data =
            announced(5, &[("streamType", "data"), ("port", "80"), ("requestID", "0")]).expect("clear");
        let other =
            announced(3, &[("streamType", "data"), ("port", "81"), ("requestID", "1")]).expect("clear");
        assert_eq!(pairs.arrived(error.clone(), 1, now), Arrived::Waits);
        assert_eq!(pairs.arrived(other, 3, now), Arrived::Waits);
        assert_eq!(pairs.arrived(error, 7, now), Arrived::Twice(7));
        assert_eq!(pairs.arrived(data, 5, now), Arrived::Pair { port: 80, data: 5, error: 1 });
        assert_eq!(pairs.next_deadline(), Some(now + Duration::from_secs(30)));
        assert!(pairs.expired(now + Duration::from_secs(29)).is_empty());
        let late: Vec<_> =
            pairs.expired(now + Duration::from_secs(30)).into_iter().map(|(_, id)| id).collect();
        assert_eq!(late, [3]);
        assert_eq!(pairs.next_deadline(), None);
    }

    #[test]
    fn streams_without_a_request_are_told_apart_by_their_numbers() {
        let (mut pairs, now) = (Pairs::new(Duration::from_secs(30)), Instant::now());
        let error = announced(5, &[("streamtype", "error"), ("port", "80")]).expect("clear");
        let data = announced(7, &[("streamtype", "data"), ("port", "80")]).expect("clear");
        assert_eq!(pairs.arrived(error, 5, now), Arrived::Waits);
        assert_eq!(pairs.arrived(data, 7, now), Arrived::Pair { port: 80, data: 7, error: 5 });
    }

    #[test]
    fn there_are_never_more_that_wait_than_the_limit() {
        let (mut pairs, now) = (Pairs::new(Duration::from_secs(30)), Instant::now());
        let fields = |request: usize| Announced { request: request.to_string(), role: Role::Data, port: 80 };
        for request in 0..WAITING_MAX {
            assert_eq!(pairs.arrived(fields(request), 0, now), Arrived::Waits);
        }
        assert_eq!(pairs.arrived(fields(WAITING_MAX), 7, now), Arrived::TooMany(7));
        assert_eq!(pairs.expired(now + Duration::from_secs(30)).len(), WAITING_MAX);
    }

    #[test]
    fn headers_that_say_nothing_are_refused() {
        for port in ["", "0", "65536", "-1", "http"] {
            let read = announced(1, &[("streamtype", "data"), ("port", port)]);
            assert_eq!(read, Err(Unclear::Port { value: port.into() }));
        }
        assert_eq!(announced(1, &[("port", "80")]), Err(Unclear::Role { value: String::new() }));
    }
}
