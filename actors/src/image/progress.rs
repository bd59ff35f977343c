//! How the news of a pull travel: a queue in which what is newer replaces what is older.
//!
//! The queue holds at most the newest state of each part, and of a layer that is fetched and unpacked at the same
//! time one of each. So it is bounded whatever comes, nobody who tells ever waits, and a reader who is slow misses
//! what is out of date and nothing else.

mod newest;

use std::sync::{Arc, Mutex, PoisonError};

use mainstay_messages::image::PullProgress;
use tokio::sync::Notify;

pub(crate) use newest::Newest;
pub use newest::PROGRESS_PLACES_MAX;
#[cfg(test)]
pub(crate) use newest::sample;

/// Where news are told. Cheap to clone; telling never waits.
#[derive(Clone, Debug)]
pub struct ProgressSink(Arc<Teller>);

/// Where news are read.
#[derive(Debug)]
pub struct ProgressFeed(Arc<Shared>);

#[derive(Debug)]
struct Teller(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    newest: Newest,
    end: End,
}

/// Whether anyone can tell more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    Closed,
}

/// A queue with its two ends.
pub fn progress() -> (ProgressSink, ProgressFeed) {
    let shared = Arc::new(Shared::default());
    (ProgressSink(Arc::new(Teller(Arc::clone(&shared)))), ProgressFeed(shared))
}

impl ProgressSink {
    /// Tells.
    pub fn tell(&self, progress: PullProgress) {
        self.0.0.with(|inner| inner.newest.put(progress));
        self.0.0.news.notify_one();
    }
}

impl ProgressFeed {
    /// The next of the news; waits for it. None once nobody is left who could tell any. May be dropped while it
    /// waits: nothing is lost.
    pub async fn next(&mut self) -> Option<PullProgress> {
        loop {
            let (next, end) = self.0.with(|inner| (inner.newest.take(), inner.end));
            match (next, end) {
                (Some(next), _) => return Some(next),
                (None, End::Closed) => return None,
                (None, End::Open) => self.0.news.notified().await,
            }
        }
    }

    /// The next of the news that are there already.
    pub fn try_next(&mut self) -> Option<PullProgress> {
        self.0.with(|inner| inner.newest.take())
    }
}

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        // The queue is sound after each of its steps, so a poisoned lock holds sound data.
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.with(|inner| inner.end = End::Closed);
        self.0.news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::sample::*;
    use super::*;

    /// A slow reader must neither hold up the pull nor make the queue grow: it sees the newest state.
    #[tokio::test]
    async fn a_slow_reader_gets_the_newest_state_and_then_the_end() {
        let (sink, mut feed) = progress();
        (0..100_000).for_each(|bytes| sink.tell(fetching("a", bytes)));
        assert_eq!(feed.next().await, Some(fetching("a", 99_999)));
        sink.tell(fetching("b", 1));
        drop(sink);
        assert_eq!(feed.next().await, Some(fetching("b", 1)));
        assert_eq!(feed.next().await, None);
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken() {
        let (sink, mut feed) = progress();
        let reader = tokio::spawn(async move { feed.next().await });
        tokio::task::yield_now().await;
        sink.tell(fetching("a", 1));
        assert_eq!(reader.await.expect("no panic"), Some(fetching("a", 1)));
    }
}
