//! The state of one part of a pull, out of the events of those who work on it. Pure.

use mainstay_messages::image::{PullActivity, PullProgress};
use mainstay_oci_image::{Part, Step};

/// What callers know the manifest by.
pub const MANIFEST_PART: &str = "manifest";

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A manifest or a configuration: it is here once it is fetched.
    Document,
    /// A layer: it is here once it is unpacked.
    Layer,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Figures {
    name: String,
    kind: Kind,
    of: Option<u64>,
    fetched: u64,
    unpacked: u64,
}

impl Figures {
    /// A part of which nothing is known but its length, if that.
    pub fn new(name: impl Into<String>, kind: Kind, of: Option<u64>) -> Self {
        Self { name: name.into(), kind, of, fetched: 0, unpacked: 0 }
    }

    /// What a caller is told of an event.
    pub fn take(&mut self, part: &Part, step: &Step) -> PullProgress {
        let unpacks = matches!(part, Part::Layer(_));
        match step {
            Step::Waiting => self.waits(),
            Step::Connecting { .. } | Step::Responded { .. } | Step::TokenFetched { .. } => {
                self.tell(PullActivity::Connecting)
            }
            Step::Retrying { after, because, .. } => {
                self.retry(because, u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
            }
            Step::HostSwitched { because, .. } => self.retry(because, 0),
            Step::Started { offset, expected } => {
                self.fetched = *offset;
                self.of = expected.or(self.of);
                self.tell(PullActivity::Fetching)
            }
            Step::Received { bytes } => {
                self.fetched = self.fetched.saturating_add(*bytes);
                self.tell(PullActivity::Fetching)
            }
            Step::Skipped { .. } => self.tell(PullActivity::Fetching),
            Step::Verifying { bytes } => {
                let sum = self.fetched.saturating_add(*bytes);
                self.fetched = self.of.map_or(sum, |of| of.min(sum));
                self.tell(PullActivity::Verifying)
            }
            Step::Extracted { bytes, .. } => {
                self.unpacked = self.unpacked.saturating_add(*bytes);
                let Self { name, unpacked, .. } = self.clone();
                PullProgress::Part {
                    part: name,
                    activity: PullActivity::Unpacking,
                    bytes: unpacked,
                    of: None,
                }
            }
            Step::Syncing => self.tell(PullActivity::Syncing),
            Step::Done if self.kind == Kind::Layer && !unpacks => {
                self.fetched = self.of.unwrap_or(self.fetched);
                self.tell(PullActivity::Fetching)
            }
            Step::Done => {
                self.fetched = self.of.unwrap_or(self.fetched);
                self.tell(PullActivity::Done)
            }
        }
    }

    /// What a caller is told whose pull waits.
    pub fn waits(&self) -> PullProgress {
        self.tell(PullActivity::Waiting)
    }

    /// The layer is unpacked from its beginning.
    pub fn unpack_anew(&mut self) {
        self.unpacked = 0;
    }

    fn tell(&self, activity: PullActivity) -> PullProgress {
        PullProgress::Part { part: self.name.clone(), activity, bytes: self.fetched, of: self.of }
    }

    fn retry(&self, reason: &str, after_ms: u64) -> PullProgress {
        PullProgress::Retry { part: self.name.clone(), reason: reason.to_owned(), after_ms }
    }
}

#[cfg(test)]
mod tests {
    use mainstay_oci_image::Digest;

    use super::*;

    fn state(progress: PullProgress) -> (PullActivity, u64) {
        match progress {
            PullProgress::Part { activity, bytes, .. } => (activity, bytes),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_layer_is_here_when_it_is_unpacked() {
        let digest = Digest::of(b"");
        let (blob, layer) = (Part::Blob(digest.clone()), Part::Layer(digest));
        let mut figures = Figures::new("d", Kind::Layer, Some(100));
        let started = Step::Started { offset: 40, expected: Some(100) };
        assert_eq!(state(figures.take(&blob, &started)), (PullActivity::Fetching, 40));
        assert_eq!(state(figures.take(&blob, &Step::Received { bytes: 60 })), (PullActivity::Fetching, 100));
        let extracted = Step::Extracted { entries: 1, bytes: 300 };
        assert_eq!(state(figures.take(&layer, &extracted)), (PullActivity::Unpacking, 300));
        assert_eq!(state(figures.take(&blob, &Step::Done)), (PullActivity::Fetching, 100));
        assert_eq!(state(figures.take(&layer, &Step::Done)), (PullActivity::Done, 100));
    }

    #[test]
    fn a_transfer_that_begins_anew_begins_at_its_offset() {
        let blob = Part::Blob(Digest::of(b""));
        let mut figures = Figures::new("d", Kind::Document, None);
        figures.take(&blob, &Step::Received { bytes: 60 });
        let started = Step::Started { offset: 0, expected: None };
        assert_eq!(state(figures.take(&blob, &started)), (PullActivity::Fetching, 0));
        assert_eq!(state(figures.take(&blob, &Step::Done)), (PullActivity::Done, 0));
    }
}
