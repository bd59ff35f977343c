//! What the tests of pulls share: the actors on the real engine, images in a directory of their own, and the registry that
//! misbehaves on demand, which the tests of the registry client have as well.

#![allow(dead_code, reason = "each test program uses a part of it")]

#[path = "../../../registry/tests/world/content.rs"]
pub mod content;
#[path = "../../../registry/tests/world/stub.rs"]
pub mod stub;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_actors::Core;
use mainstay_actors::fakes::FakeWorld;
use mainstay_actors::image::{Patience, Pull, Pulls};
use mainstay_image_pull::{PullEngine, Settings};
use mainstay_images::Images;
use mainstay_messages::Error;
use mainstay_messages::error::PullFault;
use mainstay_messages::image::{Credentials, PullProgress, PullSpec};
use mainstay_oci_image::{Descriptor, media};
use mainstay_registry::retry::RetryPolicy;
use mainstay_registry::settings::Proxies;

use content::Content;

/// How long anything may take before a test gives up. Far more than anything takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at a condition.
const POLL: Duration = Duration::from_millis(10);

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

/// A layer with one file of so many bytes.
pub fn layer(name: &str, bytes: usize, seed: u64) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let content = Content::bytes(bytes, seed);
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, &content[..]).expect("an entry");
    archive.into_inner().expect("an archive")
}

/// An image of these layers under a tag, which says that their content has these digests.
pub fn image_with(
    content: &mut Content,
    tag: &str,
    layers: &[&Descriptor],
    diff_ids: &[String],
) -> Descriptor {
    let config = serde_json::json!({
        "os": "linux",
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "config": {"Env": [format!("TAG={tag}")]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = content.blob(config.to_string().into_bytes());
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": media::OCI_MANIFEST,
        "config": {"mediaType": media::OCI_CONFIG, "digest": config.digest, "size": config.size},
        "layers": layers,
    });
    content.document(media::OCI_MANIFEST, manifest.to_string(), Some(tag))
}

/// An image of these layers, which are not compressed, under a tag.
pub fn image(content: &mut Content, tag: &str, layers: &[&Descriptor]) -> Descriptor {
    let diff_ids: Vec<String> = layers.iter().map(|layer| layer.digest.to_string()).collect();
    image_with(content, tag, layers, &diff_ids)
}

/// Looks until a condition holds.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let look = async {
        while !condition() {
            tokio::time::sleep(POLL).await;
        }
    };
    finish(what, look).await;
}

/// Waits for a future; panics with `what` when it never ends.
pub async fn finish<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain: {what}"),
    }
}
