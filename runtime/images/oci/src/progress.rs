//! What happens in a pull, as every part of it reports it: registry client, content store, unpacking.
//!
//! A pull is judged alive by these events (P8): each of them counts, with bytes or without. Who works reports what it
//! does as it does it, and never an event for its own sake.

use std::fmt;
use std::time::Duration;

use crate::Digest;

/// One happening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it happened to.
    pub part: Part,
    /// What happened.
    pub step: Step,
}

/// A part of a pull.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Finding what a tag or digest leads to, manifests included.
    Manifest(String),
    /// Fetching a blob.
    Blob(Digest),
    /// Unpacking a layer, named by its blob.
    Layer(Digest),
}

/// What happened to a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits for others to make room: a download or an unpacking slot.
    Waiting,
    /// A request goes to this host.
    Connecting {
        /// Host and port.
        host: String,
    },
    /// The host answered.
    Responded {
        /// Host and port.
        host: String,
        /// The HTTP status.
        status: u16,
    },
    /// A token was got from this host.
    TokenFetched {
        /// Host and port.
        host: String,
    },
    /// A try failed, and another follows.
    Retrying {
        /// Which retry, from 1.
        attempt: u32,
        /// The pause before it.
        after: Duration,
        /// What failed, in one sentence.
        because: String,
    },
    /// A host could not serve, and another one is asked.
    HostSwitched {
        /// The host that is asked now.
        to: String,
        /// What was wrong with the one before, in one sentence.
        because: String,
    },
    /// The transfer starts: so many bytes are there already, and so many there will be.
    Started {
        /// Bytes that are there already.
        offset: u64,
        /// Bytes that there will be; none where it is not known.
        expected: Option<u64>,
    },
    /// Bytes arrived and were taken.
    Received {
        /// How many, since the last such event.
        bytes: u64,
    },
    /// Bytes came once more that were there already, and were passed over.
    Skipped {
        /// How many, since the last such event.
        bytes: u64,
    },
    /// Bytes that were there already are read and hashed.
    Verifying {
        /// How many, since the last such event.
        bytes: u64,
    },
    /// Entries of a layer were extracted.
    Extracted {
        /// How many, since the last such event.
        entries: u64,
        /// Bytes of their contents, since the last such event.
        bytes: u64,
    },
    /// Files are being made durable.
    Syncing,
    /// The part is complete.
    Done,
}

impl Event {
    /// A happening.
    pub fn new(part: Part, step: Step) -> Self {
        Self { part, step }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest(name) => write!(f, "the manifest {name}"),
            Self::Blob(digest) => write!(f, "blob {digest}"),
            Self::Layer(digest) => write!(f, "layer {digest}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting for a slot"),
            Self::Connecting { host } => write!(f, "asking {host}"),
            Self::Responded { host, status } => write!(f, "{host} answered {status}"),
            Self::TokenFetched { host } => write!(f, "{host} gave a token"),
            Self::Retrying { attempt, after, because } => {
                write!(f, "retry {attempt} in {} ms: {because}", after.as_millis())
            }
            Self::HostSwitched { to, because } => write!(f, "turning to {to}: {because}"),
            Self::Started { offset, expected: Some(expected) } => {
                write!(f, "transfer from byte {offset} of {expected}")
            }
            Self::Started { offset, expected: None } => write!(f, "transfer from byte {offset}"),
            Self::Received { bytes } => write!(f, "{bytes} bytes received"),
            Self::Skipped { bytes } => write!(f, "{bytes} bytes skipped"),
            Self::Verifying { bytes } => write!(f, "{bytes} bytes verified"),
            Self::Extracted { entries, bytes } => write!(f, "{entries} entries extracted, {bytes} bytes"),
            Self::Syncing => f.write_str("syncing"),
            Self::Done => f.write_str("complete"),
        }
    }
}
