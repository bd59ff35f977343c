//! Transfers: one blob from whoever serves it into a sink, verified.
//!
//! ```text
//!   [slot] ─► ask from byte N ─► bytes ─► … ─► all there ─► digest right ─► Done
//!               ▲     │ fails       │ breaks off      │
//!               └─────┴── next host or pause ◄────────┤ digest wrong: the sink starts anew; a host that gave
//!                                                     └ all of it is not asked again
//! ```
//!
//! Blobs are named by their digest, so bytes of several hosts may follow one another, and no `ETag` is needed to go on:
//! if one of them lied, the digest tells. A host that answers a range with everything is read from the start, and what is
//! there already is skipped.

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use mainstay_oci_image::{Algorithm, Descriptor, Digest, Hasher, Part, Step};
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE, HeaderMap, HeaderValue, RANGE};
use reqwest::{Method, Response, StatusCode, Url};
use tokio::time::Instant;

use crate::error::{Problem, RegistryError, Request};
use crate::host::{Answer, Ask, Host};
use crate::hosts::Scheme;
use crate::liveness::{Stall, Watch};
use crate::repository::{Capability, Repository};
use crate::rounds::{Brought, Rounds};
use crate::transport::innermost;

/// Where the bytes of a blob go. They come in order, each once. It computes their digest, as it has them all: bytes that
/// were there before as well, and beside the transfer, which never waits for a hash.
pub trait Sink: Send {
    /// Takes the next bytes. The transfer waits for it: this is the back-pressure.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// Drops everything that was taken, what was there before included: it was wrong.
    fn restart(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// The digest of everything that is there.
    fn digest(&mut self, algorithm: Algorithm) -> impl Future<Output = io::Result<Digest>> + Send;
}

impl Sink for Vec<u8> {
    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.extend_from_slice(&bytes);
        Ok(())
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.clear();
        Ok(())
    }

    async fn digest(&mut self, algorithm: Algorithm) -> io::Result<Digest> {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(self);
        Ok(hasher.finish())
    }
}

/// The state of one transfer over all its tries.
struct Transfer<'a> {
    descriptor: &'a Descriptor,
    part: Part,
    offset: u64,
    /// Who gave what is there: none yet, one host, or several.
    source: Source,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Nobody,
    One(usize),
    Several,
}

impl Repository {
    /// Fetches a blob into a sink, and verifies its digest and size. The sink has its first `there` bytes already.
    ///
    /// When it fails, what the sink has taken are the blob's first bytes as far as anybody can tell: they may be kept
    /// and given to the next try. After [`Problem::WrongDigest`] the sink has been restarted.
    pub async fn blob(
        &self,
        descriptor: &Descriptor,
        there: u64,
        sink: &mut impl Sink,
    ) -> Result<(), RegistryError> {
        let part = Part::Blob(descriptor.digest.clone());
        let _slot = match self.shared.slots.try_acquire() {
            Ok(slot) => slot,
            Err(_) => {
                self.say(&part, Step::Waiting);
                // The semaphore is never closed.
                self.shared.slots.acquire().await.expect("slots are never taken away")
            }
        };
        let source = if there > 0 { Source::Several } else { Source::Nobody };
        let mut transfer = Transfer { descriptor, part: part.clone(), offset: there, source };
        if transfer.offset > descriptor.size {
            self.restart(&mut transfer, sink).await?;
        }
        let result = self.transfer(&mut transfer, sink).await;
        let result = match result {
            Err(error)
                if matches!(*error.problem, Problem::NotFound { .. }) && !descriptor.urls.is_empty() =>
            {
                self.ask_strangers(&mut transfer, sink, error).await
            }
            other => other,
        };
        if result.is_ok() {
            self.say(&part, Step::Done);
        }
        result
    }

    /// A small blob in memory, such as a configuration.
    pub async fn small_blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, RegistryError> {
        let max = mainstay_oci_image::DOCUMENT_LENGTH_MAX;
        if descriptor.size > max as u64 {
            let request = self.blob_request(descriptor);
            return Err(RegistryError::new(request, Problem::TooLong { max }));
        }
        let mut bytes = Vec::new();
        self.blob(descriptor, 0, &mut bytes).await?;
        Ok(bytes)
    }

    async fn transfer(&self, transfer: &mut Transfer<'_>, sink: &mut impl Sink) -> Result<(), RegistryError> {
        let hosts = self.capable(Capability::Pull)?;
        let mut rounds = Rounds::new(self.shared.settings.retry, hosts.len());
        let start = Instant::now();
        let (mut index, mut restarts) = (0, 0);
        loop {
            let before = transfer.offset;
            let tried = self.attempt(hosts[index], index, transfer, sink).await;
            let moved =
                transfer.offset.saturating_sub(before) >= self.shared.settings.retry.progress_bytes.max(1);
            let brought = if moved { Brought::Bytes } else { Brought::Nothing };
            let Err(error) = tried else { return Ok(()) };
            if let Problem::WrongDigest { .. } = *error.problem {
                let mixed = transfer.source == Source::Several;
                self.restart(transfer, sink).await?;
                if mixed && restarts <= hosts.len() {
                    // Nobody knows whose bytes were wrong, so nobody is blamed yet.
                    restarts += 1;
                    continue;
                }
            }
            let next = rounds.failed(index, error, brought, start.elapsed(), fastrand::f64());
            index = self.proceed(next, &hosts, &transfer.part).await?;
        }
    }

    async fn restart(&self, transfer: &mut Transfer<'_>, sink: &mut impl Sink) -> Result<(), RegistryError> {
        transfer.offset = 0;
        transfer.source = Source::Nobody;
        let failed = |error| RegistryError::new(self.blob_request(transfer.descriptor), Problem::Sink(error));
        sink.restart().await.map_err(failed)
    }

    /// One try at one host, from where the transfer stands.
    async fn attempt(
        &self,
        host: &Host,
        index: usize,
        transfer: &mut Transfer<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), RegistryError> {
        if transfer.offset >= transfer.descriptor.size {
            return transfer.verify(self.blob_request(transfer.descriptor), sink).await;
        }
        let headers = match transfer.offset {
            0 => HeaderMap::new(),
            _ if !host.answers_ranges() => HeaderMap::new(),
            offset => {
                // Digits and a dash are a header.
                let range = HeaderValue::try_from(format!("bytes={offset}-")).expect("a header");
                HeaderMap::from_iter([(RANGE, range)])
            }
        };
        let path = self.blob_path(transfer.descriptor);
        let part = transfer.part.clone();
        let ask = Ask { method: Method::GET, path, headers: &headers, part: &part };
        let answer = match host.ask(&ask).await {
            Err(error) if status(&error.problem) == Some(416) => {
                host.ask_no_ranges();
                let again = Ask { headers: &HeaderMap::new(), ..ask.clone() };
                host.ask(&again).await?
            }
            other => other?,
        };
        let from = match begin(&answer.response, transfer) {
            Err(problem @ Problem::Protocol { .. }) => {
                host.ask_no_ranges();
                let again = Ask { headers: &HeaderMap::new(), ..ask };
                tracing::debug!(%problem, host = %answer.request.host, "asking again without a range");
                drop(answer);
                let answer = host.ask(&again).await?;
                let from = begin(&answer.response, transfer);
                return self.receive(answer, from, index, transfer, sink).await;
            }
            other => other,
        };
        self.receive(answer, from, index, transfer, sink).await
    }

    /// Reads an answer to its end, and verifies what is there then.
    async fn receive(
        &self,
        answer: Answer,
        from: Result<u64, Problem>,
        index: usize,
        transfer: &mut Transfer<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), RegistryError> {
        let Answer { response, request } = answer;
        let failed = |problem| RegistryError::new(request.clone(), problem);
        let skip = transfer.offset - from.map_err(failed)?;
        let expected = Some(transfer.descriptor.size);
        self.say(&transfer.part, Step::Started { offset: transfer.offset, expected });
        transfer.source = match transfer.source {
            Source::Nobody => Source::One(index),
            Source::One(known) if known == index => Source::One(index),
            _ => Source::Several,
        };
        self.copy(response, skip, transfer, sink).await.map_err(failed)?;
        transfer.verify(request, sink).await
    }

    async fn copy(
        &self,
        mut response: Response,
        mut skip: u64,
        transfer: &mut Transfer<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), Problem> {
        let size = transfer.descriptor.size;
        let start = Instant::now();
        let mut watch = Watch::new(self.shared.settings.pace, Duration::ZERO);
        loop {
            watch.wait(start.elapsed());
            let stalled = |stall: Stall, got| Problem::Stalled { got, expected: size, stall };
            let chunk = match tokio::time::timeout_at(start + watch.deadline(), response.chunk()).await {
                Ok(Ok(chunk)) => chunk,
                Ok(Err(error)) => {
                    let reason = innermost(&error);
                    return Err(Problem::Interrupted { got: transfer.offset, expected: Some(size), reason });
                }
                Err(_) => {
                    let for_ = self.shared.settings.pace.stall_timeout;
                    return Err(stalled(Stall::Silent { for_ }, transfer.offset));
                }
            };
            let Some(mut chunk) = chunk else { break };
            watch
                .received(chunk.len() as u64, start.elapsed())
                .map_err(|stall| stalled(stall, transfer.offset))?;
            if skip > 0 {
                let known = skip.min(chunk.len() as u64);
                skip -= known;
                // At most the length of the chunk.
                chunk = chunk.split_off(known as usize);
                self.say(&transfer.part, Step::Skipped { bytes: known });
                if chunk.is_empty() {
                    continue;
                }
            }
            let bytes = chunk.len() as u64;
            if bytes > size - transfer.offset {
                return Err(Problem::WrongSize { expected: size, got: transfer.offset + bytes });
            }
            sink.write(chunk).await.map_err(Problem::Sink)?;
            transfer.offset += bytes;
            self.say(&transfer.part, Step::Received { bytes });
        }
        if transfer.offset < size {
            let reason = "the registry sent no more".to_owned();
            return Err(Problem::Interrupted { got: transfer.offset, expected: Some(size), reason });
        }
        Ok(())
    }

    /// The places that the descriptor names beside the registry, each once. They get nothing that is ours, and are
    /// spoken to over plain HTTP only where the registry is.
    async fn ask_strangers(
        &self,
        transfer: &mut Transfer<'_>,
        sink: &mut impl Sink,
        missing: RegistryError,
    ) -> Result<(), RegistryError> {
        let Some(host) = self.hosts.last() else { return Err(missing) };
        let mut last = missing;
        let plain = host.endpoint.scheme != Scheme::Https;
        let urls = transfer.descriptor.urls.iter().filter_map(|text| Url::parse(text).ok());
        let urls: Vec<_> = urls
            .filter(|url| url.scheme() == "https" || (plain && url.scheme() == "http"))
            .filter(|url| url.username().is_empty() && url.password().is_none())
            .take(URLS_MAX)
            .collect();
        for url in urls {
            let (headers, part) = (HeaderMap::new(), transfer.part.clone());
            let to = crate::auth::authority(&url);
            self.say(&part, Step::HostSwitched { to, because: last.to_string() });
            let ask = Ask { method: Method::GET, path: String::new(), headers: &headers, part: &part };
            let tried = match host.ask_stranger(url, &ask).await {
                Ok(answer) => {
                    let from = begin(&answer.response, transfer);
                    self.receive(answer, from, usize::MAX, transfer, sink).await
                }
                Err(error) => Err(error),
            };
            match tried {
                Ok(()) => return Ok(()),
                Err(error) if matches!(*error.problem, Problem::Sink(_)) => return Err(error),
                Err(error) => {
                    if matches!(*error.problem, Problem::WrongDigest { .. }) {
                        self.restart(transfer, sink).await?;
                    }
                    last = error;
                }
            }
        }
        Err(last)
    }

    fn blob_path(&self, descriptor: &Descriptor) -> String {
        format!("{}/blobs/{}", self.path(), descriptor.digest)
    }

    fn blob_request(&self, descriptor: &Descriptor) -> Request {
        let host = self.hosts.last().map_or_else(String::new, |host| host.endpoint.authority.clone());
        Request { method: "GET", host, path: format!("/v2/{}", self.blob_path(descriptor)) }
    }
}

/// The most places beside the registry that are tried for one blob.
const URLS_MAX: usize = 4;

impl Transfer<'_> {
    async fn verify(&self, request: Request, sink: &mut impl Sink) -> Result<(), RegistryError> {
        let expected = &self.descriptor.digest;
        if self.offset != self.descriptor.size {
            let problem = Problem::WrongSize { expected: self.descriptor.size, got: self.offset };
            return Err(RegistryError::new(request, problem));
        }
        match sink.digest(expected.algorithm()).await {
            Ok(got) if got == *expected => Ok(()),
            Ok(got) => {
                Err(RegistryError::new(request, Problem::WrongDigest { expected: expected.clone(), got }))
            }
            Err(error) => Err(RegistryError::new(request, Problem::Sink(error))),
        }
    }
}

fn status(problem: &Problem) -> Option<u16> {
    match problem {
        Problem::Status { status, .. } => Some(*status),
        _ => None,
    }
}

/// From which byte an answer starts. A range that is not the one that was asked for is [`Problem::Protocol`].
fn begin(response: &Response, transfer: &Transfer<'_>) -> Result<u64, Problem> {
    let size = transfer.descriptor.size;
    let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if let Some(encoding) = header(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let reason =
            format!("the bytes came encoded as {:?}, which was not asked for", crate::error::tame(encoding));
        return Err(Problem::Interrupted { got: transfer.offset, expected: Some(size), reason });
    }
    let from = match response.status() {
        StatusCode::PARTIAL_CONTENT => {
            let range = header(CONTENT_RANGE).and_then(content_range);
            match range {
                Some((from, total)) if from == transfer.offset && total.is_none_or(|total| total == size) => {
                    from
                }
                _ => {
                    let reason = "it is not the range that was asked for".to_owned();
                    return Err(Problem::Protocol { what: "the header Content-Range", reason });
                }
            }
        }
        _ => 0,
    };
    match response.content_length() {
        Some(length) if from + length != size => {
            Err(Problem::WrongSize { expected: size, got: from + length })
        }
        _ => Ok(from),
    }
}

/// The first byte and the whole length of `bytes FIRST-LAST/LENGTH`.
fn content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (first, _) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((first.parse().ok()?, total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("bytes 5-9/10", Some((5, Some(10))))]
    #[case("bytes 5-9/*", Some((5, None)))]
    #[case("bytes */10", None)]
    #[case("5-9/10", None)]
    #[case("bytes x-9/10", None)]
    #[case("", None)]
    fn ranges(#[case] value: &str, #[case] expected: Option<(u64, Option<u64>)>) {
        assert_eq!(content_range(value), expected);
    }
}
