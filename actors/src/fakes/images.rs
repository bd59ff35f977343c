//! A pretended registry and image store: what its names mean, who may have them, and what a question or a fetch does,
//! act by act, in the time of tokio's clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use mainstay_messages::error::PullFault;
use mainstay_messages::image::{Credentials, ImageId, PullProgress, PullSpec};
use mainstay_messages::{Error, Result};

use crate::image::ProgressSink;
use crate::ports::{ImageDocument, ImageSource, ResolvedImage};

/// See the module. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct FakeImages(Arc<Mutex<Inner>>);

/// What a question or a fetch does next.
#[derive(Clone, Debug)]
pub enum Act {
    /// It tells this.
    Tell(PullProgress),
    /// It takes so many milliseconds.
    Wait(u64),
    /// It fails.
    Fail(Error),
    /// It never ends.
    Hang,
    /// It panics.
    Panic,
}

/// What has happened to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Questions that were begun.
    pub asked: usize,
    /// Fetches that were begun, by the digest and the user.
    pub fetched: Vec<(String, Option<String>)>,
    /// Questions and fetches that were dropped before they ended.
    pub dropped: usize,
    /// Names that stand for an image.
    pub names: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Inner {
    /// What a name means.
    digests: BTreeMap<String, String>,
    strangers: BTreeSet<String>,
    questions: VecDeque<Vec<Act>>,
    fetches: VecDeque<Vec<Act>>,
    tally: Tally,
}

/// Counts work that was dropped.
struct Running {
    images: FakeImages,
    ended: bool,
}

impl FakeImages {
    /// From now on this name means this digest.
    pub fn offer(&self, name: &str, digest: &str) {
        self.lock().digests.insert(name.to_owned(), digest.to_owned());
    }

    /// From now on this user may have nothing.
    pub fn deny(&self, user: &str) {
        self.lock().strangers.insert(user.to_owned());
    }

    /// The next question does this before it is answered; others are answered at once.
    pub fn next_question(&self, acts: impl IntoIterator<Item = Act>) {
        self.lock().questions.push_back(acts.into_iter().collect());
    }

    /// The next fetch does this before it succeeds; others succeed at once.
    pub fn next_fetch(&self, acts: impl IntoIterator<Item = Act>) {
        self.lock().fetches.push_back(acts.into_iter().collect());
    }

    /// What has happened.
    pub fn tally(&self) -> Tally {
        self.lock().tally.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn play<T: Send + 'static>(
        &self,
        acts: Vec<Act>,
        events: ProgressSink,
        end: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let images = self.clone();
        async move {
            let mut running = Running { images: images.clone(), ended: false };
            for act in acts {
                match act {
                    Act::Tell(progress) => events.tell(progress),
                    Act::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                    Act::Hang => std::future::pending().await,
                    Act::Panic => panic!("a fault was asked for"),
                    Act::Fail(error) => {
                        running.ended = true;
                        return Err(error);
                    }
                }
            }
            running.ended = true;
            end(&images)
        }
        .boxed()
    }
}

impl ImageSource for FakeImages {
    fn resolve(&self, spec: PullSpec, events: ProgressSink) -> BoxFuture<'static, Result<ResolvedImage>> {
        let acts = {
            let mut inner = self.lock();
            inner.tally.asked += 1;
            inner.questions.pop_front().unwrap_or_default()
        };
        self.play(acts, events, move |images| {
            let inner = images.lock();
            let name = spec.image.to_string();
            if user_of(&spec).is_some_and(|user| inner.strangers.contains(&user)) {
                return Err(Error::pull(name, PullFault::Denied, "r.example answered 401"));
            }
            let Some(digest) = inner.digests.get(&name).cloned() else {
                return Err(Error::pull(name, PullFault::NotFound, "r.example answered 404"));
            };
            let document = ImageDocument { digest, media_type: String::new(), bytes: 0 };
            Ok(ResolvedImage {
                repository: name.split(':').next().unwrap_or_default().to_owned(),
                name,
                target: document.clone(),
                manifest: document,
                platform: spec.platform.clone().unwrap_or_else(|| "linux/amd64".to_owned()),
                spec,
            })
        })
    }

    fn fetch(&self, wanted: Arc<ResolvedImage>, events: ProgressSink) -> BoxFuture<'static, Result<ImageId>> {
        let acts = {
            let mut inner = self.lock();
            inner.tally.fetched.push((wanted.manifest.digest.clone(), user_of(&wanted.spec)));
            inner.fetches.pop_front().unwrap_or_default()
        };
        self.play(acts, events, move |images| {
            images.lock().tally.names.insert(wanted.name.clone());
            Ok(ImageId(wanted.manifest.digest.clone()))
        })
    }

    fn name(&self, wanted: Arc<ResolvedImage>, _image: ImageId) -> BoxFuture<'static, Result<()>> {
        self.lock().tally.names.insert(wanted.name.clone());
        std::future::ready(Ok(())).boxed()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.images.lock().tally.dropped += 1;
        }
    }
}

fn user_of(spec: &PullSpec) -> Option<String> {
    match &spec.credentials {
        Some(Credentials::Password { user, .. }) => Some(user.clone()),
        _ => None,
    }
}
