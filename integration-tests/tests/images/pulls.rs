//! Pulls beside each other, and of programs that are killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, World, wait, world};
use mainstay_messages::admin::{Item, StreamRequest};
use mainstay_messages::image::{PullActivity, PullProgress};

use super::*;
use mainstay_integration_tests::registry::Registry;

/// Bytes of a file that takes a moment to fetch and unpack.
const LARGE_BYTES: usize = 16 << 20;

#[tokio::test]
async fn a_daemon_that_is_killed_in_the_middle_of_a_pull_pulls_it_again() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("large", &[("noise", &noise(LARGE_BYTES))], &["--config.cmd=sh"]);
    let mut daemon = Daemon::start(&world, &[]).await;
    let client = Client::connect(daemon.socket()).await.expect("connected");
    let pull = StreamRequest::PullImage(Box::new(PullSpec::new(named(&name))));
    let mut stream = client.open(pull).await.expect("open");
    let moved = async {
        while let Some(item) = stream.next().await {
            if let Item::Pull(PullProgress::Part { activity: PullActivity::Fetching, bytes, .. }) = item
                && bytes > 1 << 20
            {
                break;
            }
        }
    };
    wait::finish("bytes of the image come", moved).await;
    daemon.kill();
    let daemon = Daemon::start(&world, &[]).await;
    let client = Client::connect(daemon.socket()).await.expect("connected");
    let listed = client.list_images().await.expect("listed");
    assert!(listed.is_empty() || listed[0].tags == [name.clone()], "nothing half: {listed:?}");
    let pull = StreamRequest::PullImage(Box::new(PullSpec::new(named(&name))));
    let mut stream = client.open(pull).await.expect("open");
    wait::finish("the pull ends", async { while stream.next().await.is_some() {} }).await;
    stream.end().await.expect("pulled");
    assert_eq!(client.verify_images(None).await.expect("looked"), []);
    drop(daemon);
}

#[tokio::test]
async fn twenty_who_pull_an_image_at_once_fetch_it_once() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("many", &[("noise", &noise(1 << 20))], &["--config.cmd=sh"]);
    let runtime = start(&world).await;
    let before = registry.blobs_fetched();
    let ids = futures::future::join_all((0..20).map(|_| pull(&runtime, &name))).await;
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
    // Two layers and the configuration; the registry tells late, and more would be there by then.
    wait::until("the registry tells of its blobs", || (registry.blobs_fetched() - before >= 3).then_some(()))
        .await;
    assert_eq!(registry.blobs_fetched() - before, 3);
    world.finish(runtime).await;
}

/// `mainstay run --embedded` with the configuration of a world, which lies in `config.toml`.
fn embedded(world: &World, image: &str, script: &str) -> Command {
    let mut command = Command::new(world.program());
    command.arg("--config").arg(world.path().join("config.toml")).args([
        "run",
        "--embedded",
        image,
        "sh",
        "-c",
        script,
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Commands beside each other had a directory of images each, and pulled for a single run; and what a killed one held would
/// have been held for ever.
#[tokio::test]
async fn commands_without_a_daemon_share_images_that_outlive_them() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    fs::write(world.path().join("config.toml"), config(&world).to_string()).expect("written");
    let name = registry.make("alone", &[], &["--config.env=PATH=/bin"]);
    let before = registry.blobs_fetched();
    let runs: Vec<_> =
        (0..3).map(|_| embedded(&world, &name, "echo here").spawn().expect("it starts")).collect();
    for run in runs {
        let output = run.wait_with_output().expect("it ends");
        assert_eq!(output.stdout, b"here\n", "{}", String::from_utf8_lossy(&output.stderr));
    }
    wait::until("the registry tells of its blobs", || (registry.blobs_fetched() - before >= 2).then_some(()))
        .await;
    let output = embedded(&world, &name, "echo again").output().expect("it ends");
    assert_eq!(output.stdout, b"again\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(registry.blobs_fetched() - before, 2, "one layer and the configuration, once for all");

    let mut killed = embedded(&world, &name, "echo runs; sleep 1000").spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(killed.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
    assert_eq!(line, "runs\n");
    let runtime = start(&world).await;
    runtime.remove_image(&named(&name)).await.expect("removed");
    runtime.collect_images().await.expect("collected");
    assert_eq!(layers(&runtime).len(), 1, "a command stands on it");
    killed.kill().expect("our child");
    killed.wait().expect("our child");
    wait::until_async("what the killed command held is collected", async || {
        runtime.collect_images().await.expect("collected");
        layers(&runtime).is_empty()
    })
    .await;
    world.finish(runtime).await;
}
