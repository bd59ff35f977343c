//! What the tests of pulls share: the actors on the real engine, images in a directory of their own, and the registry that
//! misbehaves on demand, which the tests of the registry client have as well.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_actors::Core;
use mainstay_actors::fakes::FakeWorld;
use mainstay_actors::image::{Patience, Pull, Pulls};
use mainstay_image_pull::{PullEngine, Settings};
use mainstay_images::Images;
pub use mainstay_images_testing::image::{image, image_with, layer};
use mainstay_images_testing::wait;
pub use mainstay_images_testing::wait::{finish, until};
pub use mainstay_images_testing::{content, stub};
use mainstay_messages::Error;
use mainstay_messages::error::PullFault;
use mainstay_messages::image::{Credentials, PullProgress, PullSpec};
use mainstay_registry::retry::RetryPolicy;
use mainstay_registry::settings::Proxies;

/// A silence that no pull of a test reaches.
const PATIENCE: Duration = Duration::from_millis(wait::CONDITION_MS);

/// Layers that were begun to be unpacked by this process.
static UNPACKED: AtomicUsize = AtomicUsize::new(0);

/// Actors, engine and images, on a directory.
pub struct World {
    pub core: Core,
    pub pulls: Pulls,
    pub images: Images,
}

impl World {
    /// With a silence that no test waits for.
    pub fn at(dir: &Path) -> Self {
        Self::with_silence(dir, PATIENCE)
    }

    /// With pulls that are given up after so long a silence.
    pub fn with_silence(dir: &Path, silence: Duration) -> Self {
        Self::with(dir, Settings { progress_timeout: silence, ..Settings::default() })
    }

    pub fn with(dir: &Path, engine: Settings) -> Self {
        let settings = mainstay_images::Settings {
            checkpoint: |name| {
                if name == "layer-begun" {
                    UNPACKED.fetch_add(1, Ordering::SeqCst);
                }
            },
            ..mainstay_images::Settings::new("this-boot")
        };
        let images = Images::open(dir, settings).expect("images").images;
        let registry = mainstay_registry::Settings {
            hosts_dirs: Vec::new(),
            docker_config: None,
            proxies: Proxies::None,
            retry: RetryPolicy {
                tries: 3,
                first: Duration::from_millis(1),
                longest: Duration::from_millis(10),
                retry_after_max: Duration::from_secs(2),
                progress_bytes: 1,
            },
            ..mainstay_registry::Settings::default()
        };
        let silence_ms = u64::try_from(engine.progress_timeout.as_millis()).expect("it is short");
        let engine = PullEngine::new(images.clone(), registry, engine).expect("an engine");
        let core = FakeWorld::new().start();
        let pulls = core.start_pulls(Arc::new(engine), Patience { silence_ms, floor: None });
        Self { core, pulls, images }
    }

    pub fn pull(&self, name: &str) -> Pull {
        self.pulls.pull(PullSpec::new(name.parse().expect("a name")))
    }

    pub fn pull_as(&self, name: &str, user: &str) -> Pull {
        let credentials = Credentials::Password { user: user.into(), password: "secret".into() };
        let spec = PullSpec::new(name.parse().expect("a name"));
        self.pulls.pull(PullSpec { credentials: Some(credentials), ..spec })
    }

    /// The names of the images that are listed.
    pub fn listed(&self) -> Vec<String> {
        self.images.list().iter().map(|image| image.name.clone()).collect()
    }
}

/// Layers that were begun to be unpacked by this process.
pub fn unpacked() -> usize {
    UNPACKED.load(Ordering::SeqCst)
}

/// The failure of a pull.
pub async fn failure(pull: &mut Pull) -> (PullFault, String) {
    match finish("the pull fails", pull.image()).await {
        Err(Error::PullFailed { fault, reason, .. }) => (fault, reason),
        other => panic!("{other:?}"),
    }
}

/// Everything that a pull tells until its end.
pub async fn news(pull: &mut Pull) -> Vec<PullProgress> {
    let mut all = Vec::new();
    while let Some(progress) = pull.progress().await {
        all.push(progress);
    }
    all
}
