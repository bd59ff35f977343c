//! Images on real parts: from a registry, and from and to archives that others make and read, to containers that run.

mod registry;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mainstay::{
    Access, Config, ContainerSpec, Error, ImageId, ImageName, ImageRoot, ImageSettings, Kind, LogOptions,
    Mount, MountSource, Owners, Propagation, PullSpec, Rootfs, Runtime, SandboxSpec, Shutdown, StopOptions,
    UserNamespace, UserNamespaces,
};
use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, Shorthand, World, wait, world};
use mainstay_messages::admin::{Item, StreamRequest};
use mainstay_messages::image::{PullActivity, PullProgress};

use registry::Registry;

/// Bytes of a file that takes a moment to fetch and unpack.
const LARGE_BYTES: usize = 16 << 20;

/// Configuration without what the machine has set for its own registries.
fn config(world: &World) -> Config {
    let images = ImageSettings {
        certs_dirs: Vec::new(),
        docker_config: Some("/nonexistent/config.json".into()),
        ..ImageSettings::default()
    };
    Config { images, ..world.config() }
}

async fn start(world: &World) -> Runtime {
    Runtime::start(config(world)).await.expect("the runtime starts")
}

fn named(name: &str) -> ImageName {
    name.parse().expect("a name")
}

async fn pull(runtime: &Runtime, name: &str) -> ImageId {
    let mut pull = runtime.pull_image(PullSpec::new(named(name)));
    wait::finish("an image is pulled", pull.image()).await.expect("pulled")
}

fn spec(name: &str, image: &str, command: &[&str]) -> ContainerSpec {
    let root = ImageRoot { image: named(image), entrypoint: None };
    let command = command.iter().map(|word| (*word).to_owned());
    ContainerSpec {
        rootfs: Rootfs::Image(root),
        ..ContainerSpec::new(name.parse().expect("a name"), command)
    }
}

/// All that a container has written.
async fn output(runtime: &Runtime, container: &mainstay::ContainerId) -> String {
    let mut logs = runtime.logs(container, LogOptions::default()).await.expect("logs");
    let mut text = Vec::new();
    while let Some(record) = wait::finish("a log is read", logs.next()).await.expect("readable") {
        text.extend(record.bytes);
        text.push(b'\n');
    }
    String::from_utf8(text).expect("text")
}

fn layers(runtime: &Runtime) -> Vec<PathBuf> {
    let directory = runtime.config().root_dir.join("images/layers");
    fs::read_dir(directory).expect("there").map(|entry| entry.expect("readable").path()).collect()
}

/// Random enough not to shrink.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..bytes / 8)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect()
}

#[tokio::test]
async fn an_image_says_how_it_is_run_and_a_second_pull_fetches_nothing() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let script = "trap 'exit 9' USR1; id -u; id -g; pwd; echo $A; echo $0 $1; while :; do sleep 0.05; done";
    let name = registry.make(
        "one",
        &[],
        &[
            "--config.entrypoint=sh",
            "--config.entrypoint=-c",
            &format!("--config.entrypoint={script}"),
            "--config.cmd=first",
            "--config.cmd=second",
            "--config.env=A=of the image",
            "--config.env=PATH=/bin",
            "--config.user=app",
            "--config.workingdir=/srv",
            "--config.stopsignal=SIGUSR1",
        ],
    );
    let runtime = start(&world).await;
    let absent = runtime.create_container(&runtime.pod("early").await, spec("c", &name, &[])).await;
    let error = absent.expect_err("not pulled");
    assert!(matches!(error, Error::NotFound { kind: Kind::Image, .. }), "{error}");
    assert!(error.to_string().contains("mainstay pull"), "{error}");

    let id = pull(&runtime, &name).await;
    let fetched = wait::until("the registry tells of its blobs", || {
        Some(registry.blobs_fetched()).filter(|count| *count >= 2)
    });
    let fetched = fetched.await;
    assert_eq!(pull(&runtime, &name).await, id);
    let images = runtime.images().await.expect("listed");
    assert_eq!(images.len(), 1);
    assert_eq!((&images[0].id, &images[0].tags), (&id, &vec![name.clone()]));

    let pod = runtime.pod("p").await;
    let container = runtime.create_container(&pod, spec("c", &name, &[])).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    let lines = async || output(&runtime, &container).await;
    wait::until_async("it says who it is", async || lines().await.ends_with("first second\n")).await;
    assert_eq!(lines().await, "1234\n1235\n/srv\nof the image\nfirst second\n");
    let root = runtime.container(&container).expect("listed").record.spec.rootfs.clone();
    assert!(matches!(root, Rootfs::Layers(root) if root.image == id), "inspect shows the image");
    runtime.stop_container(&container, StopOptions::default()).await.expect("stopped");
    assert_eq!(runtime.exit_of(&container).await.code(), 9, "by the image's signal");
    assert_eq!(registry.blobs_fetched(), fetched, "the second pull has fetched nothing");
    assert!(runtime.audit(mainstay::Repair::No).await.expect("looked").is_empty());
    world.finish(runtime).await;
}

#[tokio::test]
async fn an_image_in_use_stays_until_its_container_goes() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("used", &[("file", b"kept")], &["--config.env=PATH=/bin"]);
    let runtime = start(&world).await;
    let id = pull(&runtime, &name).await;
    let pod = runtime.pod("p").await;
    let container =
        runtime.create_container(&pod, spec("c", &name, &["sleep", "1000"])).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    let removed = runtime.remove_image(&named(&name)).await.expect("removed");
    assert_eq!((removed.names, removed.images), (vec![name.clone()], vec![id]));
    runtime.collect_images().await.expect("collected");
    assert_eq!(runtime.images().await.expect("listed"), []);
    assert_eq!(layers(&runtime).len(), 2, "the container stands on them");
    assert_eq!(runtime.sh(&container, "cat /data/file").await.stdout, b"kept");
    // Also when nobody remembers it but the records.
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    let runtime = start(&world).await;
    runtime.collect_images().await.expect("collected");
    assert_eq!(runtime.sh(&container, "cat /data/file").await.stdout, b"kept");
    runtime.remove_sandbox(&pod).await.expect("removed");
    let collected = runtime.collect_images().await.expect("collected");
    assert_eq!((collected.layers, layers(&runtime)), (2, Vec::new()));
    world.finish(runtime).await;
}

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
async fn archives_of_others_come_in_and_ours_are_read_by_others() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    registry.make("arch", &[("file", b"in an archive")], &["--config.env=PATH=/bin"]);
    let layout = format!("oci:{}:arch", registry.layout().display());
    let saved = registry.path().join("saved.tar");
    registry.copy(&[], &layout, &format!("docker-archive:{}:some/name:tag", saved.display()));
    let runtime = start(&world).await;
    let file = fs::read(&saved).expect("readable");
    let mut import = runtime.import_images(std::io::Cursor::new(file.clone()), None).expect("begun");
    wait::finish("its news end", async { while import.progress().await.is_some() {} }).await;
    let ids = wait::finish("it is imported", import.images()).await.expect("imported");
    assert_eq!(runtime.images().await.expect("listed")[0].tags, ["docker.io/some/name:tag"]);
    let pod = runtime.pod("p").await;
    let spec = spec("c", &ids[0].0, &["cat", "/data/file"]);
    let container = runtime.create_container(&pod, spec).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    assert_eq!(runtime.exit_of(&container).await.code(), 0);
    assert_eq!(output(&runtime, &container).await, "in an archive\n");

    let half = std::io::Cursor::new(file[..file.len() / 2].to_vec());
    let mut import = runtime.import_images(half, Some(named("half"))).expect("begun");
    wait::finish("it fails", import.images()).await.expect_err("half an archive");
    assert_eq!(runtime.images().await.expect("listed").len(), 1, "nothing half is listed");

    let written = registry.path().join("exported.tar");
    let to = tokio::fs::File::create(&written).await.expect("made");
    runtime.export_images(vec![named("some/name:tag")], to).await.expect("exported");
    let copy = registry.path().join("copy");
    registry.copy(&[], &format!("oci-archive:{}", written.display()), &format!("dir:{}", copy.display()));
    world.finish(runtime).await;
}

#[tokio::test]
async fn a_damaged_blob_is_found_and_the_next_pull_heals_it() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("hurt", &[], &["--config.cmd=sh"]);
    let runtime = start(&world).await;
    pull(&runtime, &name).await;
    let blobs = runtime.config().root_dir.join("images/blobs/sha256");
    let paths = fs::read_dir(blobs).expect("there").map(|entry| entry.expect("readable").path());
    let largest = paths.max_by_key(|path| fs::metadata(path).expect("there").len()).expect("there are some");
    damage(&largest);
    let damage = runtime.verify_images(None).await.expect("looked");
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].digest.ends_with(&*largest.file_name().expect("named").to_string_lossy()));
    pull(&runtime, &name).await;
    assert_eq!(runtime.verify_images(Some(&named(&name))).await.expect("looked"), []);
    world.finish(runtime).await;
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(path, bytes).expect("written");
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

#[tokio::test]
async fn a_pod_with_a_user_namespace_runs_an_image() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("mapped", &[("file", b"x")], &["--config.env=PATH=/bin"]);
    let ids =
        UserNamespaces { first_host_id: 1_700_000_000, host_ids: 65_536 * 4, ..UserNamespaces::default() };
    let runtime = Runtime::start(Config { user_namespaces: ids, ..config(&world) }).await.expect("it starts");
    pull(&runtime, &name).await;
    let pod =
        SandboxSpec { user_namespace: UserNamespace::Auto, ..SandboxSpec::new("p".parse().expect("a name")) };
    let pod = runtime.run_sandbox(pod).await.expect("it runs");
    let script = "id -u; stat -c %u /data/file; echo y > /data/file; cat /data/file";
    let container =
        runtime.create_container(&pod, spec("c", &name, &["sh", "-c", script])).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    assert_eq!(runtime.exit_of(&container).await.code(), 0);
    assert_eq!(output(&runtime, &container).await, "0\n0\ny\n");
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

#[tokio::test]
async fn an_image_without_layers_has_an_empty_root() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make_empty("empty");
    let runtime = start(&world).await;
    pull(&runtime, &name).await;
    let pod = runtime.pod("p").await;
    let created = runtime.create_container(&pod, spec("none", &name, &[])).await.expect_err("nothing to run");
    assert!(created.to_string().starts_with("command: "), "{created}");
    let busybox = Mount {
        target: "/busybox".into(),
        source: MountSource::Bind { path: "/usr/bin/busybox".into() },
        access: Access::ReadOnly,
        propagation: Propagation::default(),
        owners: Owners::default(),
    };
    let spec = ContainerSpec { mounts: vec![busybox], ..spec("c", &name, &["/busybox", "echo", "runs"]) };
    let container = runtime.create_container(&pod, spec).await.expect("created");
    runtime.start_container(&container).await.expect("started");
    assert_eq!(runtime.exit_of(&container).await.code(), 0);
    assert_eq!(output(&runtime, &container).await, "runs\n");
    world.finish(runtime).await;
}

/// The lease of an image is written before the record that needs it. A crash, or a refusal, between the two must not keep
/// layers for ever.
#[tokio::test]
async fn a_lease_that_no_record_followed_keeps_nothing() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let name = registry.make("refused", &[], &["--config.cmd=sh"]);
    let runtime = start(&world).await;
    pull(&runtime, &name).await;
    let pod = runtime.pod("p").await;
    runtime.remove_sandbox(&pod).await.expect("removed");
    runtime.create_container(&pod, spec("c", &name, &[])).await.expect_err("the pod is gone");
    runtime.remove_image(&named(&name)).await.expect("removed");
    runtime.collect_images().await.expect("collected");
    assert_eq!(layers(&runtime), Vec::<PathBuf>::new());
    world.finish(runtime).await;
}
