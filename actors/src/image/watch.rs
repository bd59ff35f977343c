//! Work that may take as long as it likes while anything moves: it is polled, its news are passed on, and it is
//! dropped when [`Liveness`] says so. A panic in it becomes an error.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use mainstay_messages::error::PullFault;
use mainstay_messages::image::PullProgress;
use mainstay_messages::{Error, Result};
use tokio::time::Instant;

use super::liveness::{Liveness, Patience};
use super::progress::{ProgressSink, progress};

/// Runs `work` for the image of this name; `seen` hears what goes on.
pub(crate) async fn watch<T: Send + 'static>(
    image: String,
    patience: Patience,
    work: impl FnOnce(ProgressSink) -> BoxFuture<'static, Result<T>>,
    mut seen: impl FnMut(PullProgress),
) -> Result<T> {
    let began = Instant::now();
    let now_ms = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (sink, mut feed) = progress();
    let mut work = guarded(move || work(sink));
    let mut liveness = Liveness::new(patience, now_ms());
    let mut tellers = Tellers::Left;
    loop {
        let deadline = liveness.deadline_ms();
        let silence = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(began + Duration::from_millis(at)).await,
                None => std::future::pending().await,
            }
        };
        // In this order: work that is done at the deadline is done, and what happened at the deadline has happened.
        tokio::select! {
            biased;
            result = &mut work => {
                while let Some(progress) = feed.try_next() {
                    seen(progress);
                }
                return result;
            }
            next = feed.next(), if tellers == Tellers::Left => match next {
                Some(progress) => {
                    liveness.heard(&progress, now_ms());
                    seen(progress);
                    // A source that always has news must not keep the thread from the other actors.
                    tokio::task::yield_now().await;
                }
                None => tellers = Tellers::Gone,
            },
            () = silence => if let Some(stalled) = liveness.check(now_ms()) {
                return Err(Error::pull(image, PullFault::Stalled, stalled));
            },
        }
    }
}

/// Work whose panics, also those of starting it, are errors.
pub(crate) fn guarded<T>(
    start: impl FnOnce() -> BoxFuture<'static, Result<T>>,
) -> BoxFuture<'static, Result<T>>
where
    T: Send + 'static,
{
    let panicked = || Error::internal("the source of images", "it panicked");
    match std::panic::catch_unwind(AssertUnwindSafe(start)) {
        Ok(work) => AssertUnwindSafe(work)
            .catch_unwind()
            .map(move |result| result.unwrap_or_else(|_panic| Err(panicked())))
            .boxed(),
        Err(_panic) => std::future::ready(Err(panicked())).boxed(),
    }
}

/// Whether anybody can tell more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tellers {
    Left,
    Gone,
}
