//! One repository in one pull: what a tag leads to, manifests, and asking hosts in turn.

use std::fmt;
use std::sync::Arc;

use mainstay_oci_image::media::ACCEPTED_MANIFESTS;
use mainstay_oci_image::{DOCUMENT_LENGTH_MAX, Index};
use mainstay_oci_image::{
    Descriptor, Digest, Document, Event, Hasher, Manifest, MediaType, Part, Platform, Reference, Step,
};
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Response};
use tokio::time::Instant;

use crate::error::{Problem, RegistryError, Remedy, Request};
use crate::host::{Answer, Ask, Host};
use crate::hosts::Capabilities;
use crate::rounds::{Brought, Next, Rounds};
use crate::{Reporter, Shared, body};

/// How deep indexes may lead to indexes.
pub const INDEX_DEPTH_MAX: usize = 4;
/// Where registries say what they send.
const DIGEST_HEADER: &str = "docker-content-digest";

/// One repository in one pull.
pub struct Repository {
    pub(crate) shared: Arc<Shared>,
    reference: Reference,
    pub(crate) hosts: Vec<Host>,
    report: Reporter,
}

/// A document with its bytes, which are what is to be kept.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// What it is, its digest, its size.
    pub descriptor: Descriptor,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What they say.
    pub document: Document,
}

/// What a reference leads to on a platform.
#[derive(Clone, Debug)]
pub struct Image {
    /// What the reference itself leads to: the digest of the image as people know it.
    pub target: Descriptor,
    /// The indexes on the way, the first one first; usually one or none.
    pub indexes: Vec<Fetched>,
    /// The manifest for the platform.
    pub manifest: Manifest,
    /// Its descriptor.
    pub manifest_descriptor: Descriptor,
    /// Its bytes.
    pub manifest_bytes: Vec<u8>,
}

/// Whose turn it is to be asked.
struct Turns<'a> {
    hosts: Vec<&'a Host>,
    rounds: Rounds,
    began: Instant,
    index: usize,
}

impl<'a> Turns<'a> {
    fn host(&self) -> &'a Host {
        self.hosts[self.index]
    }
}

impl Repository {
    pub(crate) fn new(shared: Arc<Shared>, reference: Reference, hosts: Vec<Host>, report: Reporter) -> Self {
        Self { shared, reference, hosts, report }
    }

    /// The name that was opened.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// What the reference leads to, as the registry says it now, without fetching it. Whoever gets an answer may have
    /// the image: this is how a joiner's credentials are tried.
    pub async fn resolve(&self) -> Result<Descriptor, RegistryError> {
        let target = self.reference.target();
        let part = self.manifest_part(&target);
        let headers = accept_manifests();
        let ask =
            Ask { method: Method::HEAD, path: self.manifest_path(&target), headers: &headers, part: &part };
        let mut turns = self.turns(self.capability(&target))?;
        loop {
            match self.describe(turns.host(), &ask, &target).await {
                Ok(descriptor) => return Ok(descriptor),
                Err(error) => self.next_turn(&mut turns, error, &part).await?,
            }
        }
    }

    async fn describe(&self, host: &Host, ask: &Ask<'_>, target: &str) -> Result<Descriptor, RegistryError> {
        match host.ask(ask).await {
            Ok(answer) => match described(&answer.response, &self.reference) {
                Some(descriptor) => return Ok(descriptor),
                None => {
                    tracing::debug!(host = %answer.request.host, "the answer to HEAD does not say enough")
                }
            },
            // Some know no HEAD, and one that does has no words for what is wrong.
            Err(error) if head_is_worth_a_get(&error.problem) => {}
            Err(error) => return Err(error),
        }
        self.fetch(host, target, ask.part).await.map(|fetched| fetched.descriptor)
    }

    /// The document that the reference leads to.
    pub async fn target(&self) -> Result<Fetched, RegistryError> {
        self.manifest(&self.reference.target()).await
    }

    /// The document with this digest.
    pub async fn by_digest(&self, digest: &Digest) -> Result<Fetched, RegistryError> {
        self.manifest(&digest.to_string()).await
    }

    /// Follows the reference to the manifest for a platform.
    pub async fn image(&self, platform: &Platform) -> Result<Image, RegistryError> {
        let mut fetched = self.target().await?;
        let target = fetched.descriptor.clone();
        let mut indexes = Vec::new();
        loop {
            let index: &Index = match fetched.document {
                Document::Manifest(manifest) => {
                    let (manifest_descriptor, manifest_bytes) = (fetched.descriptor, fetched.bytes);
                    return Ok(Image { target, indexes, manifest, manifest_descriptor, manifest_bytes });
                }
                Document::Index(ref index) => index,
            };
            let failed = |problem| RegistryError::new(self.request(&fetched.descriptor.digest), problem);
            let next = index.select(platform).map_err(|none| failed(Problem::Platform(Box::new(none))))?;
            if indexes.len() + 1 >= INDEX_DEPTH_MAX {
                return Err(failed(Problem::IndexDepth { max: INDEX_DEPTH_MAX }));
            }
            let next = self.by_digest(&next.digest).await?;
            indexes.push(std::mem::replace(&mut fetched, next));
        }
    }

    async fn manifest(&self, target: &str) -> Result<Fetched, RegistryError> {
        let part = self.manifest_part(target);
        let mut turns = self.turns(self.capability(target))?;
        loop {
            match self.fetch(turns.host(), target, &part).await {
                Ok(fetched) => {
                    self.say(&part, Step::Done);
                    return Ok(fetched);
                }
                Err(error) => self.next_turn(&mut turns, error, &part).await?,
            }
        }
    }

    async fn fetch(&self, host: &Host, target: &str, part: &Part) -> Result<Fetched, RegistryError> {
        let headers = accept_manifests();
        let ask = Ask { method: Method::GET, path: self.manifest_path(target), headers: &headers, part };
        let Answer { response, request } = host.ask(&ask).await?;
        let failed = |problem| RegistryError::new(request.clone(), problem);
        let declared = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let declared = declared.map(MediaType::from_header);
        let said = digest_header(&response).map_err(failed)?;
        let timeout = self.shared.settings.pace.stall_timeout;
        let bytes = body::read(response, DOCUMENT_LENGTH_MAX, timeout).await.map_err(failed)?;
        self.say(part, Step::Received { bytes: bytes.len() as u64 });
        let digest = match target.parse::<Digest>().ok().or(said) {
            Some(expected) => {
                let mut hasher = Hasher::new(expected.algorithm());
                hasher.update(&bytes);
                let got = hasher.finish();
                if got != expected {
                    return Err(failed(Problem::WrongDigest { expected, got }));
                }
                got
            }
            None => Digest::of(&bytes),
        };
        let document =
            Document::parse(&bytes, declared.as_ref()).map_err(|e| failed(Problem::Document(e)))?;
        let descriptor = Descriptor::new(media_type(&document, declared), digest, bytes.len() as u64);
        Ok(Fetched { descriptor, bytes, document })
    }

    /// The hosts that may be asked, in turn, until one of them serves.
    fn turns(&self, capability: Capability) -> Result<Turns<'_>, RegistryError> {
        let hosts = self.capable(capability)?;
        let rounds = Rounds::new(self.shared.settings.retry, hosts.len());
        Ok(Turns { hosts, rounds, began: Instant::now(), index: 0 })
    }

    /// The host whose turn it was has failed.
    async fn next_turn(
        &self,
        turns: &mut Turns<'_>,
        error: RegistryError,
        part: &Part,
    ) -> Result<(), RegistryError> {
        let now = turns.began.elapsed();
        let next = turns.rounds.failed(turns.index, error, Brought::Nothing, now, fastrand::f64());
        turns.index = self.proceed(next, &turns.hosts, part).await?;
        Ok(())
    }

    /// Does what was decided, and says so.
    pub(crate) async fn proceed(
        &self,
        next: Next,
        hosts: &[&Host],
        part: &Part,
    ) -> Result<usize, RegistryError> {
        match next {
            Next::GiveUp(error) => Err(error),
            Next::Host { index, because } => {
                let to = hosts[index].endpoint.authority.clone();
                self.say(part, Step::HostSwitched { to, because });
                Ok(index)
            }
            Next::Pause { index, attempt, after, because } => {
                self.say(part, Step::Retrying { attempt, after, because });
                tokio::time::sleep(after).await;
                Ok(index)
            }
        }
    }

    /// The hosts that may be asked, in order; an error when there are none.
    pub(crate) fn capable(&self, capability: Capability) -> Result<Vec<&Host>, RegistryError> {
        let capable = |host: &&Host| match (capability, host.endpoint.capabilities) {
            (Capability::Resolve, Capabilities { resolve, .. }) => resolve,
            (Capability::Pull, Capabilities { pull, .. }) => pull,
        };
        let hosts: Vec<_> = self.hosts.iter().filter(capable).collect();
        if hosts.is_empty() {
            let path = format!("/v2/{}", self.reference.path());
            let request = Request { method: "GET", host: self.reference.host().to_owned(), path };
            let capability = if capability == Capability::Resolve { "resolve" } else { "pull" };
            return Err(RegistryError::new(request, Problem::NoHost { capability }));
        }
        Ok(hosts)
    }

    pub(crate) fn say(&self, part: &Part, step: Step) {
        (self.report)(Event::new(part.clone(), step));
    }

    fn capability(&self, target: &str) -> Capability {
        if target.parse::<Digest>().is_ok() { Capability::Pull } else { Capability::Resolve }
    }

    fn manifest_part(&self, target: &str) -> Part {
        let separator = if target.contains(':') { '@' } else { ':' };
        Part::Manifest(format!("{}{separator}{target}", self.reference.repository()))
    }

    fn manifest_path(&self, target: &str) -> String {
        format!("{}/manifests/{target}", self.reference.path())
    }

    fn request(&self, digest: &Digest) -> Request {
        let path = format!("/v2/{}", self.manifest_path(&digest.to_string()));
        Request { method: "GET", host: self.reference.host().to_owned(), path }
    }

    pub(crate) fn path(&self) -> &str {
        self.reference.path()
    }
}

/// What a host is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// What a tag leads to.
    Resolve,
    /// Something with a digest.
    Pull,
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Repository({})", self.reference)
    }
}

fn accept_manifests() -> HeaderMap {
    let values = ACCEPTED_MANIFESTS.map(|media_type| (ACCEPT, HeaderValue::from_static(media_type)));
    let mut headers = HeaderMap::new();
    for (name, value) in values {
        headers.append(name, value);
    }
    headers
}

/// Whether a GET may tell more than a HEAD that failed so.
fn head_is_worth_a_get(problem: &Problem) -> bool {
    match problem {
        // Why not is in the body, which a HEAD has none of.
        Problem::Forbidden { .. } => true,
        Problem::NotFound { .. } => true,
        Problem::Status { status, .. } => matches!(status, 400 | 405 | 501),
        Problem::DigestHeader(_) | Problem::Protocol { .. } => true,
        _ => false,
    }
    .then(|| problem.remedy())
    .is_some_and(|remedy| remedy != Remedy::None)
}

/// What the head of an answer says of a manifest, if it says all of it.
fn described(response: &Response, reference: &Reference) -> Option<Descriptor> {
    let text = |name| response.headers().get(name)?.to_str().ok();
    let media_type = MediaType::from_header(text(CONTENT_TYPE.as_str())?);
    let size = text(CONTENT_LENGTH.as_str())?.parse::<u64>().ok()?;
    let digest = digest_header(response).ok()??;
    let known = media_type.is_manifest() || media_type.is_index();
    let fits = size > 0 && size <= DOCUMENT_LENGTH_MAX as u64;
    let right = reference.digest().is_none_or(|wanted| *wanted == digest);
    (known && fits && right).then(|| Descriptor::new(media_type, digest, size))
}

fn digest_header(response: &Response) -> Result<Option<Digest>, Problem> {
    let value = response.headers().get(DIGEST_HEADER);
    let text = value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    text.map(|text| text.parse().map_err(Problem::DigestHeader)).transpose()
}

/// What a document is: as it says itself, else as it was declared, else as its shape has it.
fn media_type(document: &Document, declared: Option<MediaType>) -> MediaType {
    use mainstay_oci_image::media::{OCI_INDEX, OCI_MANIFEST};
    let (own, index) = match document {
        Document::Manifest(manifest) => (manifest.media_type.clone(), false),
        Document::Index(index) => (index.media_type.clone(), true),
    };
    let fits = |t: &MediaType| if index { t.is_index() } else { t.is_manifest() };
    let usual = if index { OCI_INDEX } else { OCI_MANIFEST };
    own.filter(fits).or(declared.filter(fits)).unwrap_or_else(|| MediaType::from(usual))
}
