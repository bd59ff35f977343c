//! Who wants which part, and hears what happens to it, whoever is at work. Work on a layer that nobody wants any more
//! is stopped.
//!
//! One who waits until another is done with a part hears how far that one is, and that it waits: so the silence of the one
//! at work is not held against it, and it can take over.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_actors::image::ProgressSink;
use mainstay_images::Observer;
use mainstay_messages::image::PullProgress;
use mainstay_oci_image::{Descriptor, Digest, Event, Part, Step};

use crate::figures::{Figures, Kind};

/// See the module.
#[derive(Debug, Default)]
pub struct Audience {
    inner: Mutex<Inner>,
}

/// A pull's interest in its parts, until it is dropped.
#[derive(Debug)]
pub struct Interest {
    audience: Arc<Audience>,
    listener: u64,
    parts: Vec<Digest>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    parts: HashMap<Digest, Wanted>,
}

#[derive(Debug)]
struct Wanted {
    figures: Figures,
    /// What was told last, for those who come later.
    present: Option<PullProgress>,
    listeners: BTreeMap<u64, ProgressSink>,
    /// Those who wait for others to be done.
    waiting: BTreeSet<(u64, Lane)>,
    /// Those who unpack it.
    observers: Vec<Observer>,
}

/// What is done with a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Its bytes are fetched.
    Fetch,
    /// It is unpacked.
    Unpack,
}

/// A wait for others to be done with a part, until it is dropped.
#[derive(Debug)]
pub struct Wait<'a> {
    interest: &'a Interest,
    part: &'a Digest,
    lane: Lane,
}

impl Audience {
    /// A pull wants these parts: its configuration and its layers. It hears at once where they stand.
    pub fn join(self: &Arc<Self>, parts: &[(Kind, &Descriptor)], sink: &ProgressSink) -> Interest {
        let mut inner = self.lock();
        inner.last += 1;
        let listener = inner.last;
        for (kind, part) in parts {
            let wanted = inner.parts.entry(part.digest.clone()).or_insert_with(|| Wanted {
                figures: Figures::new(part.digest.to_string(), *kind, Some(part.size)),
                present: None,
                listeners: BTreeMap::new(),
                waiting: BTreeSet::new(),
                observers: Vec::new(),
            });
            wanted.present.iter().for_each(|progress| sink.tell(progress.clone()));
            wanted.listeners.insert(listener, sink.clone());
        }
        let parts = parts.iter().map(|(_, part)| part.digest.clone()).collect();
        Interest { audience: Arc::clone(self), listener, parts }
    }

    /// Something happened to a blob or a layer. What nobody wants is not told.
    pub fn tell(&self, event: &Event) {
        let (digest, lane) = match &event.part {
            Part::Manifest(_) => return,
            Part::Blob(digest) => (digest, Lane::Fetch),
            Part::Layer(digest) => (digest, Lane::Unpack),
        };
        if let Some(wanted) = self.lock().parts.get_mut(digest) {
            let progress = wanted.figures.take(&event.part, &event.step);
            for (listener, sink) in &wanted.listeners {
                let waits = event.step != Step::Done && wanted.waiting.contains(&(*listener, lane));
                sink.tell(if waits { wanted.figures.waits() } else { progress.clone() });
            }
            wanted.present = Some(progress);
        }
    }

    /// The observer of one who unpacks a layer; it is cancelled when the last pull that wants it is gone.
    pub fn observer(self: &Arc<Self>, layer: &Digest) -> Observer {
        let audience = Arc::clone(self);
        let observer = Observer::new(move |event| audience.tell(&event));
        match self.lock().parts.get_mut(layer) {
            Some(wanted) => {
                wanted.figures.unpack_anew();
                wanted.observers.push(observer.clone());
            }
            None => observer.cancel(),
        }
        observer
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The map is sound after each of its steps.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interest {
    /// This pull waits for others to make room. Nobody else is told: the others may be at work on the part.
    pub fn waits(&self, part: &Digest) {
        if let Some(wanted) = self.audience.lock().parts.get(part)
            && let Some(sink) = wanted.listeners.get(&self.listener)
        {
            sink.tell(wanted.figures.waits());
        }
    }

    /// This pull waits until another one is done with the part, or has given up.
    pub fn waits_for_another<'a>(&'a self, part: &'a Digest, lane: Lane) -> Wait<'a> {
        if let Some(wanted) = self.audience.lock().parts.get_mut(part) {
            wanted.waiting.insert((self.listener, lane));
        }
        self.waits(part);
        Wait { interest: self, part, lane }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(wanted) = self.interest.audience.lock().parts.get_mut(self.part) {
            wanted.waiting.remove(&(self.interest.listener, self.lane));
        }
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut inner = self.audience.lock();
        for digest in &self.parts {
            let Some(wanted) = inner.parts.get_mut(digest) else { continue };
            wanted.listeners.remove(&self.listener);
            if wanted.listeners.is_empty() {
                wanted.observers.iter().for_each(Observer::cancel);
                inner.parts.remove(digest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mainstay_actors::image::progress;
    use mainstay_messages::image::PullActivity;
    use mainstay_oci_image::MediaType;

    use super::*;

    fn descriptor() -> Descriptor {
        Descriptor::new(MediaType::from(""), Digest::of(b"layer"), 100)
    }

    fn received(bytes: u64) -> Event {
        Event::new(Part::Blob(descriptor().digest), Step::Received { bytes })
    }

    fn fetched(progress: Option<PullProgress>) -> u64 {
        match progress {
            Some(PullProgress::Part { bytes, .. }) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_who_comes_later_hears_where_it_stands_and_the_same_from_then_on() {
        let audience: Arc<Audience> = Arc::default();
        let layer = descriptor();
        let (sink, mut early) = progress();
        let _first = audience.join(&[(Kind::Layer, &layer)], &sink);
        audience.tell(&received(40));
        let (sink, mut late) = progress();
        let _second = audience.join(&[(Kind::Layer, &layer)], &sink);
        assert_eq!(fetched(late.try_next()), 40);
        audience.tell(&received(10));
        assert_eq!((fetched(early.try_next()), fetched(late.try_next())), (50, 50));
    }

    /// The one at work stalls, and is given up. Whoever waited for it heard the same silence, and must not be given up with
    /// it but take over.
    #[test]
    fn one_who_waits_for_another_hears_its_bytes_and_that_it_waits() {
        let audience: Arc<Audience> = Arc::default();
        let layer = descriptor();
        let (sink, mut feed) = progress();
        let interest = audience.join(&[(Kind::Layer, &layer)], &sink);
        let state = |progress| match progress {
            Some(PullProgress::Part { activity, bytes, .. }) => (activity, bytes),
            other => panic!("{other:?}"),
        };
        let wait = interest.waits_for_another(&layer.digest, Lane::Fetch);
        audience.tell(&received(40));
        assert_eq!(state(feed.try_next()), (PullActivity::Waiting, 40));
        drop(wait);
        audience.tell(&received(10));
        assert_eq!(state(feed.try_next()), (PullActivity::Fetching, 50));
    }

    /// One pull waited for a blob that another one was fetching, and both were taken for waiting: so nobody saw that the
    /// fetch stood still.
    #[test]
    fn only_the_one_who_waits_is_told_so() {
        let audience: Arc<Audience> = Arc::default();
        let layer = descriptor();
        let ((sink, mut works), (other, mut waits)) = (progress(), progress());
        let _first = audience.join(&[(Kind::Layer, &layer)], &sink);
        let second = audience.join(&[(Kind::Layer, &layer)], &other);
        second.waits(&layer.digest);
        assert!(waits.try_next().is_some() && works.try_next().is_none());
    }

    #[test]
    fn unpacking_is_stopped_when_the_last_who_wants_it_is_gone() {
        let audience: Arc<Audience> = Arc::default();
        let layer = descriptor();
        let join = || audience.join(&[(Kind::Layer, &layer)], &progress().0);
        let (first, second) = (join(), join());
        let observer = audience.observer(&layer.digest);
        drop(first);
        assert!(!observer.is_cancelled());
        drop(second);
        assert!(observer.is_cancelled());
        assert!(audience.lock().parts.is_empty());
        assert!(audience.observer(&layer.digest).is_cancelled(), "nobody wants it");
    }
}
