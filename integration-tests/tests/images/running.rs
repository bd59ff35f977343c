//! Images as the roots of containers: what they say, who keeps them.

use mainstay::Runtime;
use mainstay::{
    Access, Config, ContainerSpec, Error, Kind, Mount, Rootfs, SandboxSpec, Shutdown, StopOptions,
    UserNamespace, UserNamespaces,
};
use mainstay_integration_tests::{Shorthand, wait, world};

use super::*;
use mainstay_integration_tests::registry::Registry;

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
    let busybox = Mount::bind("/usr/bin/busybox", "/busybox", Access::ReadOnly);
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

/// An image is a volume (KEP-4639): the whole of it or a part, to be read; what its links lead to is the image's own. It stays as long
/// as the container.
#[tokio::test]
async fn an_image_can_be_mounted_into_a_container() {
    let world = world!();
    let Some(registry) = Registry::start() else { return };
    let fill = |root: &std::path::Path| {
        fs::create_dir_all(root.join("data/deep")).expect("made");
        fs::write(root.join("data/deep/file"), "of the volume").expect("written");
        std::os::unix::fs::symlink("/data/deep", root.join("link")).expect("made");
        std::os::unix::fs::symlink("../../../../etc", root.join("out")).expect("made");
        fs::create_dir(root.join("etc")).expect("made");
        fs::write(root.join("etc/of-the-image"), "").expect("written");
    };
    let volume = registry.make_with("volume", &[], Some(&fill));
    let name = registry.make("base", &[], &["--config.env=PATH=/bin"]);
    let ids =
        UserNamespaces { first_host_id: 1_800_000_000, host_ids: 65_536 * 4, ..UserNamespaces::default() };
    let runtime = Runtime::start(Config { user_namespaces: ids, ..config(&world) }).await.expect("it starts");
    pull(&runtime, &name).await;
    pull(&runtime, &volume).await;
    let image = |part: Option<&str>, target: &str| {
        Mount::image(named(&volume), part.map(std::path::PathBuf::from), target)
    };
    let usual = runtime.pod("p").await;
    let mapped =
        SandboxSpec { user_namespace: UserNamespace::Auto, ..SandboxSpec::new("u".parse().expect("a name")) };
    let mapped = runtime.run_sandbox(mapped).await.expect("it runs");
    for pod in [&usual, &mapped] {
        let spec = ContainerSpec {
            mounts: vec![
                image(None, "/whole"),
                image(Some("data"), "/part"),
                image(Some("link/file"), "/file"),
                image(Some("/out"), "/out"),
            ],
            ..spec("c", &name, &["sleep", "1000"])
        };
        let container = runtime.create_container(pod, spec).await.expect("created");
        runtime.start_container(&container).await.expect("started");
        let script = "cat /whole/data/deep/file; echo; cat /part/deep/file; echo; cat /file; echo; ls /out/of-the-image; \
                      stat -c %u /part; touch /whole/x 2>&1; touch /part/x 2>&1";
        let said = runtime.sh(&container, script).await.stdout;
        let said = String::from_utf8(said).expect("text");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[..5], ["of the volume", "of the volume", "of the volume", "/out/of-the-image", "0"]);
        assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
        let absent =
            ContainerSpec { mounts: vec![image(Some("no/such"), "/m")], ..spec_named("absent", &name) };
        let error = runtime.create_container(pod, absent).await.expect_err("nothing is there").to_string();
        assert!(error.contains("no/such"), "{error}");
    }
    let removed = runtime.remove_image(&named(&volume)).await.expect("removed");
    assert_eq!(removed.names, [volume]);
    runtime.collect_images().await.expect("collected");
    // "absent" is listed too: what could not be started stays, with its reason, until it is removed.
    let listed = runtime.containers_of(&usual);
    let container = listed.iter().find(|listed| listed.record.name().as_str() == "c").expect("listed");
    let container = container.record.id.clone();
    assert_eq!(runtime.sh(&container, "cat /part/deep/file").await.stdout, b"of the volume");
    world.finish(runtime).await;
}

fn spec_named(name: &str, image: &str) -> ContainerSpec {
    spec(name, image, &["sleep", "1000"])
}
