//! The disk under the images: full in the middle of a pull, or hanging.

use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, Disk, wait, world};
use mainstay_messages::admin::StreamRequest;
use mainstay_messages::error::PullFault;
use mainstay_messages::image::Image;

use super::*;
use mainstay_integration_tests::registry::Registry;

/// Room for the images, in mebibytes.
const DISK_MEBIBYTES: u64 = 128;
/// Bytes of a file whose blob and layer do not fit together when the most of the disk is taken.
const LARGE_BYTES: usize = 24 << 20;
/// A silence that a test waits for, in milliseconds.
const SILENCE_MS: u64 = 1_500;

/// A daemon whose images are on a disk of their own.
struct Node {
    disk: Disk,
    daemon: Daemon,
    client: Client,
    directory: PathBuf,
}

impl Node {
    async fn start(world: &World, silence_ms: u64) -> Option<Self> {
        let at = world.path().join("disk");
        let disk = Disk::mount(&world.path().join("disk.ext4"), &at, DISK_MEBIBYTES)?;
        let directory = at.join("images");
        let mut config = config(world);
        config.images.directory = Some(directory.clone());
        config.images.pull_progress_timeout_ms = silence_ms;
        let daemon = Daemon::start_with(world, &config, &[]).await;
        let client = Client::connect(daemon.socket()).await.expect("it listens");
        Some(Self { disk, daemon, client, directory })
    }

    async fn pull(&self, name: &str) -> mainstay::Result<()> {
        let request = StreamRequest::PullImage(Box::new(PullSpec::new(named(name))));
        let mut stream = self.client.open(request).await.expect("open");
        let ended = async {
            while stream.next().await.is_some() {}
            stream.end().await.map(drop)
        };
        wait::finish("a pull ends", ended).await
    }

    async fn listed(&self) -> Vec<Image> {
        wait::finish("a list", self.client.list_images()).await.expect("listed")
    }
}

/// Case 52, on a disk that is full: the pull failed in words that named neither disk nor way out, and what had come kept the disk
/// full.
#[tokio::test]
async fn a_disk_that_is_full_in_the_middle_of_a_pull_gets_its_room_back() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let small = registry.make("small", &[("noise", &noise(1 << 20))], &["--config.cmd=sh"]);
    let large = registry.make("large", &[("noise", &noise(LARGE_BYTES))], &["--config.cmd=sh"]);
    let Some(node) = Node::start(&world, 300_000).await else { return };
    node.pull(&small).await.expect("there is room");
    let ballast = node.directory.with_file_name("more");
    let taken = node.disk.room() - LARGE_BYTES as u64 * 3 / 2;
    let file = fs::File::create(&ballast).expect("made");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, taken).expect("there is room");
    drop(file);
    let before = node.disk.room();

    let error = node.pull(&large).await.expect_err("blob and layer do not fit together");
    let mainstay::Error::PullFailed { fault, .. } = &error else { panic!("{error}") };
    assert_eq!(*fault, PullFault::Storage, "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot pull {large}: ")), "{text}");
    assert!(text.contains("sha256:") && text.contains("make room on that disk and ask again"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let listed = node.listed().await;
    assert_eq!(listed.iter().flat_map(|image| &image.tags).collect::<Vec<_>>(), [&small]);
    // Nobody has to ask for it.
    let slack = 1 << 20;
    wait::until("the room is given back", || (node.disk.room() + slack >= before).then_some(())).await;
    assert_eq!(node.client.verify_images(None).await.expect("looked"), []);

    fs::remove_file(ballast).expect("removed");
    node.pull(&large).await.expect("there is room");
    assert_eq!(node.client.verify_images(None).await.expect("looked"), []);
    drop(node.daemon);
}

/// Reads of images waited for whoever was writing: a disk that hung under a pull held up `images` and `inspect`. And a pull that
/// waited for that disk had to end when nothing moved, and not before.
#[tokio::test]
async fn a_disk_that_hangs_holds_up_no_reader_and_ends_a_pull_that_waits_for_it() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let here = registry.make("here", &[], &["--config.cmd=sh", "--config.user=app"]);
    let more = registry.make("more", &[("noise", &noise(1 << 20))], &["--config.cmd=sh"]);
    let Some(node) = Node::start(&world, SILENCE_MS).await else { return };
    node.pull(&here).await.expect("pulled");
    node.disk.freeze();
    let (error, ()) = tokio::join!(node.pull(&more), async {
        for _ in 0..20 {
            let listed = node.listed().await;
            assert_eq!(listed.len(), 1);
            let image =
                wait::finish("an answer", node.client.inspect_image(named(&here))).await.expect("there");
            assert_eq!(image.run.user, "app");
            tokio::time::sleep(std::time::Duration::from_millis(SILENCE_MS / 10)).await;
        }
    });
    let error = error.expect_err("nothing moves");
    let mainstay::Error::PullFailed { fault, .. } = &error else { panic!("{error}") };
    assert_eq!(*fault, PullFault::Stalled, "{error}");
    assert!(error.to_string().contains(&format!("nothing moved for {SILENCE_MS} ms")), "{error}");
    assert_eq!(node.listed().await.len(), 1);
    node.disk.thaw();
    node.pull(&more).await.expect("the disk goes on");
    assert_eq!(node.listed().await.len(), 2);
    drop(node.daemon);
}
