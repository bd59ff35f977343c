//! Image names as people write them, completed as Docker does: `alpine` is `docker.io/library/alpine:latest`.
//!
//! ```text
//! [HOST[:PORT]/]PATH[:TAG][@DIGEST]
//! ```
//!
//! The first component is a host when it has a dot, a colon or a capital letter, or is `localhost`; else the host is
//! `docker.io`, and a path of one component lies under `library/`. A name with neither tag nor digest gets the tag
//! `latest`. The grammar is that of the distribution project's reference, and nothing that passes it can walk out of a
//! URL path.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digest::{Digest, DigestError};

/// The host of names that have none.
pub const DEFAULT_HOST: &str = "docker.io";
/// The tag of names that have neither tag nor digest.
pub const DEFAULT_TAG: &str = "latest";
/// Another name of the default host, as Docker has always taken it.
const LEGACY_HOST: &str = "index.docker.io";
/// Where the images of the default host lie that have a path of one component.
const OFFICIAL_PREFIX: &str = "library/";
/// The longest path, in bytes.
pub const PATH_LENGTH_MAX: usize = 255;
/// The longest tag, in bytes.
pub const TAG_LENGTH_MAX: usize = 128;
/// The longest text that is looked at, in bytes: a host name, a path, a tag and a sha512 digest with room to spare.
pub const REFERENCE_LENGTH_MAX: usize = 1024;

/// The name of an image, complete: host, path, and a tag or a digest or both.
///
/// Where there are both, the digest decides, and the tag is only remembered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    host: String,
    path: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Why a text is no name of an image.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReferenceError {
    /// There is nothing.
    #[error("the image name is empty; a name is as alpine, ghcr.io/owner/image:tag or image@sha256:…")]
    Empty,
    /// Too long to be looked at.
    #[error("the image name has {length} bytes; at most {REFERENCE_LENGTH_MAX} are taken")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// The host is none.
    #[error(
        "image name {name:?}: host {host:?} should be a host name or address, with :PORT where it has one"
    )]
    Host {
        /// The whole text.
        name: String,
        /// The bad part.
        host: String,
    },
    /// The path is none.
    #[error(
        "image name {name:?}: path {path:?} should be lower-case letters and digits, separated by '/', '.', '_', '__' \
         or dashes, at most {PATH_LENGTH_MAX} bytes"
    )]
    Path {
        /// The whole text.
        name: String,
        /// The bad part.
        path: String,
    },
    /// The path is an image id.
    #[error("image name {name:?} is 64 hexadecimal digits, which is an id and no name")]
    Id {
        /// The whole text.
        name: String,
    },
    /// The tag is none.
    #[error(
        "image name {name:?}: tag {tag:?} should be 1 to {TAG_LENGTH_MAX} letters, digits, '_', '.' or '-', the first \
         one neither '.' nor '-'"
    )]
    Tag {
        /// The whole text.
        name: String,
        /// The bad part.
        tag: String,
    },
    /// The digest is none.
    #[error("image name {name:?}: what follows '@' is not a digest")]
    Digest {
        /// The whole text.
        name: String,
        /// What is wrong with it.
        #[source]
        source: DigestError,
    },
}

impl Reference {
    /// Host and port, as the name has them; where to connect to is for the client to say.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The path of the repository on its host.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The tag, if there is one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if there is one.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Host and path, without tag and digest.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.host, self.path)
    }

    /// What to ask the registry for: the digest where there is one, else the tag.
    pub fn target(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => unreachable!("a reference has a tag or a digest"),
        }
    }

    /// The same repository at this digest; a tag stays as a remark.
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// As Docker shows it: without the default host and `library/`, where that still names the same image.
    pub fn familiar(&self) -> String {
        let full = self.to_string();
        let rest = full.strip_prefix(DEFAULT_HOST).and_then(|rest| rest.strip_prefix('/'));
        let shorter = [rest.and_then(|rest| rest.strip_prefix(OFFICIAL_PREFIX)), rest];
        let same = |text: &&str| text.parse::<Self>().as_ref() == Ok(self);
        shorter.into_iter().flatten().find(same).unwrap_or(&full).to_owned()
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if text.len() > REFERENCE_LENGTH_MAX {
            return Err(ReferenceError::TooLong { length: text.len() });
        }
        let name = || text.to_owned();
        if text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(ReferenceError::Id { name: name() });
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest =
                    digest.parse().map_err(|source| ReferenceError::Digest { name: name(), source })?;
                (rest, Some(digest))
            }
            None => (text, None),
        };
        let (host, rest) = split_host(rest);
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        if !host.is_none_or(is_host) {
            return Err(ReferenceError::Host { name: name(), host: host.unwrap_or_default().to_owned() });
        }
        if !tag.is_none_or(is_tag) {
            return Err(ReferenceError::Tag { name: name(), tag: tag.unwrap_or_default().to_owned() });
        }
        let host = host.filter(|host| *host != LEGACY_HOST).unwrap_or(DEFAULT_HOST);
        let official = host == DEFAULT_HOST && !path.contains('/');
        let full = if official { format!("{OFFICIAL_PREFIX}{path}") } else { path.to_owned() };
        if !is_path(&full) {
            return Err(ReferenceError::Path { name: name(), path: path.to_owned() });
        }
        let tag = tag.or(digest.is_none().then_some(DEFAULT_TAG)).map(str::to_owned);
        Ok(Self { host: host.to_owned(), path: full, tag, digest })
    }
}

/// The host, if the first component is one, and the rest.
fn split_host(text: &str) -> (Option<&str>, &str) {
    match text.split_once('/') {
        Some((first, rest))
            if first == "localhost"
                || first.contains(['.', ':'])
                || first.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            (Some(first), rest)
        }
        _ => (None, text),
    }
}

/// Labels of letters, digits and inner dashes, or an IPv6 address in brackets, and a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, tail)) => {
                if address.parse::<std::net::Ipv6Addr>().is_err() {
                    return false;
                }
                match tail.strip_prefix(':') {
                    Some(port) => ("address", Some(port)),
                    None if tail.is_empty() => ("address", None),
                    None => return false,
                }
            }
            None => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
    };
    // A leading sign would pass for a number.
    let number =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0);
    host.len() <= PATH_LENGTH_MAX && host.split('.').all(label) && port.is_none_or(number)
}

/// Components of runs of letters and digits, with one `.`, one or two `_`, or any number of `-` between them.
fn is_path(text: &str) -> bool {
    let component = |component: &str| {
        let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = component.as_bytes();
        let ends = bytes.first().copied().is_some_and(alphanumeric)
            && bytes.last().copied().is_some_and(alphanumeric);
        let separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        ends && separators
            .into_iter()
            .all(|s| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
    };
    text.len() <= PATH_LENGTH_MAX && text.split('/').all(component)
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= TAG_LENGTH_MAX
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

impl TryFrom<String> for Reference {
    type Error = ReferenceError;

    fn try_from(text: String) -> Result<Self, ReferenceError> {
        text.parse()
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> String {
        reference.to_string()
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.path)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reference({self})")
    }
}

#[cfg(test)]
mod tests;
